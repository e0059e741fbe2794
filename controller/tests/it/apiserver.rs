//! Controllers on the built-in API server: whole processes under paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube_core::params::{DeleteParams, ListParams, Patch};
use parking_lot::Mutex;
use reeve_controller::cache::{CacheOptions, KindOptions, Selected};
use reeve_controller::events::EventType;
use reeve_controller::testing::{Cluster, Rule};
use reeve_controller::{
    Context, Controller, Outcome, Request, leader_election, manager, reconcile,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::greeter::{FINALIZER, Greeter, create, greeted, greeting, key, start};

fn lease(identity: &str) -> Option<leader_election::Options> {
    Some(leader_election::Options::new("default", "greeter").identity(identity))
}

#[tokio::test(start_paused = true)]
async fn an_object_is_guarded_greeted_and_released_with_one_write_each() {
    let cluster = Cluster::in_process().await;
    let greeter = Greeter::default();
    create(&cluster, "early").await;
    let running = start(&cluster, greeter.clone(), None).await;
    greeted(&cluster, "early").await;
    create(&cluster, "late").await;
    greeted(&cluster, "late").await;
    sleep(Duration::from_secs(5)).await;
    cluster
        .client()
        .delete::<ConfigMap>(&key("early"), &DeleteParams::default())
        .await
        .unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(
        cluster
            .client()
            .get::<ConfigMap>(&key("early"))
            .await
            .unwrap_err()
            .is_not_found()
    );
    // Each key runs again within a millisecond, but it never decides on a state before its own write.
    let writes = greeter.writes.lock().clone();
    assert_eq!(
        writes,
        [
            "guard early",
            "greet early",
            "guard late",
            "greet late",
            "release early"
        ]
    );
    let events = cluster
        .client()
        .list::<Event>(Some("default"), &ListParams::default())
        .await
        .unwrap();
    let mut reported: Vec<String> = events
        .items
        .iter()
        .map(|event| {
            let name = event
                .regarding
                .as_ref()
                .and_then(|about| about.name.clone());
            format!(
                "{} {}",
                event.reason.as_deref().unwrap_or_default(),
                name.unwrap_or_default()
            )
        })
        .collect();
    reported.sort();
    assert_eq!(
        reported,
        ["Greeted early", "Greeted late", "Released early"]
    );
    assert_eq!(
        running.metric("controller_runtime_reconcile_errors_total"),
        Some(0.0)
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn faults_of_every_kind_delay_the_work_and_do_not_prevent_it() {
    for (case, rule) in [
        (
            "refused",
            Rule::new().verb("patch").times(3).status(503, "later"),
        ),
        (
            "throttled",
            Rule::new().verb("patch").times(2).status(429, "slow down"),
        ),
        ("reset", Rule::new().verb("patch").times(3).reset()),
        (
            "answers lost",
            Rule::new().verb("patch").times(2).lose_answer(),
        ),
        ("no answer", Rule::new().verb("patch").times(1).stall()),
        (
            "no list",
            Rule::new()
                .resource("configmaps")
                .verb("list")
                .times(3)
                .status(500, "no"),
        ),
        (
            "watches broken",
            Rule::new().verb("watch").times(3).reset_after(1),
        ),
        (
            "watch silent",
            Rule::new().verb("watch").times(1).stall_after(2),
        ),
    ] {
        let cluster = Cluster::in_process().await;
        let greeter = Greeter::default();
        create(&cluster, "web").await;
        cluster.faults().add(rule);
        let running = start(&cluster, greeter.clone(), None).await;
        greeted(&cluster, "web").await;
        sleep(Duration::from_secs(300)).await;
        let map = cluster
            .client()
            .get::<ConfigMap>(&key("web"))
            .await
            .unwrap();
        assert_eq!(
            map.metadata.finalizers.as_deref(),
            Some(&[FINALIZER.to_owned()][..]),
            "{case}"
        );
        let writes = greeter.writes.lock().len();
        // A cache that shows nothing for 90 s: every 10 s the key stops its wait for its own writes.
        let allowed = if case == "watch silent" {
            2 * (90 / 10 + 1)
        } else {
            2 + 3
        };
        assert!(writes <= allowed, "{case}: {writes} writes");
        running.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_catches_up_after_an_outage_of_the_server() {
    let cluster = Cluster::in_process().await;
    let running = start(&cluster, Greeter::default(), None).await;
    create(&cluster, "before").await;
    greeted(&cluster, "before").await;
    cluster.built_in().unwrap().go_down();
    sleep(Duration::from_secs(90)).await;
    assert!(
        running.manager().health().ready().failures()[0]
            .1
            .contains("configmaps"),
        "readiness names what is missing"
    );
    cluster.built_in().unwrap().come_up();
    create(&cluster, "after").await;
    greeted(&cluster, "after").await;
    sleep(Duration::from_secs(60)).await;
    assert!(running.manager().health().ready().failures().is_empty());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_one_works_and_the_other_takes_over() {
    let cluster = Cluster::in_process().await;
    let (first, second) = (Greeter::default(), Greeter::default());
    let one = start(&cluster, first.clone(), lease("pod-0")).await;
    sleep(Duration::from_secs(5)).await;
    let two = start(&cluster, second.clone(), lease("pod-1")).await;
    create(&cluster, "a").await;
    greeted(&cluster, "a").await;
    assert!(second.writes.lock().is_empty(), "the standby does not work");
    let held: Lease = cluster.client().get(&key("greeter")).await.unwrap();
    assert_eq!(held.spec.unwrap().holder_identity.as_deref(), Some("pod-0"));

    // A graceful stop hands over at once.
    one.end().await;
    create(&cluster, "b").await;
    let handed_over = Instant::now();
    greeted(&cluster, "b").await;
    assert!(
        handed_over.elapsed() < Duration::from_secs(5),
        "{:?}",
        handed_over.elapsed()
    );

    // A crash: everything is dropped, nothing is released.
    let three = start(&cluster, first.clone(), lease("pod-2")).await;
    sleep(Duration::from_secs(20)).await;
    let crashed = Instant::now();
    two.crash().await;
    create(&cluster, "c").await;
    greeted(&cluster, "c").await;
    assert!(
        crashed.elapsed() < Duration::from_secs(20),
        "{:?}",
        crashed.elapsed()
    );
    let held: Lease = cluster.client().get(&key("greeter")).await.unwrap();
    let spec = held.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("pod-2"));
    assert_eq!(spec.lease_transitions, Some(2));
    three.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_cut_off_from_the_lease_writes_nothing_once_another_may_lead() {
    let cluster = Cluster::in_process().await;
    let greeter = Greeter::default();
    let one = start(&cluster, greeter.clone(), lease("pod-0")).await;
    create(&cluster, "a").await;
    greeted(&cluster, "a").await;
    cluster.faults().add(Rule::new().resource("leases").stall());
    let cut_off = Instant::now();
    let error = one.ended().await.unwrap_err();
    assert!(
        matches!(error, manager::Error::LeadershipLost(_)),
        "{error}"
    );
    assert!(
        cut_off.elapsed() <= Duration::from_secs(15),
        "{:?}",
        cut_off.elapsed()
    );
    create(&cluster, "b").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(greeting(&cluster, "b").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_leaves_nothing_behind() {
    let cluster = Cluster::in_process().await;
    let running = start(&cluster, Greeter::default(), lease("pod-0")).await;
    create(&cluster, "a").await;
    greeted(&cluster, "a").await;
    running.crash().await;
    cluster.requests().clear();
    create(&cluster, "b").await;
    sleep(Duration::from_secs(300)).await;
    let requests = cluster.requests().all();
    let verbs: Vec<&str> = requests
        .iter()
        .map(|request| request.verb.as_str())
        .collect();
    assert_eq!(verbs, ["create"], "only the test itself");
}

#[tokio::test(start_paused = true)]
async fn the_recorder_needs_create_and_patch_only() {
    let cluster = Cluster::in_process().await;
    let running = start(&cluster, Greeter::default(), None).await;
    create(&cluster, "a").await;
    let map = cluster.client().get::<ConfigMap>(&key("a")).await.unwrap();
    let recorder = running.manager().recorder("example.com/test");
    for _ in 0..5 {
        recorder.event(
            &map,
            EventType::Warning,
            "Late",
            "Deliver",
            "the train is late",
        );
        sleep(Duration::from_secs(1)).await;
    }
    sleep(Duration::from_secs(500)).await;
    let events = cluster
        .client()
        .list::<Event>(Some("default"), &ListParams::default())
        .await
        .unwrap();
    let late = events
        .items
        .iter()
        .find(|event| event.reason.as_deref() == Some("Late"))
        .unwrap();
    assert_eq!(late.series.as_ref().unwrap().count, 5);
    let verbs: Vec<String> = cluster
        .requests()
        .all()
        .into_iter()
        .filter(|request| request.resource == "events" && request.verb != "list")
        .map(|request| request.verb)
        .collect();
    assert!(
        verbs.iter().all(|verb| verb == "create" || verb == "patch"),
        "{verbs:?}"
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_sends_the_same_requests() {
    let mut traces = Vec::new();
    for _ in 0..2 {
        let cluster = Cluster::in_process().await;
        cluster
            .faults()
            .add(Rule::new().verb("patch").times(3).status(503, "later"));
        let running = start(&cluster, Greeter::default(), lease("pod-0")).await;
        for name in ["a", "b", "c", "d", "e"] {
            create(&cluster, name).await;
        }
        sleep(Duration::from_secs(30)).await;
        running.end().await;
        let requests = cluster.requests().all().into_iter();
        let trace = requests.map(|request| {
            format!(
                "{} {} {} {}",
                request.at, request.verb, request.path, request.code
            )
        });
        traces.push(trace.collect::<Vec<_>>());
    }
    assert!(traces[0].len() > 20);
    assert_eq!(traces[0], traces[1]);
}

#[tokio::test(start_paused = true)]
async fn own_writes_are_waited_for_only_where_a_cache_would_show_them() {
    let cluster = Cluster::in_process().await;
    for name in ["watched", "other"] {
        create(&cluster, name).await;
    }
    let watched = KindOptions::new()
        .in_namespace("default", Selected::new())
        .fields("metadata.name=watched");
    let manager = cluster
        .manager()
        .cache(CacheOptions::new().for_kind::<ConfigMap>(watched))
        .build()
        .await
        .unwrap();
    // Writes an object that its cache excludes, deletes one of a kind without a cache, and runs again soon.
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let reconciler = reconcile::function(move |ctx: Context, _: Request| {
        let run = counted.fetch_add(1, Ordering::Relaxed);
        async move {
            let patch = Patch::Merge(json!({"data": {"run": run.to_string()}}));
            let key = key("other");
            ctx.client().patch::<ConfigMap>(&key, &patch).await?;
            let gone = ctx
                .client()
                .delete::<Secret>(&key, &DeleteParams::default())
                .await;
            assert!(gone.unwrap_err().is_not_found());
            Ok::<_, reconcile::Error>(Outcome::requeue_after(Duration::from_secs(1)))
        }
    });
    let controller = Controller::builder("selective").for_kind::<ConfigMap>();
    manager
        .add_controller(controller.complete(reconciler).unwrap())
        .unwrap();
    let running = cluster.start(&manager);
    sleep(Duration::from_millis(10_500)).await;
    let runs = runs.load(Ordering::Relaxed);
    assert!((10..=11).contains(&runs), "{runs}: held back without need");
    let watched = manager
        .caches()
        .lister::<ConfigMap>()
        .unwrap()
        .list()
        .unwrap();
    assert_eq!(watched.len(), 1);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_object_is_waited_for_by_its_uid() {
    let cluster = Cluster::in_process().await;
    create(&cluster, "phoenix").await;
    let manager = cluster.manager().build().await.unwrap();
    // Deletes the cached object, once for each uid.
    let deleted: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&deleted);
    let reconciler = reconcile::function(move |ctx: Context, request: Request| {
        let noted = Arc::clone(&noted);
        async move {
            let object = ctx.lister::<ConfigMap>()?.get(&request)?;
            if let Some(uid) = object.and_then(|object| object.metadata.uid.clone()) {
                noted.lock().push(uid);
                ctx.client()
                    .delete::<ConfigMap>(&request, &DeleteParams::default())
                    .await?;
            }
            Ok::<_, reconcile::Error>(Outcome::requeue_after(Duration::from_millis(1)))
        }
    });
    let controller = Controller::builder("reaper").for_kind::<ConfigMap>();
    manager
        .add_controller(controller.complete(reconciler).unwrap())
        .unwrap();
    let running = cluster.start(&manager);
    sleep(Duration::from_secs(1)).await;
    create(&cluster, "phoenix").await;
    sleep(Duration::from_secs(1)).await;
    let deleted = deleted.lock().clone();
    assert_eq!(deleted.len(), 2, "{deleted:?}");
    assert_ne!(deleted[0], deleted[1]);
    running.end().await;
}
