//! The same controller on a real kube-apiserver, if `KUBEBUILDER_ASSETS` names one.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::events::v1::Event;
use kube_core::params::{DeleteParams, ListParams};
use reeve_controller::cache::{CacheOptions, Kind, Selected, View};
use reeve_controller::events::EventType;
use reeve_controller::leader_election;
use reeve_controller::testing::{Cluster, Rule, Server, Setup};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::greeter::{FINALIZER, Greeter, create, greeted, key, start};

fn lease(identity: &str) -> Option<leader_election::Options> {
    let options = leader_election::Options::new("default", "greeter")
        .identity(identity)
        .lease_duration(Duration::from_secs(3))
        .renew_deadline(Duration::from_secs(2))
        .retry_period(Duration::from_millis(500));
    Some(options)
}

#[test]
fn a_real_server_accepts_all_writes() {
    Setup::new().server(Server::Assets).run(all_is_written);
}

async fn all_is_written(cluster: Cluster) {
    let client = cluster.client();
    let (first, second) = (Greeter::default(), Greeter::default());
    let one = start(&cluster, first.clone(), lease("pod-0")).await;
    create(&cluster, "a").await;
    greeted(&cluster, "a").await;
    let two = start(&cluster, second.clone(), lease("pod-1")).await;
    sleep(Duration::from_secs(4)).await;
    let map = client.get::<ConfigMap>(&key("a")).await.unwrap();
    assert_eq!(
        map.metadata.finalizers.as_deref(),
        Some(&[FINALIZER.to_owned()][..])
    );
    assert_eq!(
        *first.writes.lock(),
        ["guard a", "greet a"],
        "each write once"
    );
    assert!(second.writes.lock().is_empty(), "the standby does not work");

    // A series, and all fields of an Event in the form of the server.
    let recorder = one.manager().recorder("example.com/greeter");
    for _ in 0..3 {
        recorder.event(
            &map,
            EventType::Warning,
            "Late",
            "Deliver",
            "the train is late",
        );
    }
    let events = async || {
        let params = ListParams::default();
        let events = client.list::<Event>(Some("default"), &params);
        events.await.map(|list| list.items).unwrap_or_default()
    };
    cluster
        .eventually("the series is written", async || {
            let events = events().await;
            let late = events
                .into_iter()
                .find(|event| event.reason.as_deref() == Some("Late"))?;
            late.series.filter(|series| series.count >= 2)
        })
        .await;
    assert_eq!(
        one.metric("controller_runtime_reconcile_errors_total"),
        Some(0.0)
    );

    // A graceful stop hands over at once, a crash after the lease.
    one.end().await;
    create(&cluster, "b").await;
    let stopped = Instant::now();
    greeted(&cluster, "b").await;
    assert!(
        stopped.elapsed() < Duration::from_secs(3),
        "{:?}",
        stopped.elapsed()
    );
    let three = start(&cluster, first.clone(), lease("pod-2")).await;
    sleep(Duration::from_secs(1)).await;
    two.crash().await;
    create(&cluster, "c").await;
    let crashed = Instant::now();
    greeted(&cluster, "c").await;
    assert!(
        crashed.elapsed() < Duration::from_secs(8),
        "{:?}",
        crashed.elapsed()
    );
    let held = client
        .get::<Lease>(&key("greeter"))
        .await
        .unwrap()
        .spec
        .unwrap();
    assert_eq!(held.holder_identity.as_deref(), Some("pod-2"));
    assert_eq!(held.lease_transitions, Some(2));

    // The finalizer holds the object until it is released.
    client
        .delete::<ConfigMap>(&key("a"), &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .eventually("the finalizer is removed", async || {
            client.get::<ConfigMap>(&key("a")).await.is_err()
        })
        .await;
    assert_eq!(first.writes.lock().last().unwrap(), "release a");
    three.end().await;
}

/// Faults and the log of requests are the same in front of either server.
async fn a_refused_write_is_tried_again(cluster: Cluster) {
    let refuse = Rule::new()
        .verb("patch")
        .resource("configmaps")
        .times(2)
        .status(503, "later");
    let refused = cluster.faults().add(refuse);
    let lost = Rule::new().verb("create").resource("events").lose_answer();
    cluster.faults().add(lost);
    let running = start(&cluster, Greeter::default(), None).await;
    create(&cluster, "a").await;
    greeted(&cluster, "a").await;
    assert_eq!(refused.hits(), 2);
    let patches: Vec<u16> = cluster
        .requests()
        .all()
        .iter()
        .filter(|request| request.verb == "patch" && request.resource == "configmaps")
        .map(|request| request.code)
        .collect();
    assert_eq!(patches, [503, 503, 200, 200], "guard refused twice");
    running.end().await;
}

#[test]
fn a_refused_write_is_tried_again_by_the_built_in_server() {
    let setup = Setup::new().server(Server::BuiltIn);
    setup.run(a_refused_write_is_tried_again);
}

#[test]
fn a_refused_write_is_tried_again_by_a_real_server() {
    let setup = Setup::new().server(Server::Assets);
    setup.run(a_refused_write_is_tried_again);
}

/// One namespace has a selector. All others are cached whole by one watch that excludes it: the server supports the
/// field selector from the first list on.
async fn the_watch_of_all_others_excludes_named_namespaces(cluster: Cluster) {
    let map = |namespace: &str, name: &str, tier: &str| json!({"metadata": {"namespace": namespace, "name": name, "labels": {"tier": tier, "suite": "others"}}});
    for namespace in ["red", "blue"] {
        let named = json!({"metadata": {"name": namespace}});
        cluster.create::<Namespace>(named).await;
        for (name, tier) in [("a", "front"), ("b", "back")] {
            cluster
                .create::<ConfigMap>(map(namespace, name, tier))
                .await;
        }
    }
    cluster.requests().clear();
    let options = CacheOptions::new()
        .in_namespace("red", Selected::new().labels("tier=front"))
        .in_all_others(Selected::new());
    let manager = cluster.manager().cache(options).build().await.unwrap();
    let caches = manager.caches().clone();
    let maps = caches.keep(&View::<ConfigMap>::typed()).unwrap();
    let running = cluster.start(&manager);
    caches.wait_synced(Duration::from_secs(30)).await.unwrap();
    // Other namespaces of a real cluster have ConfigMaps, too.
    let held = || -> String {
        let ours = |map: &ConfigMap| {
            let labels = map.metadata.labels.as_ref();
            labels.is_some_and(|labels| labels.contains_key("suite"))
        };
        let all = maps.list_where(ours).unwrap();
        let keys = all.iter().map(|map| {
            let meta = &map.metadata;
            format!(
                "{}/{}",
                meta.namespace.as_deref().unwrap(),
                meta.name.as_deref().unwrap()
            )
        });
        keys.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(held(), "blue/a blue/b red/a");
    assert_eq!(caches.resolved(&Kind::of::<ConfigMap>()).unwrap().len(), 2);
    let mut asked: Vec<String> = cluster
        .requests()
        .all()
        .iter()
        .filter(|request| request.resource == "configmaps")
        .map(|request| {
            let selector = request
                .query
                .split('&')
                .find(|pair| pair.contains("Selector="));
            format!("{} {}", request.path, selector.unwrap_or_default())
        })
        .collect();
    asked.sort();
    asked.dedup();
    assert_eq!(
        asked,
        [
            "/api/v1/configmaps fieldSelector=metadata.namespace%21%3Dred",
            "/api/v1/namespaces/red/configmaps labelSelector=tier%3Dfront",
        ]
    );

    // Later objects are cached, also those of a new namespace.
    let named = json!({"metadata": {"name": "green"}});
    cluster.create::<Namespace>(named).await;
    for (namespace, tier) in [("green", "back"), ("red", "back"), ("red", "front")] {
        cluster
            .create::<ConfigMap>(map(namespace, &format!("later-{tier}"), tier))
            .await;
    }
    let all = "blue/a blue/b green/later-back red/a red/later-front";
    cluster
        .eventually_eq("the watches bring it", all, async || held())
        .await;

    // From now on another namespace is excluded, and the first one is not.
    caches.namespaces().set_with_others(["blue"]);
    let all = "blue/a blue/b green/later-back red/a red/b red/later-back red/later-front";
    cluster
        .eventually_eq(
            "the others are those without the new one",
            all.to_owned(),
            async || {
                if maps.has_synced() {
                    held()
                } else {
                    String::new()
                }
            },
        )
        .await;
    running.end().await;
}

#[test]
fn the_watch_of_all_others_excludes_named_namespaces_at_the_built_in_server() {
    let setup = Setup::new().server(Server::BuiltIn);
    setup.run(the_watch_of_all_others_excludes_named_namespaces);
}

#[test]
fn the_watch_of_all_others_excludes_named_namespaces_at_a_real_server() {
    let setup = Setup::new().server(Server::Assets);
    setup.run(the_watch_of_all_others_excludes_named_namespaces);
}
