//! A kind without a Rust type: `cargo run -p reeve-controller --example dynamic_kind`.
//!
//! The definition of the kind comes at run time, for example from a flag or another object. The caches of the manager then
//! watch, read and index its objects like those of any other kind. One reader gets whole objects and another one metadata,
//! from one store and one watch. The API server is in this process, and the program ends by itself.
#![allow(clippy::print_stdout, reason = "this program prints")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::{ApiResource, DynamicObject, GroupVersionKind};
use reeve_apiserver::ApiServer;
use reeve_clock::Clock;
use reeve_controller::cache::{Kind, View};
use reeve_controller::{
    Client, Context, Controller, Manager, ObjectKey, Outcome, Request, reconcile,
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::builder().start().await?;
    let client = Client::new(server.client());
    let manager = Manager::builder(server.client())
        .clock(Clock::system())
        .build()
        .await?;
    let stop = CancellationToken::new();
    let (running, stopped) = (manager.clone(), stop.clone());
    let run = tokio::spawn(async move { running.run(stopped).await });

    // The manager runs. Now the kind is added.
    let definition: CustomResourceDefinition = serde_json::from_value(definition())?;
    client.create(&definition).await?;
    let names = &definition.spec.names;
    let version = &definition.spec.versions[0].name;
    let gvk = GroupVersionKind::gvk(&definition.spec.group, version, &names.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &names.plural);
    let kind = match definition.spec.scope.as_str() {
        "Namespaced" => Kind::namespaced(resource),
        _ => Kind::cluster_scoped(resource),
    };
    println!("a kind: {kind}");
    let caches = manager.caches();
    caches.kinds().add(kind.clone());

    // A controller for it, added while the manager runs.
    let dynamic = View::dynamic(&kind);
    caches.add_index(&dynamic, "spec.colour", |widget: &DynamicObject| {
        let colour = widget.data["spec"]["colour"].as_str();
        colour.map(Arc::from).into_iter().collect()
    })?;
    let (reconciled, mut seen) = mpsc::channel(100);
    let shown = dynamic.clone();
    let reconciler = reconcile::function(move |ctx: Context, request: Request| {
        let (shown, reconciled) = (shown.clone(), reconciled.clone());
        async move {
            let widget = ctx.view(&shown)?.get(&request)?;
            let colour = widget.map(|widget| widget.data["spec"]["colour"].to_string());
            let _ = reconciled.send((request, colour)).await;
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("widgets").for_view(dynamic);
    manager.add_controller(controller.complete(reconciler)?)?;
    caches.wait_synced(SOON).await?;

    let widgets = client.dynamic(&kind);
    for (name, colour) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        let mut widget = DynamicObject::new(name, kind.resource());
        widget.metadata.namespace = Some("default".to_owned());
        widget.data = json!({"spec": {"colour": colour}});
        widgets.create(&widget).await?;
    }
    for _ in 0..3 {
        let next = tokio::time::timeout(SOON, seen.recv()).await?;
        let Some((request, colour)) = next else { break };
        println!(
            "reconciled {request}: {}",
            colour.as_deref().unwrap_or("gone")
        );
    }

    // Other views of the same store.
    let lister = caches.dynamic(&gvk)?;
    let red = lister.by_index("spec.colour", "red")?;
    println!("red: {}", red.len());
    let metadata = caches.view(&View::metadata_of(&kind))?;
    let a = metadata.get(&ObjectKey::namespaced("default", "a"))?;
    println!(
        "metadata of a: version {:?}",
        a.and_then(|a| a.metadata.resource_version.clone())
    );
    let watches = server.requests().count("watch", &names.plural);
    println!("watches of {}: {watches}", names.plural);

    stop.cancel();
    run.await??;
    Ok(())
}

fn definition() -> serde_json::Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {
                        "type": "object",
                        "properties": {"colour": {"type": "string"}}
                    }}
                }}
            }]
        }
    })
}
