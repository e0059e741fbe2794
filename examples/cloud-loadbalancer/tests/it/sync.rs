//! From a Service to its load balancer.

use std::time::Duration;

use cloud_loadbalancer::model::{Listener, Probe, Scheduler};
use cloud_loadbalancer::provider::{Error, Kind};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::world::{World, run, tcp};

#[test]
fn a_service_gets_a_load_balancer_and_then_nothing_changes_any_more() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        let made = world.until_served("web", &[80]).await;
        assert_eq!(made.about.tags["reeve.dev/service"], "default/web");
        let reasons = world.reasons("web").await;
        let wanted = ["EnsuredLoadBalancer", "EnsuringLoadBalancer"];
        assert!(reasons.iter().eq(&wanted.map(str::to_owned)), "{reasons:?}");
        world.quiet().await;
        world.changes();
        world.cluster.requests().clear();
        sleep(Duration::from_secs(6 * 3600)).await;
        assert_eq!(world.changes(), [] as [&str; 0]);
        let requests = world.cluster.requests().all();
        let written = requests
            .iter()
            .find(|request| request.resource == "services" && request.verb == "patch");
        assert_eq!(written, None);
        running.end().await;
    });
}

#[test]
fn each_attribute_is_one_call_and_the_protection_is_lifted_for_it() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        world.until_served("web", &[80]).await;
        let (off, on) = ("set_modification_protection", "set_modification_protection");
        for (annotations, calls) in [
            (json!({"name": "shop"}), vec![off, "set_name", on]),
            (json!({"spec": "slb.s2.small"}), vec![off, "set_spec", on]),
            (
                json!({"instance-charge": "paybyspec"}),
                vec![off, "set_instance_charge", on],
            ),
            (json!({"bandwidth": "50"}), vec![off, "set_internet", on]),
            (
                json!({"traffic-charge": "paybybandwidth"}),
                vec![off, "set_internet", on],
            ),
            (json!({"tags": "team=shop"}), vec!["tag"]),
            (json!({"scheduler": "wlc"}), vec!["set_listener"]),
            (
                json!({"drain": "30", "health-check": "http"}),
                vec!["set_listener"],
            ),
            (
                json!({"delete-protection": "off"}),
                vec!["set_delete_protection"],
            ),
            (json!({"modification-protection": "off"}), vec![off]),
            (
                json!({"name": "shop-2", "spec": "slb.s3.small"}),
                vec!["set_spec", "set_name"],
            ),
            (
                json!({"modification-protection": null, "delete-protection": null}),
                vec![on, "set_delete_protection"],
            ),
            // What is not requested any more stays as it is.
            (
                json!({"name": null, "spec": null, "bandwidth": null, "traffic-charge": null, "tags": null}),
                vec![],
            ),
        ] {
            world.changes();
            world.annotate("web", annotations.clone()).await;
            world.quiet().await;
            assert_eq!(world.changes(), calls, "{annotations}");
        }
        let about = world.only("web").await.about;
        assert_eq!(
            (&*about.name, &*about.spec, about.internet.bandwidth),
            ("shop-2", "slb.s3.small", 50)
        );
        assert_eq!(about.tags["team"], "shop");
        running.end().await;
    });
}

#[test]
fn of_three_attributes_the_second_fails_and_the_others_are_set() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        let before = world.until_served("web", &[80]).await;
        world.quiet().await;
        world.changes();
        let refusal = Error::new(Kind::Invalid, "InvalidSpec", "there is no such size");
        world.cloud.refuse("set_spec", Some(refusal));
        let hash = async || {
            world.get("web").await.unwrap().metadata.labels.unwrap()["lb.reeve.dev/hash"].clone()
        };
        let stored = hash().await;
        world
            .annotate(
                "web",
                json!({"spec": "slb.s2.small", "bandwidth": "50", "name": "shop"}),
            )
            .await;
        world.until_reason("web", "SyncLoadBalancerFailed").await;
        let protection = "set_modification_protection";
        let calls = [
            protection,
            "set_internet",
            "set_spec",
            "set_name",
            protection,
        ];
        assert_eq!(world.changes()[..5], calls);
        let about = world.only("web").await.about;
        assert_eq!((&*about.name, about.internet.bandwidth), ("shop", 50));
        assert_eq!(about.spec, before.about.spec);
        assert!(about.modification_protection, "it is on again");
        let failed = running.metric("ccm_failed_changes_total{call=\"set_spec\"}");
        assert_eq!(failed, Some(1.0), "b3: the failure counts");
        let events = world.events("web").await;
        let event = events
            .iter()
            .find(|event| event.reason.as_deref() == Some("SyncLoadBalancerFailed"));
        let note = event.unwrap().note.clone().unwrap();
        assert!(note.contains("1 of 5 changes failed: set spec slb.s2.small: InvalidSpec: there is no such size (request req-"), "{note}");
        assert_eq!(
            hash().await,
            stored,
            "the hash is that of the last full success"
        );
        world.cloud.refuse("set_spec", None);
        let set = async || world.only("web").await.about.spec;
        world
            .cluster
            .eventually_eq("the size is set", "slb.s2.small", set)
            .await;
        world.quiet().await;
        assert_ne!(hash().await, stored);
        running.end().await;
    });
}

#[test]
fn listeners_follow_the_ports_and_the_settings_of_the_service() {
    run(async |world: World| {
        let running = world.start().await;
        let spec = json!({
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}},
            "loadBalancerSourceRanges": ["192.0.2.0/24", "10.0.0.0/8"],
            "ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}],
        });
        world.service("web", json!({"spec": spec})).await;
        let two = async || {
            world.cloud.all().first().map_or(0, |one| {
                one.listeners.iter().filter(|one| one.running).count()
            })
        };
        world
            .cluster
            .eventually_eq("two listeners run", 2, two)
            .await;
        let made = world.only("web").await;
        for Listener { settings, .. } in &made.listeners {
            assert_eq!(settings.affinity, Some(Duration::from_secs(600)));
            let sources: Vec<_> = settings.sources.iter().map(ToString::to_string).collect();
            assert_eq!(sources, ["10.0.0.0/8", "192.0.2.0/24"]);
            assert_eq!(settings.scheduler, Scheduler::Wrr);
        }
        let probes: Vec<_> = made
            .listeners
            .iter()
            .map(|one| one.settings.health_check.probe.clone())
            .collect();
        assert_eq!(probes, [Probe::Tcp, Probe::Udp]);
        world.patch("web", json!({"spec": {"loadBalancerSourceRanges": null, "sessionAffinity": "None", "ports": [{"name": "alt", "port": 8080}]}})).await;
        world.until_served("web", &[8080]).await;
        let settings = &world.only("web").await.listeners[0].settings;
        assert!(settings.sources.is_empty() && settings.affinity.is_none());
        running.end().await;
    });
}

#[test]
fn the_protocol_of_a_listener_changes_with_its_annotation() {
    run(async |world: World| {
        let running = world.start().await;
        world
            .service("web", json!({"spec": {"ports": [{"port": 443}]}}))
            .await;
        world.until_served("web", &[443]).await;
        world.changes();
        world
            .annotate(
                "web",
                json!({"protocol-ports": "https:443", "certificate": "cert-1"}),
            )
            .await;
        world.quiet().await;
        assert_eq!(
            world.changes(),
            ["delete_listener", "create_listener", "start_listener"]
        );
        let made = world.only("web").await;
        assert_eq!(made.listeners[0].key.to_string(), "https:443");
        assert_eq!(
            made.listeners[0].settings.certificate.as_deref(),
            Some("cert-1")
        );
        let status = world
            .get("web")
            .await
            .unwrap()
            .status
            .unwrap()
            .load_balancer
            .unwrap();
        assert_eq!(status.ingress.unwrap()[0].ip_mode.as_deref(), Some("Proxy"));
        running.end().await;
    });
}

#[test]
fn the_status_has_the_address_and_its_mode_or_the_host_name() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        let address = world
            .until_served("web", &[80])
            .await
            .about
            .address
            .to_string();
        for (annotations, wanted) in [
            (json!({}), json!([{"ip": address, "ipMode": "VIP"}])),
            (
                json!({"proxy-protocol": "on"}),
                json!([{"ip": address, "ipMode": "Proxy"}]),
            ),
            (
                json!({"ip-mode": "VIP"}),
                json!([{"ip": address, "ipMode": "VIP"}]),
            ),
            (
                json!({"hostname": "shop.example.com"}),
                json!([{"hostname": "shop.example.com"}]),
            ),
        ] {
            world.annotate("web", annotations).await;
            world.quiet().await;
            let status = world
                .get("web")
                .await
                .unwrap()
                .status
                .unwrap()
                .load_balancer
                .unwrap();
            assert_eq!(serde_json::to_value(status.ingress).unwrap(), wanted);
        }
        // A status that another client clears comes back.
        let cleared = json!({"status": {"loadBalancer": {"ingress": null}}});
        let services = world.cluster.client().objects::<Service>();
        let patch = reeve_controller::client::Patch::merge(cleared);
        services
            .patch_status(&crate::world::key("web"), patch)
            .await
            .unwrap();
        let back = async || world.addresses("web").await;
        world
            .cluster
            .eventually_eq(
                "the name is back",
                vec!["shop.example.com".to_owned()],
                back,
            )
            .await;
        running.end().await;
    });
}

#[test]
fn nothing_is_created_from_a_service_with_a_mistake() {
    for (more, message) in [
        (
            json!({"metadata": {"annotations": {"lb.reeve.dev/address-type": "intern"}}}),
            "address-type",
        ),
        (
            json!({"metadata": {"annotations": {"lb.reeve.dev/address-kind": "intranet"}}}),
            "unknown annotation",
        ),
        (
            json!({"metadata": {"annotations": {"lb.reeve.dev/protocol-ports": "http:81"}}}),
            "no TCP port 81",
        ),
    ] {
        run(async |world: World| {
            let running = world.start().await;
            world.service("web", more.clone()).await;
            world.until_reason("web", "SyncLoadBalancerFailed").await;
            let events = world.events("web").await;
            let note = events[0].note.clone().unwrap();
            assert!(note.contains(message), "{note}");
            sleep(Duration::from_secs(3600)).await;
            assert_eq!(world.cloud.created(), 0);
            assert!(
                world
                    .get("web")
                    .await
                    .unwrap()
                    .metadata
                    .finalizers
                    .is_none()
            );
            running.end().await;
        });
    }
}

#[test]
fn a_mistake_on_a_served_service_leaves_its_load_balancer_and_backends_still_follow() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        world.until_served("web", &[80]).await;
        world
            .annotate("web", json!({"bandwidth": "much", "name": "shop"}))
            .await;
        world.until_reason("web", "InvalidService").await;
        world.changes();
        world.node("n4", json!({})).await;
        world.quiet().await;
        assert_eq!(world.changes(), ["add_backends"]);
        let made = world.only("web").await;
        assert_ne!(made.about.name, "shop");
        assert_eq!(made.listeners[0].key, tcp(80));
        world.annotate("web", json!({"bandwidth": "5"})).await;
        world.quiet().await;
        assert_eq!(world.only("web").await.about.name, "shop");
        running.end().await;
    });
}

#[test]
fn a_service_of_another_class_is_not_touched() {
    run(async |world: World| {
        let running = world.start().await;
        let class = |class: Option<&str>| json!({"spec": {"loadBalancerClass": class}});
        world.service("other", class(Some("example.com/lb"))).await;
        world.service("ours", class(Some("reeve.dev/lb"))).await;
        world.until_served("ours", &[80]).await;
        assert_eq!(world.cloud.created(), 1);
        assert!(
            world
                .get("other")
                .await
                .unwrap()
                .metadata
                .finalizers
                .is_none()
        );
        running.end().await;
        let mut settings = world.settings.clone();
        settings.default_class = false;
        let running = world.start_with(settings).await;
        world.service("none", json!({})).await;
        world.quiet().await;
        assert_eq!(world.cloud.created(), 1, "it is not the default");
        running.end().await;
    });
}

#[test]
fn an_own_label_that_was_copied_from_another_service_is_not_believed() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        let web = world.until_served("web", &[80]).await;
        let labels: Value =
            json!({"lb.reeve.dev/loadbalancer-id": web.about.id, "lb.reeve.dev/hash": "x"});
        world
            .service("copy", json!({"metadata": {"labels": labels}}))
            .await;
        let copy = world.until_served("copy", &[80]).await;
        assert_ne!(copy.about.id, web.about.id);
        world.delete::<Service>(&crate::world::key("copy")).await;
        world.until_absent("copy").await;
        world.served("web", &[80]).await.unwrap();
        running.end().await;
    });
}
