//! Controllers with their own leases, in two replicas on the built-in API server, under virtual time.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::Patch;
use parking_lot::Mutex;
use reeve_apiserver::faults::Rule;
use reeve_apiserver::record::RequestRecord;
use reeve_clock::Clock;
use reeve_controller::controller::Defaults;
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
    leader_election::Options::new("default", name).identity(identity)
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
    client.patch::<ConfigMap>(key, &patch).await?;
    Ok(())
}

struct Replica {
    running: Running,
    handles: Vec<Handle>,
}

/// A replica with the controllers `a` and `b`, each with a lease of the same name.
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
    let all = manager.runnables();
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

    // One lease is handed over, and the other one stays.
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
    let shown = (metric("a"), metric("b"));
    assert_eq!(
        shown,
        (None, Some(1.0)),
        "the series of a removed controller is removed"
    );
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

async fn steal(cluster: &Cluster, name: &str, holder: &str) {
    let mut stolen = cluster.client().get::<Lease>(&key(name)).await.unwrap();
    stolen.spec.as_mut().unwrap().holder_identity = Some(holder.into());
    cluster.client().update(&stolen).await.unwrap();
}

/// How often ConfigMaps were listed or watched.
fn follows(cluster: &Cluster) -> usize {
    let follows = |one: &&RequestRecord| {
        one.resource == "configmaps" && matches!(&*one.verb, "list" | "watch")
    };
    cluster.requests().all().iter().filter(follows).count()
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_loses_its_lease_stands_by_and_leads_again_and_the_others_continue() {
    let cluster = Cluster::in_process().await;
    cluster
        .create::<ConfigMap>(
            json!({"metadata": {"namespace": "default", "name": "work"}, "data": {}}),
        )
        .await;
    let one = replica(&cluster, "pod-0").await;
    for name in ["a", "b"] {
        cluster
            .eventually_eq("signed", Some("pod-0".to_owned()), async || {
                signed(&cluster, name).await
            })
            .await;
    }
    let before = follows(&cluster);
    assert!(before > 0);
    let state = |name: &str, state| (name.to_owned(), state);
    for round in 1..=2 {
        let lost = Instant::now();
        steal(&cluster, "a", "thief").await;
        cluster
            .eventually("a stands by", async || {
                states(one.running.manager())[0].1 == State::Standby
            })
            .await;
        assert!(lost.elapsed() < Duration::from_secs(1));
        sign(&cluster.client(), &key("work"), "a", "thief")
            .await
            .unwrap();
        sign(&cluster.client(), &key("work"), "b", "other")
            .await
            .unwrap();
        // The thief's lease lasts 15 s, and is not renewed.
        sleep(Duration::from_secs(14)).await;
        assert_eq!(
            states(one.running.manager()),
            [state("a", State::Standby), state("b", State::Running)]
        );
        assert_eq!(signed(&cluster, "a").await.as_deref(), Some("thief"));
        assert_eq!(signed(&cluster, "b").await.as_deref(), Some("pod-0"));
        let led = one
            .running
            .metric("leader_election_master_status{name=\"a\"}");
        assert_eq!(led, Some(0.0), "round {round}");
        cluster
            .eventually_eq("a leads again", Some("pod-0".to_owned()), async || {
                signed(&cluster, "a").await
            })
            .await;
        assert!(lost.elapsed() < Duration::from_secs(18));
    }
    assert_eq!(follows(&cluster), before, "the caches stayed warm");
    one.running.end().await;
    assert_eq!(
        (holder(&cluster, "a").await, holder(&cluster, "b").await),
        (String::new(), String::new())
    );
}

#[tokio::test(start_paused = true)]
async fn a_controller_stands_by_while_its_lease_cannot_be_renewed() {
    let cluster = Cluster::in_process().await;
    let one = replica(&cluster, "pod-0").await;
    let led = async |state: State| {
        let both = || {
            let all = states(one.running.manager());
            all.iter().all(|(_, now)| *now == state)
        };
        cluster.eventually("both", async || both()).await;
    };
    led(State::Running).await;
    let away = cluster
        .faults()
        .add(Rule::new().resource("leases").status(503, "later"));
    led(State::Standby).await;
    sleep(Duration::from_secs(600)).await;
    led(State::Standby).await;
    away.remove();
    led(State::Running).await;
    one.running.end().await;
}

/// Records `end` when it is dropped.
struct AtEnd<'a> {
    log: &'a Mutex<Vec<(&'static str, Instant)>>,
    end: &'static str,
}

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.log.lock().push((self.end, Instant::now()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_is_dropped_with_the_lease_and_repeated_under_the_next_one() {
    let cluster = Cluster::in_process().await;
    cluster
        .create::<ConfigMap>(
            json!({"metadata": {"namespace": "default", "name": "work"}, "data": {}}),
        )
        .await;
    let log: Arc<Mutex<Vec<(&'static str, Instant)>>> = Arc::default();
    let noted = Arc::clone(&log);
    let reconciler = reconcile::function(move |_: Context, _: Request| {
        let log = Arc::clone(&noted);
        async move {
            log.lock().push(("begun", Instant::now()));
            let mut end = AtEnd {
                log: &log,
                end: "dropped",
            };
            sleep(Duration::from_secs(30)).await;
            end.end = "done";
            drop(end);
            Ok::<_, reconcile::Error>(Outcome::done())
        }
    });
    let manager = cluster.manager().namespace("default").build().await;
    let manager = manager.unwrap();
    let controller = Controller::builder("a")
        .for_kind::<ConfigMap>()
        .lease(lease("a", "pod-0"))
        .complete(reconciler);
    manager.add_controller(controller.unwrap()).unwrap();
    let running = cluster.start(&manager);
    cluster
        .eventually("begun", async || log.lock().len() == 1)
        .await;
    let lost = Instant::now();
    steal(&cluster, "a", "thief").await;
    cluster
        .eventually("done", async || log.lock().len() == 4)
        .await;
    let log = log.lock().clone();
    let what: Vec<&str> = log.iter().map(|(what, _)| *what).collect();
    assert_eq!(what, ["begun", "dropped", "begun", "done"]);
    assert!(log[1].1 - lost < Duration::from_secs(1));
    assert!(
        log[2].1 - lost >= Duration::from_secs(15),
        "the thief's lease"
    );
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_controllers_own_election_settings_override_the_defaults() {
    let cluster = Cluster::in_process().await;
    let mut replicas = Vec::new();
    for replica in ["pod-0", "pod-1"] {
        let manager = cluster
            .manager()
            .leader_election(lease("shared", replica))
            .controllers(Defaults::new().without_leader_election())
            .build()
            .await
            .unwrap();
        let add = |controller: &'static str, own: bool| {
            let signer = Signer {
                controller,
                replica,
            };
            let builder = Controller::builder(controller).for_kind::<ConfigMap>();
            let builder = if own {
                builder.lease(lease("own", replica))
            } else {
                builder.with_leader_election()
            };
            let controller = builder.complete(signer).unwrap();
            manager.add_controller(controller).unwrap();
        };
        add("a", true);
        add("b", false);
        replicas.push(cluster.start(&manager));
        sleep(Duration::from_secs(30)).await;
    }
    let all = |state: State| ["a", "b"].map(|name| (name.to_owned(), state)).to_vec();
    assert_eq!(states(replicas[0].manager()), all(State::Running));
    assert_eq!(states(replicas[1].manager()), all(State::Standby));
    for replica in replicas {
        replica.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_processes_with_one_identity_the_first_stands_by_while_the_second_leads() {
    let cluster = Cluster::in_process().await;
    let mut twins = Vec::new();
    for (number, start) in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000123Z"]
        .into_iter()
        .enumerate()
    {
        // Two clocks always differ by some microseconds.
        let clock = Clock::simulated(start.parse().unwrap(), number as u64);
        let manager = cluster.manager().clock(clock).build().await.unwrap();
        let signer = Signer {
            controller: "a",
            replica: "pod-0",
        };
        let controller = Controller::builder("a")
            .for_kind::<ConfigMap>()
            .lease(lease("a", "pod-0"))
            .complete(signer);
        manager.add_controller(controller.unwrap()).unwrap();
        twins.push(cluster.start(&manager));
        sleep(Duration::from_millis(30_700)).await;
    }
    let all = |twin: &Running| states(twin.manager())[0].1;
    for _ in 0..100 {
        assert_eq!(
            (all(&twins[0]), all(&twins[1])),
            (State::Standby, State::Running)
        );
        sleep(Duration::from_millis(700)).await;
    }
    // When the second is gone, the first leads again at once, because the lease was released.
    twins.remove(1).end().await;
    let first = twins.remove(0);
    cluster
        .eventually("the first leads again", async || {
            all(&first) == State::Running
        })
        .await;
    first.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_manager_contends_for_a_lease_only_once() {
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
    let elsewhere = |name| leader_election::Options::new("elsewhere", name).identity("pod-0");
    for (name, taken) in [
        ("second", lease("own", "pod-0")),
        ("third", lease("shared", "pod-0")),
        ("fourth", elsewhere("own")),
        ("fifth", elsewhere("shared")),
    ] {
        let taken_key = taken.key();
        let refused = add(name, taken).unwrap_err();
        assert!(matches!(refused, Error::DuplicateLease(key) if key == taken_key));
    }
    // A refused controller does not reserve its name.
    let _again = add("second", lease("other", "pod-0")).unwrap();
    let refused = add("sixth", lease("yet-another", "")).unwrap_err();
    assert!(matches!(refused, Error::LeaderElection(_)), "{refused}");
}
