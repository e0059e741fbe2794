//! The writer against a small API server, under paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::fake::Managed as _;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::correlate::FINISH;
use super::*;
use crate::client::Client;
use crate::fake::{Fake, Fate, clock, eventually, eventually_within};
use crate::manager::{Error, Manager};

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/ns/events";

struct Setup {
    fake: Fake,
    recorder: Recorder,
    dropped: Counter,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

fn setup() -> Setup {
    process(&Fake::default(), &clock())
}

/// A process that writes events to `fake`.
fn process(fake: &Fake, clock: &Clock) -> Setup {
    let (fake, clock) = (fake.clone(), clock.clone());
    let client = Client::new(fake.client());
    let (writer, queue) = Writer::new(client, clock.clone(), "pod-0".into());
    let dropped = Counter::default();
    let recorder = Recorder::new("example.com/test", queue, dropped.clone(), clock);
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let writing = writer.run(stop.clone());
    tasks.spawn(async move { assert_eq!(writing.await, 0, "nothing is given up") });
    Setup {
        fake,
        recorder,
        dropped,
        stop,
        tasks,
    }
}

fn object() -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("ns".into());
    object.metadata.name = Some("web".into());
    object.metadata.uid = Some("u".into());
    object
}

impl Setup {
    fn record(&self, note: &str) {
        let warning = EventType::Warning;
        self.recorder
            .event(&object(), warning, "Failed", "Apply", note);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_is_written_as_the_api_wants_it() {
    let setup = setup();
    setup.record("no route");
    eventually("written", || !setup.fake.objects(EVENTS).is_empty()).await;
    let event = setup.fake.objects(EVENTS).remove(0);
    assert_eq!(event["apiVersion"], "events.k8s.io/v1");
    for (field, value) in [
        ("type", "Warning"),
        ("reason", "Failed"),
        ("action", "Apply"),
        ("note", "no route"),
        ("reportingController", "example.com/test"),
        ("reportingInstance", "pod-0"),
        ("eventTime", "2026-01-01T00:00:00.000000Z"),
    ] {
        assert_eq!(event[field], value, "{field}");
    }
    let regarding = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "ns", "name": "web", "uid": "u"});
    assert_eq!(event["regarding"], regarding);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_event_becomes_a_series_in_one_object() {
    let setup = setup();
    for _ in 0..10 {
        setup.record("no route");
        sleep(Duration::from_secs(1)).await;
    }
    let first = |setup: &Setup| setup.fake.objects(EVENTS).remove(0);
    assert_eq!(setup.fake.objects(EVENTS).len(), 1);
    assert_eq!(first(&setup)["series"]["count"], 2);
    sleep(FINISH + Duration::from_secs(120)).await;
    let series = json!({"count": 10, "lastObservedTime": "2026-01-01T00:00:09.000000Z"});
    assert_eq!(first(&setup)["series"], series, "the tenth was at 9 s");
    let writes = setup.fake.log();
    let verbs: Vec<&str> = writes
        .iter()
        .map(|line| &line[..line.find(' ').unwrap()])
        .collect();
    assert_eq!(
        verbs,
        ["POST", "PATCH", "PATCH"],
        "create and patch, nothing else"
    );
}

#[tokio::test(start_paused = true)]
async fn two_events_of_one_moment_have_two_names() {
    let setup = setup();
    setup.record("one");
    setup.record("two");
    eventually("both written", || setup.fake.objects(EVENTS).len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_series_whose_object_expired_starts_again() {
    let setup = setup();
    setup.record("no route");
    eventually("written", || setup.fake.objects(EVENTS).len() == 1).await;
    let name = setup.fake.objects(EVENTS)[0]["metadata"]["name"].clone();
    setup
        .fake
        .remove(&format!("{EVENTS}/{}", name.as_str().unwrap()));
    setup.record("no route");
    eventually("written again", || setup.fake.objects(EVENTS).len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_count_of_an_object_that_expired_leaves_a_new_series_alone() {
    let setup = setup();
    for _ in 0..3 {
        setup.record("no route");
        sleep(Duration::from_secs(1)).await;
    }
    let name = setup.fake.objects(EVENTS)[0]["metadata"]["name"].clone();
    setup
        .fake
        .remove(&format!("{EVENTS}/{}", name.as_str().unwrap()));
    let sent = Arc::new(AtomicBool::new(false));
    let is_sent = Arc::clone(&sent);
    setup.fake.hook(move |method, _| {
        let is_patch = *method == Method::PATCH;
        sent.fetch_or(is_patch, Ordering::Relaxed);
        is_patch.then_some(Fate::Slow(Duration::from_secs(5)))
    });
    // While the series that has ended is written, an event of the same kind begins another one.
    let is_sent = || is_sent.load(Ordering::Relaxed);
    eventually_within(FINISH * 2, "the last count is sent", is_sent).await;
    setup.record("no route");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(setup.fake.objects(EVENTS).len(), 1, "the new object alone");
    setup.record("no route");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(setup.fake.objects(EVENTS)[0]["series"]["count"], 2);
}

#[tokio::test(start_paused = true)]
async fn writing_is_tried_again_until_the_server_answers() {
    let setup = setup();
    let mut times = 0;
    setup.fake.hook(move |method, _| {
        times += i32::from(*method == Method::POST);
        match times {
            1 => Some(Fate::Refuse(503)),
            2 => Some(Fate::Lose),
            _ => None,
        }
    });
    setup.record("no route");
    eventually_within(Duration::from_secs(30), "written", || {
        setup.fake.log().len() == 3
    })
    .await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        setup.fake.objects(EVENTS).len(),
        1,
        "the lost answer did not double it"
    );
    assert_eq!(setup.dropped.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_name_another_process_took_gets_another_name_and_its_series_too() {
    let (fake, clock) = (Fake::default(), clock());
    let before = process(&fake, &clock);
    before.record("before the restart");
    // At the same moment, on a clock that was set back, or is stopped.
    let after = process(&fake, &clock);
    after.record("after the restart");
    for _ in 0..4 {
        after.record("after the restart");
    }
    eventually("written", || fake.objects(EVENTS).len() == 2).await;
    assert_eq!(before.dropped.get() + after.dropped.get(), 0);
    let event = |note: &str| {
        let events = fake.objects(EVENTS);
        let event = events.into_iter().find(|event| event["note"] == note);
        event.unwrap_or_else(|| panic!("{note}"))
    };
    eventually("counted", || {
        event("after the restart")["series"]["count"] == 5
    })
    .await;
    assert!(event("before the restart")["series"].is_null());
}

#[tokio::test(start_paused = true)]
async fn what_the_server_refuses_or_never_takes_is_dropped_and_counted() {
    let setup = setup();
    setup.fake.hook(|_, _| Some(Fate::Refuse(403)));
    setup.record("forbidden");
    eventually("dropped", || setup.dropped.get() == 1).await;
    assert_eq!(setup.fake.log().len(), 1, "a refusal is not tried again");
    setup.fake.hook(|_, _| Some(Fate::Refuse(500)));
    setup.record("down");
    eventually_within(Duration::from_secs(150), "dropped", || {
        setup.dropped.get() == 2
    })
    .await;
    assert_eq!(setup.fake.log().len(), 1 + 12);
}

#[tokio::test(start_paused = true)]
async fn a_count_that_the_server_refuses_is_dropped_and_counted() {
    let setup = setup();
    for _ in 0..3 {
        setup.record("no route");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(setup.fake.log().len(), 2, "the event, and its second");
    setup.fake.hook(|_, _| Some(Fate::Refuse(403)));
    sleep(FINISH + Duration::from_secs(120)).await;
    assert_eq!(setup.fake.log().len(), 3);
    assert_eq!(setup.dropped.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_queued_at_the_stop_is_still_written_once() {
    let mut setup = setup();
    setup.record("last words");
    setup.stop.cancel();
    setup.tasks.join_next().await.unwrap().unwrap();
    assert_eq!(setup.fake.objects(EVENTS).len(), 1);
    setup.record("too late");
    assert_eq!(setup.dropped.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_counts_of_running_series_are_written_at_the_stop() {
    let mut setup = setup();
    for _ in 0..10 {
        setup.record("no route");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(setup.fake.objects(EVENTS)[0]["series"]["count"], 2);
    setup.stop.cancel();
    setup.tasks.join_next().await.unwrap().unwrap();
    assert_eq!(setup.fake.objects(EVENTS)[0]["series"]["count"], 10);
}

/// A running manager, with the duration and the result of its stop.
async fn stopped(
    manager: Manager,
    record: impl FnOnce(&Recorder),
) -> (Duration, Result<(), Error>) {
    let (stop, recorder) = (CancellationToken::new(), manager.recorder("test"));
    let token = stop.clone();
    let run = tokio::spawn(async move { manager.run(token).await });
    sleep(Duration::from_secs(1)).await;
    record(&recorder);
    let begin = tokio::time::Instant::now();
    stop.cancel();
    let result = run.await.unwrap();
    (begin.elapsed(), result)
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_server_is_silent_ends_within_the_grace() {
    let fake = Fake::default();
    fake.hook(|_, _| Some(Fate::Hang));
    let grace = Duration::from_secs(6);
    let manager = fake.manager();
    let manager = manager.grace_period(grace).build().await.unwrap();
    let (took, result) = stopped(manager, |recorder| {
        for number in 0..(QUEUE + 100) {
            let warning = EventType::Warning;
            recorder.event(&object(), warning, "Failed", "Apply", number.to_string());
        }
    })
    .await;
    assert!(took <= grace, "{took:?}");
    let error = result.unwrap_err();
    assert!(
        matches!(&error, Error::GraceExpired { names, .. } if names == &["events"]),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_writes_what_is_queued_and_takes_no_longer_than_that() {
    let fake = Fake::default();
    fake.hook(|_, _| Some(Fate::Slow(Duration::from_millis(100))));
    let manager = fake.manager();
    let manager = manager.build().await.unwrap();
    let (took, result) = stopped(manager, |recorder| {
        for reason in 0..20 {
            let reason = format!("Failed{reason}");
            recorder.event(&object(), EventType::Warning, &reason, "Apply", "no route");
        }
    })
    .await;
    result.unwrap();
    assert_eq!(fake.objects(EVENTS).len(), 20);
    assert!(
        took < Duration::from_secs(1),
        "{took:?}: no rest between them"
    );
}

#[tokio::test(start_paused = true)]
async fn notes_that_differ_each_time_make_ten_objects() {
    let setup = setup();
    for number in 0..200 {
        setup.record(&format!("attempt {number}"));
        sleep(Duration::from_millis(100)).await;
    }
    eventually("written", || setup.fake.objects(EVENTS).len() == SIMILAR).await;
    sleep(FINISH + Duration::from_secs(120)).await;
    let events = setup.fake.objects(EVENTS);
    assert_eq!(events.len(), SIMILAR);
    let combined = events
        .iter()
        .find(|event| event["note"].as_str().unwrap().starts_with(COMBINED));
    assert_eq!(combined.unwrap()["note"], format!("{COMBINED}attempt 9"));
    assert_eq!(combined.unwrap()["series"]["count"], 191);
    assert_eq!(setup.dropped.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn events_carry_annotations_and_the_second_object() {
    let setup = setup();
    let related = ObjectReference {
        kind: Some("Secret".into()),
        name: Some("key".into()),
        ..ObjectReference::default()
    };
    let recorder = setup.recorder.annotated([("example.com/by", "me")]);
    let record = || {
        let (regarding, warning) = (reference(&object()), EventType::Warning);
        recorder.event_for(&regarding, Some(&related), warning, "Failed", "Apply", "no");
    };
    record();
    eventually("written", || setup.fake.objects(EVENTS).len() == 1).await;
    for _ in 0..5 {
        record();
    }
    sleep(Duration::from_secs(1)).await;
    // The object is gone when the count of its series is due: the writer creates it again.
    let name = setup.fake.objects(EVENTS)[0]["metadata"]["name"].clone();
    let event = setup.fake.objects(EVENTS).remove(0);
    assert_eq!(event["metadata"]["annotations"]["example.com/by"], "me");
    assert_eq!(event["related"]["name"], "key");
    setup
        .fake
        .remove(&format!("{EVENTS}/{}", name.as_str().unwrap()));
    sleep(FINISH + Duration::from_secs(120)).await;
    let again = setup.fake.objects(EVENTS).remove(0);
    assert_eq!(again["related"], event["related"]);
    assert_eq!(again["type"], "Warning");
    setup.record("without");
    eventually("written", || setup.fake.objects(EVENTS).len() == 2).await;
    let events = setup.fake.objects(EVENTS);
    let plain = events.iter().find(|event| event["note"] == "without");
    assert!(plain.unwrap()["metadata"]["annotations"].is_null());
}

#[tokio::test(start_paused = true)]
async fn what_is_too_long_for_the_server_is_cut() {
    let setup = setup();
    let (long, name) = ("ä".repeat(1000), "n".repeat(200));
    let warning = EventType::Warning;
    setup.recorder.event(&object(), warning, &name, &name, long);
    eventually("written", || setup.fake.objects(EVENTS).len() == 1).await;
    let event = setup.fake.objects(EVENTS).remove(0);
    let length = |field: &str| event[field].as_str().unwrap().len();
    assert_eq!(
        (length("note"), length("reason"), length("action")),
        (NOTE, NAME, NAME)
    );
}

#[tokio::test(start_paused = true)]
async fn the_writer_writes_four_at_once_and_rests_three_times_as_long_for_each() {
    let setup = setup();
    let started = tokio::time::Instant::now();
    let (sent, mut at) = tokio::sync::mpsc::unbounded_channel();
    setup.fake.hook(move |_, _| {
        let _ = sent.send(started.elapsed());
        Some(Fate::Slow(Duration::from_millis(10)))
    });
    for note in ["one", "two", "three", "four", "five", "six"] {
        setup.record(note);
    }
    for expected in [0, 0, 0, 0, 130, 130] {
        let at = at.recv().await.expect("a write");
        assert!(at.as_millis().abs_diff(expected) <= 5, "{at:?}");
    }
}
