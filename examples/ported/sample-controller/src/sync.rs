//! The work for one Foo (sample-controller: `syncHandler`). It gets the cached objects, so it does not depend on where they
//! come from.

use k8s_openapi::api::apps::v1::Deployment;
use kube_core::ResourceExt;
use reeve_controller::client::{self, Client, Patch};
use reeve_controller::events::{EventType, Recorder};
use reeve_controller::{ObjectKey, finalizer, owner};
use serde_json::json;

use crate::Foo;

/// The reason why a Foo is not in sync. Each of them is worth another try.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The Deployment exists and is not the Foo's.
    #[error("Resource {0:?} already exists and is not managed by Foo")]
    Exists(String),
    /// A write failed.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The Foo cannot own a Deployment.
    #[error(transparent)]
    Owner(#[from] owner::Error),
    /// The Deployment is not valid.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Brings the Deployment of `foo` to the requested state, and the status of `foo` to that of the Deployment.
///
/// # Errors
/// If the Deployment belongs to another object, or a write fails.
pub async fn sync(
    client: &Client,
    events: &Recorder,
    foo: &Foo,
    deployment: Option<&Deployment>,
) -> Result<(), SyncError> {
    if foo.spec.deployment_name.is_empty() {
        // A retry cannot help until the Foo is edited.
        tracing::error!(foo = foo.name_any(), "deploymentName must be set");
        return Ok(());
    }
    // The garbage collector deletes the Deployment of a deleted Foo. A new one would keep it busy.
    if finalizer::is_deleting(foo) {
        return Ok(());
    }
    let replicas = foo.spec.replicas;
    let deployment = match deployment {
        None => client.create(&wanted(foo)?).await?,
        Some(found) if !owner::is_controlled_by(found, foo) => {
            let error = SyncError::Exists(found.name_any());
            let (reason, note) = ("ErrResourceExists", error.to_string());
            events.event(foo, EventType::Warning, reason, "Sync", note);
            return Err(error);
        }
        Some(found) if replicas.is_some_and(|replicas| replicas != replicas_of(found)) => {
            // Only this field, and only if it is still the same object.
            let patch = json!({"metadata": {"uid": found.uid()}, "spec": {"replicas": replicas}});
            let key = ObjectKey::of(found);
            client
                .patch::<Deployment>(&key, Patch::merge(patch))
                .await?
        }
        Some(found) => found.clone(),
    };
    let status = deployment.status.unwrap_or_default();
    let available = status.available_replicas.unwrap_or_default();
    if foo.status.as_ref().map(|status| status.available_replicas) != Some(available) {
        let patch = Patch::merge(json!({"status": {"availableReplicas": available}}));
        let key = ObjectKey::of(foo);
        client.patch_status::<Foo>(&key, patch).await?;
    }
    let note = "Foo synced successfully";
    events.event(foo, EventType::Normal, "Synced", "Sync", note);
    Ok(())
}

fn replicas_of(deployment: &Deployment) -> i32 {
    let spec = deployment.spec.as_ref();
    // The server sets 1 where there is none.
    spec.and_then(|spec| spec.replicas).unwrap_or(1)
}

/// The Deployment that `foo` requests, which `foo` controls.
fn wanted(foo: &Foo) -> Result<Deployment, SyncError> {
    let labels = json!({"app": "nginx", "controller": foo.name_any()});
    let containers = json!([{"name": "nginx", "image": "nginx:latest"}]);
    let mut deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": foo.spec.deployment_name, "namespace": foo.namespace()},
        "spec": {
            "replicas": foo.spec.replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }))?;
    owner::set_controller(foo, &mut deployment)?;
    Ok(deployment)
}
