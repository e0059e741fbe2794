//! Watches of one version share what a webhook converted.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube_client::client::Body;
use reeve_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::service_fn;

use super::conversions::{addresses, at, converted, converting};
use super::definitions::FOOS_V2;
use crate::rules::raw::*;

/// The objects of each review.
fn batches(asked: &[Value]) -> Vec<usize> {
    let objects = asked.iter().map(|review| &review["request"]["objects"]);
    objects.map(|all| all.as_array().unwrap().len()).collect()
}

async fn add(server: &ApiServer, name: &str) {
    let made = post(server, FOOS, &at(name, &format!("{name}:1"))).await;
    made.expect_ok();
}

#[tokio::test(start_paused = true)]
async fn an_event_is_converted_once_for_two_watches_also_if_they_are_behind() {
    let (server, asked) = converting(|_| {}).await;
    let path = format!("{FOOS_V2}?watch=true");
    let mut watches = [watch(&server, &path).await, watch(&server, &path).await];
    let mut expect = async |names: &[&str]| {
        for frames in &mut watches {
            for name in names {
                let event = frames.next().await.unwrap();
                let spec = json!({"host": name, "port": "1"});
                assert_eq!(event["object"]["spec"], spec);
            }
        }
    };
    add(&server, "a").await;
    expect(&["a"]).await;
    assert_eq!(batches(&asked.lock()), [1]);
    for name in ["b", "c", "d"] {
        add(&server, name).await;
    }
    expect(&["b", "c", "d"]).await;
    let objects: usize = batches(&asked.lock()).iter().sum();
    assert_eq!(objects, 4);
    // A watch of the stored version needs none.
    let mut stored = watch(&server, &format!("{FOOS}?watch=true")).await;
    add(&server, "e").await;
    stored.next().await.unwrap();
    assert_eq!(batches(&asked.lock()).iter().sum::<usize>(), 4);
}

/// Serves a webhook that takes a second for each call, and refuses the first `refused` calls; counts them.
fn serve_slow(server: &ApiServer, refused: usize) -> Arc<AtomicUsize> {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let service = service_fn(move |request: Request<Body>| {
        let call = count.fetch_add(1, Ordering::Relaxed);
        async move {
            let body = request.into_body().collect().await;
            let review: Value = serde_json::from_slice(&body.unwrap().to_bytes()).unwrap();
            sleep(Duration::from_secs(1)).await;
            let mut answer = converted(&review);
            if call < refused {
                answer["response"] = json!({"uid": review["request"]["uid"], "result": {"status": "Failed", "message": "not now"}});
            }
            Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
        }
    });
    server.serve_webhooks("ops", "hooks", service);
    calls
}

#[tokio::test(start_paused = true)]
async fn watches_that_come_together_wait_for_one_call_and_one_may_leave() {
    let server = server().await;
    let calls = serve_slow(&server, 0);
    post(&server, CRDS, &addresses(&["v1"])).await.expect_ok();
    let path = format!("{FOOS_V2}?watch=true");
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(watch(&server, &path).await);
    }
    let mut leaving = watches.pop().unwrap();
    add(&server, "a").await;
    let start = Instant::now();
    // The watch whose call it is ends before the answer.
    let left = tokio::time::timeout(Duration::from_millis(300), leaving.next()).await;
    assert!(left.is_err());
    drop(leaving);
    let [mut one, mut other]: [_; 2] = watches.try_into().ok().unwrap();
    let (first, second) = tokio::join!(one.next(), other.next());
    assert_eq!(first, second);
    assert_eq!(first.unwrap()["object"]["spec"]["host"], "a");
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(calls.load(Ordering::Relaxed) <= 2, "one of each that led");
}

#[tokio::test(start_paused = true)]
async fn a_refused_conversion_is_not_kept_for_the_next_watch() {
    let server = server().await;
    let calls = serve_slow(&server, 1);
    post(&server, CRDS, &addresses(&["v1"])).await.expect_ok();
    let version = server.resource_version();
    add(&server, "a").await;
    let path = format!("{FOOS_V2}?watch=true&resourceVersion={version}");
    let mut refused = watch(&server, &path).await;
    let event = refused.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    let mut next = watch(&server, &path).await;
    let event = next.next().await.unwrap();
    assert_eq!(event["object"]["spec"]["host"], "a");
    let mut last = watch(&server, &path).await;
    assert_eq!(last.next().await.unwrap(), event);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}
