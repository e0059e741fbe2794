//! Controllers with a lease each, in two replicas on the built-in API server, under virtual time.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::{Patch, PatchParams};
use reeve_controller::manager::{Error, Handle, State};
use reeve_controller::testing::{Cluster, Running};
use reeve_controller::{
    Client, Context, Controller, Manager, ObjectKey, Outcome, Reconciler, Request, leader_election,
    reconcile,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

fn lease(name: &str, identity: &str) -> leader_election::Options {
    leader_election::Options::new("default", name, identity)
}

/// Signs every ConfigMap under its own name.
struct Signer {
    controller: &'static str,
    replica: &'static str,
}

impl Reconciler for Signer {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, Self::Error> {
        sign(ctx.client(), &request, self.controller, self.replica).await?;
        Ok(Outcome::requeue_after(Duration::from_secs(1)))
    }
}

async fn sign(
    client: &Client,
    key: &ObjectKey,
    controller: &str,
    replica: &str,
) -> Result<(), reeve_controller::client::Error> {
    let patch = Patch::Merge(json!({"data": {controller: replica}}));
    let params = PatchParams::default();
    client.patch::<ConfigMap, _>(key, &params, &patch).await?;
    Ok(())
}

struct Replica {
    running: Running,
    handles: Vec<Handle>,
}

/// A replica with the controllers `a` and `b`, each with a lease of its name.
async fn replica(cluster: &Cluster, identity: &'static str) -> Replica {
    let manager = cluster
        .manager()
        .namespace("default")
        .build()
        .await
        .unwrap();
    let handles = ["a", "b"].map(|name| {
        let signer = Signer {
            controller: name,
            replica: identity,
        };
        let controller = Controller::builder(name)
            .for_kind::<ConfigMap>()
            .lease(lease(name, identity))
            .complete(signer)
            .unwrap();
        manager.add_controller(controller).unwrap()
    });
    Replica {
        running: cluster.start(&manager),
        handles: handles.into(),
    }
}

fn states(manager: &Manager) -> Vec<(String, State)> {
    let all = manager.health().runnables();
    let named = all.into_iter().map(|one| (one.name, one.state));
    named
        .filter(|(name, _)| name == "a" || name == "b")
        .collect()
}

async fn signed(cluster: &Cluster, controller: &'static str) -> Option<String> {
    let map = cluster.client().get::<ConfigMap>(&key("work")).await.ok()?;
    map.data?.get(controller).cloned()
}

async fn holder(cluster: &Cluster, name: &str) -> String {
    let lease = cluster.client().get::<Lease>(&key(name)).await.unwrap();
    lease.spec.unwrap().holder_identity.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn replicas_share_the_work_when_each_controller_has_its_lease() {
    let cluster = Cluster::in_process().await;
    cluster
        .create::<ConfigMap>(
            json!({"metadata": {"namespace": "default", "name": "work"}, "data": {}}),
        )
        .await;
    let mut one = replica(&cluster, "pod-0").await;
    cluster
        .eventually_eq("both by the first", Some("pod-0".to_owned()), async || {
            signed(&cluster, "b").await
        })
        .await;
    let two = replica(&cluster, "pod-1").await;
    sleep(Duration::from_secs(30)).await;
    let standby = |name: &str| (name.to_owned(), State::Standby);
    assert_eq!(states(two.running.manager()), [standby("a"), standby("b")]);

    // One is handed over, and the other stays.
    let handed_over = Instant::now();
    one.handles.remove(0).stop().await;
    cluster
        .eventually_eq("a by the second", Some("pod-1".to_owned()), async || {
            signed(&cluster, "a").await
        })
        .await;
    assert!(handed_over.elapsed() < Duration::from_secs(1));
    sleep(Duration::from_secs(30)).await;
    assert_eq!(signed(&cluster, "b").await.as_deref(), Some("pod-0"));
    assert_eq!(
        (holder(&cluster, "a").await, holder(&cluster, "b").await),
        ("pod-1".into(), "pod-0".into())
    );
    let metric = |name: &str| {
        let line = format!("leader_election_master_status{{name=\"{name}\"}}");
        one.running.metric(&line)
    };
    assert_eq!((metric("a"), metric("b")), (Some(0.0), Some(1.0)));
    one.running.end().await;
    assert_eq!(
        holder(&cluster, "b").await,
        "pod-1",
        "taken the moment it was released"
    );
    two.running.end().await;
    assert_eq!(
        (holder(&cluster, "a").await, holder(&cluster, "b").await),
        (String::new(), String::new())
    );
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_loses_its_lease_brings_the_manager_down_and_the_others_end_well() {
    let cluster = Cluster::in_process().await;
    let one = replica(&cluster, "pod-0").await;
    cluster
        .eventually("both leading", async || {
            let all = states(one.running.manager());
            all.iter().all(|(_, state)| *state == State::Running)
        })
        .await;
    let mut stolen = cluster.client().get::<Lease>(&key("a")).await.unwrap();
    stolen.spec.as_mut().unwrap().holder_identity = Some("thief".into());
    cluster.client().update(&stolen).await.unwrap();
    let error = one.running.ended().await.unwrap_err();
    assert_eq!(error.to_string(), "a failed: the lease was taken by thief");
    assert_eq!(
        (holder(&cluster, "a").await, holder(&cluster, "b").await),
        ("thief".into(), String::new())
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_contended_for_once_in_a_manager() {
    let cluster = Cluster::in_process().await;
    let manager = cluster
        .manager()
        .leader_election(lease("shared", "pod-0"))
        .build()
        .await
        .unwrap();
    let add = |name: &'static str, options: leader_election::Options| {
        let signer = Signer {
            controller: name,
            replica: "pod-0",
        };
        let controller = Controller::builder(name)
            .for_kind::<ConfigMap>()
            .lease(options)
            .complete(signer);
        manager.add_controller(controller.unwrap())
    };
    let _first = add("first", lease("own", "pod-0")).unwrap();
    for (name, taken) in [("second", "own"), ("third", "shared")] {
        let refused = add(name, lease(taken, "pod-0")).unwrap_err();
        assert!(matches!(refused, Error::DuplicateLease(key) if key == format!("default/{taken}")));
    }
    let refused = add("fourth", lease("other", "")).unwrap_err();
    assert!(matches!(refused, Error::LeaderElection(_)), "{refused}");
}
