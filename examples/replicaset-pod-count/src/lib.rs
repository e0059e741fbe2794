//! Every ReplicaSet gets the label `pod-count` with the number of Pods it owns.
//!
//! `P` is the cached form of the Pods: [`Pod`] for whole Pods, or [`PartialObjectMeta<Pod>`](PartialObjectMeta) for only
//! their metadata, which is all that this controller reads. There is no other difference.

use std::marker::PhantomData;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube_core::{PartialObjectMeta, Resource, ResourceExt};
use reeve_controller::cache::View;
use reeve_controller::client::{self, Object, Patch};
use reeve_controller::{Context, Controller, Manager, Outcome, Reconciler, Request, reconcile};
use serde_json::json;

/// The label.
pub const LABEL: &str = "pod-count";

/// The index of Pods by the uid of the object that controls them. The labels of the ReplicaSet's template would also find
/// Pods of other owners.
const BY_CONTROLLER: &str = "controller";

/// The cached form of the Pods.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Pods {
    /// Whole Pods.
    Typed,
    /// Only their metadata, which is all that the controller reads.
    Metadata,
}

/// The reason why the controller cannot be added.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<dyn std::error::Error + Send + Sync>);

struct PodCount<P>(PhantomData<fn() -> P>);

impl<P: Object> Reconciler for PodCount<P> {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, Self::Error> {
        let Some(replica_set) = ctx.lister::<ReplicaSet>()?.get(&request)? else {
            // It is gone, and so is its label.
            return Ok(Outcome::done());
        };
        let meta = replica_set.meta();
        let uid = meta.uid.as_deref().unwrap_or_default();
        let count = ctx
            .lister::<P>()?
            .by_index(BY_CONTROLLER, uid)?
            .len()
            .to_string();
        let is = replica_set.labels().get(LABEL);
        // A write without a change would only cause another reconcile.
        if is == Some(&count) || meta.deletion_timestamp.is_some() {
            return Ok(Outcome::done());
        }
        // The patch has only this label, and applies only to the object with this uid. Changes by other clients stay,
        // and a cache that is behind causes no conflict.
        let patch = Patch::merge(json!({"metadata": {"uid": uid, "labels": {LABEL: count}}}));
        match ctx.client().patch::<ReplicaSet>(&request, patch).await {
            Ok(_) => {
                tracing::info!(count, "labelled");
                Ok(Outcome::done())
            }
            // It is gone. The cache will show it, and its event reconciles again: to repeat the patch until then would only load
            // the server.
            Err(error) if error.is_not_found() || is_of_another(&error) => Ok(Outcome::done()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether the server has another ReplicaSet of this name: the patch would change its uid.
fn is_of_another(error: &client::Error) -> bool {
    let details = error.status().and_then(|status| status.details.as_ref());
    let mut causes = details.into_iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.field == "metadata.uid")
}

/// Adds the controller to `manager`.
///
/// # Errors
/// If the manager already has this controller.
pub fn add<P: Object>(manager: &Manager) -> Result<(), Error> {
    let controller_of = |pod: &P| {
        let owners = pod.meta().owner_references.iter().flatten();
        let controller = owners
            .into_iter()
            .find(|owner| owner.controller == Some(true));
        controller
            .map(|owner| Arc::from(owner.uid.as_str()))
            .into_iter()
            .collect()
    };
    let index = manager
        .caches()
        .add_index(&View::<P>::typed(), BY_CONTROLLER, controller_of);
    index.map_err(|error| Error(error.into()))?;
    let controller = Controller::builder("replicaset-pod-count")
        .for_kind::<ReplicaSet>()
        .owns::<P>()
        .complete(PodCount::<P>(PhantomData));
    let controller = controller.map_err(|error| Error(error.into()))?;
    manager
        .add_controller(controller)
        .map_err(|error| Error(error.into()))?;
    Ok(())
}

/// Adds the controller to `manager`, with the form `pods` of the Pods.
///
/// # Errors
/// If the manager already has this controller.
pub fn add_with(manager: &Manager, pods: Pods) -> Result<(), Error> {
    match pods {
        Pods::Typed => add::<Pod>(manager),
        Pods::Metadata => add::<PartialObjectMeta<Pod>>(manager),
    }
}
