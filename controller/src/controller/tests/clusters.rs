//! Other clusters of a manager.

use std::fmt;

use futures::FutureExt;

use super::*;
use crate::cache::{CacheError, View};
use crate::client::GroupKind;
use crate::cluster::Cluster;
use crate::fake::Managed as _;

/// A request that names a cluster, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Far {
    cluster: &'static str,
    name: String,
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.name)
    }
}

fn far(cluster: &'static str) -> impl handler::Handler<ConfigMap, Far> {
    handler::map(move |map: &ConfigMap| {
        let name = map.metadata.name.clone().unwrap_or_default();
        [Far { cluster, name }]
    })
}

#[tokio::test(start_paused = true)]
async fn a_controller_watches_two_clusters_with_requests_that_tell_them_apart() {
    let (here, there, seen) = (Fake::default(), Fake::default(), Seen::default());
    here.put(&path("a"), map("1"));
    there.put(&path("a"), map("1"));
    let manager = here.manager().build().await.unwrap();
    let cluster = manager
        .add_cluster(Cluster::builder("edge", there.client()))
        .unwrap();
    let twice = manager.add_cluster(Cluster::builder("edge", there.client()));
    assert!(matches!(twice, Err(ManagerError::DuplicateCluster(name)) if name == "edge"));
    let noted = Arc::clone(&seen);
    let edge = cluster.clone();
    let reconciler = reconcile::function(move |ctx: Context, request: Far| {
        let (seen, edge) = (Arc::clone(&noted), edge.clone());
        async move {
            let lister = match request.cluster {
                "edge" => edge.caches().lister::<ConfigMap>()?,
                _ => ctx.lister::<ConfigMap>()?,
            };
            let key = Request::namespaced("ns", &*request.name);
            let value = lister.get(&key)?.and_then(|map| map.data.clone());
            let value = value.unwrap_or_default().remove("key");
            seen.lock()
                .push(format!("{request} {}", value.unwrap_or_default()));
            if request.cluster == "here" {
                let mirror = Patch::Merge(json!({"data": {"key": "mirrored"}}));
                ctx.client_of(&edge)
                    .patch::<ConfigMap>(&key, &mirror)
                    .await?;
            }
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let controller = Controller::typed::<Far>("mirror")
        .watches::<ConfigMap>(far("here"))
        .watches_in(&cluster, View::<ConfigMap>::typed(), far("edge"))
        .complete(reconciler)
        .unwrap();
    let running = run(manager, controller).await;
    eventually("mirrored", || seen.lock().len() >= 3).await;
    let mut all = seen.lock().clone();
    all.sort();
    assert_eq!(all, ["edge/a 1", "edge/a mirrored", "here/a 1"]);
    // Its informers have metrics and a check under a name of their own.
    let metrics = running.manager.metrics().encode();
    for name in ["configmaps", "edge/configmaps"] {
        let line = format!(
            "informer_synced{{name=\"{name}\",group=\"\",version=\"v1\",resource=\"configmaps\"}} 1.0"
        );
        assert!(metrics.contains(&line), "{metrics}");
    }
    let page = running.manager.health().respond("/readyz", Some("verbose"));
    assert_eq!(page.await.status(), 200);
    // After the removal it sends no more requests to the server.
    running.manager.remove_cluster(cluster).await;
    there.put(&path("b"), map("1"));
    sleep(Duration::from_secs(600)).await;
    assert_eq!(seen.lock().len(), 3);
    running.end().await;
    let late = Manager::builder(here.client()).build().await.unwrap();
    let stopped = CancellationToken::new();
    stopped.cancel();
    late.run(stopped).await.unwrap();
    let refused = late.add_cluster(Cluster::builder("edge", there.client()));
    assert!(matches!(refused, Err(ManagerError::Stopping(name)) if name == "edge"));
}

#[tokio::test(start_paused = true)]
async fn events_of_another_cluster_are_written_there_the_last_ones_too() {
    const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/ns/events";
    for removed in [false, true] {
        let (here, there) = (Fake::default(), Fake::default());
        here.put(&path("a"), map("1"));
        let manager = here.manager().instance("pod-0").build().await.unwrap();
        let edge = manager.add_cluster(Cluster::builder("edge", there.client()));
        let edge = edge.unwrap();
        let far = edge.clone();
        let reconciler = noting(&Seen::default(), move |ctx, request| {
            let object = k8s_openapi::api::core::v1::ObjectReference {
                namespace: request.namespace.as_deref().map(str::to_owned),
                name: Some(request.name.to_string()),
                ..Default::default()
            };
            let normal = crate::events::EventType::Normal;
            let recorder = ctx.events_of(&far);
            recorder.event_for(&object, None, normal, "Seen", "Look", "from afar");
            Ok(Outcome::done())
        });
        // Each takes a while, so the last are in the queue at the stop.
        there.hook(|_, path| {
            let event = path.starts_with(EVENTS);
            event.then_some(Fate::Slow(Duration::from_millis(200)))
        });
        let controller = Controller::builder("test")
            .for_kind::<ConfigMap>()
            .complete(reconciler);
        let running = run(manager, controller.unwrap()).await;
        eventually("one", || !there.objects(EVENTS).is_empty()).await;
        let first = there.objects(EVENTS).remove(0);
        assert_eq!(first["reportingController"], "test");
        assert_eq!(first["reportingInstance"], "pod-0");
        for name in ["b", "c", "d"] {
            here.put(&path(name), map("1"));
        }
        sleep(Duration::from_millis(50)).await;
        assert_eq!(there.objects(EVENTS).len(), 1);
        if removed {
            running.manager.remove_cluster(edge).await;
            assert_eq!(there.objects(EVENTS).len(), 4, "before it is gone");
            let runnables = running.manager.runnables();
            assert!(runnables.iter().all(|it| it.name != "events of edge"));
        }
        running.end().await;
        assert_eq!(there.objects(EVENTS).len(), 4, "removed {removed}");
        assert!(here.objects(EVENTS).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_removed_cluster_that_does_not_answer_are_dropped_and_counted() {
    let (here, there) = (Fake::default(), Fake::default());
    let running = start(&here, []).await;
    let edge = Cluster::builder("edge", there.client());
    let edge = running.manager.add_cluster(edge).unwrap();
    there.hook(|_, _| Some(Fate::Hang));
    let recorder = edge.recorder("test");
    for number in 0..20 {
        let object = k8s_openapi::api::core::v1::ObjectReference {
            namespace: Some("ns".into()),
            name: Some(format!("e{number}")),
            ..Default::default()
        };
        let normal = crate::events::EventType::Normal;
        recorder.event_for(&object, None, normal, "Seen", "Look", "from afar");
    }
    sleep(Duration::from_secs(1)).await;
    let begin = Instant::now();
    running.manager.remove_cluster(edge).await;
    assert_eq!(begin.elapsed(), Duration::from_secs(5));
    let dropped = "reeve_events_dropped_total{controller=\"test\"}";
    assert_eq!(running.metric(dropped), 20.0);
    let runnables = running.manager.runnables();
    assert!(runnables.iter().all(|it| it.name != "events of edge"));
    let begin = Instant::now();
    running.end().await;
    assert_eq!(
        begin.elapsed(),
        Duration::ZERO,
        "nothing is left to wait for"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_a_running_manager_fails_alone() {
    let (here, there, seen) = (Fake::default(), Fake::default(), Seen::default());
    here.put(&path("a"), map("1"));
    let controller = Controller::builder("here").for_kind::<ConfigMap>();
    let running = start(&here, [controller.complete(done(&seen)).unwrap()]).await;
    eventually("it works", || seen.lock().len() == 1).await;
    there.hook(|_, _| Some(Fate::Refuse(403)));
    let manager = &running.manager;
    let edge = manager
        .add_cluster(Cluster::builder("edge", there.client()))
        .unwrap();
    let far = Controller::builder("far")
        .watches_in(&edge, View::<ConfigMap>::typed(), handler::for_object())
        .complete(done(&seen))
        .unwrap();
    let far = manager.add_controller(far).unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(far.state(), State::Syncing);
    let failures = manager.health().ready().failures();
    let names: Vec<&str> = failures.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["controllers", "informers-edge"], "{failures:?}");
    here.put(&path("b"), map("1"));
    eventually("here goes on", || seen.lock().len() == 2).await;
    there.no_hook();
    there.put(&path("c"), map("1"));
    eventually_within(Duration::from_secs(60), "there, too", || {
        seen.lock().len() == 3
    })
    .await;
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn clusters_that_come_and_go_leave_nothing_behind() {
    let (here, seen) = (Fake::default(), Seen::default());
    here.put(&path("a"), map("1"));
    let controller = Controller::builder("test")
        .for_kind::<ConfigMap>()
        .complete(done(&seen));
    let running = start(&here, []).await;
    let manager = &running.manager;
    let handle = manager.add_controller(controller.unwrap()).unwrap();
    eventually("it runs", || seen.lock().len() == 1).await;
    let mut left = Vec::new();
    for round in 0..100 {
        let there = Fake::default();
        there.put(&path(&format!("b{round}")), map("1"));
        let cluster = Cluster::builder("edge", there.client());
        let cluster = manager.add_cluster(cluster).unwrap();
        let watch = Watch::<ConfigMap>::new(View::typed(), handler::for_object());
        let watch = handle.watch(watch.in_cluster(&cluster)).unwrap();
        let expected = format!("ns/b{round}");
        eventually("it is watched", || *seen.lock().last().unwrap() == expected).await;
        let stores = cluster.caches().stores_left();
        assert_eq!(stores(), 1);
        left.push(stores);
        if round % 2 == 0 {
            watch.remove().await;
        }
        manager.remove_cluster(cluster).await;
        let health = handle.health();
        assert!(health.unavailable.is_empty(), "{health:?}");
    }
    // The sweep, and the linger of informers.
    sleep(Duration::from_secs(60)).await;
    let left: usize = left.iter().map(|stores| stores()).sum();
    assert_eq!(left, 0);
    let failures = manager.health().ready().failures();
    assert!(failures.is_empty(), "{failures:?}");
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_added_while_its_cluster_is_removed_is_refused() {
    let (here, there, seen) = (Fake::default(), Fake::default(), Seen::default());
    let kind = || GroupKind::new("", "ConfigMap");
    here.put(&path("a"), map("1"));
    let controller = Controller::builder("test").for_kind::<ConfigMap>();
    let controller = controller.complete(done(&seen)).unwrap();
    let running = start(&here, []).await;
    let handle = running.manager.add_controller(controller).unwrap();
    eventually("it runs", || seen.lock().len() == 1).await;
    let edge = Cluster::builder("edge", there.client());
    let edge = running.manager.add_cluster(edge).unwrap();
    let (manager, removed) = (running.manager.clone(), edge.clone());
    let watch = Watch::<ConfigMap>::new(View::typed(), handler::for_object())
        .in_cluster(&edge)
        .after_asking(move || {
            // The first poll removes the watches of the cluster.
            assert!(removed.caches().holds(&kind()));
            let _ = manager.remove_cluster(removed.clone()).now_or_never();
        });
    let refused = handle.watch(watch).unwrap_err();
    assert!(
        matches!(
            &refused,
            WatchError::Cache {
                source: CacheError::Removed,
                ..
            }
        ),
        "{refused}"
    );
    assert!(!edge.caches().holds(&kind()), "nothing is left behind");
    running.manager.remove_cluster(edge.clone()).await;
    // One that comes later, and a controller with such a watch.
    let watch = || Watch::<ConfigMap>::new(View::typed(), handler::for_object());
    let refused = handle.watch(watch().in_cluster(&edge)).unwrap_err();
    let remedy = "the cluster was removed from the manager; add it again";
    assert!(refused.to_string().contains(remedy), "{refused}");
    let far = Controller::builder("far")
        .watches_in(&edge, View::<ConfigMap>::typed(), handler::for_object())
        .complete(done(&seen))
        .unwrap();
    let refused = running.manager.add_controller(far).unwrap_err();
    assert!(matches!(refused, ManagerError::Cache { .. }), "{refused}");
    assert!(handle.health().unavailable.is_empty());
    running.end().await;
}
