//! Many lines and large pages are decoded by several threads, and applied in the server's order.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::Client;
use kube_client::client::Body;
use kube_core::Resource;
use kube_derive::Resource;
use reeve_informer::{
    Activity, Event, Form, HandlerOptions, Policy, ReflectorOptions, SharedInformer,
};
use serde::{Deserialize, Deserializer, Serialize};
use tokio_util::sync::CancellationToken;

use crate::script::*;

/// A ConfigMap that waits, while it is decoded, for another one that is decoded by another thread.
#[derive(Resource, Serialize, Deserialize)]
#[resource(inherit = ConfigMap, crates(kube_core = "::kube_core"))]
struct Meeting {
    metadata: ObjectMeta,
    #[serde(default)]
    data: Option<Place>,
}

#[derive(Serialize)]
struct Place {}

/// The number of objects that are being decoded, or have met.
static THERE: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// Held by each test: chunks of one process share a bounded number of permits, and without one there is no meeting.
static ALL_PERMITS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// An object was decoded while no other was.
static ALONE: AtomicBool = AtomicBool::new(false);

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer)?;
        let (there, changed) = &THERE;
        let mut there = there.lock().unwrap();
        *there += 1;
        changed.notify_all();
        let alone = |there: &mut usize| !there.is_multiple_of(2);
        let waited = changed.wait_timeout_while(there, Duration::from_secs(20), alone);
        ALONE.fetch_or(waited.unwrap().1.timed_out(), Ordering::Relaxed);
        Ok(Self {})
    }
}

fn text(bits: impl IntoIterator<Item = Bit>) -> String {
    let line = |bit| match bit {
        Bit::Line(line) => format!("{line}\n"),
        _ => unreachable!("only lines"),
    };
    bits.into_iter().map(line).collect()
}

/// A server in the same process, whose whole answers are ready at once. A request without an answer waits.
fn server(answer: impl Fn(&Asked) -> Option<String> + Send + Sync + 'static) -> Client {
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer(&Asked::new(&request));
        async move {
            match answer {
                Some(body) => Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body)))),
                None => std::future::pending().await,
            }
        }
    });
    Client::new(service, "default")
}

/// The number of objects: more than a chunk and a page.
const OBJECTS: usize = 1000;

/// The number in a page.
const PAGE: usize = OBJECTS / 2;

/// The objects. The two that have to meet are in the first and in the second chunk of a stream, and in two pages.
fn objects() -> Vec<String> {
    let object = |number: usize| {
        let object = object(&format!("o{number:05}"), &(number + 1).to_string());
        if number == 100 || number == 510 {
            object
        } else {
            object.replacen(r#""data":"#, r#""more":"#, 1)
        }
    };
    (0..OBJECTS).map(object).collect()
}

/// The number of objects that an informer has once it has synced.
async fn listed<S>(client: Client, streaming: bool) -> usize
where
    S: Form + Resource<DynamicType = ()>,
{
    let options = ReflectorOptions::new().streaming(streaming);
    let informer = SharedInformer::<S>::builder(client)
        .reflector(options)
        .build();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        async move { informer.run(stop).await }
    });
    informer.wait_synced().await.unwrap();
    let length = informer.lister().len();
    stop.cancel();
    running.await.unwrap().unwrap();
    length
}

/// Answers lists with two pages.
fn in_two_pages(
    objects: Arc<Vec<String>>,
) -> impl Fn(&Asked) -> Option<String> + Send + Sync + 'static {
    move |asked| {
        let (next, objects) = match asked.get("continue") {
            "" => ("second", &objects[..PAGE]),
            _ => ("", &objects[PAGE..]),
        };
        let Answer::Whole { body, .. } = page("2000", next, objects) else {
            unreachable!("a page is whole")
        };
        (asked.verb() == "list").then_some(body)
    }
}

#[test]
fn a_list_is_read_while_no_thread_for_blocking_work_is_free() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let (busy, ends) = std::sync::mpsc::channel::<()>();
    runtime.spawn_blocking(move || ends.recv());
    let count = runtime.block_on(async {
        let _permits = ALL_PERMITS.lock().await;
        listed::<ConfigMap>(server(in_two_pages(Arc::new(objects()))), false).await
    });
    assert_eq!(count, OBJECTS);
    drop(busy);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_and_pages_are_decoded_by_several_threads_at_once() {
    let _permits = ALL_PERMITS.lock().await;
    let objects = Arc::new(objects());
    let stream = {
        let bits = objects.iter().map(|object| event("ADDED", object));
        text(bits.chain([initial_end("2000")]))
    };
    let client = server(move |asked| (asked.verb() == "stream").then(|| stream.clone()));
    assert_eq!(listed::<Meeting>(client, true).await, OBJECTS, "stream");
    assert!(!ALONE.load(Ordering::Relaxed), "stream");

    let client = server(in_two_pages(objects));
    assert_eq!(listed::<Meeting>(client, false).await, OBJECTS, "pages");
    assert!(!ALONE.load(Ordering::Relaxed), "pages");
}

/// The versions that a handler saw while `watch` was followed from version 10 up to version `last`, and the informer.
async fn followed(
    watch: String,
    last: usize,
) -> (
    Vec<String>,
    SharedInformer<ConfigMap>,
    Arc<Mutex<Vec<Asked>>>,
) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let requests = Arc::clone(&asked);
    let client = server(move |asked| {
        let mut watches = requests.lock().unwrap();
        if asked.verb() == "list" {
            let Answer::Whole { body, .. } = list("10", &[object("a", "9")]) else {
                unreachable!()
            };
            return Some(body);
        }
        watches.push(asked.clone());
        (watches.len() == 1).then(|| watch.clone())
    });
    let options = ReflectorOptions::new()
        .streaming(false)
        .reconnect_spread(Duration::ZERO);
    let informer = SharedInformer::<ConfigMap>::builder(client)
        .reflector(options)
        .build();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let handler = move |event: Event<ConfigMap>| {
        if let Event::Updated { new, .. } = event {
            let version = new.metadata.resource_version.clone().unwrap();
            noted.lock().unwrap().push(version);
        }
    };
    let options = HandlerOptions::new()
        .policy(Policy::Block { bound: 64 })
        .inline();
    let _handle = informer.add_handler(handler, options).unwrap();
    let running = informer.clone();
    let run = async move { running.run(CancellationToken::new()).await };
    let ended = tokio::spawn(run);
    let mut versions = informer.versions();
    let reached = versions.wait_for(|version| version.as_str() == last.to_string());
    tokio::select! {
        reached = reached => drop(reached.unwrap()),
        ended = ended => panic!("the informer ended: {ended:?}"),
    }
    let seen = || seen.lock().unwrap().clone();
    // The store has them before the handler.
    while seen().len() < last - 10 {
        tokio::task::yield_now().await;
    }
    let seen = seen();
    (seen, informer, asked)
}

fn changes(last: usize) -> Vec<Bit> {
    let versions = 11..=last;
    versions
        .map(|version| modified("a", &version.to_string()))
        .collect()
}

fn numbers(last: usize) -> Vec<String> {
    (11..=last).map(|version| version.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_come_together_are_delivered_in_order_and_a_watch_that_ends_goes_on_after_them()
 {
    const LAST: usize = 5_000;
    let _permits = ALL_PERMITS.lock().await;
    let (seen, _informer, asked) = followed(text(changes(LAST)), LAST).await;
    assert!(seen == numbers(LAST), "{} changes", seen.len());
    // The end of the body comes after all of its lines.
    let again = || asked.lock().unwrap().get(1).cloned();
    while again().is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(again().unwrap().get("resourceVersion"), LAST.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_before_a_broken_line_counts_and_nothing_after_it() {
    const LAST: usize = 3_000;
    let _permits = ALL_PERMITS.lock().await;
    let broken = r#"{"type":"ADDED","object":{"metad"#;
    let after = modified("a", "9000");
    let lines = changes(LAST).into_iter();
    let lines = lines.chain([Bit::Line(broken.to_owned()), after]);
    let (seen, informer, _asked) = followed(text(lines), LAST).await;
    assert!(seen == numbers(LAST), "{} changes", seen.len());
    let activity = || informer.health().watches[0].activity;
    while activity() != Activity::BackingOff {
        tokio::task::yield_now().await;
    }
    let failure = informer.health().watches[0].failure.clone().unwrap();
    assert_eq!(failure.class, "decode", "{}", failure.message);
    assert_eq!(
        informer.last_sync_resource_version().as_str(),
        LAST.to_string()
    );
}
