//! The effect of each result on a key, row by row.

use super::*;
use crate::reconcile::{Class, Error};

/// One row of the table in [`crate::reconcile`], as the queue shows it.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// The delay until the key was requeued, in milliseconds.
    again: Option<u128>,
    /// Its failures at the next run, after a requeue or a change.
    failures: u32,
    /// The priority of the requeue.
    priority: Option<i32>,
    success: u32,
    error: u32,
    requeue: u32,
    requeue_after: u32,
    errors: u32,
    terminal: u32,
    panics: u32,
    timeouts: u32,
    given_up: u32,
}

impl Row {
    /// Not again until something changes, nothing counted.
    fn none() -> Self {
        Self {
            again: None,
            failures: 0,
            priority: None,
            success: 0,
            error: 0,
            requeue: 0,
            requeue_after: 0,
            errors: 0,
            terminal: 0,
            panics: 0,
            timeouts: 0,
            given_up: 0,
        }
    }

    /// Again after the second back-off, at its own priority, counted as an error.
    fn failed() -> Self {
        Self {
            again: Some(10),
            failures: 2,
            priority: Some(7),
            error: 1,
            errors: 1,
            ..Self::none()
        }
    }
}

/// The result of the second run of a key, after a failed run.
type End = fn() -> Result<Outcome, Error>;

/// Runs a key three times: it fails, then ends as `end` says, then comes back by itself, or is changed. Counts what the
/// second run did.
async fn row(end: End, change: impl FnOnce(Builder<Request>) -> Builder<Request>) -> Row {
    let fake = Fake::default();
    let (sender, stream) = source::channel::<Request>(10);
    let runs: Arc<Mutex<Vec<(Instant, u32, i32)>>> = Arc::default();
    let noted = Arc::clone(&runs);
    let reconciler = reconcile::function(move |ctx: Context, _: Request| {
        let run = {
            let mut runs = noted.lock();
            runs.push((Instant::now(), ctx.attempt(), ctx.priority()));
            runs.len()
        };
        async move {
            match run {
                1 => Err(Error::message("the first run")),
                2 => end(),
                _ => std::future::pending().await,
            }
        }
    });
    let controller = change(Controller::builder("test").watches_source(stream));
    let running = start(&fake, [controller.complete(reconciler).unwrap()]).await;
    let total = |result: &str| {
        let labels = format!("{{controller=\"test\",result=\"{result}\"}}");
        running.metric(&format!("controller_runtime_reconcile_total{labels}")) as u32
    };
    let count = |name: &str| running.metric(&format!("{name}_total{{controller=\"test\"}}")) as u32;
    // Every series is there before anything happened.
    for result in ["success", "error", "requeue", "requeue_after"] {
        assert_eq!(total(result), 0, "{result}");
    }
    let request = Request::namespaced("ns", "a");
    let wanted = source::Wanted::with_priority(request.clone(), 7);
    sender.send(wanted).await.unwrap();
    eventually("two runs", || runs.lock().len() >= 2).await;
    sleep(Duration::from_secs(3600)).await;
    let by_itself = runs.lock().get(2).copied();
    if by_itself.is_none() {
        sender.send(request).await.unwrap();
        eventually("a third run", || runs.lock().len() == 3).await;
    }
    let all = runs.lock().clone();
    let row = Row {
        again: by_itself.map(|run| (run.0 - all[1].0).as_millis()),
        failures: all[2].1,
        priority: by_itself.map(|run| run.2),
        success: total("success"),
        error: total("error") - 1,
        requeue: total("requeue"),
        requeue_after: total("requeue_after"),
        errors: count("controller_runtime_reconcile_errors") - 1,
        terminal: count("controller_runtime_terminal_reconcile_errors"),
        panics: count("controller_runtime_reconcile_panics"),
        timeouts: count("controller_runtime_reconcile_timeouts"),
        given_up: count("reeve_reconcile_given_up"),
    };
    running.stop.cancel();
    let _ = running.run.await;
    row
}

#[tokio::test(start_paused = true)]
async fn each_row_of_the_table_of_results() {
    const MINUTE: Duration = Duration::from_secs(60);
    let rows: [(&str, End, Row); 13] = [
        ("an error", || Err(Error::message("no")), Row::failed()),
        (
            "an error, with a priority",
            || Err(Error::message("no").with_priority(-3)),
            Row {
                priority: Some(-3),
                ..Row::failed()
            },
        ),
        (
            "a terminal error leaves no record behind",
            || Err(Error::terminal("no")),
            Row {
                error: 1,
                errors: 1,
                terminal: 1,
                ..Row::none()
            },
        ),
        (
            "a terminal error, wrapped",
            || Err(Error::from(reconcile::Terminal::new("no"))),
            Row {
                error: 1,
                errors: 1,
                terminal: 1,
                ..Row::none()
            },
        ),
        (
            "a terminal outcome",
            || Ok(Outcome::terminal(Error::message("no"))),
            Row {
                error: 1,
                errors: 1,
                terminal: 1,
                ..Row::none()
            },
        ),
        (
            "asked to wait longer than the back-off",
            || Err(Error::rate_limited("busy", MINUTE)),
            Row {
                again: Some(60_000),
                ..Row::failed()
            },
        ),
        (
            "asked to wait less than the back-off",
            || Err(Error::rate_limited("busy", Duration::from_millis(1))),
            Row::failed(),
        ),
        (
            "again after a time",
            || Ok(Outcome::requeue_after(MINUTE)),
            Row {
                again: Some(60_000),
                priority: Some(7),
                requeue_after: 1,
                ..Row::none()
            },
        ),
        (
            "again after a time, with a priority",
            || Ok(Outcome::requeue_after(MINUTE).with_priority(9)),
            Row {
                again: Some(60_000),
                priority: Some(9),
                requeue_after: 1,
                ..Row::none()
            },
        ),
        (
            "not there yet",
            || Ok(Outcome::retry()),
            Row {
                again: Some(10),
                failures: 2,
                priority: Some(7),
                requeue: 1,
                ..Row::none()
            },
        ),
        (
            "done",
            || Ok(Outcome::done()),
            Row {
                success: 1,
                ..Row::none()
            },
        ),
        (
            "after no time",
            || Ok(Outcome::requeue_after(Duration::ZERO)),
            Row {
                success: 1,
                ..Row::none()
            },
        ),
        (
            "a panic",
            || panic!("boom"),
            Row {
                panics: 1,
                ..Row::failed()
            },
        ),
    ];
    for (case, end, expected) in rows {
        assert_eq!(row(end, |controller| controller).await, expected, "{case}");
    }
    let given_up = Row {
        error: 1,
        errors: 1,
        given_up: 1,
        ..Row::none()
    };
    let failing: End = || Err(Error::message("no"));
    let once = row(failing, |controller| controller.max_retries(1, |_, _| {}));
    assert_eq!(once.await, given_up, "no more retries");
    let twice = row(failing, |controller| controller.max_retries(2, |_, _| {}));
    assert_eq!(twice.await, Row::failed(), "one more retry");
    let polling: End = || Ok(Outcome::retry());
    let polls = row(polling, |controller| controller.max_retries(1, |_, _| {}));
    assert_eq!(polls.await.again, Some(10), "a retry alone never gives up");
}

#[tokio::test(start_paused = true)]
async fn a_change_brings_a_rate_limited_key_back_earlier() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let reconciler = noting(&seen, |_, _| {
        Err(Error::rate_limited("busy", Duration::from_secs(3600)))
    });
    let controller = Controller::builder("test").for_kind::<ConfigMap>();
    let running = start(&fake, [controller.complete(reconciler).unwrap()]).await;
    eventually("a run", || seen.lock().len() == 1).await;
    sleep(Duration::from_secs(60)).await;
    fake.put(&path("a"), map("2"));
    let changed = Instant::now();
    eventually("another", || seen.lock().len() == 2).await;
    assert!(changed.elapsed() < Duration::from_secs(1));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_asks_for_is_waited_for() {
    let fake = Fake::default();
    fake.put(&path("a"), map("1"));
    let answer = || {
        let status = serde_json::from_value(json!({"code": 429, "reason": "TooManyRequests",
            "message": "slow down", "details": {"retryAfterSeconds": 17}}));
        crate::client::Error::Api {
            request: "patch ConfigMap ns/a".into(),
            status: Box::new(status.unwrap()),
        }
    };
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&times);
    let reconciler = reconcile::function(move |_: Context, _: Request| {
        noted.lock().push(Instant::now());
        let error = Error::from(answer());
        let wait = Duration::from_secs(17);
        assert_eq!(error.class(), Class::RateLimited { retry_after: wait });
        async move { Err::<Outcome, _>(error) }
    });
    let controller = Controller::builder("test").for_kind::<ConfigMap>();
    let running = start(&fake, [controller.complete(reconciler).unwrap()]).await;
    eventually_within(Duration::from_secs(40), "three runs", || {
        times.lock().len() == 3
    })
    .await;
    let gaps: Vec<u64> = times
        .lock()
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs())
        .collect();
    assert_eq!(gaps, [17, 17]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_given_up_is_reported_and_starts_again_when_it_changes() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let given_up_keys: Seen = Seen::default();
    let noted = Arc::clone(&given_up_keys);
    let attempts: Arc<Mutex<Vec<u32>>> = Arc::default();
    let tried = Arc::clone(&attempts);
    let reconciler = noting(&seen, move |ctx, _| {
        tried.lock().push(ctx.attempt());
        Err(Error::message("the gateway is gone"))
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .max_retries(3, move |request: &Request, error| {
            noted.lock().push(format!("{request}: {error}"));
            panic!("what the callback does is its own affair");
        })
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("given up", || given_up_keys.lock().len() == 1).await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(*attempts.lock(), [0, 1, 2, 3]);
    assert_eq!(*given_up_keys.lock(), ["ns/a: the gateway is gone"]);
    fake.put(&path("a"), map("2"));
    eventually("given up again", || given_up_keys.lock().len() == 2).await;
    assert_eq!(attempts.lock()[4..], [0, 1, 2, 3]);
    let given_up = running.metric("reeve_reconcile_given_up_total{controller=\"test\"}");
    assert_eq!(given_up as u32, 2);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_reasons_of_a_key_are_merged_until_it_runs() {
    use reeve_workqueue::Reason;
    let fake = Fake::default();
    fake.put(&path("a"), map("1"));
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u", "controller": true}]);
    let reasons: Arc<Mutex<Vec<Vec<Reason>>>> = Arc::default();
    let noted = Arc::clone(&reasons);
    let reconciler = reconcile::function(move |ctx: Context, _: Request| {
        noted.lock().push(ctx.reasons().to_vec());
        async move {
            sleep(Duration::from_secs(5)).await;
            Ok::<_, Error>(Outcome::done())
        }
    });
    let (sender, stream) = source::channel::<Request>(10);
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .owns::<Secret>()
        .watches_source(stream)
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("a run", || reasons.lock().len() == 1).await;
    fake.put(&path("a"), map("2"));
    let owned = json!({"metadata": {"ownerReferences": owner}});
    fake.put("/api/v1/namespaces/ns/secrets/s", owned);
    sender.send(Request::namespaced("ns", "a")).await.unwrap();
    eventually("another", || reasons.lock().len() == 2).await;
    let all = [Reason::Changed, Reason::Owner, Reason::Custom("source")];
    assert_eq!(*reasons.lock(), [vec![Reason::Added], all.to_vec()]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_gives_no_key_up() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let given_up_for: Arc<Mutex<Vec<String>>> = Arc::default();
    let (tried, noted) = (Arc::clone(&seen), Arc::clone(&given_up_for));
    let reconciler = reconcile::function(move |ctx: Context, request: Request| {
        let tried = Arc::clone(&tried);
        async move {
            let patch = Patch::Merge(json!({"data": {"key": "2"}}));
            let written = ctx.client().patch::<ConfigMap>(&request, &patch);
            let written = written.await.map(drop).map_err(Error::from);
            let attempt = ctx.attempt();
            let end = written.as_ref().map_or_else(Error::is_outage, |()| true);
            tried.lock().push(format!("{attempt} {end}"));
            written.map(|()| Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .max_retries(2, move |_: &Request, error| {
            noted.lock().push(error.to_string());
        })
        .complete(reconciler);
    // The codes of the next writes; later writes get 503.
    let codes: Arc<Mutex<Vec<u16>>> = Arc::default();
    let next = Arc::clone(&codes);
    fake.hook(move |method, _| {
        let code = || next.lock().pop().unwrap_or(503);
        (*method == Method::PATCH).then(|| Fate::Refuse(code()))
    });
    let running = start(&fake, [controller.unwrap()]).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(*given_up_for.lock(), [""; 0]);
    let during = seen.lock().len();
    assert!(during > 10, "{during} tries");
    // One failure of its own in between, and another outage.
    *codes.lock() = vec![403, 403, 500, 403];
    eventually_within(Duration::from_secs(480), "given up", || {
        given_up_for.lock().len() == 1
    })
    .await;
    let tries = seen.lock().split_off(during);
    let expected = |number: usize, outage: bool| format!("{} {outage}", during + number);
    assert_eq!(
        tries,
        [
            expected(0, false),
            expected(1, true),
            expected(2, false),
            expected(3, false)
        ],
        "three failures of its own, with an outage in between; the back-off counts all"
    );
    assert!(given_up_for.lock()[0].contains("403"), "{given_up_for:?}");
    // The failures are forgotten: again three tries.
    *codes.lock() = vec![403; 3];
    fake.put(&path("a"), map("3"));
    eventually("given up again", || given_up_for.lock().len() == 2).await;
    assert_eq!(seen.lock().len(), during + 3);
    running.end().await;
}
