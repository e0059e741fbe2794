//! Sources that fail: what a controller says of them, and that it goes on.

use std::convert::Infallible;

use futures::stream::{self, StreamExt};

use super::*;
use crate::source::{Source, Wanted};

fn asked(name: &str) -> Request {
    Request::namespaced("ns", name)
}

/// A controller for ConfigMaps with `source` beside.
async fn with(fake: &Fake, seen: &Seen, source: impl Into<Source<Request>>) -> Running {
    fake.put(&path("a"), map("1"));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .watches_source(source)
        .complete(done(seen));
    start(fake, [controller.unwrap()]).await
}

fn why(running: &Running) -> String {
    let failures = running.manager.health().ready().failures();
    failures.into_iter().map(|(_, why)| why).collect()
}

fn shown(source: &str, cause: &str) -> String {
    format!(
        "reeve_controller_informer_unavailable{{controller=\"test\",informer=\"{source}\",cause=\"{cause}\"}} 1"
    )
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_or_panics_is_named_and_the_controller_goes_on() {
    let named = |name: &'static str| stream::iter([asked(name)]);
    let panics = named("b").chain(stream::once(async { panic!("out of order") }));
    // What was sent before its sender went still comes.
    let (sender, closed) = source::channel::<Request>(1);
    sender.try_send(asked("b")).unwrap();
    drop(sender);
    for (cause, text, source) in [
        ("source ended", "its stream ended", Source::from(named("b"))),
        ("source ended", "its stream ended", Source::from(closed)),
        (
            "source panicked",
            "it panicked: out of order",
            Source::from(panics),
        ),
    ] {
        let (fake, seen) = (Fake::default(), Seen::default());
        let running = with(&fake, &seen, source).await;
        eventually("both", || seen.lock().len() == 2).await;
        let start = format!("test lacks source 1: {text}");
        let why = why(&running);
        assert!(
            why.starts_with(&start) && why.ends_with(&format!("({cause})")),
            "{why}"
        );
        assert!(
            running
                .manager
                .metrics()
                .encode()
                .contains(&shown("source 1", cause))
        );
        fake.put(&path("c"), map("1"));
        eventually("it goes on", || seen.lock().last().unwrap() == "ns/c").await;
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_stream_that_has_one_is_no_fault() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let source = Source::from(stream::iter([asked("b")])).finite();
    let running = with(&fake, &seen, source).await;
    eventually("both", || seen.lock().len() == 2).await;
    assert_eq!(why(&running), "");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_does_not_start_is_tried_again_and_no_worker_starts_before() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let tries = Arc::new(AtomicU32::new(0));
    let well = Arc::new(AtomicBool::new(false));
    let (tried, is_well) = (Arc::clone(&tries), Arc::clone(&well));
    let source = Source::starting(move || {
        tried.fetch_add(1, Ordering::Relaxed);
        let well = is_well.load(Ordering::Relaxed);
        async move {
            let requests = stream::iter([Ok::<_, &str>(asked("b"))]);
            let requests = requests.chain(stream::pending());
            well.then_some(requests).ok_or("connection refused")
        }
    });
    let running = with(&fake, &seen, source.named("feed")).await;
    sleep(Duration::from_secs(600)).await;
    assert!(seen.lock().is_empty());
    let state = running.manager.health().runnables().remove(1).state;
    assert_eq!(state, State::Syncing);
    assert_eq!(
        why(&running),
        "test lacks feed: connection refused (source failed)"
    );
    assert!(
        running
            .manager
            .metrics()
            .encode()
            .contains(&shown("feed", "source failed"))
    );
    let tries = tries.load(Ordering::Relaxed);
    assert!(
        (12..=16).contains(&tries),
        "once a minute in the end: {tries}"
    );
    well.store(true, Ordering::Relaxed);
    eventually("it is read", || seen.lock().len() == 2).await;
    assert_eq!(why(&running), "");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_fails_is_started_again() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let mut starts = 0;
    let source = Source::starting(move || {
        starts += 1;
        let first = Ok(asked(&format!("start-{starts}")));
        let last = if starts == 1 {
            Some(Err("reset by peer"))
        } else {
            None
        };
        let rest: stream::BoxStream<'static, _> = match last {
            Some(last) => stream::iter([last]).boxed(),
            None => stream::pending().boxed(),
        };
        async move { Ok::<_, &str>(stream::iter([first]).chain(rest)) }
    });
    let running = with(&fake, &seen, source).await;
    let expected = "test lacks source 1: reset by peer (source failed)";
    eventually("it failed", || why(&running) == expected).await;
    eventually("again", || seen.lock().contains(&"ns/start-2".to_owned())).await;
    assert_eq!(why(&running), "");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_hangs_brings_the_manager_down_if_that_is_wanted() {
    let fake = Fake::default();
    let hangs = Source::starting(|| {
        std::future::pending::<Result<stream::Empty<Result<Wanted<Request>, Infallible>>, _>>()
    });
    let controller = Controller::builder("test")
        .watches_source(hangs.named("feed"))
        .cache_sync_timeout(Duration::from_secs(30))
        .complete(done(&Seen::default()));
    let running = start(&fake, [controller.unwrap()]).await;
    let error = running.run.await.unwrap().unwrap_err().to_string();
    let expected = "test failed: its watches and sources were not ready within 30s: feed: being started (not started)";
    assert_eq!(error, expected);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_always_has_more_leaves_time_to_the_workers() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let controller = Controller::builder("test")
        .watches_source(stream::repeat(asked("b")))
        .complete(done(&seen));
    let running = start(&fake, [controller.unwrap()]).await;
    // Time stands still as long as somebody has something to do.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!seen.lock().is_empty());
    running.run.abort();
}
