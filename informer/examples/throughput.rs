//! How fast an informer syncs, follows and relists, against canned bytes in the same process.
//!
//! `cargo run --release -p reeve-informer --example throughput`
#![allow(clippy::print_stdout, reason = "it is a program that prints")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Client;
use kube_client::client::Body;
use reeve_informer::{Event, HandlerOptions, ObjectKey, ReflectorOptions, SharedInformer};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const OBJECTS: usize = 100_000;
const EVENTS: usize = 200_000;

fn object(number: usize, version: usize) -> String {
    format!(
        r#"{{"metadata":{{"name":"object-{number:010}","namespace":"ns-{:04}","uid":"00000000-0000-0000-0000-{number:012}","resourceVersion":"{version}","creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"web"}},"managedFields":[{{"manager":"bench","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{".":{{}},"f:key":{{}}}}}}}}]}},"data":{{"key":"value-{version}"}}}}"#,
        number % 100
    )
}

type Answered = Response<UnsyncBoxBody<Bytes, Infallible>>;

fn whole(bytes: Bytes) -> Answered {
    Response::new(http_body_util::Full::new(bytes).boxed_unsync())
}

struct Receiving(mpsc::Receiver<Bytes>);

impl http_body::Body for Receiving {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|bytes| bytes.map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    fields.get(11..13).map_or(0.0, |times| {
        times
            .iter()
            .filter_map(|time| time.parse::<f64>().ok())
            .sum::<f64>()
            / 100.0
    })
}

fn report(what: &str, count: usize, from: (Instant, f64)) {
    let (wall, cpu) = (from.0.elapsed().as_secs_f64(), cpu() - from.1);
    println!(
        "{what:<28} {count:>8} in {wall:>6.3} s = {:>9.0}/s, {:>6.2} µs CPU each",
        count as f64 / wall,
        cpu * 1e6 / count as f64
    );
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pages: Vec<Bytes> = (0..OBJECTS)
        .collect::<Vec<_>>()
        .chunks(500)
        .enumerate()
        .map(|(page, numbers)| {
            let items: Vec<_> = numbers.iter().map(|number| object(*number, number + 1)).collect();
            let token = if (page + 1) * 500 < OBJECTS { (page + 1).to_string() } else { String::new() };
            format!(r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{OBJECTS}","continue":"{token}"}},"items":[{}]}}"#, items.join(",")).into()
        })
        .collect();
    let events: Vec<Bytes> = (0..EVENTS)
        .collect::<Vec<_>>()
        .chunks(64)
        .map(|numbers| {
            let lines: String = numbers
                .iter()
                .map(|number| {
                    format!(
                        "{{\"type\":\"MODIFIED\",\"object\":{}}}\n",
                        object(number % 20_000, OBJECTS + 1 + number)
                    )
                })
                .collect();
            lines.into()
        })
        .collect();
    let pages = Arc::new(pages);
    let (sender, receiver) = mpsc::channel(64);
    let receiver = Arc::new(std::sync::Mutex::new(Some(receiver)));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (pages, receiver) = (Arc::clone(&pages), Arc::clone(&receiver));
        async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            if query.contains("watch=true") {
                let taken = receiver
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .take();
                return Ok::<_, Infallible>(match taken {
                    Some(receiver) => Response::new(Receiving(receiver).boxed_unsync()),
                    None => std::future::pending().await,
                });
            }
            let page: usize = query
                .split("continue=")
                .nth(1)
                .and_then(|page| page.parse().ok())
                .unwrap_or(0);
            Ok(whole(pages[page].clone()))
        }
    });
    let client = Client::new(service, "default");
    let options = ReflectorOptions {
        streaming: false,
        ..ReflectorOptions::default()
    };
    let informer = SharedInformer::<ConfigMap>::builder(client)
        .reflector(options)
        .build();
    let (told, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let handlers: Vec<_> = (0..std::env::args()
        .nth(1)
        .and_then(|count| count.parse().ok())
        .unwrap_or(1))
        .map(|_| {
            let (told, last) = (Arc::clone(&told), Arc::clone(&last));
            let handler = move |event: Event<ConfigMap>| {
                told.fetch_add(1, Ordering::Relaxed);
                if let Event::Updated { new, .. } = event {
                    let version = new
                        .metadata
                        .resource_version
                        .as_deref()
                        .and_then(|version| version.parse().ok());
                    last.fetch_max(version.unwrap_or(0), Ordering::Relaxed);
                }
            };
            informer.add_handler(handler, HandlerOptions::new())
        })
        .collect::<Result<_, _>>()?;
    let stop = CancellationToken::new();
    let start = (Instant::now(), cpu());
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    informer.wait_synced().await?;
    report("sync", OBJECTS, start);
    for handle in &handlers {
        handle.has_synced().await?;
    }
    report("sync, handlers told", OBJECTS, start);

    let start = (Instant::now(), cpu());
    for chunk in events {
        sender.send(chunk).await?;
    }
    while last.load(Ordering::Relaxed) < (OBJECTS + EVENTS) as u64 {
        tokio::task::yield_now().await;
    }
    report("events", EVENTS, start);
    println!("{} events told", told.load(Ordering::Relaxed));

    let lister = informer.lister();
    let keys: Vec<_> = (0..OBJECTS)
        .map(|number| {
            ObjectKey::namespaced(
                format!("ns-{:04}", number % 100),
                format!("object-{number:010}"),
            )
        })
        .collect();
    let start = (Instant::now(), cpu());
    for key in keys.iter().cycle().step_by(7919).take(1_000_000) {
        assert!(lister.get(key)?.is_some());
    }
    report("get", 1_000_000, start);
    let start = (Instant::now(), cpu());
    for number in 0..2_000 {
        assert_eq!(
            lister.namespace(&format!("ns-{:04}", number % 100)).len(),
            1000
        );
    }
    report("list one namespace", 2_000, start);
    stop.cancel();
    running.await??;
    Ok(())
}
