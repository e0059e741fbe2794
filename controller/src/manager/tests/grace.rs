//! A group that hangs at a stop costs no other group time: each has its own part of the grace period.

use crate::fake::Managed as _;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};

use super::*;
use crate::events::EventType;
use crate::fake::Lines;
use crate::reconcile::{self, Outcome, Request};
use crate::{Context, Controller};

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/ns/events";

/// Records an event when it is dropped.
struct LastWords(Recorder);

impl Drop for LastWords {
    fn drop(&mut self) {
        let object = ObjectReference {
            namespace: Some("ns".into()),
            name: Some("a".into()),
            ..ObjectReference::default()
        };
        let (normal, note) = (EventType::Normal, "it was dropped");
        self.0
            .event_for(&object, None, normal, "Dropped", "Stop", note);
    }
}

/// A reconcile that takes `takes` and ignores a stop.
fn taking(takes: Duration) -> impl reconcile::Reconciler {
    reconcile::function(move |ctx: Context, _: Request| async move {
        let _last = LastWords(ctx.events().clone());
        sleep(takes).await;
        Ok::<_, reconcile::Error>(Outcome::done())
    })
}

fn names(error: &Error) -> Vec<String> {
    match error {
        Error::GraceExpired { names, .. } => names.clone(),
        _ => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_hangs_on_every_replica_leaves_time_for_the_last_events_and_all_that_ends_well() {
    let hour = Duration::from_secs(3600);
    for case in ["runnable", "controller"] {
        let (fake, log) = (Fake::default(), Log::default());
        fake.put("/api/v1/namespaces/ns/configmaps/a", serde_json::json!({}));
        let manager = manager(&fake).await;
        let _maps = manager.caches().informer::<ConfigMap>();
        if case == "runnable" {
            let recorder = manager.recorder("test");
            let runnable = Runnable::new("test", move |_| async move {
                let _last = LastWords(recorder);
                sleep(hour).await;
                Ok::<_, Infallible>(())
            });
            manager.add(runnable.without_leader_election()).unwrap();
        } else {
            let controller = Controller::builder("test")
                .for_kind::<ConfigMap>()
                .without_leader_election()
                .complete(taking(hour));
            manager.add_controller(controller.unwrap()).unwrap();
        }
        let server = logged(&log, "server", Duration::from_millis(400));
        manager.add(server.as_server()).unwrap();
        // An event takes a while to be written.
        fake.hook(|_, path| {
            let event = path.starts_with(EVENTS);
            event.then_some(Fate::Slow(Duration::from_secs(1)))
        });
        let (stop, run) = spawn(&manager);
        sleep(Duration::from_secs(5)).await;
        let begin = Instant::now();
        stop.cancel();
        let error = run.await.unwrap().unwrap_err();
        let took = begin.elapsed();
        assert!(took >= Duration::from_secs(25), "{case}: {took:?}");
        assert!(took < Duration::from_secs(30), "{case}: {took:?}");
        let expected = match case {
            "runnable" => "test",
            _ => "test (reconciling ns/a for 31 s)",
        };
        assert_eq!(names(&error), [expected], "{case}");
        assert_eq!(fake.objects(EVENTS).len(), 1, "{case}: the last words");
        assert_eq!(*log.lock(), ["+server", "-server"], "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_controller_has_its_time_to_be_released() {
    let second = Duration::from_secs(1);
    for (case, takes, dropped) in [
        ("ends at once", second, false),
        ("ends with the time of the workers", second * 24, false),
        ("hangs", second * 3600, true),
    ] {
        let fake = Fake::default();
        fake.put("/api/v1/namespaces/ns/configmaps/a", serde_json::json!({}));
        // Sent writes are not answered, and may land until the lease of another replica may begin.
        fake.hook(|method, path| {
            let sent = *method == http::Method::PATCH && path.contains("configmaps");
            sent.then_some(Fate::Hang)
        });
        let manager = manager(&fake).await;
        let reconciler = reconcile::function(move |ctx: Context, key: Request| async move {
            let patch = kube_core::params::Patch::Merge(serde_json::json!({"data": {}}));
            let client = ctx.client().clone();
            let writing = async {
                loop {
                    let _ = client.patch::<ConfigMap>(&key, &patch).await;
                }
            };
            tokio::select! {
                () = sleep(takes) => {}
                () = writing => {}
            }
            Ok::<_, reconcile::Error>(Outcome::done())
        });
        let controller = Controller::builder("test")
            .for_kind::<ConfigMap>()
            .lease(Election::new("ns", "lock").identity("me"))
            .complete(reconciler);
        let handle = manager.add_controller(controller.unwrap()).unwrap();
        let (stop, run) = spawn(&manager);
        eventually("at work", || !handle.health().at_work.is_empty()).await;
        let held = fake.object(LEASE).unwrap();
        assert_eq!(held["spec"]["holderIdentity"], "me", "{case}");
        // The workers' part ends after 20 s.
        sleep(second * 5).await;
        stop.cancel();
        let begin = Instant::now();
        let result = run.await.unwrap();
        assert!(begin.elapsed() < Duration::from_secs(30), "{case}");
        if dropped {
            let error = result.unwrap_err();
            assert_eq!(
                names(&error),
                ["test (reconciling ns/a for 25 s)"],
                "{case}"
            );
        } else {
            result.unwrap();
        }
        assert!(handle.state().is_over(), "{case}");
        let lease = fake.object(LEASE).unwrap();
        assert_eq!(lease["spec"]["holderIdentity"], "", "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_controller_is_given_up_in_time_when_that_of_the_manager_is_lost() {
    const OWN: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/own";
    let fake = Fake::default();
    let manager = fake
        .manager()
        .leader_election(Election::new("ns", "lock").identity("me"))
        .grace_period(Duration::from_secs(6))
        .build()
        .await
        .unwrap();
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .lease(Election::new("ns", "own").identity("me"))
        .complete(taking(Duration::ZERO));
    let handle = manager.add_controller(controller.unwrap()).unwrap();
    let (_stop, run) = spawn(&manager);
    eventually("both are held", || {
        *manager.leading().borrow() && handle.state() == State::Running
    })
    .await;
    // The release is not answered.
    fake.hook(|_, path| (path == OWN).then_some(Fate::Hang));
    let mut stolen = fake.object(LEASE).unwrap();
    stolen["spec"]["holderIdentity"] = serde_json::json!("thief");
    fake.put(LEASE, stolen);
    let error = run.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::LeadershipLost(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_dropped_without_a_word_however_short_the_grace() {
    let fake = Fake::default();
    fake.put("/api/v1/namespaces/ns/configmaps/a", serde_json::json!({}));
    let manager = fake.manager().grace_period(Duration::ZERO).build().await;
    let manager = manager.unwrap();
    let controller = Controller::builder("at work")
        .for_kind::<ConfigMap>()
        .complete(taking(Duration::from_secs(3600)));
    let handle = manager.add_controller(controller.unwrap()).unwrap();
    let idle = Runnable::new("idle", |stop: CancellationToken| async move {
        stop.cancelled().await;
        Ok::<_, Infallible>(())
    });
    manager.add(idle).unwrap();
    let (lines, _guard) = Lines::capture();
    let (stop, run) = spawn(&manager);
    eventually("at work", || !handle.health().at_work.is_empty()).await;
    let begin = Instant::now();
    stop.cancel();
    let error = run.await.unwrap().unwrap_err();
    assert!(names(&error)[0].starts_with("at work"), "{error}");
    assert_eq!(begin.elapsed(), Duration::ZERO, "nothing is waited for");
    let text = lines.text();
    assert!(!text.contains("it blocks its thread"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_of_what_blocks_its_thread_is_not_released() {
    for case in ["a controller", "a controller with a lease", "a runnable"] {
        let fake = Fake::default();
        fake.put("/api/v1/namespaces/ns/configmaps/a", serde_json::json!({}));
        let election = || Election::new("ns", "lock").identity("me");
        let mut builder = fake.manager().grace_period(Duration::from_secs(1));
        if case != "a controller with a lease" {
            builder = builder.leader_election(election());
        }
        let manager = builder.build().await.unwrap();
        let (unblock, blocked) = std::sync::mpsc::channel::<()>();
        let (started, mut starts) = tokio::sync::mpsc::channel(1);
        let blocked = Arc::new(Mutex::new(blocked));
        let block = move || {
            let (started, blocked) = (started.clone(), Arc::clone(&blocked));
            async move {
                started.send(()).await.unwrap();
                // It ends when `unblock` is dropped.
                let _ = blocked.lock().recv();
            }
        };
        if case == "a runnable" {
            let blocks = move |_: CancellationToken| async move {
                block().await;
                Ok::<_, Infallible>(())
            };
            manager.add(Runnable::new("test", blocks)).unwrap();
        } else {
            let reconciler = reconcile::function(move |_: Context, _: Request| {
                let block = block.clone();
                async move {
                    block().await;
                    Ok::<_, reconcile::Error>(Outcome::done())
                }
            });
            let mut builder = Controller::builder("test").for_kind::<ConfigMap>();
            if case == "a controller with a lease" {
                builder = builder.lease(election());
            }
            let controller = builder.complete(reconciler);
            manager.add_controller(controller.unwrap()).unwrap();
        }
        let (lines, guard) = Lines::capture();
        let stop = CancellationToken::new();
        let stopping = async {
            starts.recv().await.unwrap();
            stop.cancel();
        };
        let (result, ()) = tokio::join!(manager.run(stop.clone()), stopping);
        drop(guard);
        let names = names(&result.unwrap_err());
        assert!(names[0].starts_with("test"), "{case}: {names:?}");
        let text = lines.text();
        let said = text
            .lines()
            .any(|line| line.contains("it blocks its thread") && line.contains("name=\"test\""));
        assert!(said, "{case}: {text}");
        let lease = fake.object(LEASE).unwrap();
        assert_eq!(lease["spec"]["holderIdentity"], "me", "{case}");
        drop(unblock);
    }
}
