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
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CHANGES: usize = 20_000;

fn allocations() -> usize {
    let stats = HEAP.stats();
    stats.allocations + stats.reallocations
}

fn object(version: usize) -> String {
    format!(
        r#"{{"metadata":{{"name":"name","namespace":"ns","uid":"7d3f1c52","resourceVersion":"{version:08}","labels":{{"app":"peers","tier":"bench"}}}},"data":{{"mode":"active","note":"what a program reads"}}}}"#
    )
}

/// The allocations of decoding one object.
fn of_object() -> usize {
    let (decoding, text) = (Decoding::of("v1", "ConfigMap"), object(7));
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
        object(1)
    );
    let change = |version| format!(r#"{{"type":"MODIFIED","object":{}}}"#, object(version));
    let changes: Vec<_> = (2..CHANGES + 2).map(change).collect();
    let (list, changes) = (Bytes::from(list), Bytes::from(changes.join("\n") + "\n"));
    let answer = move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let body = if query.contains("watch=") {
            changes.clone()
        } else {
            list.clone()
        };
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::new(body))))
    };
    Client::new(tower::service_fn(answer), "default")
}

/// The allocations from the listed object to the last change, as an inline handler sees them.
async fn of_changes() -> usize {
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
    let informer = SharedInformer::<ConfigMap>::builder(client())
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

#[test]
fn a_change_allocates_its_object_and_next_to_nothing_else() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    let all = runtime.unwrap().block_on(of_changes());
    let object = of_object();
    // In hundredths, since the vectors of a batch are shared by its changes.
    let besides = (all * 100 / CHANGES).saturating_sub(object * 100);
    println!("{object} allocations an object, {besides}/100 a change besides");
    assert!(object > 5, "{object}: it is counted");
    assert!(besides <= 25, "{besides}/100 allocations a change");
}
