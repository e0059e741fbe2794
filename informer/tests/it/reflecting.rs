//! A reflector with a queue and a consumer of its own, without an informer; and the log of reflectors.

use std::io::Write;
use std::sync::{Arc, Once};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::Mutex;
use reeve_informer::{Delta, Endpoint, Fifo, RealFifo, Reflector, SharedInformer, Stored};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::fmt::MakeWriter;

use crate::harness::{clock, millis, seconds, start};
use crate::script::*;

#[tokio::test(start_paused = true)]
async fn a_reflector_feeds_any_queue_and_waits_for_its_consumer() {
    let bits: Vec<_> = (11..=30)
        .map(|version| modified("a", &version.to_string()))
        .collect();
    let script = Script::new([no_streaming(), list("10", &[object("a", "5")]), watch(bits)]);
    let fifo = Arc::new(RealFifo::<ConfigMap>::new(4));
    let endpoint = Endpoint::of::<ConfigMap>();
    let reflector = Reflector::builder(script.client(), endpoint, Arc::clone(&fifo) as _)
        .clock(clock())
        .build();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { reflector.run(stop).await }
    });
    let mut versions = Vec::new();
    while versions.last().map(String::as_str) != Some("30") {
        fifo.readable().notified().await;
        millis(10).await;
        assert!(fifo.len() <= 4, "{} deltas wait", fifo.len());
        while fifo.process(&mut |batch| {
            versions.extend(
                batch
                    .deltas
                    .iter()
                    .filter_map(Delta::object)
                    .map(|map| map.resource_version().to_owned()),
            );
        }) {}
    }
    assert_eq!(versions.len(), 20);
    stop.cancel();
    running.await.unwrap();
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Catches the log of this thread while the guard lives.
    ///
    /// Threads of other tests get a subscriber that accepts everything and keeps nothing. Without it, tracing would
    /// cache that a line has no subscriber, if one of them reaches it first.
    fn catch(&self, level: tracing::Level) -> tracing::subscriber::DefaultGuard {
        static OTHERS: Once = Once::new();
        OTHERS.call_once(|| {
            tracing::subscriber::set_global_default(tracing_subscriber::registry())
                .expect("there is no other");
        });
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(level)
            .with_writer(self.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn no_content_of_a_secret_reaches_a_log_or_health() {
    let log = Log::default();
    let _logging = log.catch(tracing::Level::TRACE);
    let broken = r#"{"metadata":{"name":"s","namespace":"n","resourceVersion":"7"},"data":{"password":"aHVudGVyMg=="},"type":["hunter2"]}"#;
    let cut =
        format!(r#"{{"metadata":{{"resourceVersion":"10"}},"items":[{broken},{{"data":"hunter2"#);
    let script = Script::new([
        no_streaming(),
        json(200, cut),
        json(500, "hunter2 from a proxy"),
        list("10", &[broken.to_owned()]),
        ending([
            event("ADDED", broken),
            Bit::Line("{\"type\":\"ADDED\",\"object\":\"hunter2\"".into()),
        ]),
    ]);
    let informer = SharedInformer::<Secret>::builder(script.client())
        .clock(clock())
        .build();
    let running = tokio::spawn({
        let informer = informer.clone();
        async move { informer.run(CancellationToken::new()).await }
    });
    seconds(60).await;
    assert_eq!(informer.health().quarantined_count, 1);
    let health = format!("{:?} {:?}", informer.health(), informer);
    running.abort();
    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    assert!(
        log.contains("cannot read an object") && log.contains("n/s"),
        "it is logged: {log}"
    );
    for text in [log, health] {
        assert!(
            !text.contains("hunter2") && !text.contains("aHVudGVyMg"),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn failures_that_take_turns_are_logged_once_each() {
    let log = Log::default();
    let _logging = log.catch(tracing::Level::INFO);
    let mut answers = vec![no_streaming()];
    answers.extend((0..10).flat_map(|_| [status(403, "Forbidden"), Answer::Refuse]));
    answers.push(list("10", &[]));
    let script = Script::new(answers).otherwise(|_| watch([]));
    let running = start(&script);
    seconds(1800).await;
    assert!(running.informer.health().is_ready());
    running.stop().await;
    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    assert_eq!(log.lines().count(), 3, "two failures and their end: {log}");
    assert!(log.contains("attempts=20"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_stays_is_logged_once() {
    for code in [403, 404, 500] {
        is_logged_once(code).await;
    }
}

async fn is_logged_once(code: u16) {
    let log = Log::default();
    let _logging = log.catch(tracing::Level::INFO);
    let mut answers = vec![no_streaming()];
    answers.extend((0..20).map(|_| status(code, "Reason")));
    answers.push(list("10", &[]));
    let script = Script::new(answers).otherwise(|_| watch([]));
    let informer = SharedInformer::<ConfigMap>::builder(script.client())
        .clock(clock())
        .build();
    let running = tokio::spawn({
        let informer = informer.clone();
        async move { informer.run(CancellationToken::new()).await }
    });
    seconds(1800).await;
    assert!(informer.health().is_ready());
    running.abort();
    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    assert_eq!(
        log.lines().count(),
        2,
        "one for the failure, one for its end: {log}"
    );
    assert!(log.contains("attempts=20"), "{log}");
}
