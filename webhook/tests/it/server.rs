//! The server: limits, deadlines, panics, metrics, and the order of a stop.

use std::sync::Arc;
use std::time::Duration;

use http::Request as HttpRequest;
use http_body_util::Full;
use k8s_openapi::api::core::v1::Pod;
use prometheus_client::registry::Registry;
use reeve_webhook::admission::{Request, Verdict};
use reeve_webhook::testing::Call;
use reeve_webhook::{Metrics, Server, Webhook};
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{Got, Session};
use crate::conversion::{review, website, websites};

const PODS: &str = "/validate--v1-pod";

fn server() -> Server {
    Server::at(([127, 0, 0, 1], 0).into())
}

/// Denies Pods, by their names: `panic`, `panic-late`, `wait`, `error`; and allows others.
fn pods() -> Webhook {
    Webhook::validating("pods.example.com", |request: Request<Pod>| {
        assert!(request.name != "panic", "a panic before the first await");
        async move {
            match request.name.as_str() {
                "panic-late" => {
                    tokio::task::yield_now().await;
                    panic!("a panic after it");
                }
                "wait" => std::future::pending().await,
                "error" => Err("no connection to the database"),
                name => Ok(Verdict::allow().audit("pod", name)),
            }
        }
    })
}

fn pod(name: &str) -> String {
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.to_owned());
    Call::create(&pod).review().to_string()
}

fn answered(got: &Got) -> Value {
    assert_eq!(
        (got.code, got.headers["content-type"].as_bytes()),
        (200, &b"application/json"[..]),
        "{got:?}"
    );
    serde_json::from_str(&got.body).unwrap()
}

#[tokio::test]
async fn both_protocols_answer_reviews_over_tls_and_the_port_has_its_own_readiness() {
    let bound = server()
        .webhook(pods())
        .conversion(websites())
        .bind()
        .await
        .unwrap();
    let (address, root) = (bound.local_addr(), bound.certificates().chain().remove(0));
    let stop = CancellationToken::new();
    let readiness = bound.readiness().clone();
    let running = tokio::spawn(bound.run(stop.clone()));
    for protocol in ["h2", "http/1.1"] {
        let mut session = Session::tls(address, root.clone(), protocol).await;
        let got = session.post(&format!("{PODS}?timeout=10s"), pod("a")).await;
        let answer = answered(&got);
        assert_eq!(answer["response"]["allowed"], true);
        assert_eq!(answer["response"]["auditAnnotations"]["pod"], "a");
        let object = website("v1", "a", serde_json::json!({"host": "a", "size": "small"}));
        let got = session
            .post("/convert", review("example.com/v2", vec![object]))
            .await;
        assert_eq!(
            answered(&got)["response"]["convertedObjects"][0]["spec"]["replicas"],
            1
        );
        assert_eq!(session.post("/other", "{}").await.code, 404);

        let ready = || {
            HttpRequest::get("https://localhost/readyz")
                .body(Full::default())
                .unwrap()
        };
        assert_eq!(session.send(ready()).await.unwrap().code, 200);
        readiness
            .checks()
            .add("informers", || Err("pods are not listed yet".to_owned()));
        assert_eq!(session.send(ready()).await.unwrap().code, 500);
        assert_eq!(
            readiness.check(),
            Err("informers: pods are not listed yet".to_owned())
        );
        readiness.checks().remove("informers");
    }
    running.abort();
}

#[tokio::test]
async fn what_is_not_a_review_is_refused_with_the_reason() {
    let handler = server().webhook(pods()).body_limit(4096).handler().unwrap();
    let mut session = Session::in_memory(handler).await;
    let post = || HttpRequest::post(format!("https://localhost{PODS}"));
    let json = || post().header("content-type", "application/json; charset=utf-8");
    let body = |text: &str| Full::from(text.to_owned());
    for (request, code, expected) in [
        (
            HttpRequest::get(format!("https://localhost{PODS}")).body(body("")),
            405,
            "sent by POST",
        ),
        (
            post().body(body("{}")),
            415,
            "the content type is \"\", and reviews are application/json",
        ),
        (
            post().header("content-type", "text/plain").body(body("{}")),
            415,
            "text/plain",
        ),
        (json().body(body("")), 400, "the body is empty"),
        (
            json().body(body("{\"apiVersion\":")),
            400,
            "EOF while parsing a value at line 1",
        ),
        (
            json().body(body(
                r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#,
            )),
            400,
            "name v1 alone",
        ),
        (
            json().body(body(&format!("{{\"a\":\"{}\"}}", "x".repeat(4096)))),
            413,
            "longer than 4096 bytes",
        ),
        (
            json().body(body(&pod("error"))),
            500,
            "pods.example.com failed: no connection to the database",
        ),
        (
            json().body(body(&pod("panic"))),
            500,
            "pods.example.com panicked",
        ),
        (
            json().body(body(&pod("panic-late"))),
            500,
            "pods.example.com panicked",
        ),
        (json().body(body(&pod("a"))), 200, "\"allowed\":true"),
    ] {
        let got = session.send(request.unwrap()).await.unwrap();
        assert_eq!(got.code, code, "{expected}: {got:?}");
        assert!(got.body.contains(expected), "{expected}: {got:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_when_the_api_server_stops_waiting() {
    let mut session = Session::in_memory(server().webhook(pods()).handler().unwrap()).await;
    for (query, seconds) in [("?timeout=3s", 3), ("", 30), ("?timeout=1m", 30)] {
        let begun = Instant::now();
        let got = session.post(&format!("{PODS}{query}"), pod("wait")).await;
        assert_eq!(got.code, 504);
        assert_eq!(
            got.body,
            format!("pods.example.com did not answer within {seconds}s\n")
        );
        assert_eq!(begun.elapsed().as_secs(), seconds);
    }
}

#[tokio::test(start_paused = true)]
async fn the_handler_gets_the_deadline_of_its_call() {
    let (sends, mut left) = mpsc::unbounded_channel();
    let webhook = Webhook::validating("deadline", move |request: Request<Pod>| {
        let rest = request.deadline.map(|deadline| deadline - Instant::now());
        let _ = sends.send(rest);
        async { Verdict::allow() }
    });
    let mut session = Session::in_memory(server().webhook(webhook).handler().unwrap()).await;
    answered(&session.post(&format!("{PODS}?timeout=7s"), pod("a")).await);
    assert_eq!(left.recv().await.unwrap(), Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn a_call_too_many_is_sent_again_later_and_metrics_count_all() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let series = move |name: &str| {
        let text = reeve_serve::metrics::encode(&registry);
        let line = text
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{name} in {text}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let (enters, mut entered) = mpsc::unbounded_channel();
    let goes_on = Arc::new(Notify::new());
    let waits = Arc::clone(&goes_on);
    let slow = Webhook::validating("slow", move |_: Request<Pod>| {
        let _ = enters.send(());
        let waits = Arc::clone(&waits);
        async move {
            waits.notified().await;
            Verdict::allow()
        }
    });
    let server = server()
        .webhook(slow)
        .webhook(pods().at("/pods"))
        .most_calls(1)
        .metrics(metrics);
    let session = Session::in_memory(server.handler().unwrap()).await;
    let mut first = session.another();
    let first = tokio::spawn(async move { first.post(PODS, pod("a")).await });
    entered.recv().await.unwrap();
    let in_flight = format!("controller_runtime_webhook_requests_in_flight{{webhook=\"{PODS}\"}}");
    assert_eq!(series(&in_flight), 1.0);
    let mut second = session.another();
    let refused = second.post(PODS, pod("b")).await;
    assert_eq!(
        (refused.code, refused.headers["retry-after"].as_bytes()),
        (429, &b"1"[..])
    );
    assert_eq!(refused.body, "too many calls at once; send it again\n");
    goes_on.notify_one();
    answered(&first.await.unwrap());
    assert_eq!(second.post("/pods", pod("panic")).await.code, 500);
    answered(&second.post("/pods", pod("a")).await);
    for (name, expected) in [
        (in_flight.as_str(), 0.0),
        (
            "controller_runtime_webhook_requests_total{webhook=\"/validate--v1-pod\",code=\"200\"}",
            1.0,
        ),
        (
            "controller_runtime_webhook_requests_total{webhook=\"/validate--v1-pod\",code=\"429\"}",
            1.0,
        ),
        (
            "controller_runtime_webhook_requests_total{webhook=\"/validate--v1-pod\",code=\"500\"}",
            0.0,
        ),
        (
            "controller_runtime_webhook_requests_total{webhook=\"/pods\",code=\"500\"}",
            1.0,
        ),
        (
            "controller_runtime_webhook_latency_seconds_count{webhook=\"/pods\"}",
            2.0,
        ),
        ("controller_runtime_webhook_panics_total", 1.0),
        ("controller_runtime_conversion_webhook_panics_total", 0.0),
    ] {
        assert_eq!(series(name), expected, "{name}");
    }
}

#[tokio::test]
async fn a_server_that_stops_fails_its_readiness_first_and_answers_meanwhile() {
    let hour = Duration::from_secs(3600);
    let bound = server().webhook(pods()).linger(hour).bind().await.unwrap();
    let (address, root) = (bound.local_addr(), bound.certificates().chain().remove(0));
    let readiness = bound.readiness().clone();
    let stop = CancellationToken::new();
    let running = tokio::spawn(bound.run(stop.clone()));
    let mut kept = Session::tls(address, root.clone(), "h2").await;
    answered(&kept.post(PODS, pod("a")).await);
    stop.cancel();
    while readiness.check().is_ok() {
        tokio::task::yield_now().await;
    }
    answered(&kept.post(PODS, pod("a")).await);
    let mut fresh = Session::tls(address, root, "h2").await;
    answered(&fresh.post(PODS, pod("a")).await);
    let ready = HttpRequest::get("https://localhost/readyz")
        .body(Full::default())
        .unwrap();
    assert_eq!(fresh.send(ready).await.unwrap().code, 500);
    assert!(!running.is_finished());
    running.abort();
}

#[tokio::test]
async fn a_stop_answers_the_calls_in_work() {
    let (enters, mut entered) = mpsc::unbounded_channel();
    let goes_on = Arc::new(Notify::new());
    let waits = Arc::clone(&goes_on);
    let slow = Webhook::validating("slow", move |_: Request<Pod>| {
        let _ = enters.send(());
        let waits = Arc::clone(&waits);
        async move {
            waits.notified().await;
            Verdict::allow()
        }
    });
    let bound = server()
        .webhook(slow)
        .linger(Duration::ZERO)
        .bind()
        .await
        .unwrap();
    let (address, root) = (bound.local_addr(), bound.certificates().chain().remove(0));
    let stop = CancellationToken::new();
    let running = tokio::spawn(bound.run(stop.clone()));
    let mut session = Session::tls(address, root, "h2").await;
    let call = tokio::spawn(async move { session.post(PODS, pod("a")).await });
    entered.recv().await.unwrap();
    stop.cancel();
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    goes_on.notify_one();
    answered(&call.await.unwrap());
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_call_that_its_client_gives_up_is_dropped() {
    struct Dropped(mpsc::UnboundedSender<()>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (drops, mut dropped) = mpsc::unbounded_channel();
    let (enters, mut entered) = mpsc::unbounded_channel();
    let webhook = Webhook::validating("pending", move |_: Request<Pod>| {
        let guard = Dropped(drops.clone());
        let _ = enters.send(());
        async move {
            let _guard = guard;
            std::future::pending::<Verdict>().await
        }
    });
    let bound = server().webhook(webhook).bind().await.unwrap();
    let (address, root) = (bound.local_addr(), bound.certificates().chain().remove(0));
    let running = tokio::spawn(bound.run(CancellationToken::new()));
    let mut session = Session::tls(address, root, "h2").await;
    let call = tokio::spawn(async move { session.post(PODS, pod("a")).await });
    entered.recv().await.unwrap();
    call.abort();
    dropped.recv().await.unwrap();
    running.abort();
}

#[tokio::test]
async fn two_webhooks_of_one_path_are_refused() {
    let error = server()
        .webhook(pods())
        .webhook(pods())
        .bind()
        .await
        .unwrap_err();
    let expected = format!(
        "the webhook server: there is a handler for {PODS} already; `at` sets another path"
    );
    assert_eq!(error.to_string(), expected);
}
