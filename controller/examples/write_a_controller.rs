//! A controller in a hundred lines: for each ConfigMap with the label `greet` it keeps a second one that holds the
//! greeting: `cargo run -p reeve-controller --example write_a_controller`. The API server is in this process.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_apiserver::ApiServer;
use reeve_controller::client::{Change, Patch};
use reeve_controller::kube_core::Expression;
use reeve_controller::prelude::*;
use reeve_controller::serde_json::{self, json};

async fn greet(ctx: Context, map: Arc<ConfigMap>) -> Result<Outcome, reconcile::Error> {
    // The API server deletes the child of a deleted map. A map without the label is not ours any more.
    if finalizer::is_deleting(&map) || !map.labels().contains_key("greet") {
        return Ok(Outcome::done());
    }
    let Some(name) = map.data.as_ref().and_then(|data| data.get("name")) else {
        // A retry cannot help until the map is edited.
        return Err(reconcile::Error::terminal("data.name is missing"));
    };
    let mut child = ConfigMap::default();
    child.metadata.name = Some(format!("{}-greeting", map.name_any()));
    child.data = Some([("greeting".to_owned(), format!("Hello {name}"))].into());
    let set = |child: &mut ConfigMap, wanted: ConfigMap| child.data = wanted.data;
    let written = child::create_or_patch(ctx.client(), &map, child, set);
    if let (_, Change::Updated) = written.await? {
        let (events, note) = (ctx.events(), "the greeting had been changed");
        events.event(&map, EventType::Normal, "Mended", "Greet", note);
    }
    // In any case, check again in an hour.
    Ok(Outcome::requeue_after(Duration::from_secs(3600)))
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
        .complete(reconcile::object(greet))?;
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
        client.patch::<ConfigMap>(&key, spoil).await?;
    }
    Ok(())
}
