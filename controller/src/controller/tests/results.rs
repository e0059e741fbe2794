//! Results of a reconcile: retries, panics, logs.

use reeve_workqueue::ItemExponentialFailure;

use super::*;
use crate::client;
use crate::fake::Lines;

#[tokio::test(start_paused = true)]
async fn the_result_decides_when_the_key_comes_back() {
    let second = Duration::from_secs(1);
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let noted = Arc::clone(&times);
    let reconciler = noting(&seen, move |ctx, _| {
        let mut times = noted.lock();
        times.push(Instant::now());
        match times.len() {
            1 => Err(reconcile::Error::message("first")),
            2 => {
                assert_eq!(ctx.attempt(), 1);
                Err(reconcile::Error::message("second"))
            }
            3 => Ok(Outcome::retry()),
            4 => {
                assert_eq!(ctx.attempt(), 3, "retry counts as a failure");
                Ok(Outcome::requeue_after(Duration::from_secs(60)))
            }
            5 => {
                assert_eq!(ctx.attempt(), 0, "requeue_after forgets the failures");
                Err(reconcile::Error::message("again from the start"))
            }
            _ => Ok(Outcome::terminal(reconcile::Error::message("for good"))),
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually_within(Duration::from_secs(62), "six runs", || {
        times.lock().len() == 6
    })
    .await;
    sleep(second * 600).await;
    let times = times.lock().clone();
    assert_eq!(times.len(), 6, "a terminal outcome is not tried again");
    let gaps: Vec<u128> = times
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_millis())
        .collect();
    assert_eq!(gaps, [5, 10, 20, 60_000, 5]);
    let total = |result: &str| {
        running.metric(&format!(
            "controller_runtime_reconcile_total{{controller=\"test\",result=\"{result}\"}}"
        ))
    };
    assert_eq!(total("error") as u32, 4);
    assert_eq!(total("requeue") as u32, 1);
    assert_eq!(total("requeue_after") as u32, 1);
    assert_eq!(total("success") as u32, 0);
    let label = "{controller=\"test\"}";
    let metric = |name: &str| running.metric(&format!("controller_runtime_{name}{label}")) as u32;
    assert_eq!(metric("reconcile_errors_total"), 4);
    assert_eq!(metric("terminal_reconcile_errors_total"), 1);
    assert_eq!(metric("max_concurrent_reconciles"), 1);
    assert_eq!(metric("active_workers"), 0);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_key_one_try() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("bad"), map("1"));
    fake.put(&path("good"), map("1"));
    let first = AtomicBool::new(true);
    let reconciler = noting(&seen, move |_, request| {
        assert!(
            &*request.name != "bad" || !first.swap(false, Ordering::Relaxed),
            "boom"
        );
        Ok(Outcome::done())
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("all", || seen.lock().len() == 3).await;
    assert_eq!(*seen.lock(), ["ns/bad", "ns/good", "ns/bad"]);
    let panics = running.metric("controller_runtime_reconcile_panics_total");
    assert_eq!(panics as u32, 1);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_is_cut_off_at_the_timeout_and_tried_again() {
    let fake = Fake::default();
    fake.put(&path("a"), map("1"));
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let reconciler = reconcile::function(move |_: Context, _: Request| {
        let run = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            if run == 0 {
                sleep(Duration::from_secs(3600)).await;
            }
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .reconcile_timeout(Duration::from_secs(7))
        .complete(reconciler);
    let begin = Instant::now();
    let running = start(&fake, [controller.unwrap()]).await;
    eventually_within(Duration::from_secs(8), "tried again", || {
        runs.load(Ordering::Relaxed) == 2
    })
    .await;
    assert!(begin.elapsed() < Duration::from_secs(8));
    let timeouts = running.metric("controller_runtime_reconcile_timeouts_total");
    assert_eq!(timeouts as u32, 1);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_key_is_never_reconciled_twice_at_once() {
    let fake = Fake::default();
    fake.put(&path("a"), map("1"));
    let (active, most, runs) = (
        AtomicU32::new(0),
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicU32::new(0)),
    );
    let (active, peak, count) = (Arc::new(active), Arc::clone(&most), Arc::clone(&runs));
    let reconciler = reconcile::function(move |_: Context, _: Request| {
        let (active, peak, count) = (Arc::clone(&active), Arc::clone(&peak), Arc::clone(&count));
        async move {
            peak.fetch_max(
                active.fetch_add(1, Ordering::Relaxed) + 1,
                Ordering::Relaxed,
            );
            sleep(Duration::from_millis(100)).await;
            active.fetch_sub(1, Ordering::Relaxed);
            count.fetch_add(1, Ordering::Relaxed);
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .workers(8)
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    for value in 0..50 {
        fake.put(&path("a"), map(&value.to_string()));
        sleep(Duration::from_millis(20)).await;
    }
    eventually("many runs", || runs.load(Ordering::Relaxed) >= 5).await;
    assert_eq!(most.load(Ordering::Relaxed), 1);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn every_line_of_a_reconcile_bears_its_id_and_key() {
    let (lines, _guard) = Lines::capture();
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let ids: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&ids);
    let reconciler = noting(&seen, move |ctx, _| {
        noted.lock().push(ctx.reconcile_id().to_string());
        tracing::info!("said by the reconciler");
        Ok(Outcome::terminal(reconcile::Error::message(
            "said by the crate",
        )))
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("a run", || seen.lock().len() == 1).await;
    fake.put(&path("a"), map("2"));
    eventually("another", || seen.lock().len() == 2).await;
    running.end().await;
    let ids = ids.lock().clone();
    assert_ne!(ids[0], ids[1]);
    let text = lines.text();
    for id in ids {
        let marks = format!("reconcile{{controller=test key=ns/a reconcile_id={id}}}");
        let found = text.lines().filter(|line| line.contains(&marks)).count();
        assert_eq!(found, 2, "{text}");
    }
    let logged = text
        .lines()
        .filter(|line| line.contains("said by the"))
        .count();
    assert_eq!(logged, 4, "and no such line without");
}

/// The times of the tries of a key that fails with `error` for so long, and of its success.
async fn tries(
    failing: Duration,
    error: fn(Duration) -> reconcile::Error,
) -> (Vec<Duration>, Duration) {
    let (fake, times) = (Fake::default(), Arc::new(Mutex::new(Vec::new())));
    fake.put(&path("a"), map("1"));
    let (noted, begin) = (Arc::clone(&times), Instant::now());
    let reconciler = reconcile::function(move |_: Context, _: Request| {
        let at = begin.elapsed();
        noted.lock().push(at);
        async move {
            if at < failing {
                return Err(error(at));
            }
            Ok(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("it fails", || !times.lock().is_empty()).await;
    let mut tried = 0;
    while tried < times.lock().len() || begin.elapsed() < failing {
        tried = times.lock().len();
        sleep(Duration::from_secs(1100)).await;
    }
    running.end().await;
    let times = times.lock().clone();
    let last = *times.last().unwrap();
    (times, last)
}

fn longest(times: &[Duration]) -> u64 {
    let pauses = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs());
    pauses.max().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_a_minute_at_most_after_an_outage_and_a_thousand_seconds_after_errors_of_its_own()
 {
    let two_hours = Duration::from_secs(7200);
    let (times, last) = tries(two_hours, |_| reconcile::Error::outage("down")).await;
    assert_eq!(longest(&times), 60);
    assert!(last - two_hours <= Duration::from_secs(60), "{last:?}");
    let limited = |_| reconcile::Error::rate_limited("busy", Duration::from_secs(1));
    let (times, _) = tries(two_hours, limited).await;
    assert_eq!(longest(&times), 60);
    let (times, _) = tries(two_hours, |_| reconcile::Error::message("wrong")).await;
    assert_eq!(longest(&times), 1000);
    // A failure after an outage begins with short pauses.
    let (times, last) = tries(two_hours, |at| {
        if at.as_secs() < 7100 {
            return reconcile::Error::outage("down");
        }
        reconcile::Error::message("a conflict")
    })
    .await;
    assert!(longest(&times) < 100, "{}", longest(&times));
    assert!(last.as_secs() < 7400, "{last:?}");
}

/// The times of all tries of twenty keys, of which the first `away` of a minute fail because the API server is away.
async fn tries_of_an_outage(
    away: Duration,
    build: impl FnOnce(Builder<Request, ConfigMap, OneKind>) -> Builder<Request, ConfigMap, OneKind>,
) -> Vec<Duration> {
    let (fake, times) = (Fake::default(), Arc::new(Mutex::new(Vec::new())));
    for number in 0..20 {
        fake.put(&path(&format!("a{number}")), map("1"));
    }
    let (noted, begin) = (Arc::clone(&times), Instant::now());
    let reconciler = noting(&Seen::default(), move |_, _| {
        let at = begin.elapsed();
        noted.lock().push(at);
        if at < away {
            return Err(client::Error::Transport {
                request: "get a".into(),
                sent: false,
                source: Box::new(kube_client::Error::LinesCodecMaxLineLengthExceeded),
            }
            .into());
        }
        Ok(Outcome::done())
    });
    let controller = build(Controller::builder("test").for_kind::<ConfigMap>());
    let running = start(&fake, [controller.complete(reconciler).unwrap()]).await;
    sleep(Duration::from_secs(60)).await;
    running.end().await;
    let times = times.lock().clone();
    assert!(times.iter().filter(|at| **at >= away).count() >= 20);
    times
}

#[tokio::test(start_paused = true)]
async fn all_keys_are_tried_two_seconds_after_an_outage_of_the_api_server_at_the_latest() {
    let away = Duration::from_secs(13);
    let last = |times: &[Duration]| *times.last().unwrap() - away;
    let times = tries_of_an_outage(away, |builder| builder).await;
    assert!(last(&times) <= Duration::from_secs(2), "{times:?}");
    let own = tries_of_an_outage(away, |builder| {
        builder.rate_limiter(ItemExponentialFailure::default())
    })
    .await;
    assert!(last(&own) > Duration::from_secs(5), "{own:?}");
    // The probes, one every two seconds, are all that comes on top.
    assert!(
        times.len() <= own.len() + 7,
        "{} {}",
        times.len(),
        own.len()
    );
}
