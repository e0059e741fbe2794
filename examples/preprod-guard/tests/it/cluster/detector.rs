//! Two replicas and their records of deletions.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::world::{PATIENCE, World};

const PODS: &str = "/api/v1/namespaces/hbox/pods";
const EVENTS: &str = "/api/v1/namespaces/preprod-guard/events";
const GONE: &str = "the deletion of a production object has no record";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_detector_on_the_built_in_server() {
    if let Some(world) = World::built_in("detector-built-in").await {
        detector(world).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_detector_on_a_real_server() {
    if let Some(world) = World::real("detector-real").await {
        detector(world).await;
    }
}

/// The objects of the Events with this reason.
async fn events(world: &World, reason: &str) -> Vec<String> {
    let list = world.must("GET", EVENTS, Value::Null).await;
    let events = list["items"].as_array().unwrap().iter();
    let objects = events.filter(|event| event["reason"] == reason);
    let mut objects: Vec<String> = objects
        .map(|event| event["related"]["fieldPath"].as_str().unwrap().to_owned())
        .collect();
    // Without the Pods of `until_recorded`.
    objects.retain(|object| object.starts_with("pods/hbox/"));
    objects.sort();
    objects
}

async fn detector(world: World) {
    let flags = ["--tls-name=127.0.0.1", "--certificates-every=1"];
    let (called, other) = (world.start("called", &flags), world.start("other", &flags));
    for guard in [&called, &other] {
        guard.until("caches synced").await;
    }
    world.install(&called, None).await;
    called.until("another certificate is in use").await;
    world.until_called().await;
    world.until_recorded(&called, true).await;
    for name in [
        "deleted",
        "evicted",
        "one-of-all",
        "secretly",
        "relabelled",
        "hidden",
        "without-a-webhook",
        "in-the-store",
    ] {
        let pod = json!({
            "metadata": {"name": name, "labels": {"environment": "production", "name": name}},
            "spec": {"automountServiceAccountToken": false, "containers": [{"name": "a", "image": "a"}]},
        });
        world.must("POST", PODS, pod).await;
    }

    // Deletions of production callers, of which only one replica is called.
    world
        .must("DELETE", &format!("{PODS}/deleted"), Value::Null)
        .await;
    world
        .must(
            "DELETE",
            &format!("{PODS}?labelSelector=name%3Done-of-all"),
            Value::Null,
        )
        .await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted", "namespace": "hbox"}});
    world
        .must("POST", &format!("{PODS}/evicted/eviction"), eviction)
        .await;
    let recorded = [
        "pods/hbox/deleted",
        "pods/hbox/evicted",
        "pods/hbox/one-of-all",
    ];
    let end = Instant::now() + PATIENCE;
    while events(&world, "ProductionObjectDeletion").await != recorded {
        assert!(
            Instant::now() < end,
            "{:?}",
            events(&world, "ProductionObjectDeletion").await
        );
        sleep(Duration::from_millis(100)).await;
    }

    // A production caller removes a label.
    let unlabel = json!({"metadata": {"labels": {"environment": null}}});
    let path = format!("{PODS}/relabelled");
    world.must("PATCH", &path, unlabel.clone()).await;
    let end = Instant::now() + PATIENCE;
    while events(&world, "ProductionMarkRemoval").await != ["pods/hbox/relabelled"] {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(100)).await;
    }

    // A bypass: the configuration that records is gone, as after an uninstallation or with a dead webhook.
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    world
        .must(
            "DELETE",
            &format!("{configurations}/hbox-guard-records"),
            Value::Null,
        )
        .await;
    world.until_recorded(&called, false).await;
    world
        .must("DELETE", &format!("{PODS}/secretly"), Value::Null)
        .await;
    // Another one hides a deletion: the object loses its label first.
    let path = format!("{PODS}/hidden");
    world.must("PATCH", &path, unlabel).await;
    world.must("DELETE", &path, Value::Null).await;
    for guard in [&called, &other] {
        guard.until("pods/hbox/secretly").await;
        guard.until("lost its label").await;
        assert!(!guard.log().contains("pods/hbox/relabelled"));
    }
    let end = Instant::now() + PATIENCE;
    while events(&world, "ProductionObjectGone").await.is_empty() {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(100)).await;
    }
    // The patience of 5 s is over for the recorded deletions, too: each replica had their records.
    for guard in [&called, &other] {
        let log = guard.log();
        let reports = log.lines().filter(|line| line.contains(GONE));
        let own = reports.filter(|line| line.contains("pods/hbox/"));
        assert_eq!(own.count(), 1, "{log}");
    }
    assert_eq!(
        events(&world, "ProductionObjectGone").await,
        ["pods/hbox/secretly"]
    );
    assert_eq!(events(&world, "ProductionObjectDeletion").await, recorded);
    assert_eq!(
        events(&world, "ProductionMarkLost").await,
        ["pods/hbox/hidden"]
    );

    // The replica that is called dies, and the other one reports a deletion that had no record.
    world.install(&called, None).await;
    let [first, second] = ["without-a-webhook", "in-the-store"];
    called.kill().await;
    let gone = format!("{PODS}/{first}");
    world.must("DELETE", &gone, Value::Null).await;
    other.until(&format!("pods/hbox/{first}")).await;
    // B20: a deletion in the store of the API server.
    if let Some(etcd) = world.etcd() {
        delete_in_etcd(etcd, &format!("/registry/pods/hbox/{second}")).await;
        other.until(&format!("pods/hbox/{second}")).await;
    }
    other.kill().await;
    world.end().await;
}

/// Deletes a key through the HTTP interface of etcd.
async fn delete_in_etcd(etcd: &str, key: &str) {
    let body = json!({"key": STANDARD.encode(key)}).to_string();
    let address = etcd.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST /v3/kv/deleterange HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("\"deleted\":\"1\""), "{answer}");
}
