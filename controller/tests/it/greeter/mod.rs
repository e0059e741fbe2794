//! A small controller for several suites: it writes a greeting, guards the object with a finalizer, and reports Events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::Patch;
use parking_lot::Mutex;
use reeve_controller::events::EventType;
use reeve_controller::testing::{Cluster, Running};
use reeve_controller::{
    Context, Controller, ObjectKey, Outcome, Reconciler, Request, finalizer, leader_election,
    reconcile,
};
use serde_json::json;

/// The finalizer of the greeter.
pub(crate) const FINALIZER: &str = "example.com/greeting";

/// The key of a ConfigMap in `default`.
pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

/// Writes `data.greeting` for `data.name`, guards the object with a finalizer, and counts its writes.
#[derive(Clone, Default)]
pub(crate) struct Greeter {
    /// The writes that the runs decided.
    pub(crate) writes: Arc<Mutex<Vec<String>>>,
}

impl Reconciler for Greeter {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, Self::Error> {
        let Some(map) = ctx.lister::<ConfigMap>()?.get(&request)? else {
            return Ok(Outcome::done());
        };
        let data = map.data.clone().unwrap_or_default();
        let Some(name) = data.get("name") else {
            return Ok(Outcome::done());
        };
        let wrote = AtomicBool::new(false);
        let write = |what: &str| {
            wrote.store(true, Ordering::Relaxed);
            self.writes.lock().push(format!("{what} {}", request.name));
        };
        let patch = async |patch: serde_json::Value| {
            let patch = Patch::Merge(patch);
            ctx.client().patch::<ConfigMap>(&request, &patch).await
        };
        if finalizer::is_deleting(&map) {
            if let Some(removed) = finalizer::remove_patch(&*map, FINALIZER) {
                write("release");
                patch(removed).await?;
                ctx.events()
                    .event(&map, EventType::Normal, "Released", "Release", "farewell");
            }
            return Ok(Outcome::done());
        }
        if let Some(added) = finalizer::add_patch(&*map, FINALIZER) {
            write("guard");
            patch(added).await?;
        }
        let greeting = format!("Hello {name}");
        if data.get("greeting") != Some(&greeting) {
            write("greet");
            patch(json!({"data": {"greeting": greeting}})).await?;
            ctx.events()
                .event(&map, EventType::Normal, "Greeted", "Greet", greeting);
        }
        // Soon after a write, so that the key would run before the cache shows the write.
        let again = if wrote.load(Ordering::Relaxed) {
            Duration::from_millis(1)
        } else {
            Duration::from_secs(60)
        };
        Ok(Outcome::requeue_after(again).with_priority(1))
    }
}

/// Starts a manager with a greeter.
pub(crate) async fn start(
    cluster: &Cluster,
    greeter: Greeter,
    lease: Option<leader_election::Options>,
) -> Running {
    let mut builder = cluster.manager().namespace("default");
    if let Some(lease) = lease {
        builder = builder.leader_election(lease);
    }
    let manager = builder.build().await.unwrap();
    let controller = Controller::builder("greeter")
        .for_kind::<ConfigMap>()
        .workers(4)
        .complete(greeter)
        .unwrap();
    manager.add_controller(controller).unwrap();
    cluster.start(&manager)
}

/// Creates a ConfigMap to greet.
pub(crate) async fn create(cluster: &Cluster, name: &str) {
    let object =
        json!({"metadata": {"namespace": "default", "name": name}, "data": {"name": name}});
    cluster.create::<ConfigMap>(object).await;
}

/// The greeting, if there is one.
pub(crate) async fn greeting(cluster: &Cluster, name: &str) -> Option<String> {
    let map = cluster.client().get::<ConfigMap>(&key(name)).await.ok()?;
    map.data?.get("greeting").cloned()
}

/// Waits for the greeting.
pub(crate) async fn greeted(cluster: &Cluster, name: &str) {
    cluster
        .eventually("the greeting", async || greeting(cluster, name).await)
        .await;
}
