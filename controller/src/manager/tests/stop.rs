//! The stop: what ends in time, what is dropped, and when the lease is released.

use super::*;

#[tokio::test(start_paused = true)]
async fn another_leads_when_the_last_that_needs_the_lease_has_ended_and_not_before() {
    let journal = Journal::default();
    let (one, two) = (
        journal.candidate("one").await,
        journal.candidate("two").await,
    );
    one.add(journal.ending("quick", 1)).unwrap();
    one.add(journal.ending("slow", 8)).unwrap();
    // A runnable of every replica needs no lease, so the successor does not wait for it.
    let other = journal.ending("other", 6).without_leader_election();
    one.add(other).unwrap();
    let (stop, run) = spawn(&one);
    eventually("one leads", || journal.log.lock().len() == 3).await;
    two.add(journal.ending("successor", 0)).unwrap();
    let (stop_two, run_two) = spawn(&two);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(journal.log.lock().len(), 3, "two stands by");
    journal.stop(&stop);
    run.await.unwrap().unwrap();
    assert_eq!(
        journal.log.lock()[3..],
        [
            "-quick under \"one\" after 1 s",
            "-slow under \"one\" after 8 s",
            "+successor after 8 s",
            "-other under \"two\" after 14 s"
        ]
    );
    stop_two.cancel();
    run_two.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_outlives_the_grace_period_is_dropped_and_named() {
    let log = Log::default();
    let manager = Fake::default()
        .manager()
        .grace_period(Duration::from_secs(5))
        .build()
        .await
        .unwrap();
    manager
        .add(logged(&log, "stubborn", Duration::from_secs(3600)))
        .unwrap();
    let (stop, run) = spawn(&manager);
    eventually("started", || log.lock().len() == 1).await;
    let start = Instant::now();
    stop.cancel();
    let error = run.await.unwrap().unwrap_err();
    let took = start.elapsed();
    assert!(
        took > Duration::from_secs(3) && took <= Duration::from_secs(5),
        "{took:?}"
    );
    assert!(
        matches!(&error, Error::GraceExpired { names, .. } if names == &["stubborn"]),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn both_the_failure_and_the_bad_stop_are_reported() {
    let log = Log::default();
    let manager = Fake::default()
        .manager()
        .grace_period(Duration::from_secs(5))
        .build()
        .await
        .unwrap();
    manager
        .add(logged(&log, "stubborn", Duration::from_secs(3600)))
        .unwrap();
    manager.add(failing(Duration::from_secs(1))).unwrap();
    let (_stop, run) = spawn(&manager);
    let text = run.await.unwrap().unwrap_err().to_string();
    assert!(
        text.contains("it broke") && text.contains("stubborn"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_drops_the_workers_at_once_and_is_an_error() {
    let fake = Fake::default();
    let log = Log::default();
    let manager = fake
        .manager()
        .leader_election(Election::new("ns", "lock").identity("me"))
        .build()
        .await
        .unwrap();
    manager
        .add(logged(&log, "worker", Duration::from_secs(3600)))
        .unwrap();
    let (_stop, run) = spawn(&manager);
    eventually("leading", || log.lock().len() == 1).await;
    let renewed = Instant::now();
    fake.hook(|_, path| path.contains("leases").then_some(Fate::Hang));
    let error = run.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::LeadershipLost(_)), "{error}");
    assert!(
        renewed.elapsed() <= Duration::from_secs(13),
        "before the lease of 15 s is over"
    );
    assert_eq!(*log.lock(), ["+worker"], "dropped, not ended");
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_during_the_stop_ends_the_grace_of_the_workers() {
    let fake = Fake::default();
    let log = Log::default();
    let manager = fake
        .manager()
        .leader_election(Election::new("ns", "lock").identity("me"))
        .grace_period(Duration::from_secs(600))
        .build()
        .await
        .unwrap();
    manager
        .add(logged(&log, "worker", Duration::from_secs(300)))
        .unwrap();
    let (stop, run) = spawn(&manager);
    eventually("leading", || log.lock().len() == 1).await;
    stop.cancel();
    sleep(Duration::from_secs(60)).await;
    let renewed = Instant::now();
    fake.hook(|_, path| path.contains("leases").then_some(Fate::Hang));
    let error = run.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::LeadershipLost(_)), "{error}");
    assert!(
        renewed.elapsed() <= Duration::from_secs(13),
        "{:?}",
        renewed.elapsed()
    );
    assert_eq!(*log.lock(), ["+worker"], "dropped, not ended");
}

#[tokio::test(start_paused = true)]
async fn every_error_of_the_stop_is_reported() {
    let manager = manager(&Fake::default()).await;
    for name in ["one", "two"] {
        let runnable = Runnable::new(name, |stop: CancellationToken| async move {
            stop.cancelled().await;
            Err::<(), _>("it did not close")
        });
        manager.add(runnable).unwrap();
    }
    manager.add(failing(Duration::from_secs(1))).unwrap();
    let (_stop, run) = spawn(&manager);
    let error = run.await.unwrap().unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string);
    assert_eq!(source.as_deref(), Some("broken failed: it broke"));
    let text = error.to_string();
    for part in [
        "broken failed: it broke; and when stopping: ",
        "one failed: it did not close",
        "two failed: it did not close",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// A worker of the leader that ignores a stop, in the middle of a write that is never answered.
fn stubborn(manager: &Manager) -> Runnable {
    let client = manager.leader_client();
    Runnable::new("stubborn", move |_| async move {
        let mut map = k8s_openapi::api::core::v1::ConfigMap::default();
        map.metadata.namespace = Some("ns".into());
        map.metadata.name = Some("work".into());
        loop {
            let _ = client.create(&map).await;
        }
        #[expect(unreachable_code, reason = "it names the type")]
        Ok::<_, Infallible>(())
    })
}

#[tokio::test(start_paused = true)]
async fn stubborn_workers_leave_time_for_the_lease_and_for_all_that_ends_well() {
    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock";
    for (case, grace, released) in [
        ("time to release", 30, true),
        ("no time for what was sent to land", 6, false),
    ] {
        let (fake, log) = (Fake::default(), Log::default());
        fake.hook(|_, path| path.contains("configmaps").then_some(Fate::Hang));
        let manager = fake
            .manager()
            .leader_election(Election::new("ns", "lock").identity("me"))
            .grace_period(Duration::from_secs(grace))
            .build()
            .await
            .unwrap();
        manager.add(stubborn(&manager)).unwrap();
        let other = logged(&log, "other", Duration::from_millis(400));
        manager.add(other.without_leader_election()).unwrap();
        let (stop, run) = spawn(&manager);
        eventually("leading", || *manager.leading().borrow()).await;
        sleep(Duration::from_secs(1)).await;
        stop.cancel();
        let begin = Instant::now();
        let error = run.await.unwrap().unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(grace), "{case}");
        let names = match &error {
            Error::GraceExpired { names, .. } => names.clone(),
            _ => panic!("{case}: {error}"),
        };
        assert_eq!(names, ["stubborn"], "{case}");
        assert_eq!(*log.lock(), ["+other", "-other"], "{case}");
        let holder = fake.object(LEASE).unwrap()["spec"]["holderIdentity"].clone();
        assert_eq!(holder == "", released, "{case}: {holder}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_not_answered_takes_nothing_of_what_comes_after_it() {
    let (fake, log) = (Fake::default(), Log::default());
    let manager = fake
        .manager()
        .leader_election(Election::new("ns", "lock").identity("me"))
        .grace_period(Duration::from_secs(6))
        .build()
        .await
        .unwrap();
    manager.add(logged(&log, "worker", Duration::ZERO)).unwrap();
    let other = logged(&log, "other", Duration::from_millis(400));
    manager.add(other.without_leader_election()).unwrap();
    let (stop, run) = spawn(&manager);
    eventually("leading", || log.lock().len() == 2).await;
    fake.hook(|_, path| path.contains("leases").then_some(Fate::Hang));
    stop.cancel();
    run.await.unwrap().unwrap();
    assert_eq!(log.lock().last().map(String::as_str), Some("-other"));
}

#[tokio::test(start_paused = true)]
async fn a_grace_period_without_end_waits_for_as_long_as_it_takes() {
    let log = Log::default();
    let manager = Fake::default()
        .manager()
        .grace_period(Duration::MAX)
        .cache_sync_timeout(Duration::MAX)
        .build()
        .await
        .unwrap();
    let day = Duration::from_secs(24 * 3600);
    manager.add(logged(&log, "slow", day)).unwrap();
    let (stop, run) = spawn(&manager);
    eventually("started", || log.lock().len() == 1).await;
    stop.cancel();
    run.await.unwrap().unwrap();
    assert_eq!(*log.lock(), ["+slow", "-slow"]);
}
