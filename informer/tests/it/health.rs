//! The health of an informer.

use reeve_informer::{Activity, HandlerOptions, ObjectKey};

use crate::harness::{builder, millis, run, seconds, start};
use crate::script::*;

#[tokio::test(start_paused = true)]
async fn health_has_the_activity_of_the_informer_and_its_begin() {
    let script = Script::new([
        no_streaming(),
        Answer::Refuse,
        no_streaming(),
        list("10", &[object("a", "1")]),
        watch([wait(5), added("b", "11")]),
    ]);
    let informer = builder(&script).build();
    assert_eq!(informer.health().activity, Activity::Idle);
    assert_eq!(informer.health().last_heard, None);
    assert_eq!(informer.health().last_change, None);
    let made = informer.health().since;
    let running = run(informer.clone());
    millis(1).await;
    let health = informer.health();
    assert_eq!(
        (health.activity, health.synced),
        (Activity::BackingOff, false)
    );
    assert_eq!(
        health.failure.as_ref().map(|failure| failure.times),
        Some(1)
    );
    let trouble = health.trouble().unwrap();
    assert!(
        trouble.starts_with("configmaps: failing 1 time since 2026-01-01T00:00:00"),
        "{trouble}"
    );
    seconds(20).await;
    let health = informer.health();
    assert_eq!(
        (health.activity, health.trouble()),
        (Activity::Watching, None)
    );
    assert!(health.since > made && health.is_ready());
    let heard = health.last_heard.unwrap();
    assert!(heard > health.since, "the event came later than the watch");
    let changed = health.last_change.unwrap();
    assert_eq!(changed.as_microsecond(), heard.as_microsecond());
    let last = health.last_failure.unwrap();
    assert_eq!((last.class, last.times), ("status", 2), "{last:?}");
    assert_eq!((health.objects, health.queued), (2, 0));
    assert!(health.bytes.total() > 0);
    assert_eq!(
        (health.resource_version.as_str(), health.watches.len()),
        ("11", 1)
    );
    assert_eq!(health.watches[0].activity, Activity::Watching);
    running.stop().await;
    assert_eq!(informer.health().activity, Activity::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_the_server_does_not_have_is_missing_until_it_has() {
    let mut answers = vec![
        no_streaming(),
        list("10", &[object("a", "5")]),
        ending([wait(2)]),
    ];
    answers.extend((0..5).map(|_| status(404, "NotFound")));
    let script = Script::new(answers).otherwise(|asked| match asked.verb() {
        "stream" => no_streaming(),
        "list" => list("20", &[object("a", "5")]),
        _ => watch([]),
    });
    let running = start(&script);
    running.handle.wait_synced().await.unwrap();
    seconds(20).await;
    let health = running.informer.health();
    assert_eq!(health.activity, Activity::Missing);
    assert!(!health.is_ready() && health.synced, "the known state stays");
    assert!(
        health.trouble().unwrap().contains("404"),
        "{:?}",
        health.trouble()
    );
    assert_eq!(running.store(), "a@5");
    seconds(600).await;
    let health = running.informer.health();
    assert_eq!(health.activity, Activity::Watching);
    assert_eq!(health.trouble(), None);
    let last = health.last_failure.unwrap();
    assert_eq!((last.class, last.times), ("not found", 5), "{last:?}");
}

#[cfg(feature = "prometheus")]
#[tokio::test(start_paused = true)]
async fn metrics_have_the_names_and_labels_that_are_promised() {
    use std::sync::Arc;

    use reeve_informer::HandlerOptions;

    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = Arc::new(reeve_informer::prometheus::Metrics::register(&mut registry));
    let script = Script::new([
        no_streaming(),
        list("10", &[object("a", "1"), broken("b", "2")]),
        ending([wait(3), added("c", "11"), modified("a", "12")]),
        Answer::Refuse,
    ])
    .otherwise(|_| watch([]));
    let informer = builder(&script).metrics(metrics).build();
    let bad = |_| panic!("on purpose");
    let bad = informer.add_handler(bad, HandlerOptions::new().name("bad"));
    let running = run(informer);
    seconds(60).await;
    let text = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    };
    let received = text();
    let labels = r#"name="configmaps",group="",version="v1",resource="configmaps""#;
    for (metric, more, value) in [
        ("informer_queued_items", "", "0.0"),
        ("informer_processing_latency_seconds_count", "", "3"),
        ("informer_store_resource_version", "", "12.0"),
        ("reflector_last_resource_version", "", "12.0"),
        ("reflector_lists_total", "", "1"),
        ("reflector_list_duration_seconds_count", "", "1"),
        ("reflector_items_per_list_sum", "", "1.0"),
        ("reflector_watches_total", "", "1"),
        ("reflector_short_watches_total", "", "0"),
        ("reflector_watch_duration_seconds_sum", "", "3.0"),
        ("reflector_items_per_watch_sum", "", "2.0"),
        ("reflector_failures_total", r#",reason="watch""#, "1"),
        ("reflector_failures_total", r#",reason="stale_list""#, "0"),
        ("informer_activity", r#",activity="watching""#, "1.0"),
        ("informer_activity", r#",activity="backing_off""#, "0.0"),
        ("informer_synced", "", "1.0"),
        ("informer_objects", "", "2.0"),
        ("informer_quarantined_objects", "", "1.0"),
        ("informer_unreadable_objects_total", "", "0"),
        ("informer_handler_backlog", r#",handler="bad""#, "0.0"),
        (
            "informer_handler_events_total",
            r#",handler="bad",result="panicked""#,
            "3",
        ),
        (
            "informer_handler_events_total",
            r#",handler="bad",result="dropped""#,
            "0",
        ),
    ] {
        let line = format!("{metric}{{{labels}{more}}} {value}\n");
        assert!(received.contains(&line), "{line} in\n{received}");
    }
    for metric in [
        "informer_store_bytes",
        "informer_last_heard_timestamp_seconds",
    ] {
        assert!(
            received.contains(&format!("{metric}{{{labels}}} ")),
            "{metric} in\n{received}"
        );
    }
    drop(bad);
    running.stop().await;
    seconds(1).await;
    let received = text();
    let left: Vec<&str> = received.lines().filter(|line| line.contains('{')).collect();
    assert!(
        left.is_empty(),
        "it is gone, with what it counted: {left:?}"
    );
}

/// The pipeline waits for the loan under the lock that a health would wait for.
#[tokio::test(start_paused = true)]
async fn an_informer_cannot_be_asked_from_within_a_loan_of_its_store() {
    let script = Script::new([no_streaming(), list("10", &[object("a", "5")]), watch([])]);
    let running = start(&script);
    running.informer.wait_synced().await.unwrap();
    let (informer, key) = (&running.informer, ObjectKey::namespaced("n", "a"));
    let asks = || informer.lister().with(&key, |_| informer.health());
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(asks)).expect_err("a deadlock otherwise");
    let adds = || {
        let options = HandlerOptions::new();
        informer
            .lister()
            .with(&key, |_| informer.add_handler(|_| {}, options))
    };
    let added = std::panic::catch_unwind(std::panic::AssertUnwindSafe(adds));
    assert!(added.is_err());
    assert!(informer.health().is_ready());
    running.stop().await;
}
