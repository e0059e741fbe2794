//! Measures the longest turns of an informer's task, and of the tasks beside it, on a runtime of one thread: the first
//! list of 10,000 ConfigMaps, a list of other states, and a list of nothing. No network is involved.
//!
//! ```sh
//! cargo run --release -p reeve-informer --example longest_turn [OBJECTS]
//! ```
//! The figure of a step is the least of five runs, because other programs lengthen a turn and never shorten it.
#![allow(clippy::print_stdout, reason = "it is a program that prints")]

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_client::client::Body;
use parking_lot::Mutex;
use reeve_informer::{Event, HandlerOptions, ReflectorOptions, SharedInformer};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const RUNS: usize = 5;
const STEPS: [&str; 3] = ["first list", "list of other states", "list of nothing"];

/// A future whose polls are measured.
struct Measured<F> {
    future: F,
    longest: Arc<Mutex<Duration>>,
}

impl<F: Future + Unpin> Future for Measured<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let begun = Instant::now();
        let result = Pin::new(&mut self.future).poll(context);
        let mut longest = self.longest.lock();
        *longest = (*longest).max(begun.elapsed());
        result
    }
}

fn list(objects: usize, version: usize) -> Bytes {
    let object = |number: usize| {
        format!(
            r#"{{"metadata":{{"name":"name-{number:07}","namespace":"ns-{:03}","uid":"7d3f1c52-{number:012}","resourceVersion":"{}","labels":{{"app":"peers"}}}},"data":{{"mode":"active","note":"what a program reads at its start"}}}}"#,
            number * 100 / objects.max(1),
            version + number,
        )
    };
    let items: Vec<_> = (0..objects).map(object).collect();
    let version = version + objects;
    format!(
        r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
        items.join(",")
    )
    .into()
}

/// A server whose lists are these, one after the other. All but the last watch end at once.
fn client(lists: Arc<[Bytes]>) -> Client {
    let next = AtomicUsize::new(0);
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let body = if query.contains("watch=") {
            let expired = next.load(Ordering::Relaxed) < lists.len();
            expired.then(|| {
                Bytes::from_static(
                    br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}
"#,
                )
            })
        } else {
            lists.get(next.fetch_add(1, Ordering::Relaxed)).cloned()
        };
        async move {
            match body {
                Some(body) => Ok::<_, Infallible>(Response::new(Full::new(body))),
                None => std::future::pending().await,
            }
        }
    });
    Client::new(service, "default")
}

/// The longest turn of each step: of the informer's task, and of all tasks between two turns of another one.
async fn run(lists: Arc<[Bytes]>) -> [(Duration, Duration); 3] {
    let informer = SharedInformer::<ConfigMap>::builder(client(Arc::clone(&lists)))
        .reflector(ReflectorOptions::new().streaming(false))
        .build();
    let handled = Arc::new(AtomicUsize::new(0));
    for number in 0..3 {
        let handled = Arc::clone(&handled);
        let options = HandlerOptions::new();
        let options = if number == 0 {
            options.inline()
        } else {
            options
        };
        let handler = move |_: Event<ConfigMap>| {
            handled.fetch_add(1, Ordering::Relaxed);
        };
        let _handle = informer.add_handler(handler, options);
    }
    let stop = CancellationToken::new();
    let longest = Arc::new(Mutex::new(Duration::ZERO));
    let running = tokio::spawn({
        let (informer, stop, longest) = (informer.clone(), stop.clone(), Arc::clone(&longest));
        async move {
            let future = pin!(informer.run(stop));
            Measured { future, longest }.await
        }
    });
    let mut versions = vec![String::new()];
    versions.extend(lists.iter().map(|list| {
        let text = std::str::from_utf8(list).unwrap_or_default();
        let version = text.split('"').nth(5).unwrap_or_default();
        version.to_owned()
    }));
    let mut steps = [(Duration::ZERO, Duration::ZERO); 3];
    for (step, version) in steps.iter_mut().zip(&versions[1..]) {
        *longest.lock() = Duration::ZERO;
        let mut between = Duration::ZERO;
        let mut quiet = 0;
        // A while after the last event: states are freed then.
        while quiet < 200 {
            let (begun, before) = (Instant::now(), handled.load(Ordering::Relaxed));
            tokio::task::yield_now().await;
            between = between.max(begun.elapsed());
            let reached = informer.last_sync_resource_version().as_str() == version;
            let idle = handled.load(Ordering::Relaxed) == before;
            quiet = if reached && idle { quiet + 1 } else { 0 };
        }
        *step = (*longest.lock(), between);
    }
    stop.cancel();
    let _ = running.await;
    steps
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let objects = std::env::args()
        .nth(1)
        .map_or(Ok(10_000), |text| text.parse())?;
    let lists: Arc<[Bytes]> = [
        list(objects, 1),
        list(objects, 10_000_000),
        list(0, 30_000_000),
    ]
    .into();
    let mut least = [(Duration::MAX, Duration::MAX); 3];
    for _ in 0..RUNS {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let steps = runtime.block_on(run(Arc::clone(&lists)));
        for (least, step) in least.iter_mut().zip(steps) {
            *least = (least.0.min(step.0), least.1.min(step.1));
        }
    }
    println!(
        "{objects} objects, 3 handlers: the longest turn of the informer; of all tasks together"
    );
    for (name, (own, all)) in STEPS.iter().zip(least) {
        println!("{name}: {own:?}; {all:?}");
    }
    Ok(())
}
