//! A controller in a hundred lines: for each ConfigMap with the label `greet` it keeps a second one that holds the
//! greeting: `cargo run -p reeve-controller --example write_a_controller`. The API server is in this process.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::{Expression, Resource, ResourceExt};
use reeve_apiserver::ApiServer;
use reeve_controller::client::{Patch, WriteOptions};
use reeve_controller::events::EventType;
use reeve_controller::{Context, Controller, Manager, ObjectKey, Outcome, Reconciler, Request};
use reeve_controller::{finalizer, predicate, reconcile};
use serde_json::json;
use tokio_util::sync::CancellationToken;

struct Greeter;

impl Reconciler for Greeter {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, Self::Error> {
        let maps = ctx.lister::<ConfigMap>()?;
        let map = maps.get(&request)?;
        // The API server deletes the child of a deleted map. A map without the label is not ours any more.
        let ours = |map: &ConfigMap| map.labels().contains_key("greet");
        let Some(map) = map.filter(|map| ours(map) && !finalizer::is_deleting(&**map)) else {
            return Ok(Outcome::done());
        };
        let Some(name) = map.data.as_ref().and_then(|data| data.get("name")) else {
            // A retry cannot help until the map is edited.
            return Err(reconcile::Error::terminal("data.name is missing"));
        };
        let (namespace, child) = (map.namespace(), format!("{}-greeting", map.name_any()));
        let key = ObjectKey::namespaced(namespace.unwrap_or_default(), child);
        let wanted = json!({"greeting": format!("Hello {name}")});
        match maps.get(&key)? {
            None => {
                let meta = json!({"name": &*key.name, "namespace": key.namespace.as_deref(),
                    "ownerReferences": [map.controller_owner_ref(&())]});
                let child = serde_json::from_value(json!({"metadata": meta, "data": wanted}))?;
                ctx.client().create::<ConfigMap>(&child).await?;
            }
            Some(child) if json!(child.data) != wanted => {
                let (options, patch) = (WriteOptions::new(), Patch::merge(json!({"data": wanted})));
                let write = ctx.client().patch::<ConfigMap, _>(&key, options, patch);
                write.await?;
                let (events, note) = (ctx.events(), "the greeting had been changed");
                events.event(&*map, EventType::Normal, "Mended", "Greet", note);
            }
            Some(_) => {}
        }
        // In any case, check again in an hour.
        Ok(Outcome::requeue_after(Duration::from_secs(3600)))
    }
}

#[tokio::main]
async fn main() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .init();
    if let Err(error) = run().await {
        tracing::error!("{error}");
        std::process::exit(1);
    }
}

pub(crate) async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let server = ApiServer::builder().start().await?;
    let manager = Manager::builder(server.client()).build().await?;
    let greeter = Controller::builder("greeter")
        .for_kind::<ConfigMap>()
        .with_predicate(predicate::labels(Expression::Exists("greet".into())))
        .owns::<ConfigMap>()
        .complete(Greeter)?;
    manager.add_controller(greeter)?;
    // In a cluster: manager.run_until_signal().await
    let stop = CancellationToken::new();
    let (ran, used) = tokio::join!(manager.run(stop.clone()), async {
        let used = user(&manager).await;
        stop.cancel();
        used
    });
    ran?;
    used
}

/// Creates a ConfigMap for a greeting, and spoils the greeting once.
async fn user(manager: &Manager) -> Result<(), Box<dyn std::error::Error>> {
    let client = manager.client();
    let meta = json!({"name": "me", "namespace": "default", "labels": {"greet": ""}});
    let map = serde_json::from_value(json!({"metadata": meta, "data": {"name": "world"}}))?;
    client.create::<ConfigMap>(&map).await?;
    let key = ObjectKey::namespaced("default", "me-greeting");
    for what in ["made", "mended"] {
        let hello = async || client.get::<ConfigMap>(&key).await.ok()?.data;
        while hello().await.unwrap_or_default().get("greeting") != Some(&"Hello world".into()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tracing::info!("{what}: Hello world");
        let spoil = Patch::merge(json!({"data": {"greeting": "Boo"}}));
        let write = client.patch::<ConfigMap, _>(&key, WriteOptions::new(), spoil);
        write.await?;
    }
    Ok(())
}
