//! The example of server-side apply on both servers.

#[path = "../../examples/server_side_apply.rs"]
mod example;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_controller::ObjectKey;
use reeve_controller::client::{ApplyOptions, Patch, WriteOptions};
use reeve_controller::testing::{Cluster, Server, Setup};
use serde_json::{Value, json};

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

async fn ask(cluster: &Cluster, data: Value) {
    let labels = json!({"greet": ""});
    cluster
        .create::<ConfigMap>(
            json!({"metadata": {"namespace": "default", "name": "me", "labels": labels}, "data": data}),
        )
        .await;
}

async fn patch(cluster: &Cluster, name: &str, data: Value) {
    let patch = Patch::merge(json!({"data": data}));
    let options = WriteOptions::new().field_owner("another");
    let (client, key) = (cluster.client(), key(name));
    let maps = client.objects::<ConfigMap>();
    maps.patch_with(&key, options, patch).await.unwrap();
}

/// Waits until the greeting has these fields.
async fn holds(cluster: &Cluster, wanted: &[(&str, &str)]) -> ConfigMap {
    let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let wanted: BTreeMap<String, String> = wanted.iter().map(text).collect();
    cluster
        .eventually("the greeting is as wanted", async || {
            let map = cluster.client().get::<ConfigMap>(&key("me-greeting")).await;
            let map = map.map_err(|error| error.to_string())?;
            if map.data.as_ref() == Some(&wanted) {
                Ok(map)
            } else {
                Err(format!("{:?}", map.data))
            }
        })
        .await
}

async fn applied(cluster: Cluster) {
    let running = cluster.run([example::greeter().unwrap()]).await;
    ask(&cluster, json!({"name": "you", "title": "Ms"})).await;
    let greeting = holds(&cluster, &[("greeting", "Hello you"), ("title", "Ms")]).await;
    let managed = greeting.metadata.managed_fields.unwrap();
    let owners: Vec<_> = managed
        .iter()
        .map(|entry| (entry.manager.as_deref(), entry.operation.as_deref()))
        .collect();
    assert_eq!(owners, [(Some(example::OWNER), Some("Apply"))]);

    // A field that is not applied any more is removed. A field of another owner stays. A changed field is repaired.
    patch(&cluster, "me-greeting", json!({"signed": "another"})).await;
    patch(&cluster, "me", json!({"title": null})).await;
    holds(
        &cluster,
        &[("greeting", "Hello you"), ("signed", "another")],
    )
    .await;
    patch(&cluster, "me-greeting", json!({"greeting": "Boo"})).await;
    holds(
        &cluster,
        &[("greeting", "Hello you"), ("signed", "another")],
    )
    .await;

    // The conflict of another owner names the greeter.
    let theirs = json!({"metadata": {"namespace": "default", "name": "me-greeting"}, "data": {"greeting": "Boo"}});
    let theirs: ConfigMap = serde_json::from_value(theirs).unwrap();
    let options = ApplyOptions::new("another");
    let error = cluster.client().apply(&theirs, options).await.unwrap_err();
    assert!(
        error.is_conflict() && error.to_string().contains(example::OWNER),
        "{error}"
    );

    // An apply without a change causes no reconcile.
    let applies = || cluster.requests().count("patch", "configmaps");
    let before = cluster
        .eventually("it is quiet", async || {
            let before = applies();
            tokio::time::sleep(Duration::from_millis(500)).await;
            (applies() == before).then_some(before).ok_or(before)
        })
        .await;
    cluster
        .consistently("nothing is written", Duration::from_secs(2), async || {
            let now = applies();
            (now == before).then_some(()).ok_or(now)
        })
        .await;
    assert_eq!(
        running.metric("controller_runtime_reconcile_errors_total"),
        Some(0.0)
    );
    running.end().await;
}

#[test]
fn the_example_applies_only_its_own_fields_at_a_real_server() {
    Setup::new().server(Server::Assets).run(applied);
}

#[test]
fn the_example_applies_only_its_own_fields_at_the_built_in_server() {
    Setup::new().server(Server::BuiltIn).run(applied);
}
