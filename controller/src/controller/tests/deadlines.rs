//! The deadline of a reconcile, and the context after its end.

use futures::future::BoxFuture;

use super::*;
use crate::reconcile::Error;

/// A controller that does `work` for each key, within `limit` seconds.
fn working(
    seen: &Seen,
    limit: Option<u64>,
    work: fn() -> BoxFuture<'static, Result<Outcome, Error>>,
) -> Controller {
    let noted = Arc::clone(seen);
    let reconciler = reconcile::function(move |_: Context, request: Request| {
        noted.lock().push(request.to_string());
        work()
    });
    let mut controller = Controller::builder("test").for_kind::<ConfigMap>();
    if let Some(limit) = limit {
        controller = controller.reconcile_timeout(Duration::from_secs(limit));
    }
    controller.complete(reconciler).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_knows_its_deadline_and_what_it_started_learns_of_its_end() {
    let fake = Fake::default();
    for name in ["late", "well"] {
        fake.put(&path(name), map("1"));
    }
    let limit = Duration::from_secs(7);
    let learned: Seen = Seen::default();
    let noted = Arc::clone(&learned);
    let helpers: Arc<Mutex<Vec<JoinHandle<()>>>> = Arc::default();
    let kept = Arc::clone(&helpers);
    let reconciler = reconcile::function(move |ctx: Context, request: Request| {
        let (noted, kept) = (Arc::clone(&noted), Arc::clone(&kept));
        async move {
            assert_eq!(ctx.deadline(), Some(Instant::now() + limit));
            assert!(!ctx.cancelled().is_cancelled());
            assert!(!ctx.stopping().is_cancelled());
            let (cancelled, name) = (ctx.cancelled().clone(), request.name.to_string());
            let begin = Instant::now();
            kept.lock().push(tokio::spawn(async move {
                cancelled.cancelled().await;
                let after = begin.elapsed().as_secs();
                noted.lock().push(format!("{name} after {after} s"));
            }));
            if &*request.name == "late" && ctx.attempt() == 0 {
                sleep(Duration::from_secs(3600)).await;
            }
            sleep(Duration::from_secs(1)).await;
            Ok::<_, Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .workers(2)
        .reconcile_timeout(limit)
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually_within(Duration::from_secs(10), "all ended", || {
        learned.lock().len() == 3
    })
    .await;
    assert_eq!(
        *learned.lock(),
        ["well after 1 s", "late after 7 s", "late after 1 s"]
    );
    running.end().await;
    let helpers = std::mem::take(&mut *helpers.lock());
    for helper in helpers {
        helper.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_context_that_outlives_its_reconcile_says_that_it_is_over() {
    let fake = Fake::default();
    fake.put(&path("a"), map("1"));
    let kept: Arc<Mutex<Vec<Context>>> = Arc::default();
    let keeps = Arc::clone(&kept);
    let reconciler = reconcile::function(move |ctx: Context, _: Request| {
        keeps.lock().push(ctx);
        async { Ok::<_, Error>(Outcome::done()) }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("reconciled", || {
        running.metric("controller_runtime_reconcile_total{controller=\"test\",result=\"success\"}")
            > 0.0
    })
    .await;
    let kept = std::mem::take(&mut *kept.lock());
    // The token is created only now.
    assert!(kept[0].cancelled().is_cancelled());
    assert_eq!(kept[0].reconcile_id(), kept[0].clone().reconcile_id());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_controllers_own_deadline_is_counted_as_a_timeout() {
    /// The work of a reconcile.
    type Work = fn() -> BoxFuture<'static, Result<Outcome, Error>>;
    let own_deadline: Work = || {
        Box::pin(async {
            let call = sleep(Duration::from_secs(3600));
            tokio::time::timeout(Duration::from_secs(1), call).await?;
            Ok(Outcome::done())
        })
    };
    let cancelled: Work = || {
        Box::pin(async {
            let caller = CancellationToken::new();
            let call = caller.run_until_cancelled(sleep(Duration::from_secs(3600)));
            let cancel = async {
                sleep(Duration::from_secs(1)).await;
                caller.cancel();
            };
            let (answer, ()) = tokio::join!(call, cancel);
            answer.ok_or_else(|| std::io::Error::other("cancelled"))?;
            Ok(Outcome::done())
        })
    };
    let panicking: Work = || {
        Box::pin(async {
            sleep(Duration::from_secs(1)).await;
            panic!("on purpose")
        })
    };
    let hanging: Work = || {
        Box::pin(async {
            sleep(Duration::from_secs(3600)).await;
            Ok(Outcome::done())
        })
    };
    for (case, limit, work, expected) in [
        ("its own, and no other", None, own_deadline, 0),
        ("its own, which is shorter", Some(5), own_deadline, 0),
        ("its caller cancels", Some(5), cancelled, 0),
        ("it panics", Some(5), panicking, 0),
        // The third run goes on.
        ("the controller's", Some(5), hanging, 2),
    ] {
        let (fake, seen) = (Fake::default(), Seen::default());
        fake.put(&path("a"), map("1"));
        let controller = working(&seen, limit, work);
        let running = start(&fake, [controller]).await;
        eventually_within(Duration::from_secs(12), "three runs", || {
            seen.lock().len() == 3
        })
        .await;
        let timeouts = running.metric("controller_runtime_reconcile_timeouts_total");
        assert_eq!(timeouts as u32, expected, "{case}");
        running.end().await;
    }
    // A stop that cuts it off after the grace.
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let running = start(&fake, [working(&seen, Some(3600), hanging)]).await;
    eventually("a run", || seen.lock().len() == 1).await;
    let counted = running.manager.metrics().controller("test");
    running.stop.cancel();
    let ended = running.run.await.unwrap();
    assert!(ended.is_err(), "it did not end by itself");
    assert_eq!((counted.timeouts.get(), seen.lock().len()), (0, 1));
}
