//! The defects of a controller of this kind that this one must not have, each by its number in the README. B9 and B10 are
//! tests of the hash.

use cloud_loadbalancer::model::IpVersion;
use cloud_loadbalancer::provider::{Error, Kind, Provider};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

use crate::reuse::{by_hand, listen_by_hand, reuse};
use crate::world::{World, key, run, targets, tcp};

#[test]
fn b1_a_preserved_load_balancer_keeps_its_listeners_and_groups() {
    run(async |world: World| {
        let running = world.start().await;
        let preserve =
            json!({"metadata": {"annotations": {"lb.reeve.dev/preserve-on-delete": "true"}}});
        world.service("web", preserve).await;
        let before = world.until_served("web", &[80]).await;
        world.delete::<Service>(&key("web")).await;
        world.until_absent("web").await;
        let after = world.balancer(&before.about.id).unwrap();
        assert_eq!(
            (after.listeners, after.groups),
            (before.listeners, before.groups)
        );
        running.end().await;
    });
}

#[test]
fn b2_a_service_that_reuses_an_ipv6_load_balancer_can_be_deleted() {
    run(async |world: World| {
        let id = by_hand(&world, "six", IpVersion::Ipv6).await;
        let running = world.start().await;
        world.service("web", reuse(&id)).await;
        world
            .cluster
            .eventually_eq("it listens", 2, async || {
                world.balancer(&id).unwrap().listeners.len()
            })
            .await;
        world.delete::<Service>(&key("web")).await;
        world.until_absent("web").await;
        assert_eq!(world.balancer(&id).unwrap().listeners.len(), 1);
        running.end().await;
    });
}

#[test]
fn b3_every_failure_counts() {
    run(async |world: World| {
        let running = world.start().await;
        let quota = Error::new(Kind::Quota, "QuotaExceeded", "no more");
        world.cloud.refuse("create", Some(quota));
        world.service("web", json!({})).await;
        sleep(Duration::from_secs(60)).await;
        let calls = running.metric("ccm_provider_calls_total{call=\"create\",result=\"quota\"}");
        // At 0, 5, 15 and 35 seconds.
        assert_eq!(calls, Some(4.0));
        assert_eq!(
            running.metric("ccm_failed_changes_total{call=\"create\"}"),
            calls
        );
        running.end().await;
    });
}

#[test]
fn b4_a_port_whose_group_cannot_be_created_is_an_error_and_the_other_port_is_served() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        world.until_served("web", &[80]).await;
        let refusal = Error::new(Kind::Quota, "QuotaExceeded.Group", "no more");
        world.cloud.refuse("create_group", Some(refusal));
        let ports = json!([{"name": "http", "port": 80}, {"name": "tls", "port": 443}]);
        world.patch("web", json!({"spec": {"ports": ports}})).await;
        world.until_reason("web", "SyncLoadBalancerFailed").await;
        let made = world.only("web").await;
        assert_eq!(made.listeners.len(), 1, "no listener without its group");
        let hash =
            world.get("web").await.unwrap().metadata.labels.unwrap()["lb.reeve.dev/hash"].clone();
        world.cloud.refuse("create_group", None);
        world.until_served("web", &[80, 443]).await;
        world.quiet().await;
        let stored =
            world.get("web").await.unwrap().metadata.labels.unwrap()["lb.reeve.dev/hash"].clone();
        assert_ne!(stored, hash);
        running.end().await;
    });
}

#[test]
fn b5_a_changed_certificate_of_a_domain_is_sent() {
    run(async |world: World| {
        let running = world.start().await;
        let annotations = json!({
            "lb.reeve.dev/protocol-ports": "https:443", "lb.reeve.dev/certificate": "cert-1",
            "lb.reeve.dev/domain-certificates": "a.example.com=cert-2,b.example.com=cert-3",
        });
        let more =
            json!({"metadata": {"annotations": annotations}, "spec": {"ports": [{"port": 443}]}});
        world.service("web", more).await;
        let domains = async || {
            let all = world.cloud.all();
            let listener = all.first().and_then(|one| one.listeners.first());
            listener.map(|one| serde_json::to_value(&one.domains).unwrap())
        };
        let wanted = json!({"a.example.com": "cert-2", "b.example.com": "cert-3"});
        world
            .cluster
            .eventually_eq("both domains", Some(wanted), domains)
            .await;
        world.quiet().await;
        world.changes();
        world
            .annotate(
                "web",
                json!({"domain-certificates": "a.example.com=cert-4"}),
            )
            .await;
        world
            .cluster
            .eventually_eq(
                "the new one",
                Some(json!({"a.example.com": "cert-4"})),
                domains,
            )
            .await;
        world.quiet().await;
        assert_eq!(world.changes(), ["set_domain", "set_domain"]);
        running.end().await;
    });
}

#[test]
fn b6_a_changed_node_port_adds_and_removes_each_backend_once() {
    run(async |world: World| {
        let running = world.start().await;
        world
            .service(
                "web",
                json!({"spec": {"ports": [{"port": 80, "nodePort": 30080}]}}),
            )
            .await;
        world.until_served("web", &[80]).await;
        world.quiet().await;
        world.changes();
        world
            .patch(
                "web",
                json!({"spec": {"ports": [{"port": 80, "nodePort": 30081}]}}),
            )
            .await;
        world.quiet().await;
        assert_eq!(world.changes(), ["add_backends", "remove_backends"]);
        let made = world.only("web").await;
        assert_eq!(targets(&made).len(), 3);
        assert!(
            made.groups[0].backends.iter().all(|one| one.port == 30081),
            "{made:?}"
        );
        running.end().await;
    });
}

#[test]
fn b7_a_listener_that_was_made_by_hand_is_not_overwritten() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        let made = world.until_served("web", &[80]).await;
        listen_by_hand(&world, &made.about.id, tcp(443)).await;
        let by_hand = world.only("web").await.listeners[1].clone();
        let ports = json!([{"name": "http", "port": 80}, {"name": "tls", "port": 443}, {"name": "alt", "port": 8080}]);
        world.patch("web", json!({"spec": {"ports": ports}})).await;
        world.until_reason("web", "ListenerConflict").await;
        world.quiet().await;
        let all = world.only("web").await.listeners;
        assert!(all.contains(&by_hand), "{all:?}");
        assert!(
            all.iter().any(|one| one.key == tcp(8080)),
            "the other port is served"
        );
        world
            .annotate("web", json!({"override-listeners": "true"}))
            .await;
        world.quiet().await;
        let all = world.only("web").await.listeners;
        assert!(!all.contains(&by_hand) && all.iter().any(|one| one.key == tcp(443)));
        running.end().await;
    });
}

#[test]
fn b8_an_attribute_that_was_edited_by_hand_is_repaired() {
    run(async |world: World| {
        let running = world.start().await;
        world
            .service(
                "web",
                json!({"metadata": {"annotations": {"lb.reeve.dev/bandwidth": "50"}}}),
            )
            .await;
        let made = world.until_served("web", &[80]).await;
        world
            .cloud
            .set_modification_protection(&made.about.id, false)
            .await
            .unwrap();
        let edited = cloud_loadbalancer::model::Internet {
            bandwidth: 1,
            ..made.about.internet
        };
        world
            .cloud
            .set_internet(&made.about.id, edited)
            .await
            .unwrap();
        sleep(Duration::from_secs(300)).await;
        assert_eq!(
            world.only("web").await.about.internet.bandwidth,
            1,
            "not before the period ends"
        );
        sleep(Duration::from_secs(370)).await;
        let repaired = world.served("web", &[80]).await.unwrap();
        assert_eq!(repaired.about.internet, made.about.internet);
        running.end().await;
    });
}
