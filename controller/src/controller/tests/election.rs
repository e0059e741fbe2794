//! Controllers of a manager with a lease: on a standby, and when the lease ends.

use super::*;
use crate::fake::Managed as _;

#[tokio::test(start_paused = true)]
async fn a_warm_standby_has_its_queue_filled_and_reconciles_nothing() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    fake.hook(|_, path| path.contains("leases").then_some(Fate::Refuse(500)));
    let manager = fake
        .manager()
        .leader_election(Election::new("ns", "lock").identity("me"))
        .build()
        .await
        .unwrap();
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .warm_up(true)
        .complete(done(&seen));
    let handle = manager.add_controller(controller.unwrap()).unwrap();
    let running = Running::start(manager.clone());
    let depth = "workqueue_depth{name=\"test\",controller=\"test\",priority=\"-100\"} 1";
    eventually("queued", || manager.metrics().encode().contains(depth)).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(handle.state(), State::Standby);
    assert!(seen.lock().is_empty());
    fake.no_hook();
    eventually("it leads", || *seen.lock() == ["ns/a"]).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(seen.lock().len(), 1, "and nothing comes twice");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_learns_at_the_end_of_the_lease_that_it_may_no_longer_act() {
    let fake = Fake::default();
    fake.put(&path("a"), map("1"));
    let manager = fake
        .manager()
        .leader_election(Election::new("ns", "lock").identity("me"))
        .build()
        .await
        .unwrap();
    let answers: Arc<Mutex<Vec<bool>>> = Arc::default();
    let noted = Arc::clone(&answers);
    let reconciler = reconcile::function(move |ctx: Context, _: Request| {
        let noted = Arc::clone(&noted);
        async move {
            noted.lock().push(ctx.check_fence("call").is_ok());
            // Suspended past the lease.
            tokio::time::advance(Duration::from_secs(60)).await;
            let refused = ctx
                .check_fence("call another system")
                .map_err(|why| why.to_string());
            noted.lock().push(refused.is_ok());
            assert!(
                refused
                    .unwrap_err()
                    .starts_with("call another system: not sent")
            );
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    manager.add_controller(controller.unwrap()).unwrap();
    let Running { stop, run, .. } = Running::start(manager.clone());
    eventually_within(Duration::from_secs(70), "asked twice", || {
        answers.lock().len() == 2
    })
    .await;
    assert_eq!(*answers.lock(), [true, false]);
    stop.cancel();
    let _ = run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_standby_queues_nothing_and_finds_every_object_when_it_leads() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("goes"), map("1"));
    fake.put(&path("stays"), map("1"));
    let lease = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock";
    fake.hook(move |_, path| path.starts_with(lease).then_some(Fate::Refuse(500)));
    let manager = fake
        .manager()
        .leader_election(Election::new("ns", "lock").identity("me"))
        .build()
        .await
        .unwrap();
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(done(&seen));
    manager.add_controller(controller.unwrap()).unwrap();
    let running = Running::start(manager.clone());
    let cached = || {
        manager
            .caches()
            .lister::<ConfigMap>()
            .is_ok_and(|lister| lister.list().is_ok_and(|list| list.len() == 2))
    };
    eventually("the cache of the standby is filled", cached).await;
    fake.remove(&path("goes"));
    sleep(Duration::from_secs(5)).await;
    let metrics = manager.metrics().encode();
    let waiting = metrics
        .lines()
        .find(|line| line.starts_with("workqueue_depth{") && !line.ends_with(" 0"));
    assert_eq!(waiting, None, "the queue of a standby is empty");
    assert!(seen.lock().is_empty());
    fake.no_hook();
    eventually("it leads", || !seen.lock().is_empty()).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(*seen.lock(), ["ns/stays"]);
    running.end().await;
}
