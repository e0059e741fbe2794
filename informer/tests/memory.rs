//! The memory of a store, counted by the allocator. A process of its own with one test, since others would count too.

use std::alloc::System;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::Client;
use kube_client::client::Body;
use kube_core::{ApiResource, DynamicObject, GroupVersionKind};
use kube_derive::Resource;
use reeve_informer::{
    Compact, Decoding, Endpoint, Form, ReflectorOptions, SharedInformer, StoreBytes,
};
use serde::{Deserialize, Serialize};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const COUNT: usize = 20_000;

fn live() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// A server with one list, whose watches are silent.
fn client(item: fn(usize) -> String) -> Client {
    let items: Vec<_> = (0..COUNT).map(item).collect();
    let list = Bytes::from(format!(
        r#"{{"metadata":{{"resourceVersion":"{COUNT}"}},"items":[{}]}}"#,
        items.join(",")
    ));
    let answer = move |request: Request<Body>| {
        let watch = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch="));
        let body: UnsyncBoxBody<Bytes, Infallible> = if watch {
            let silence = stream::pending::<Result<Frame<Bytes>, Infallible>>();
            StreamBody::new(silence).boxed_unsync()
        } else {
            Full::new(list.clone()).boxed_unsync()
        };
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    };
    Client::new(tower::service_fn(answer), "default")
}

/// The memory of `COUNT` objects, and the number that their store reports.
fn kept<S: Form>(endpoint: Endpoint, item: fn(usize) -> String) -> (usize, StoreBytes) {
    // With it, all other work is over before the next measurement.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(keep::<S>(endpoint, item))
}

async fn keep<S: Form>(endpoint: Endpoint, item: fn(usize) -> String) -> (usize, StoreBytes) {
    let client = client(item);
    let before = live();
    let options = ReflectorOptions::new().streaming(false);
    let informer = SharedInformer::<S>::builder_for(client, endpoint)
        .reflector(options)
        .build();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    informer.wait_synced().await.unwrap();
    assert_eq!(informer.lister().len(), COUNT);
    let bytes = informer.health().bytes;
    let taken = live() - before;
    stop.cancel();
    running.await.unwrap().unwrap();
    (taken, bytes)
}

/// 363 bytes, as in `benches/peers`.
fn config_map(number: usize) -> String {
    format!(
        r#"{{"metadata":{{"name":"name-{number:010}","namespace":"ns-{:04}","uid":"7d3f1c52-0b6e-4a1d-9c80-{number:012}","resourceVersion":"{number:010}","creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"peers","tier":"bench"}}}},"data":{{"mode":"active","note":"{}","ts":"7777777777777777"}}}}"#,
        number * 100 / COUNT,
        "what a program reads at its start, and again when it changes; what a program reads a",
    )
}

/// 673 bytes.
fn custom_resource(number: usize) -> String {
    format!(
        r#"{{"metadata":{{"creationTimestamp":"2026-01-01T00:00:00Z","finalizers":["ops.example.io/lift"],"generation":2,"labels":{{"source":"grafana"}},"name":"name-{number:010}","namespace":"ns-{:04}","resourceVersion":"{number:010}","uid":"7d3f1c52-0b6e-4a1d-9c80-{number:012}"}},"spec":{{"duration":"1h","ip":"203.0.113.7","reason":"{}","source":"grafana","tags":["scan","ssh"],"ts":"7777777777777777"}},"status":{{"blockedAt":"2026-01-01T00:00:01Z","engine":"gateway-1","expiresAt":"2026-01-01T01:00:01Z","message":"enforced","observedGeneration":2,"phase":"active"}}}}"#,
        number * 100 / COUNT,
        "too many failed logins within a minute, seen at two hosts; too many failed lo",
    )
}

/// 3,500 bytes that are kept, and 1,500 of managed fields.
fn pod(number: usize) -> String {
    let env = |name: usize| {
        format!(
            r#"{{"name":"SETTING_{name:02}","value":"{}"}}"#,
            "v".repeat(60)
        )
    };
    let env = (0..29).map(env).collect::<Vec<_>>().join(",");
    format!(
        r#"{{"metadata":{{"name":"pod-{number:010}","namespace":"ns-{:04}","uid":"7d3f1c52-0b6e-4a1d-9c80-{number:012}","resourceVersion":"{number:010}","labels":{{"app":"peers"}},"managedFields":[{{"manager":"{}"}}]}},"spec":{{"containers":[{{"name":"c","image":"{}","env":[{env}]}}]}}}}"#,
        number * 100 / COUNT,
        "m".repeat(1500),
        "i".repeat(300),
    )
}

/// A typical Pod, a third of it `managedFields`.
const POD: &str = include_str!("../testdata/pod.json");

#[derive(Default, Resource, Serialize, Deserialize)]
#[resource(inherit = ConfigMap, crates(kube_core = "::kube_core"))]
#[serde(rename_all = "camelCase", default)]
struct IpBlock {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: Spec,
    status: Option<Status>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Spec {
    ip: String,
    duration: String,
    reason: String,
    source: String,
    tags: Vec<String>,
    ts: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    engine: String,
    message: String,
    observed_generation: i64,
    blocked_at: Option<String>,
    expires_at: Option<String>,
}

/// The memory of one object as its type.
fn typed<S: Form>(kind: &str, document: &str) -> usize {
    let decoding = Decoding::of("v1", kind);
    each(|| decoding.read::<S>(document).unwrap())
}

/// As [`typed`], from protobuf.
fn typed_of_protobuf<S: Form>(kind: &str, document: &str) -> usize {
    let mut object: serde_json::Value = serde_json::from_str(document).unwrap();
    object["apiVersion"] = "v1".into();
    object["kind"] = kind.into();
    let body = reeve_wire::to_vec(&object).unwrap();
    let decoding = Decoding::of("v1", kind);
    each(|| decoding.read_protobuf::<S>(&body).unwrap())
}

/// The memory of one of many equal objects.
fn each<S>(read: impl Fn() -> S) -> usize {
    let mut objects = Vec::with_capacity(100);
    let before = live();
    for _ in 0..objects.capacity() {
        objects.push(Arc::new(read()));
    }
    (live() - before) / objects.len()
}

#[test]
fn a_compact_object_takes_little_more_than_its_text_and_the_store_counts_it() {
    // The process has one table of the built-in kinds.
    assert!(reeve_wire::Message::of("v1", "Pod").is_some());
    let kind = GroupVersionKind::gvk("ops.example.io", "v1", "IPBlock");
    let ip_blocks = Endpoint::for_type::<DynamicObject>(&ApiResource::from_gvk(&kind));
    for (name, bar, (taken, bytes)) in [
        (
            "ConfigMap",
            560,
            kept::<Compact<ConfigMap>>(Endpoint::of::<ConfigMap>(), config_map),
        ),
        (
            "IPBlock",
            840,
            kept::<Compact<DynamicObject>>(ip_blocks, custom_resource),
        ),
        (
            "Pod",
            3450,
            kept::<Compact<Pod>>(Endpoint::of::<Pod>(), pod),
        ),
    ] {
        let an_object = taken / COUNT;
        println!("{name}: {an_object} bytes an object; by the store {bytes:?}");
        assert!(an_object <= bar, "{name}: {an_object} bytes an object");
        let estimate = bytes.total();
        assert!(
            estimate.abs_diff(taken) * 10 <= taken,
            "{name}: {taken} bytes, by the store {estimate}"
        );
    }
    // Only the size of the struct is counted of a type.
    let (taken, bytes) = kept::<ConfigMap>(Endpoint::of::<ConfigMap>(), config_map);
    let entries = COUNT * (size_of::<ConfigMap>() + 16);
    assert_eq!((bytes.entries, bytes.owned), (entries, 0));
    assert!(bytes.total() < taken);
    // Each `Vec` of a type has its exact size: otherwise 23,482 and 1,724 bytes.
    for (name, bar, an_object) in [
        ("Pod", 18_050, typed::<Pod>("Pod", POD)),
        ("Pod", 18_050, typed_of_protobuf::<Pod>("Pod", POD)),
        (
            "IPBlock",
            1_620,
            typed::<IpBlock>("IPBlock", &custom_resource(7)),
        ),
    ] {
        println!("typed {name}: {an_object} bytes an object");
        assert!(an_object <= bar, "typed {name}: {an_object} bytes");
    }
}
