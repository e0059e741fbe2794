//! Sources that fail: the controller reports them and goes on.

use std::convert::Infallible;

use futures::stream::{self, StreamExt};

use super::*;
use crate::controller::figures::Figures;
use crate::controller::run::pump;
use crate::controller::watching::Watching;
use crate::fake::Managed as _;
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
    // Requests sent before the sender was dropped still arrive.
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
    let state = running.manager.runnables().remove(1).state;
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
    // Paused time does not advance while a task is ready.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!seen.lock().is_empty());
    running.run.abort();
}

/// A standby controller with a source; with a lease of its own if `own`.
async fn standing_by(
    fake: &Fake,
    seen: &Seen,
    own: bool,
    warm: bool,
    source: impl Into<Source<Request>>,
) -> Running {
    fake.hook(|_, path| path.contains("leases").then_some(Fate::Refuse(500)));
    let lease = Election::new("ns", "lock").identity("me");
    let mut manager = fake.manager();
    let mut builder = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .watches_source(source)
        .warm_up(warm);
    if own {
        builder = builder.lease(lease);
    } else {
        manager = manager.leader_election(lease);
    }
    let manager = manager.build().await.unwrap();
    let running = run(manager, builder.complete(done(seen)).unwrap()).await;
    sleep(Duration::from_secs(5)).await;
    running
}

fn depth(running: &Running) -> f64 {
    let text = running.manager.metrics().encode();
    let depths = text
        .lines()
        .filter(|line| line.starts_with("workqueue_depth{name=\"test\""));
    let depths = depths.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    depths.sum()
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_nothing_from_a_source_and_holds_up_its_sender() {
    for own in [false, true] {
        let (fake, seen) = (Fake::default(), Seen::default());
        let (sender, requests) = source::channel::<Request>(16);
        let running = standing_by(&fake, &seen, own, false, requests).await;
        for number in 0..16 {
            sender.try_send(asked(&format!("a{number}"))).unwrap();
        }
        sleep(Duration::from_secs(3600)).await;
        let full = sender.try_send(asked("late"));
        assert_eq!(full, Err(source::SendError::Full), "own lease: {own}");
        assert_eq!(depth(&running), 0.0, "own lease: {own}");
        let why = why(&running);
        assert!(!why.contains("source"), "a source is not missed: {why}");
        let waits = tokio::spawn(async move { sender.send(asked("last")).await });
        fake.no_hook();
        eventually("it leads", || seen.lock().len() == 17).await;
        assert_eq!(seen.lock().last().unwrap(), "ns/last");
        waits.await.unwrap().unwrap();
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_warm_standby_reads_its_sources() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let (sender, requests) = source::channel::<Request>(1);
    let running = standing_by(&fake, &seen, false, true, requests).await;
    for number in 0..50 {
        sender.send(asked(&format!("a{number}"))).await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(depth(&running), 50.0);
    assert!(seen.lock().is_empty());
    fake.no_hook();
    eventually("it leads", || seen.lock().len() == 50).await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_lost_its_lease_drops_what_can_be_started_again_and_keeps_the_rest() {
    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock";
    let (fake, seen) = (Fake::default(), Seen::default());
    let (sender, handed_over) = source::channel::<Request>(4);
    // A subscription lives as long as its stream.
    let subscription = Arc::new(());
    let (subscribed, starts) = (Arc::downgrade(&subscription), Arc::new(AtomicU32::new(0)));
    let started = Arc::clone(&starts);
    let feed = Source::starting(move || {
        started.fetch_add(1, Ordering::Relaxed);
        let held = Arc::clone(&subscription);
        async move {
            Ok::<_, Infallible>(stream::poll_fn(move |_| {
                let _held = &held;
                std::task::Poll::<Option<Result<Request, Infallible>>>::Pending
            }))
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .watches_source(handed_over)
        .watches_source(feed.named("feed"))
        .lease(Election::new("ns", "lock").identity("me"))
        .complete(done(&seen));
    let running = start(&fake, []).await;
    let handle = running.manager.add_controller(controller.unwrap()).unwrap();
    eventually("it leads", || handle.state() == State::Running).await;
    sender.send(asked("first")).await.unwrap();
    eventually("it is read", || *seen.lock() == ["ns/first"]).await;
    assert_eq!(
        (subscribed.strong_count(), starts.load(Ordering::Relaxed)),
        (2, 1)
    );
    let mut stolen = fake.object(LEASE).unwrap();
    stolen["spec"]["holderIdentity"] = json!("thief");
    stolen["spec"]["leaseDurationSeconds"] = json!(60);
    fake.put(LEASE, stolen);
    eventually("it stands by", || handle.state() == State::Standby).await;
    for name in ["a", "b", "c", "d"] {
        sender.try_send(asked(name)).unwrap();
    }
    sleep(Duration::from_secs(30)).await;
    assert_eq!(sender.try_send(asked("e")), Err(source::SendError::Full));
    assert_eq!((depth(&running), seen.lock().len()), (0.0, 1));
    assert_eq!(subscribed.strong_count(), 1, "it is not subscribed");
    assert_eq!(why(&running), "", "and that is not a fault");
    eventually_within(Duration::from_secs(120), "it leads again", || {
        seen.lock().len() == 5
    })
    .await;
    assert_eq!(seen.lock()[1..], ["ns/a", "ns/b", "ns/c", "ns/d"]);
    assert_eq!(
        (subscribed.strong_count(), starts.load(Ordering::Relaxed)),
        (2, 2)
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_stops_takes_no_requests_while_its_workers_end() {
    let (fake, seen) = (Fake::default(), Seen::default());
    let (sender, requests) = source::channel::<Request>(4);
    let noted = Arc::clone(&seen);
    let reconciler = reconcile::function(move |_: Context, request: Request| {
        noted.lock().push(request.to_string());
        async {
            sleep(Duration::from_secs(10)).await;
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .watches_source(requests)
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    sender.send(asked("a")).await.unwrap();
    eventually("at work", || seen.lock().len() == 1).await;
    running.stop.cancel();
    sleep(Duration::from_secs(1)).await;
    assert!(!running.run.is_finished());
    assert_eq!(
        sender.send(asked("b")).await,
        Err(source::SendError::Stopped)
    );
    running.run.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn periods_that_were_not_read_come_as_one() {
    let second = Duration::from_secs(1);
    let mut ticks = source::every(second, asked("a"));
    assert!(ticks.next().await.is_some());
    sleep(second * 3600).await;
    let begin = Instant::now();
    assert!(ticks.next().await.is_some());
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert!(ticks.next().await.is_some());
    assert_eq!(begin.elapsed(), second);
}

#[tokio::test(start_paused = true)]
async fn sources_that_have_finished_are_forgotten() {
    let fake = Fake::default();
    let running = start(&fake, []).await;
    let queue = reeve_workqueue::Queue::new();
    let caches = running.manager.caches().clone();
    let figures = Figures::of_test();
    let watching = Watching::<Request>::new("test", queue.clone(), caches, Arc::new([]), figures);
    let watching = Arc::new(watching);
    let pumped = Arc::clone(&watching);
    let pumping = tokio::spawn(async move {
        let stop = CancellationToken::new();
        pump(&pumped, "test", &queue, &stop).await
    });
    let add = |count: usize| {
        for _ in 0..count {
            let source = Source::from(stream::iter([asked("a")])).finite();
            assert!(watching.add_source(source).is_some());
        }
    };
    // Those of a standby wait, and are not missed.
    add(10);
    sleep(Duration::from_secs(60)).await;
    assert_eq!((watching.all().len(), watching.sources_known()), (0, 10));
    watching.attach();
    add(10_000);
    assert_eq!(watching.all().len(), 10_010);
    sleep(Duration::from_secs(60)).await;
    assert_eq!((watching.all().len(), watching.sources_known()), (0, 0));
    pumping.abort();
    running.end().await;
}
