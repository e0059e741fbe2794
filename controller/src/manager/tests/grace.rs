//! What hangs at a stop costs nobody else: each group has its own part of the grace period.

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};

use super::*;
use crate::events::EventType;
use crate::reconcile::{self, Outcome, Request};
use crate::{Context, Controller};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock";
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

/// A reconcile that takes `takes`, whatever it is told.
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
        // What is sent is not answered, and may land until the lease of another may begin.
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
                    let params = kube_core::params::PatchParams::default();
                    let _ = client.patch::<ConfigMap, _>(&key, &params, &patch).await;
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
            .lease(Election::new("ns", "lock", "me"))
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
        .leader_election(Election::new("ns", "lock", "me"))
        .grace_period(Duration::from_secs(6))
        .build()
        .await
        .unwrap();
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .lease(Election::new("ns", "own", "me"))
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
