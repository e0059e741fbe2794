//! Every ReplicaSet says in the label `pod-count` how many Pods it owns.
//!
//! `P` is how the Pods are cached: [`Pod`](k8s_openapi::api::core::v1::Pod) whole, or
//! [`PartialObjectMeta<Pod>`](kube_core::PartialObjectMeta) with no more than their metadata, which is all that this
//! controller reads. Nothing else differs.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use kube_core::params::{Patch, PatchParams};
use kube_core::{Resource, ResourceExt};
use reeve_controller::cache::View;
use reeve_controller::client::Object;
use reeve_controller::{Context, Controller, Manager, Outcome, Reconciler, Request, reconcile};
use serde_json::json;

/// The label.
pub const LABEL: &str = "pod-count";

/// The index of Pods by the uid of the object that controls them. The labels of the ReplicaSet's template would find
/// Pods of others, too.
const BY_CONTROLLER: &str = "controller";

/// When a ReplicaSet is looked at again that is another one than the cache shows.
const STALE: Duration = Duration::from_secs(1);

/// Why the controller cannot be added.
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
        // Writing what is there already would bring this controller back for nothing.
        if is == Some(&count) || meta.deletion_timestamp.is_some() {
            return Ok(Outcome::done());
        }
        // This label and nothing else, of this object and no other of its name: what others changed meanwhile stays,
        // and a cache that is behind is no conflict.
        let patch = Patch::Merge(json!({"metadata": {"uid": uid, "labels": {LABEL: count}}}));
        let params = PatchParams::default();
        match ctx
            .client()
            .patch::<ReplicaSet, _>(&request, &params, &patch)
            .await
        {
            Ok(_) => {
                tracing::info!(count, "labelled");
                Ok(Outcome::done())
            }
            Err(error) if error.is_not_found() => Ok(Outcome::done()),
            // A uid cannot be changed: there is another ReplicaSet of this name, and the cache will show it.
            Err(error) if error.is_invalid() => Ok(Outcome::requeue_after(STALE)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Adds the controller to `manager`.
///
/// # Errors
/// When the manager has one already.
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
