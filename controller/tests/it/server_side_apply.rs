//! The example of server-side apply, at a real server; and what the built-in one says to it.

#[path = "../../examples/server_side_apply.rs"]
mod example;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_controller::client::{ApplyOptions, Patch, WriteOptions};
use reeve_controller::testing::{Cluster, Server, Setup};
use reeve_controller::{ObjectKey, reconcile};
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
    let options = WriteOptions::new().field_owner("somebody");
    let (client, key) = (cluster.client(), key(name));
    let write = client.patch::<ConfigMap, _>(&key, options, patch);
    write.await.unwrap();
}

/// Waits until the greeting holds this.
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

    // What is not wanted any more goes; what others added stays, and what they spoiled is mended.
    patch(&cluster, "me-greeting", json!({"signed": "somebody"})).await;
    patch(&cluster, "me", json!({"title": null})).await;
    holds(
        &cluster,
        &[("greeting", "Hello you"), ("signed", "somebody")],
    )
    .await;
    patch(&cluster, "me-greeting", json!({"greeting": "Boo"})).await;
    holds(
        &cluster,
        &[("greeting", "Hello you"), ("signed", "somebody")],
    )
    .await;

    // Who applies what is the greeter's is told so.
    let theirs = json!({"metadata": {"namespace": "default", "name": "me-greeting"}, "data": {"greeting": "Boo"}});
    let theirs: ConfigMap = serde_json::from_value(theirs).unwrap();
    let options = ApplyOptions::new("somebody");
    let told = cluster.client().apply(&theirs, options).await.unwrap_err();
    assert!(
        told.is_conflict() && told.to_string().contains(example::OWNER),
        "{told}"
    );

    // An apply that changes nothing brings nobody back.
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
fn the_example_applies_what_it_wants_and_nothing_else_at_a_real_server() {
    Setup::new().server(Server::Assets).run(applied);
}

#[tokio::test(start_paused = true)]
async fn the_built_in_server_refuses_an_apply_and_says_so() {
    let cluster = Cluster::in_process().await;
    let running = cluster.run([example::greeter().unwrap()]).await;
    ask(&cluster, json!({})).await;
    let refused = cluster
        .eventually("the apply is refused", async || {
            let all = cluster.requests().all();
            let apply = all.iter().find(|request| request.verb == "patch")?;
            Some(apply.code)
        })
        .await;
    assert_eq!(refused, 415);
    running.end().await;
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"namespace": "default", "name": "x"}})).unwrap();
    let options = ApplyOptions::new(example::OWNER);
    let error = cluster.client().apply(&map, options).await.unwrap_err();
    let text = reconcile::Error::from(error).to_string();
    assert!(text.contains("apply"), "{text}");
}
