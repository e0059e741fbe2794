//! A crash at every call of the cloud and at every write of a Service, before and after it took effect; then a fresh
//! process. Always one load balancer, never without a finalizer, and none at the end.

use cloud_loadbalancer::provider::{Error, Kind, memory};
use serde_json::json;

use crate::world::{Phase, World, equal_names, key, run_with, run_with_equal_names, targets, tcp};

/// The calls without an effect: a crash after one is a crash before the next.
const READS: [&str; 4] = ["find", "describe", "groups", "listeners"];

/// Runs `act` once for each effect and side, crashes the process there, and checks what holds in every case. Returns the
/// number of effects of an undisturbed run.
fn everywhere(creations: usize, prepare: impl AsyncFn(&World), act: impl AsyncFn(&World)) -> usize {
    everywhere_in(equal_names(), creations, prepare, act)
}

/// The same in a cloud with these settings.
pub(crate) fn everywhere_in(
    cloud: memory::Settings,
    creations: usize,
    prepare: impl AsyncFn(&World),
    act: impl AsyncFn(&World),
) -> usize {
    let once = |number: usize, phase: Phase| {
        let (mut fired, mut names) = (false, Vec::new());
        run_with(cloud, async |world: World| {
            let steps = async {
                prepare(&world).await;
                world.effects.arm(number, phase);
                act(&world).await;
            };
            world.supervised(steps).await;
            (fired, names) = (world.effects.fired(), world.effects.names());
            let case = || format!("{phase:?} effect {number} of {names:?}");
            assert_eq!(world.cloud.created(), creations, "{}", case());
            let violations = world.effects.violations();
            assert_eq!(violations, [] as [String; 0], "{}", case());
        });
        (fired, names)
    };
    let (_, effects) = once(usize::MAX, Phase::Before);
    for (at, name) in effects.iter().enumerate() {
        for phase in [Phase::Before, Phase::After] {
            if phase == Phase::Before || !READS.contains(&name.as_str()) {
                let (fired, names) = once(at + 1, phase);
                assert!(fired, "{phase:?} effect {} of {names:?}", at + 1);
            }
        }
    }
    effects.len()
}

async fn nothing(_: &World) {}

async fn serving(world: &World) {
    world.service("web", json!({})).await;
    world.until_served("web", &[80]).await;
}

#[test]
fn a_crash_during_a_creation_leaves_one_load_balancer() {
    let effects = everywhere(1, nothing, async |world| {
        world.service("web", json!({"spec": {"ports": [{"name": "http", "port": 80}, {"name": "tls", "port": 443}]}})).await;
        world.until_served("web", &[80, 443]).await;
        world.quiet().await;
        world.until_served("web", &[80, 443]).await;
    });
    assert!(effects >= 16, "{effects}");
}

#[test]
fn a_crash_during_an_update_with_a_failing_attribute_loses_no_change() {
    let effects = everywhere(1, serving, async |world| {
        let denied = Error::new(Kind::Invalid, "InvalidSpec", "there is no such size");
        world.cloud.refuse("set_spec", Some(denied));
        let changes = json!({"spec": "slb.s2.small", "bandwidth": "50", "name": "shop"});
        world.annotate("web", changes).await;
        world.until_reason("web", "SyncLoadBalancerFailed").await;
        world.cloud.refuse("set_spec", None);
        let updated = async || {
            let about = world.until_served("web", &[80]).await.about;
            (about.name == "shop" && about.spec == "slb.s2.small" && about.internet.bandwidth == 50)
                .then_some(())
        };
        world.cluster.eventually("all three are set", updated).await;
    });
    assert!(effects >= 10, "{effects}");
}

#[test]
fn a_crash_during_a_change_of_ports_leaves_the_right_listeners() {
    let effects = everywhere(1, serving, async |world| {
        let ports = json!([{"name": "alt", "port": 8080}, {"name": "tls", "port": 443}]);
        world.patch("web", json!({"spec": {"ports": ports}})).await;
        world.until_served("web", &[443, 8080]).await;
    });
    assert!(effects >= 12, "{effects}");
}

#[test]
fn a_crash_during_a_change_of_nodes_leaves_the_right_backends() {
    let effects = everywhere(1, serving, async |world| {
        world.node("n4", json!({})).await;
        let label = json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""});
        world
            .patch_node("n1", json!({"metadata": {"labels": label}}))
            .await;
        let wanted = ["i-2", "i-3", "i-4"].map(str::to_owned);
        let there = async || targets(&world.only("web").await);
        world
            .cluster
            .eventually_eq("the other nodes", wanted.into(), there)
            .await;
        world.until_served("web", &[80]).await;
    });
    assert!(effects >= 4, "{effects}");
}

#[test]
fn a_crash_during_a_change_of_the_type_leaves_nothing() {
    let effects = everywhere(1, serving, async |world| {
        world
            .patch("web", json!({"spec": {"type": "ClusterIP"}}))
            .await;
        let gone = async || {
            let service = world.get("web").await.unwrap();
            let meta = service.metadata;
            let clean =
                meta.finalizers.is_none() && meta.annotations.unwrap_or_default().is_empty();
            (clean && meta.labels.unwrap_or_default().is_empty()).then_some(())
        };
        world.cluster.eventually("the marks are gone", gone).await;
        assert_eq!(world.cloud.all(), []);
        assert_eq!(world.addresses("web").await, [] as [String; 0]);
    });
    assert!(effects >= 7, "{effects}");
}

#[test]
fn a_crash_during_a_deletion_leaves_nothing() {
    let effects = everywhere(1, serving, async |world| {
        world
            .delete::<k8s_openapi::api::core::v1::Service>(&key("web"))
            .await;
        world.until_gone("web").await;
    });
    assert!(effects >= 7, "{effects}");
}

#[test]
fn a_crash_during_a_creation_that_a_deletion_follows_leaves_nothing() {
    for phase in [Phase::Before, Phase::After] {
        for number in 1..=20 {
            run_with_equal_names(async |world: World| {
                let steps = async {
                    world.effects.arm(number, phase);
                    world.service("web", json!({})).await;
                    // The Service is deleted while the process is down, or a little later.
                    let begun = async || world.effects.fired() || world.cloud.created() > 0;
                    world
                        .cluster
                        .eventually("the creation has begun", begun)
                        .await;
                    world
                        .delete::<k8s_openapi::api::core::v1::Service>(&key("web"))
                        .await;
                    world.until_gone("web").await;
                    world.quiet().await;
                    assert_eq!(world.cloud.all(), []);
                };
                world.supervised(steps).await;
                assert!(world.cloud.created() <= 1);
                assert_eq!(world.effects.violations(), [] as [String; 0]);
            });
        }
    }
}

#[test]
fn a_crash_during_a_preserving_deletion_leaves_the_load_balancer_with_its_listeners() {
    let prepare = async |world: &World| {
        serving(world).await;
        world
            .annotate("web", json!({"preserve-on-delete": "true"}))
            .await;
        world.quiet().await;
    };
    let effects = everywhere(1, prepare, async |world| {
        world
            .delete::<k8s_openapi::api::core::v1::Service>(&key("web"))
            .await;
        let gone = async || world.get("web").await.is_none();
        world.cluster.eventually("the Service is gone", gone).await;
        let left = world.cloud.all();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].listeners[0].key, tcp(80));
        assert_eq!(targets(&left[0]).len(), 3);
        assert!(left[0].about.tags.is_empty() && !left[0].about.delete_protection);
    });
    assert!(effects >= 6, "{effects}");
}
