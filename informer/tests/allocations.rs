//! The allocations of a change, counted by the allocator. A process of its own with one test, since others would count
//! too.

use std::alloc::System;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_client::client::Body;
use reeve_informer::{Decoding, Event, HandlerOptions, Policy, ReflectorOptions, SharedInformer};
use serde_json::Value;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CHANGES: usize = 20_000;

/// The numbers of keys of a ConfigMap of half a kilobyte, and of one of three.
const SMALL: usize = 2;
const LARGE: usize = 30;

fn allocations() -> usize {
    let stats = HEAP.stats();
    stats.allocations + stats.reallocations
}

/// A ConfigMap with `keys` keys.
fn object(keys: usize, version: usize) -> String {
    let data = (0..keys).map(|key| format!(r#""key-{key:02}":"{key:080}""#));
    let data = data.collect::<Vec<_>>().join(",");
    format!(
        r#"{{"metadata":{{"name":"name","namespace":"ns","uid":"7d3f1c52","resourceVersion":"{version:08}","labels":{{"app":"peers","tier":"bench"}}}},"data":{{{data}}}}}"#
    )
}

/// The allocations of decoding one object.
fn of_object() -> usize {
    let (decoding, text) = (Decoding::of("v1", "ConfigMap"), object(SMALL, 7));
    let before = allocations();
    let read = Arc::new(decoding.read::<ConfigMap>(&text).unwrap());
    let counted = allocations() - before;
    drop(read);
    counted
}

/// A server with one object and `CHANGES` changes of it, which are there at once.
fn client() -> Client {
    let list = format!(
        r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{}]}}"#,
        object(SMALL, 1)
    );
    let change = |version| {
        format!(
            r#"{{"type":"MODIFIED","object":{}}}"#,
            object(SMALL, version)
        )
    };
    let changes: Vec<_> = (2..CHANGES + 2).map(change).collect();
    serving("application/json", list, changes.join("\n") + "\n")
}

/// The same in protobuf.
fn protobuf_client() -> Client {
    let of_kind = |kind: &str, text: &str| {
        let mut value: Value = serde_json::from_str(text).unwrap();
        value["apiVersion"] = "v1".into();
        value["kind"] = kind.into();
        reeve_wire::to_vec(&value).unwrap()
    };
    let list = format!(
        r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{}]}}"#,
        object(LARGE, 1)
    );
    let change = |version| {
        let body = of_kind("ConfigMap", &object(LARGE, version));
        let envelope = reeve_wire::Envelope::parse(&body).unwrap();
        reeve_wire::watch::frame("MODIFIED", "v1", "ConfigMap", envelope.object)
    };
    let changes: Vec<_> = (2..CHANGES + 2).map(change).collect();
    let kind = "application/vnd.kubernetes.protobuf";
    serving(kind, of_kind("ConfigMapList", &list), changes.concat())
}

fn serving(kind: &'static str, list: impl Into<Bytes>, changes: impl Into<Bytes>) -> Client {
    let (list, changes) = (list.into(), changes.into());
    let answer = move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let body = if query.contains("watch=") {
            changes.clone()
        } else {
            list.clone()
        };
        let answer = Response::builder().header("content-type", kind);
        std::future::ready(Ok::<_, Infallible>(answer.body(Full::new(body)).unwrap()))
    };
    Client::new(tower::service_fn(answer), "default")
}

/// The allocations from the listed object to the last change, as an inline handler sees them.
async fn of_changes(client: Client) -> usize {
    let (first, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = AtomicUsize::new(0);
    let handler = {
        let (first, last) = (Arc::clone(&first), Arc::clone(&last));
        move |event: Event<ConfigMap>| {
            let bound = match event {
                Event::Added { .. } => &first,
                _ if seen.fetch_add(1, Ordering::Relaxed) + 1 == CHANGES => &last,
                _ => return,
            };
            bound.store(allocations(), Ordering::Relaxed);
        }
    };
    let options = ReflectorOptions::new().streaming(false);
    let informer = SharedInformer::<ConfigMap>::builder(client)
        .reflector(options)
        .build();
    let options = HandlerOptions::new()
        .policy(Policy::Block { bound: 1024 })
        .inline();
    let _handle = informer.add_handler(handler, options).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    let newest = format!("{:08}", CHANGES + 1);
    let mut versions = informer.versions();
    let reached = versions.wait_for(|version| version.as_str() == newest);
    reached.await.unwrap();
    while last.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    running.await.unwrap().unwrap();
    last.load(Ordering::Relaxed) - first.load(Ordering::Relaxed)
}

fn counted(client: impl FnOnce() -> Client) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime
        .unwrap()
        .block_on(async { of_changes(client()).await })
}

#[test]
fn a_change_allocates_its_object_at_most_and_next_to_nothing_else() {
    let all = counted(client);
    let object = of_object();
    // In hundredths, since the vectors of a batch are shared by its changes.
    let besides = (all * 100 / CHANGES).saturating_sub(object * 100);
    println!("{object} allocations an object, {besides}/100 a change besides");
    assert!(object > 5, "{object}: it is counted");
    assert!(besides <= 25, "{besides}/100 allocations a change");
    // In protobuf, one of some kilobytes is read over an object that was replaced.
    let all = counted(protobuf_client) * 100 / CHANGES;
    println!("{all}/100 allocations a change in protobuf");
    assert!(all <= 100, "{all}/100 allocations a change in protobuf");
}
