//! Carries out a [`Step`]: the writes, the log lines and the Events. Both forms of the controller share it.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use kube_core::params::{DeleteParams, Preconditions};
use kube_core::{ObjectMeta, Resource};
use reeve_controller::client::{self, Client, Error, Patch};
use reeve_controller::events::{EventType, Recorder};
use reeve_informer::ObjectKey;

use crate::desired::ANNOTATION;
use crate::plan::Step;

/// The delay until a key is reconciled again after a decision on outdated state. The event with the new state usually
/// comes earlier.
pub(crate) const STALE: Duration = Duration::from_secs(2);

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Acted {
    /// The step is complete, or nothing more can be done.
    Done,
    /// The step is complete, and this is the new Ingress.
    Wrote(Box<Ingress>),
    /// The decision used outdated state: the step is neither done nor failed.
    Stale,
}

/// Carries out `step` for the Service and the Ingress called `key`.
pub(crate) async fn act(
    client: &Client,
    events: &Recorder,
    key: &ObjectKey,
    service: Option<&Service>,
    step: Step,
) -> Result<Acted, Error> {
    let report = |kind: EventType, reason: &str, action: &str, note: String| {
        if let Some(service) = service {
            events.event(service, kind, reason, action, note);
        }
    };
    let namespace = key.namespace.as_deref().unwrap_or_default();
    match step {
        Step::Nothing => Ok(Acted::Done),
        Step::Create(wanted) => {
            if !server_has(client, key, service).await? {
                return Ok(Acted::Stale);
            }
            match client.create(&*wanted).await {
                Ok(ingress) => {
                    tracing::info!("create ingress, name:{}, namespace:{namespace}", key.name);
                    report(
                        EventType::Normal,
                        "IngressCreated",
                        "Create",
                        format!("Created Ingress {}", key.name),
                    );
                    Ok(Acted::Wrote(Box::new(ingress)))
                }
                Err(error) if error.is_already_exists() => Ok(Acted::Stale),
                Err(error) if namespace_ends(&error) => Ok(Acted::Done),
                Err(error) if error.is_invalid() => {
                    let note = error.to_string();
                    report(EventType::Warning, "InvalidIngress", "Create", note);
                    Ok(Acted::Done)
                }
                Err(error) => Err(error),
            }
        }
        Step::Repair(patch) => match client.patch::<Ingress>(key, Patch::merge(patch)).await {
            Ok(ingress) => {
                tracing::info!("update ingress, name:{}, namespace:{namespace}", key.name);
                report(
                    EventType::Normal,
                    "IngressUpdated",
                    "Update",
                    format!("Updated Ingress {}", key.name),
                );
                Ok(Acted::Wrote(Box::new(ingress)))
            }
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(Acted::Stale),
            Err(error) if error.is_invalid() => {
                report(
                    EventType::Warning,
                    "InvalidIngress",
                    "Update",
                    error.to_string(),
                );
                Ok(Acted::Done)
            }
            Err(error) => Err(error),
        },
        Step::Delete { uid } => {
            let deleted = || {
                let note = format!("Deleted Ingress {}", key.name);
                report(EventType::Normal, "IngressDeleted", "Delete", note);
            };
            delete(client, key, uid, deleted).await
        }
        Step::DeleteOrphan { uid, owner } => {
            let live = client::optional(client.get_metadata::<Service>(key).await)?;
            if live.is_some_and(|service| service.uid == Some(owner)) {
                return Ok(Acted::Stale);
            }
            // There is no Service for an Event.
            delete(client, key, uid, || {}).await
        }
        Step::Conflict => {
            let note = format!(
                "The Ingress {} exists and does not belong to this Service; it stays unchanged",
                key.name
            );
            report(EventType::Warning, "IngressConflict", "Create", note);
            Ok(Acted::Done)
        }
        Step::Refuse(problem) => {
            report(
                EventType::Warning,
                "InvalidService",
                "Create",
                format!("No Ingress: {problem}"),
            );
            Ok(Acted::Done)
        }
    }
}

/// Whether the API server also has this Service with this annotation.
///
/// The cache of Services may be behind that of Ingresses. Without this check, the garbage collector deletes the Ingress
/// of a deleted Service, the cache still has the Service, a new Ingress is created, the collector deletes it, and so on.
async fn server_has(
    client: &Client,
    key: &ObjectKey,
    service: Option<&Service>,
) -> Result<bool, Error> {
    let Some(seen) = service.map(Resource::meta) else {
        return Ok(false);
    };
    let live = client::optional(client.get_metadata::<Service>(key).await)?;
    let value = |meta: &ObjectMeta| meta.annotations.as_ref()?.get(ANNOTATION).cloned();
    Ok(live.is_some_and(|live| {
        live.uid == seen.uid && live.deletion_timestamp.is_none() && value(&live) == value(seen)
    }))
}

/// Deletes the Ingress `key` if it has this uid; calls `deleted` if it existed.
async fn delete(
    client: &Client,
    key: &ObjectKey,
    uid: String,
    deleted: impl FnOnce(),
) -> Result<Acted, Error> {
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match client.delete::<Ingress>(key, &params).await {
        Ok(()) => {
            let namespace = key.namespace.as_deref().unwrap_or_default();
            tracing::info!("delete ingress, name:{}, namespace:{namespace}", key.name);
            deleted();
            Ok(Acted::Done)
        }
        Err(error) if error.is_not_found() => Ok(Acted::Done),
        Err(error) if error.is_conflict() => Ok(Acted::Stale),
        Err(error) => Err(error),
    }
}

/// Whether the create failed because the namespace is being deleted. The Service is deleted with it.
fn namespace_ends(error: &Error) -> bool {
    let details = error.status().and_then(|status| status.details.as_ref());
    details.is_some_and(|details| {
        details
            .causes
            .iter()
            .any(|cause| cause.reason == "NamespaceTerminating")
    })
}

/// Reports on the Service that there are no more retries.
pub(crate) fn give_up(events: &Recorder, service: Option<&Service>, error: &dyn fmt::Display) {
    if let Some(service) = service {
        let note = format!("No more retries until the next change: {error}");
        events.event(service, EventType::Warning, "SyncFailed", "Sync", note);
    }
}
