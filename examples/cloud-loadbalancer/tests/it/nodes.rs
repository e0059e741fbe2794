//! Backends: nodes that come, go and are excluded; Pods on nodes; Pods alone.

use cloud_loadbalancer::backends::Readiness;
use cloud_loadbalancer::model::{Backend, Probe, Protocol};
use cloud_loadbalancer::provider::{Error, Kind};
use k8s_openapi::api::core::v1::Node;
use reeve_controller::ObjectKey;
use serde_json::json;

use crate::world::{World, key, run, targets};

fn backends(world: &World) -> Vec<String> {
    let all = world.cloud.all();
    let mut texts: Vec<_> = all[0].groups[0]
        .backends
        .iter()
        .map(Backend::to_string)
        .collect();
    texts.sort();
    texts
}

async fn until_instances(world: &World, wanted: &[&str]) {
    let wanted = wanted.iter().map(|number| format!("i-{number}")).collect();
    let there = async || targets(&world.only("web").await);
    let what = format!("the backends are {wanted:?}");
    world
        .cluster
        .eventually_eq::<_, std::collections::BTreeSet<String>>(&what, wanted, there)
        .await;
}

#[test]
fn a_node_that_comes_goes_or_is_excluded_changes_the_backends_and_nothing_else() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        world.until_served("web", &[80]).await;
        world.quiet().await;
        world.changes();
        world.node("n4", json!({})).await;
        until_instances(&world, &["1", "2", "3", "4"]).await;
        assert_eq!(world.changes(), ["add_backends"]);
        world.delete::<Node>(&ObjectKey::cluster("n4")).await;
        until_instances(&world, &["1", "2", "3"]).await;
        let exclude = "node.kubernetes.io/exclude-from-external-load-balancers";
        world
            .patch_node("n1", json!({"metadata": {"labels": {exclude: "true"}}}))
            .await;
        until_instances(&world, &["2", "3"]).await;
        world
            .patch_node("n1", json!({"metadata": {"labels": {exclude: null}}}))
            .await;
        until_instances(&world, &["1", "2", "3"]).await;
        let taint = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
        world
            .patch_node("n2", json!({"spec": {"taints": taint}}))
            .await;
        until_instances(&world, &["1", "3"]).await;
        let changes = [
            "remove_backends",
            "remove_backends",
            "add_backends",
            "remove_backends",
        ];
        assert_eq!(world.changes(), changes);
        running.end().await;
    });
}

#[test]
fn readiness_does_not_change_the_backends_unless_it_is_configured() {
    let ready =
        |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    for (readiness, left) in [(Readiness::Ignore, 3), (Readiness::Exclude, 2)] {
        run(async |world: World| {
            let mut settings = world.settings.clone();
            settings.readiness = readiness;
            let nodes = world.cluster.client().objects::<Node>();
            let set = async |name: &str, status| {
                let patch = reeve_controller::client::Patch::merge(ready(status));
                nodes
                    .patch_status(&ObjectKey::cluster(name), patch)
                    .await
                    .unwrap();
            };
            for name in ["n1", "n2", "n3"] {
                set(name, "True").await;
            }
            let running = world.start_with(settings).await;
            world.service("web", json!({})).await;
            world.until_served("web", &[80]).await;
            world.quiet().await;
            world.changes();
            set("n1", "False").await;
            world.quiet().await;
            assert_eq!(
                targets(&world.only("web").await).len(),
                left,
                "{readiness:?}"
            );
            assert_eq!(world.changes().len(), 3 - left);
            running.end().await;
        });
    }
}

#[test]
fn a_node_without_an_instance_and_one_without_the_required_label_get_no_traffic() {
    run(async |world: World| {
        world
            .node("n4", json!({"spec": {"providerID": null}}))
            .await;
        world
            .node("n5", json!({"metadata": {"labels": {"pool": "edge"}}}))
            .await;
        let running = world.start().await;
        world.service("web", json!({})).await;
        let four = async || world.cloud.all().first().map(|one| targets(one).len());
        world
            .cluster
            .eventually_eq("four backends", Some(4), four)
            .await;
        world
            .annotate("web", json!({"backend-labels": "pool=edge"}))
            .await;
        until_instances(&world, &["5"]).await;
        running.end().await;
    });
}

#[test]
fn with_the_policy_local_nodes_with_pods_get_traffic_by_their_number() {
    run(async |world: World| {
        let running = world.start().await;
        world
            .endpoints(
                "web",
                &[
                    ("10.0.1.1", "n1", true),
                    ("10.0.1.2", "n1", true),
                    ("10.0.2.1", "n2", true),
                    ("10.0.3.1", "n3", false),
                ],
            )
            .await;
        let service = world
            .service(
                "web",
                json!({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}}),
            )
            .await;
        let spec = service.spec.unwrap();
        let port = spec.ports.unwrap()[0].node_port.unwrap();
        let there = async || {
            world
                .cloud
                .all()
                .first()
                .filter(|one| !one.groups.is_empty())
                .map(|_| backends(&world))
        };
        let wanted = vec![format!("i-1:{port}=2"), format!("i-2:{port}=1")];
        world
            .cluster
            .eventually_eq("two nodes", Some(wanted), there)
            .await;
        world.quiet().await;
        let check = &world.only("web").await.listeners[0].settings.health_check;
        assert_eq!(
            check.probe,
            Probe::Http {
                path: "/healthz".to_owned()
            }
        );
        assert_eq!(check.port, Some(32000));
        world.changes();
        world
            .endpoints(
                "web",
                &[
                    ("10.0.1.1", "n1", true),
                    ("10.0.2.1", "n2", true),
                    ("10.0.3.1", "n3", true),
                ],
            )
            .await;
        let wanted = vec![
            format!("i-1:{port}=1"),
            format!("i-2:{port}=1"),
            format!("i-3:{port}=1"),
        ];
        let there = async || backends(&world);
        world
            .cluster
            .eventually_eq("three nodes", wanted, there)
            .await;
        assert_eq!(world.changes(), ["add_backends", "set_weights"]);
        running.end().await;
    });
}

#[test]
fn a_udp_port_with_local_traffic_has_the_probe_of_its_protocol() {
    for annotations in [json!({}), json!({"lb.reeve.dev/health-check": "http"})] {
        run(async |world: World| {
            let running = world.start().await;
            let ports = json!([
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"name": "dns-tcp", "port": 53},
            ]);
            let service = json!({
                "metadata": {"annotations": annotations},
                "spec": {
                    "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000, "ports": ports,
                },
            });
            world.service("dns", service).await;
            let listening = async || {
                let all = world.cloud.all();
                all.first().map_or(0, |one| {
                    one.listeners.iter().filter(|one| one.running).count()
                })
            };
            world
                .cluster
                .eventually_eq("both listeners run", 2, listening)
                .await;
            for listener in &world.only("dns").await.listeners {
                let check = &listener.settings.health_check;
                let is = (&check.probe, check.port);
                let healthz = Probe::Http {
                    path: "/healthz".to_owned(),
                };
                let wanted = match listener.key.protocol {
                    Protocol::Udp => (&Probe::Udp, None),
                    _ => (&healthz, Some(32000)),
                };
                assert_eq!(is, wanted, "{}", listener.key);
            }
            running.end().await;
        });
    }
}

#[test]
fn pods_are_backends_themselves_and_those_that_end_serve_only_if_no_other_does() {
    run(async |world: World| {
        let running = world.start().await;
        world
            .endpoints("web", &[("10.0.1.1", "n1", true), ("10.0.2.1", "n2", true)])
            .await;
        world
            .service(
                "web",
                json!({"metadata": {"annotations": {"lb.reeve.dev/backends": "pods"}}}),
            )
            .await;
        let there = async || {
            world
                .cloud
                .all()
                .first()
                .filter(|one| !one.groups.is_empty())
                .map(|_| backends(&world))
        };
        let both = vec![
            "10.0.1.1:8080=100".to_owned(),
            "10.0.2.1:8080=100".to_owned(),
        ];
        world
            .cluster
            .eventually_eq("both Pods", Some(both), there)
            .await;
        let end = async |endpoints: serde_json::Value| {
            let patch = reeve_controller::client::Patch::merge(json!({"endpoints": endpoints}));
            let client = world.cluster.client();
            let slice = key("web-1");
            client
                .patch::<k8s_openapi::api::discovery::v1::EndpointSlice>(&slice, patch)
                .await
                .unwrap();
        };
        let ending = json!({"ready": false, "serving": true, "terminating": true});
        end(json!([{"addresses": ["10.0.1.1"], "conditions": ending}, {"addresses": ["10.0.2.1"], "conditions": {"ready": true}}])).await;
        world
            .cluster
            .eventually_eq("one Pod", Some(vec!["10.0.2.1:8080=100".to_owned()]), there)
            .await;
        end(json!([{"addresses": ["10.0.1.1"], "conditions": ending}])).await;
        world
            .cluster
            .eventually_eq(
                "the ending Pod",
                Some(vec!["10.0.1.1:8080=100".to_owned()]),
                there,
            )
            .await;
        end(json!([{"addresses": ["10.0.1.1"], "conditions": {"ready": false}}])).await;
        world
            .cluster
            .eventually_eq("no Pod", Some(vec![]), there)
            .await;
        world.changes();
        world.node("n4", json!({})).await;
        world.quiet().await;
        assert_eq!(
            world.cloud.calls(),
            [],
            "nodes do not matter, not even for a read"
        );
        running.end().await;
    });
}

#[test]
fn a_service_without_nodes_is_reported() {
    run(async |world: World| {
        for name in ["n1", "n2", "n3"] {
            world.delete::<Node>(&ObjectKey::cluster(name)).await;
        }
        let running = world.start().await;
        world.service("web", json!({})).await;
        world.until_reason("web", "UnAvailableLoadBalancer").await;
        world.node("n1", json!({})).await;
        until_instances(&world, &["1"]).await;
        running.end().await;
    });
}

#[test]
fn a_hundred_nodes_are_added_in_calls_of_forty() {
    run(async |world: World| {
        for number in 4..=100 {
            world.node(&format!("n{number}"), json!({})).await;
        }
        let running = world.start().await;
        world.service("web", json!({})).await;
        let all = async || world.cloud.all().first().map(|one| targets(one).len());
        world
            .cluster
            .eventually_eq("a hundred backends", Some(100), all)
            .await;
        let calls = world.changes();
        assert_eq!(
            calls.iter().filter(|call| **call == "add_backends").count(),
            3
        );
        running.end().await;
    });
}

/// kubernetes#80571: the list of Services that a change of a node begins with is old at its end.
#[test]
fn a_service_that_is_deleted_during_a_change_of_a_node_is_not_created_again() {
    run(async |world: World| {
        let running = world.start().await;
        for number in 0..10 {
            world.service(&format!("web-{number}"), json!({})).await;
        }
        for number in 0..10 {
            world.until_served(&format!("web-{number}"), &[80]).await;
        }
        world.node("n4", json!({})).await;
        for number in 0..10 {
            world
                .delete::<k8s_openapi::api::core::v1::Service>(&key(&format!("web-{number}")))
                .await;
        }
        let empty = async || world.cloud.all().is_empty();
        world.cluster.eventually("the cloud is empty", empty).await;
        world.quiet().await;
        assert_eq!(world.cloud.created(), 10);
        running.end().await;
    });
}

#[test]
fn a_group_that_is_full_gets_the_rest_when_others_are_removed() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        world.until_served("web", &[80]).await;
        let full = Error::new(Kind::Quota, "BackendServerNumberOverLimit", "no more");
        world.cloud.refuse("add_backends", Some(full));
        world.node("n4", json!({})).await;
        world.delete::<Node>(&ObjectKey::cluster("n1")).await;
        until_instances(&world, &["2", "3"]).await;
        world.cloud.refuse("add_backends", None);
        until_instances(&world, &["2", "3", "4"]).await;
        running.end().await;
    });
}

#[test]
fn backends_stay_while_the_cloud_refuses_all_that_are_to_replace_them() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        world.until_served("web", &[80]).await;
        let refused = Error::new(Kind::Quota, "BackendServerNumberOverLimit", "no more");
        world.cloud.refuse("add_backends", Some(refused));
        world
            .node("n4", json!({"metadata": {"labels": {"pool": "new"}}}))
            .await;
        world
            .annotate("web", json!({"backend-labels": "pool=new"}))
            .await;
        world.until_reason("web", "SyncLoadBalancerFailed").await;
        world.quiet().await;
        until_instances(&world, &["1", "2", "3"]).await;
        world.cloud.refuse("add_backends", None);
        until_instances(&world, &["4"]).await;
        running.end().await;
    });
}

#[test]
fn a_mistake_in_what_selects_the_backends_leaves_them_as_they_are() {
    run(async |world: World| {
        let running = world.start().await;
        world
            .node("n4", json!({"metadata": {"labels": {"pool": "new"}}}))
            .await;
        let labels =
            json!({"metadata": {"annotations": {"lb.reeve.dev/backend-labels": "pool=new"}}});
        world.service("web", labels).await;
        world.until_reason("web", "EnsuredLoadBalancer").await;
        until_instances(&world, &["4"]).await;
        for mistake in [
            json!({"backend-labels": "pool"}),
            json!({"backends": "pdos"}),
        ] {
            world.annotate("web", mistake).await;
            world.until_reason("web", "InvalidService").await;
            world.quiet().await;
            until_instances(&world, &["4"]).await;
        }
        running.end().await;
    });
}

#[test]
fn a_node_that_the_cloud_does_not_know_keeps_no_other_from_being_a_backend() {
    run(async |world: World| {
        let running = world.start().await;
        for number in 4..=20 {
            world.node(&format!("n{number}"), json!({})).await;
        }
        for unknown in ["i-2", "i-9"] {
            world.cloud.forget_instance(unknown);
        }
        world.service("web", json!({})).await;
        world.until_reason("web", "SyncLoadBalancerFailed").await;
        let all: Vec<String> = (1..=20).map(|number| number.to_string()).collect();
        let known = all.iter().map(String::as_str);
        let known: Vec<&str> = known.filter(|it| !["2", "9"].contains(it)).collect();
        until_instances(&world, &known).await;
        let served = world.only("web").await;
        assert_eq!(
            world.addresses("web").await,
            [served.about.address.to_string()]
        );
        let note = world.events("web").await.into_iter().find_map(|one| {
            let note = one.note?;
            note.contains("i-9").then_some(note)
        });
        let note = note.expect("it names them");
        assert!(note.contains("i-2") && !note.contains("i-3:"), "{note}");
        // Nor does it keep the listener from what the Service asks for.
        world
            .patch(
                "web",
                json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}),
            )
            .await;
        let limited = async || {
            let listeners = world.only("web").await.listeners;
            listeners.iter().all(|one| !one.settings.sources.is_empty())
        };
        world.cluster.eventually("it is limited", limited).await;
        until_instances(&world, &known).await;
        running.end().await;
    });
}
