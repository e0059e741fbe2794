//! The start and the end of a controller.

use super::*;
use crate::fake::Managed as _;

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_not_added_leaves_no_series() {
    use crate::cache::{CacheOptions, KindOptions, StoreForm};
    let metadata = KindOptions::new().form(StoreForm::Metadata);
    let options = CacheOptions::new().for_kind::<ConfigMap>(metadata);
    let manager = Fake::default().manager().cache(options).build();
    let manager = manager.await.unwrap();
    let controller = Controller::builder("refused").for_kind::<ConfigMap>();
    let controller = controller.complete(done(&Seen::default())).unwrap();
    assert!(manager.add_controller(controller).is_err());
    let text = manager.metrics().encode();
    let left: Vec<_> = text
        .lines()
        .filter(|line| line.contains("refused"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_controller_without_name_watch_or_worker_is_refused() {
    let seen = Seen::default();
    let nameless = Controller::builder("")
        .for_kind::<ConfigMap>()
        .complete(done(&seen));
    assert_eq!(nameless.unwrap_err(), BuildError::NoName);
    let blind = Controller::builder("blind").complete(done(&seen));
    assert_eq!(blind.unwrap_err(), BuildError::NoWatch("blind".into()));
    let idle = Controller::builder("idle")
        .for_kind::<ConfigMap>()
        .workers(0);
    let idle = idle.complete(done(&seen));
    assert_eq!(idle.unwrap_err(), BuildError::NoWorkers("idle".into()));
    let leased = || {
        let lease = crate::leader_election::Options::new("ns", "lock").identity("me");
        Controller::builder("both")
            .for_kind::<ConfigMap>()
            .lease(lease)
            .without_leader_election()
    };
    let both = leased().complete(done(&seen));
    let contradiction = BuildError::LeaseWithoutElection("both".into());
    assert_eq!(both.unwrap_err(), contradiction);
    assert!(
        leased()
            .with_leader_election()
            .complete(done(&seen))
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn names_of_controllers_are_unique_in_a_manager() {
    let seen = Seen::default();
    let manager = Manager::builder(Fake::default().client())
        .build()
        .await
        .unwrap();
    let one = || {
        Controller::builder("one")
            .for_kind::<ConfigMap>()
            .complete(done(&seen))
            .unwrap()
    };
    manager.add_controller(one()).unwrap();
    assert!(matches!(
        manager.add_controller(one()),
        Err(ManagerError::DuplicateController(name)) if name == "one"
    ));
}

#[tokio::test(start_paused = true)]
async fn a_controller_is_removed_with_its_handlers_and_added_again() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let one = |seen: &Seen| {
        Controller::builder("one")
            .for_kind::<ConfigMap>()
            .complete(done(seen))
            .unwrap()
    };
    let others = Seen::default();
    let other = Controller::builder("other").for_kind::<ConfigMap>();
    let running = start(&fake, [other.complete(done(&others)).unwrap()]).await;
    let manager = &running.manager;
    let handlers = || -> Vec<String> {
        let health = manager.caches().health();
        let names = health[0]
            .handlers
            .iter()
            .map(|handler| handler.name.to_string());
        names.collect()
    };
    eventually("the other one works", || others.lock().len() == 1).await;
    for round in 1..=3 {
        let handle = manager.add_controller(one(&seen)).unwrap();
        assert!(
            manager.add_controller(one(&seen)).is_err(),
            "its name is taken"
        );
        eventually("it works", || seen.lock().len() == round).await;
        assert_eq!(handlers(), ["other", "one"]);
        handle.stop().await;
        eventually("its handlers are gone", || handlers() == ["other"]).await;
        fake.put(&path("a"), map(&format!("round {round}")));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(seen.lock().len(), round, "its workers have ended");
    }
    assert_eq!(others.lock().len(), 4);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_removed_controller_ends_what_it_is_at() {
    let fake = Fake::default();
    for name in ["a", "b"] {
        fake.put(&path(name), map("1"));
    }
    let log = Seen::default();
    let noted = Arc::clone(&log);
    let reconciler = reconcile::function(move |_: Context, request: Request| {
        let log = Arc::clone(&noted);
        async move {
            log.lock().push(format!("+{request}"));
            sleep(Duration::from_secs(5)).await;
            log.lock().push(format!("-{request}"));
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let running = start(&fake, []).await;
    let controller = Controller::builder("test").for_kind::<ConfigMap>();
    let controller = controller.complete(reconciler).unwrap();
    let handle = running.manager.add_controller(controller).unwrap();
    eventually("started", || log.lock().len() == 1).await;
    let at_work = handle.health().at_work;
    assert_eq!(at_work, ["ns/a for 0 s"]);
    handle.request_stop();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(handle.state(), State::Stopping);
    handle.ended().await;
    assert_eq!(*log.lock(), ["+ns/a", "-ns/a"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_hangs_is_named_when_the_grace_period_ends() {
    let fake = Fake::default();
    fake.put(&path("a"), map("1"));
    let reconciler = reconcile::function(|_: Context, _: Request| {
        std::future::pending::<Result<Outcome, reconcile::Error>>()
    });
    let controller = Controller::builder("test").for_kind::<ConfigMap>();
    let running = start(&fake, [controller.complete(reconciler).unwrap()]).await;
    sleep(Duration::from_secs(60)).await;
    running.stop.cancel();
    let error = running.run.await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "still running when the grace period of 30s ended: test (reconciling ns/a for 80 s)"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_the_running_reconcile_end_and_starts_no_other() {
    let fake = Fake::default();
    for name in ["a", "b"] {
        fake.put(&path(name), map("1"));
    }
    let log = Seen::default();
    let noted = Arc::clone(&log);
    let reconciler = reconcile::function(move |ctx: Context, request: Request| {
        let log = Arc::clone(&noted);
        async move {
            log.lock().push(format!("+{request}"));
            ctx.stopping().cancelled().await;
            sleep(Duration::from_secs(5)).await;
            log.lock().push(format!("-{request}"));
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(reconciler);
    let running = start(&fake, [controller.unwrap()]).await;
    eventually("started", || log.lock().len() == 1).await;
    running.end().await;
    assert_eq!(*log.lock(), ["+ns/a", "-ns/a"]);
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_removed_takes_its_series_with_it_and_a_new_one_begins_at_zero() {
    let (fake, seen) = (Fake::default(), Seen::default());
    fake.put(&path("a"), map("1"));
    let running = start(&fake, []).await;
    for round in 1..=2 {
        let controller = Controller::builder("test")
            .for_kind::<ConfigMap>()
            .complete(done(&seen));
        let handle = running.manager.add_controller(controller.unwrap()).unwrap();
        let series = "controller_runtime_reconcile_total{controller=\"test\",result=\"success\"} 1";
        eventually("reconciled", || {
            running.manager.metrics().encode().contains(series)
        })
        .await;
        assert_eq!(seen.lock().len(), round);
        handle.stop().await;
        let text = running.manager.metrics().encode();
        let left: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("\"test\""))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
    running.end().await;
}
