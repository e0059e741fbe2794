//! The controller under every fault that the explorer tries: `REEVE_EXPLORE_SECONDS` is how long for each scenario, by default
//! 5. The cloud in memory is the world outside, so that each of its calls can crash the process, get lost, or be refused.

mod outside;

use std::time::Duration;

use cloud_loadbalancer::identity::FINALIZER;
use cloud_loadbalancer::{NAME, Settings};
use k8s_openapi::api::core::v1::{Node, Service};
use reeve_controller::client::Patch;
use reeve_controller::testing::explore::{Explorer, Plan, State, World};
use reeve_controller::{ObjectKey, leader_election};
use serde_json::{Value, json};

use crate::world::targets;
use outside::{Explored, World as Outer};

/// Real time for each scenario; `.ci/soak` gives more.
fn wall() -> Duration {
    let seconds = std::env::var("REEVE_EXPLORE_SECONDS").ok();
    let seconds = seconds.map_or(5, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds)
}

/// One process.
fn explorer() -> Explorer<Outer> {
    let explorer = Explorer::of_manager(|process| {
        Box::pin(async move {
            let provider = Explored::of(&process);
            let built = cloud_loadbalancer::build(process.manager(), provider, settings());
            built.await.unwrap()
        })
    });
    with_rules(explorer)
}

/// Two processes, one of which leads. A call of the former leader may arrive after those of the next one, which repairs that
/// when it compares in full: here soon enough for a run to see it.
fn replicas() -> Explorer<Outer> {
    let explorer = Explorer::of_manager(|process| {
        Box::pin(async move {
            let provider = Explored::of(&process);
            let lease = leader_election::Options::new("kube-system", NAME).identity(process.name());
            let builder = process.manager().leader_election(lease);
            let settings = Settings {
                drift_period: Duration::from_secs(20),
                ..settings()
            };
            let built = cloud_loadbalancer::build(builder, provider, settings);
            built.await.unwrap()
        })
    });
    // A run of two processes, which renew and watch a lease, takes several times as long.
    with_rules(explorer.processes(2)).budget(usize::MAX, wall().max(Duration::from_secs(15)))
}

fn settings() -> Settings {
    // No run lasts so long: a comparison from time to time would mend what an event should have.
    let never = Duration::from_secs(24 * 60 * 60);
    Settings {
        drift_period: never,
        orphan_period: never,
        ..Settings::new("test".parse().unwrap())
    }
}

/// Never two load balancers for a Service, and none for one without a finalizer.
fn with_rules(explorer: Explorer<Outer>) -> Explorer<Outer> {
    explorer
        .always("a Service has one load balancer at most", Outer::has_no_two)
        .always(
            "a load balancer is created for a Service with a finalizer",
            |outer| outer.unheld.is_empty(),
        )
        .budget(usize::MAX, wall())
        .spread()
        .drawn(u64::MAX)
}

/// The process ends after each creation of these, named as the Service and the count, and does not read the answer. These plans
/// come first, since a second load balancer is the worst that a controller can do.
fn after_creation<const N: usize>(creations: [&str; N]) -> [Plan; N] {
    creations.map(|creation| {
        let plan = format!("crash-after P1 call create for default/{creation}");
        plan.parse().unwrap()
    })
}

async fn nodes(world: &World<Outer>) {
    for number in 1..=3 {
        node(world, number).await;
    }
}

async fn node(world: &World<Outer>, number: u8) {
    let node = json!({
        "metadata": {"name": format!("n{number}")},
        "spec": {"providerID": format!("sim://r1.i-{number}")},
    });
    world.create::<Node>(node).await;
}

fn service(name: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name, "annotations": annotations},
        "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [
            {"name": "http", "port": 80, "targetPort": 8080}, {"name": "tls", "port": 443, "targetPort": 8443},
        ]},
    })
}

async fn patch(world: &World<Outer>, name: &str, patch: Value) {
    world.patch::<Service>("default", name, patch).await;
    world.settle().await;
}

/// A creation, and three attributes at once.
async fn created(world: &World<Outer>) {
    nodes(world).await;
    world.create::<Service>(service("web", &Value::Null)).await;
    world.settle().await;
    let attributes = json!({
        "lb.reeve.dev/spec": "slb.s2.small", "lb.reeve.dev/bandwidth": "50", "lb.reeve.dev/name": "shop",
    });
    patch(
        world,
        "web",
        json!({"metadata": {"annotations": attributes}}),
    )
    .await;
}

/// The longest wait of the controller after a failure. A Service that met conflicts, and then another fault, is right after it and
/// not before. Twice: what is held back may come at the end of the first.
async fn last_retry(world: &World<Outer>) {
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(6 * 60)).await;
        world.settle().await;
    }
}

/// The same, then other nodes and other ports.
async fn serving(world: &World<Outer>) {
    created(world).await;
    let label = json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""});
    let excluded = Patch::merge(json!({"metadata": {"labels": label}}));
    let n1 = ObjectKey::cluster("n1");
    world.client().patch::<Node>(&n1, excluded).await.unwrap();
    node(world, 4).await;
    world.settle().await;
    let ports =
        json!([{"name": "alt", "port": 8080}, {"name": "tls", "port": 443, "targetPort": 8443}]);
    patch(world, "web", json!({"spec": {"ports": ports}})).await;
}

fn is_created(state: &State, outer: &Outer) -> bool {
    is_served(state, outer, [80, 443], ["i-1", "i-2", "i-3"])
}

fn is_changed(state: &State, outer: &Outer) -> bool {
    is_served(state, outer, [443, 8080], ["i-2", "i-3", "i-4"])
}

fn is_served(state: &State, outer: &Outer, ports: [u16; 2], nodes: [&str; 3]) -> bool {
    let all = outer.cloud.all();
    let [one] = all.as_slice() else { return false };
    let mut listening: Vec<u16> = one
        .listeners
        .iter()
        .map(|listener| listener.key.port)
        .collect();
    listening.sort_unstable();
    let about = &one.about;
    let mut services = state.of("services").iter();
    let Some(web) = services.find(|service| service["metadata"]["name"] == "web") else {
        return false;
    };
    let published = &web["status"]["loadBalancer"]["ingress"][0]["ip"];
    let servers: Vec<String> = targets(one).into_iter().collect();
    outer.cloud.created() == 1
        && listening == ports
        && one.listeners.iter().all(|listener| listener.running)
        && one.groups.iter().all(|group| group.backends.len() == 3)
        && servers == nodes
        && (&*about.name, &*about.spec, about.internet.bandwidth) == ("shop", "slb.s2.small", 50)
        && about.delete_protection
        && about.modification_protection
        && *published == about.address.to_string()
}

/// Another type and back, and two deletions, one of which preserves.
async fn leaving(world: &World<Outer>) {
    nodes(world).await;
    world.create::<Service>(service("web", &Value::Null)).await;
    let preserve = json!({"lb.reeve.dev/preserve-on-delete": "true"});
    world.create::<Service>(service("kept", &preserve)).await;
    world.settle().await;
    patch(world, "web", json!({"spec": {"type": "ClusterIP"}})).await;
    patch(world, "web", json!({"spec": {"type": "LoadBalancer"}})).await;
    for name in ["web", "kept"] {
        world.delete::<Service>("default", name).await;
    }
    world.settle().await;
}

fn only_the_preserved_one_is_left(state: &State, outer: &Outer) -> bool {
    let all = outer.cloud.all();
    let [one] = all.as_slice() else { return false };
    state
        .of("services")
        .iter()
        .all(|service| service["metadata"]["name"] == "kubernetes")
        && one.about.tags.is_empty()
        && !one.about.delete_protection
        && one.listeners.len() == 2
        && one.groups.iter().all(|group| group.backends.len() == 3)
}

/// Deletions while creations are under way: at once, and after the first calls; and a type that changes so early.
async fn short_lived(world: &World<Outer>) {
    nodes(world).await;
    for (name, seconds) in [("web", 0), ("shop", 1), ("api", 4)] {
        world.create::<Service>(service(name, &Value::Null)).await;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        if name == "shop" {
            let cluster_ip = json!({"spec": {"type": "ClusterIP"}});
            world.patch::<Service>("default", name, cluster_ip).await;
        } else {
            world.delete::<Service>("default", name).await;
        }
        world.settle().await;
    }
}

fn nothing_is_left(state: &State, outer: &Outer) -> bool {
    let held = |service: &Value| {
        let finalizers = service["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|all| all.iter().any(|one| one == FINALIZER))
    };
    outer.cloud.all().is_empty() && !state.of("services").iter().any(held)
}

#[test]
fn a_service_is_served_after_every_fault() {
    let after_conflicts = "stale P1 call add_backends lb-1 5 @ P1 modified services default/web 1; lose P1 call create_listener lb-1 3";
    explorer()
        .first(after_creation(["web 1"]))
        .first([after_conflicts.parse().unwrap()])
        .at_rest("the Service is served as it should be", is_changed)
        .check(async |world| {
            serving(world).await;
            last_retry(world).await;
        });
}

#[test]
fn a_new_service_is_served_after_every_fault_of_two_replicas() {
    replicas()
        .at_rest("the Service is served as it should be", is_created)
        .check(created);
}

#[test]
fn what_a_service_leaves_is_what_it_should_after_every_fault() {
    // It made an attempt each second while the cache was behind.
    let behind = "stale P1 patch services default/web 4 @ P1 modified services default/kept 1";
    explorer()
        .first([behind.parse().unwrap()])
        .first(after_creation(["web 1", "kept 1", "web 2"]))
        .at_rest(
            "only the preserved load balancer is left",
            only_the_preserved_one_is_left,
        )
        .check(async |world| {
            leaving(world).await;
            last_retry(world).await;
        });
}

#[test]
fn a_service_that_ends_while_it_begins_leaves_nothing_after_every_fault() {
    let after_conflicts = "stale P1 patch services default/api 2 @ P1 modified services default/api 1; lose P1 call delete lb-3 1";
    explorer()
        .first(after_creation(["web 1", "shop 1", "api 1"]))
        .first([after_conflicts.parse().unwrap()])
        .at_rest("nothing is left", nothing_is_left)
        .check(async |world| {
            short_lived(world).await;
            last_retry(world).await;
        });
}
