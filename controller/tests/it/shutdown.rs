//! A stop in the middle of work. No acknowledged write is lost or done twice, the stop ends within the grace
//! period, and no task is left ([`reeve_controller::testing::run`] checks).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::{ListParams, Patch};
use parking_lot::Mutex;
use reeve_apiserver::faults::Rule;
use reeve_controller::testing::{Cluster, Server, Setup};
use reeve_controller::{
    Context, Controller, Manager, ObjectKey, Outcome, Request, leader_election, manager, reconcile,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

/// The acknowledged count of each object.
pub(crate) type Acknowledged = Arc<Mutex<BTreeMap<String, u32>>>;

const OBJECTS: usize = 120;

/// Increments the count of each object repeatedly, and records the acknowledged counts. It waits a while before and
/// after each write.
pub(crate) fn counter(acknowledged: &Acknowledged) -> Controller {
    let acknowledged = Arc::clone(acknowledged);
    let reconciler = reconcile::function(move |ctx: Context, request: Request| {
        let acknowledged = Arc::clone(&acknowledged);
        async move {
            let map = ctx.lister::<ConfigMap>()?.get(&request)?;
            let data = map.and_then(|map| map.data.clone()).unwrap_or_default();
            let count: u32 = data.get("count").map_or(Ok(0), |count| count.parse())?;
            sleep(Duration::from_millis(20)).await;
            let patch = Patch::Merge(json!({"data": {"count": (count + 1).to_string()}}));
            ctx.client().patch::<ConfigMap>(&request, &patch).await?;
            *acknowledged
                .lock()
                .entry(request.name.to_string())
                .or_default() += 1;
            sleep(Duration::from_millis(20)).await;
            Ok::<_, reconcile::Error>(Outcome::requeue_after(Duration::from_millis(100)))
        }
    });
    Controller::builder("counter")
        .for_kind::<ConfigMap>()
        .workers(8)
        .complete(reconciler)
        .unwrap()
}

async fn objects(cluster: &Cluster) {
    for number in 0..OBJECTS {
        let map = json!({"metadata": {"name": format!("map-{number:03}"), "namespace": "default"}});
        cluster.create::<ConfigMap>(map).await;
    }
}

/// The counts at the server.
async fn counts(cluster: &Cluster) -> BTreeMap<String, u32> {
    let (client, all) = (cluster.client(), ListParams::default());
    let list = client.list::<ConfigMap>(Some("default"), &all).await;
    counts_of(list.unwrap().items)
}

/// The counts in these objects.
pub(crate) fn counts_of(maps: Vec<ConfigMap>) -> BTreeMap<String, u32> {
    maps.into_iter()
        .filter_map(|map| {
            let count = map.data?.get("count")?.parse().ok()?;
            Some((map.metadata.name?, count))
        })
        .collect()
}

#[test]
fn a_stop_under_load_loses_no_acknowledged_write() {
    Setup::new()
        .server(Server::BuiltIn)
        .run(async |cluster: Cluster| {
            objects(&cluster).await;
            let acknowledged = Acknowledged::default();
            for round in 1..=6u64 {
                let lease = leader_election::Options::new("default", "counter").identity("pod");
                let manager = cluster
                    .manager()
                    .leader_election(lease)
                    .build()
                    .await
                    .unwrap();
                manager.add_controller(counter(&acknowledged)).unwrap();
                let running = cluster.start(&manager);
                let before: u32 = acknowledged.lock().values().sum();
                cluster
                    .eventually("it works", async || {
                        acknowledged.lock().values().sum::<u32>() > before + 50
                    })
                    .await;
                // At another moment each time.
                sleep(Duration::from_millis(7 * round)).await;
                let stopped = Instant::now();
                running.end().await;
                let took = stopped.elapsed();
                assert!(took < Duration::from_millis(200), "round {round}: {took:?}");
                assert_eq!(
                    counts(&cluster).await,
                    *acknowledged.lock(),
                    "round {round}"
                );
                let key = ObjectKey::namespaced("default", "counter");
                let lease = cluster.client().get::<Lease>(&key).await.unwrap();
                let holder = lease.spec.unwrap().holder_identity;
                assert_eq!(
                    holder.as_deref(),
                    Some(""),
                    "released, so another replica can lead at once"
                );
            }
        });
}

#[test]
fn a_stop_during_a_storm_of_refusals_loses_no_acknowledged_write() {
    Setup::new()
        .server(Server::BuiltIn)
        .run(async |cluster: Cluster| {
            objects(&cluster).await;
            let acknowledged = Acknowledged::default();
            // Most writes are refused, each watch ends after a few events, and the next one is too old.
            let faults = cluster.faults();
            let refused = Rule::new().verb("patch").status(429, "busy").retry_after(1);
            let refused = faults.add(refused.probability(0.7));
            let cut = faults.add(Rule::new().verb("watch").close_after(3));
            let expired = Rule::new()
                .verb("watch")
                .status(410, "too old resource version");
            let expired = faults.add(expired.probability(0.5));
            for round in 1..=4u64 {
                let lease = leader_election::Options::new("default", "counter").identity("pod");
                let manager = cluster.manager().leader_election(lease);
                let manager = manager.build().await.unwrap();
                manager.add_controller(counter(&acknowledged)).unwrap();
                let running = cluster.start(&manager);
                let before: u32 = acknowledged.lock().values().sum();
                cluster
                    .eventually("some writes are acknowledged", async || {
                        acknowledged.lock().values().sum::<u32>() > before + 50
                    })
                    .await;
                sleep(Duration::from_millis(130 * round)).await;
                let stopped = Instant::now();
                running.end().await;
                let took = stopped.elapsed();
                // The stop does not wait for keys in back-off.
                assert!(took < Duration::from_secs(1), "round {round}: {took:?}");
                assert_eq!(
                    counts(&cluster).await,
                    *acknowledged.lock(),
                    "round {round}"
                );
                let key = ObjectKey::namespaced("default", "counter");
                let lease = cluster.client().get::<Lease>(&key).await.unwrap();
                let holder = lease.spec.unwrap().holder_identity;
                assert_eq!(holder.as_deref(), Some(""), "round {round}");
            }
            for (what, rule) in [("429", refused), ("cut", cut), ("410", expired)] {
                assert!(rule.hits() >= 3, "{what}: {}", rule.hits());
            }
        });
}

#[test]
fn reconciles_that_hang_at_a_stop_are_named_and_dropped_and_acknowledged_writes_stay() {
    Setup::new()
        .server(Server::BuiltIn)
        .run(async |cluster: Cluster| {
            objects(&cluster).await;
            let acknowledged = Acknowledged::default();
            let manager = cluster
                .manager()
                .grace_period(Duration::from_secs(6))
                .build()
                .await
                .unwrap();
            manager.add_controller(counter(&acknowledged)).unwrap();
            let running = cluster.start(&manager);
            cluster
                .eventually("it works", async || {
                    acknowledged.lock().values().sum::<u32>() > 50
                })
                .await;
            // The server does not answer or apply writes any more.
            cluster.faults().add(Rule::new().verb("patch").stall());
            sleep(Duration::from_secs(1)).await;
            running.stop();
            let stopped = Instant::now();
            let error = running.ended().await.unwrap_err();
            assert!(stopped.elapsed() <= Duration::from_secs(6));
            let manager::Error::GraceExpired { names, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!(names.len(), 1, "{error}");
            assert!(
                names[0].starts_with("counter (reconciling default/map-"),
                "{error}"
            );
            let keys = names[0].matches("default/map-").count();
            assert_eq!(keys, 8, "each worker's: {error}");
            assert_eq!(counts(&cluster).await, *acknowledged.lock());
        });
}

#[test]
fn a_manager_that_never_ran_leaves_nothing_behind() {
    Setup::new()
        .server(Server::BuiltIn)
        .run(async |cluster: Cluster| {
            let manager: Manager = cluster.manager().build().await.unwrap();
            let handle = manager
                .add_controller(counter(&Acknowledged::default()))
                .unwrap();
            drop(manager);
            handle.ended().await;
            assert_eq!(cluster.requests().count("list", "configmaps"), 0);
        });
}

#[test]
fn a_dropped_run_drops_all_its_tasks() {
    Setup::new()
        .server(Server::BuiltIn)
        .run(async |cluster: Cluster| {
            objects(&cluster).await;
            let acknowledged = Acknowledged::default();
            let running = cluster.run([counter(&acknowledged)]).await;
            cluster
                .eventually("it works", async || {
                    acknowledged.lock().values().sum::<u32>() > 50
                })
                .await;
            running.crash().await;
            let done = acknowledged.lock().clone();
            sleep(Duration::from_secs(60)).await;
            assert_eq!(*acknowledged.lock(), done, "no worker runs any more");
        });
}
