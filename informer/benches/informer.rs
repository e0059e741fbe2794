//! Decoding, the store, handing out, and listing again: `cargo bench --bench informer`.

mod canned;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::metadata::PartialObjectMeta;
use kube_core::{DynamicObject, Expression, Selector};
use kube_derive::Resource;
use reeve_informer::{
    Compact, Decoding, Event, Form, HandlerOptions, ObjectKey, Policy, ReflectorOptions,
    SharedInformer,
};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use canned::{Server, changes, expired, object};

const OBJECTS: usize = 20_000;
const CHANGES: usize = 10_000;

/// A typical Pod, a third of it `managedFields`.
const POD: &str = include_str!("../testdata/pod.json");

/// A custom resource.
const IP_BLOCK: &str = include_str!("../testdata/ipblock.json");

#[derive(Resource, Serialize, Deserialize)]
#[resource(inherit = ConfigMap, crates(kube_core = "::kube_core"))]
struct IpBlock {
    metadata: ObjectMeta,
    spec: Spec,
    status: Status,
}

#[derive(Serialize, Deserialize)]
struct Spec {
    ip: String,
    duration: String,
    reason: String,
    source: String,
    tags: Vec<String>,
    ts: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    phase: String,
    message: String,
    engine: String,
    blocked_at: String,
    expires_at: String,
    observed_generation: u64,
}

/// One object from its bytes, in each form that a store may keep, as informers read it and as serde_json alone does.
fn decode(c: &mut Criterion) {
    let config_map = object(7, 12_345);
    let mut group = c.benchmark_group("decode");
    for (kind, document) in [
        ("ConfigMap", config_map.as_str()),
        ("IPBlock", IP_BLOCK),
        ("Pod", POD),
    ] {
        group.throughput(Throughput::Bytes(document.len() as u64));
        let mut form = |form: &str, reads: [fn(&str); 2]| {
            for (form, read) in [form, &format!("{form} by serde_json")]
                .into_iter()
                .zip(reads)
            {
                let id = BenchmarkId::new(form, kind);
                group.bench_function(id, |b| b.iter(|| read(black_box(document))));
            }
        };
        match kind {
            "Pod" => form("typed", [one::<Pod>, one_by_serde_json::<Pod>]),
            "IPBlock" => form("typed", [one::<IpBlock>, one_by_serde_json::<IpBlock>]),
            _ => form("typed", [one::<ConfigMap>, one_by_serde_json::<ConfigMap>]),
        }
        type Kept = Compact<ConfigMap>;
        form("compact", [one::<Kept>, skipped_by_serde_json]);
        form(
            "dynamic",
            [one::<DynamicObject>, one_by_serde_json::<DynamicObject>],
        );
        // In the form in which the server sends metadata.
        let mut whole: serde_json::Value = serde_json::from_str(document).expect("an object");
        whole["kind"] = "PartialObjectMetadata".into();
        whole["apiVersion"] = "meta.k8s.io/v1".into();
        for other in ["spec", "status", "data"] {
            whole.as_object_mut().expect("an object").remove(other);
        }
        let document = whole.to_string();
        group.throughput(Throughput::Bytes(document.len() as u64));
        group.bench_function(BenchmarkId::new("metadata", kind), |b| {
            b.iter(|| one::<PartialObjectMeta<ConfigMap>>(black_box(&document)));
        });
    }
    group.finish();
}

fn one<S: Form>(document: &str) {
    let decoded = Decoding::default().read::<S>(document);
    drop(black_box(decoded.expect("an object")));
}

/// Without trimming.
fn one_by_serde_json<S: DeserializeOwned>(document: &str) {
    drop(black_box(
        serde_json::from_str::<S>(document).expect("an object"),
    ));
}

/// The least work for a compact entry.
fn skipped_by_serde_json(document: &str) {
    let _: IgnoredAny = black_box(serde_json::from_str(document).expect("an object"));
}

/// The number of events that the handlers received.
#[derive(Default)]
struct Received {
    count: AtomicUsize,
    /// The count at which the waiting bench is woken.
    wanted: AtomicUsize,
    reached: Notify,
}

// === impl Received ===

impl Received {
    fn event(&self) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count == self.wanted.load(Ordering::Relaxed) {
            self.reached.notify_one();
        }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Must be called before the wait for it begins.
    fn want(&self, count: usize) {
        self.wanted.store(count, Ordering::Relaxed);
    }
}

/// An informer that follows a server.
struct Following {
    server: Server,
    informer: SharedInformer<ConfigMap>,
    received: Arc<Received>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Following {
    async fn start(handlers: usize) -> Self {
        let server = Server::new(OBJECTS);
        // It lists again without a pause, as often as the bench does.
        let options = ReflectorOptions::new()
            .streaming(false)
            .request_interval(Duration::ZERO)
            .reconnect_spread(Duration::ZERO);
        let informer = SharedInformer::<ConfigMap>::builder(server.client())
            .reflector(options)
            .build();
        let received = Arc::new(Received::default());
        received.want(handlers * OBJECTS);
        for _ in 0..handlers {
            let received = Arc::clone(&received);
            let handler = move |_: Event<ConfigMap>| {
                received.event();
            };
            let every = HandlerOptions::new().policy(Policy::Block { bound: 4096 });
            let handle = informer.add_handler(handler, every);
            drop(handle.expect("a new informer takes handlers"));
        }
        let stop = CancellationToken::new();
        let run = (informer.clone(), stop.clone());
        let running = tokio::spawn(async move {
            run.0.run(run.1).await.expect("it runs once");
        });
        informer.wait_synced().await.expect("the server answers");
        let following = Self {
            server,
            informer,
            received,
            stop,
            running,
        };
        if handlers > 0 {
            following.received.reached.notified().await;
        }
        following
    }

    async fn stop(self) {
        self.stop.cancel();
        self.running.await.expect("it does not panic");
    }
}

/// Reads of a store of 20,000.
fn store(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let following = runtime.block_on(Following::start(0));
    let lister = following.informer.lister();
    let keys: Vec<ObjectKey> = (0..OBJECTS)
        .map(|number| {
            let namespace = format!("ns-{:04}", number % 100);
            ObjectKey::namespaced(namespace, format!("object-{number:010}"))
        })
        .collect();
    let mut keys = keys.iter().cycle().step_by(7919);
    let mut group = c.benchmark_group("store of 20,000");
    group.bench_function("get", |b| {
        b.iter(|| lister.get(keys.next().expect("a cycle")));
    });
    group.bench_function("list a namespace of 200", |b| {
        b.iter(|| lister.namespace("ns-0042").len());
    });
    let selector: Selector = Expression::Equal("app".into(), "web".into()).into();
    group.bench_function("select 200 by label in a namespace", |b| {
        b.iter(|| lister.select(Some("ns-0042"), &selector).len());
    });
    group.bench_function("snapshot", |b| {
        b.iter(|| following.informer.indexer().snapshot());
    });
    group.finish();
    runtime.block_on(following.stop());
}

/// 10,000 changes from the bytes to every handler.
fn hand_out(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let mut group = c.benchmark_group("10,000 changes");
    group.throughput(Throughput::Elements(CHANGES as u64));
    for handlers in [1, 3] {
        let following = runtime.block_on(Following::start(handlers));
        let mut version = OBJECTS + 1;
        group.bench_function(format!("{handlers} handlers"), |b| {
            b.iter_custom(|rounds| {
                let mut lasted = Duration::ZERO;
                for _ in 0..rounds {
                    let pieces = changes(CHANGES, OBJECTS, version);
                    version += CHANGES;
                    let received = &following.received;
                    received.want(received.count() + handlers * CHANGES);
                    lasted += runtime.block_on(async {
                        let started = Instant::now();
                        for piece in pieces {
                            following.server.send(piece).await;
                        }
                        received.reached.notified().await;
                        started.elapsed()
                    });
                }
                lasted
            });
        });
        runtime.block_on(following.stop());
    }
    group.finish();
}

/// 20,000 objects listed again, of which one has changed.
fn relist(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let mut group = c.benchmark_group("list again");
    group.throughput(Throughput::Elements(OBJECTS as u64));
    group.sample_size(20);
    let following = runtime.block_on(Following::start(1));
    let mut version = OBJECTS;
    group.bench_function("20,000, one changed", |b| {
        b.iter_custom(|rounds| {
            let mut lasted = Duration::ZERO;
            for _ in 0..rounds {
                version += 1;
                following.server.set(OBJECTS, Some(version));
                let received = &following.received;
                received.want(received.count() + 1);
                lasted += runtime.block_on(async {
                    let started = Instant::now();
                    following.server.send(expired()).await;
                    received.reached.notified().await;
                    started.elapsed()
                });
            }
            lasted
        });
    });
    group.finish();
    runtime.block_on(following.stop());
}

criterion_group!(benches, decode, store, hand_out, relist);
criterion_main!(benches);
