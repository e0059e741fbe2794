//! Load balancers that people made and Services use.

use cloud_loadbalancer::identity::Owner;
use cloud_loadbalancer::model::{
    AddressType, Create, Fixed, GroupId, HealthCheck, IpVersion, LbId, ListenerKey,
    ListenerSettings, Probe, Scheduler,
};
use cloud_loadbalancer::provider::{Provider, Token};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

use crate::world::{World, key, new_group, run, targets, tcp};

/// A load balancer by hand, with a listener at port 22.
pub(crate) async fn by_hand(world: &World, name: &str, ip_version: IpVersion) -> LbId {
    let create = Create {
        name: name.to_owned(),
        fixed: Fixed {
            address_type: AddressType::Internet,
            ip_version,
            subnet: None,
            zone: None,
            resource_group: None,
        },
        internet: None,
        instance_charge: None,
        spec: Some("slb.s3.large".to_owned()),
        tags: Default::default(),
        identity: Default::default(),
    };
    let id = world
        .cloud
        .create(&Token::new(name), &create)
        .await
        .unwrap();
    sleep(Duration::from_secs(5)).await;
    listen_by_hand(world, &id, tcp(22)).await;
    id
}

pub(crate) async fn listen_by_hand(world: &World, id: &LbId, key: ListenerKey) -> GroupId {
    let group = world
        .cloud
        .create_group(id, &new_group("ssh"))
        .await
        .unwrap();
    let settings = ListenerSettings {
        name: "by hand".to_owned(),
        group: group.clone(),
        scheduler: Scheduler::Rr,
        affinity: None,
        sources: Vec::new(),
        health_check: HealthCheck {
            probe: Probe::Tcp,
            port: None,
            interval: Duration::from_secs(9),
            timeout: Duration::from_secs(9),
            healthy: 9,
            unhealthy: 9,
        },
        drain: None,
        proxy_protocol: false,
        certificate: None,
    };
    world
        .cloud
        .create_listener(id, key, &settings)
        .await
        .unwrap();
    world.cloud.start_listener(id, key).await.unwrap();
    group
}

pub(crate) fn reuse(id: &LbId) -> Value {
    json!({"metadata": {"annotations": {"lb.reeve.dev/reuse": id}}})
}

fn ports(world: &World, id: &LbId) -> Vec<u16> {
    let balancer = world.balancer(id).unwrap();
    let mut ports: Vec<_> = balancer
        .listeners
        .iter()
        .filter(|one| one.running)
        .map(|one| one.key.port)
        .collect();
    ports.sort_unstable();
    ports
}

async fn until_ports(world: &World, id: &LbId, wanted: &[u16]) {
    let what = format!("{id} listens at {wanted:?}");
    world
        .cluster
        .eventually_eq(&what, wanted.to_vec(), async || ports(world, id))
        .await;
}

#[test]
fn two_services_share_a_load_balancer_and_each_takes_its_own_listeners_with_it() {
    run(async |world: World| {
        let id = by_hand(&world, "shared", IpVersion::Ipv4).await;
        let before = world.balancer(&id).unwrap();
        world.changes();
        let running = world.start().await;
        world.service("web", reuse(&id)).await;
        let mut api = reuse(&id);
        api["spec"] = json!({"ports": [{"name": "tls", "port": 443}]});
        world.service("api", api).await;
        until_ports(&world, &id, &[22, 80, 443]).await;
        world.quiet().await;
        let address = before.about.address.to_string();
        assert_eq!(world.addresses("web").await, std::slice::from_ref(&address));
        assert_eq!(world.addresses("api").await, [address]);
        world.delete::<Service>(&key("web")).await;
        until_ports(&world, &id, &[22, 443]).await;
        world.until_absent("web").await;
        world.delete::<Service>(&key("api")).await;
        world.until_absent("api").await;
        assert_eq!(world.balancer(&id).unwrap(), before, "as it was");
        assert_eq!(world.cloud.created(), 1);
        running.end().await;
    });
}

#[test]
fn attributes_of_a_reused_load_balancer_change_only_on_request() {
    run(async |world: World| {
        let id = by_hand(&world, "shared", IpVersion::Ipv4).await;
        let running = world.start().await;
        world.service("web", reuse(&id)).await;
        until_ports(&world, &id, &[22, 80]).await;
        world.quiet().await;
        let about = world.balancer(&id).unwrap().about;
        assert_eq!((&*about.name, &*about.spec), ("shared", "slb.s3.large"));
        assert!(
            about.tags.is_empty() && !about.delete_protection && !about.modification_protection
        );
        world.annotate("web", json!({"spec": "slb.s2.small"})).await;
        world.quiet().await;
        assert_eq!(world.balancer(&id).unwrap().about.spec, "slb.s2.small");
        // A protection that people switched on is not lifted for them.
        world
            .cloud
            .set_modification_protection(&id, true)
            .await
            .unwrap();
        world.annotate("web", json!({"spec": "slb.s1.small"})).await;
        world.until_reason("web", "SyncLoadBalancerFailed").await;
        assert_eq!(world.balancer(&id).unwrap().about.spec, "slb.s2.small");
        running.end().await;
    });
}

#[test]
fn a_load_balancer_of_another_service_is_not_reused() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        let made = world.until_served("web", &[80]).await;
        let mut thief = reuse(&made.about.id);
        thief["spec"] = json!({"ports": [{"port": 443}]});
        world.service("thief", thief).await;
        world.until_reason("thief", "SyncLoadBalancerFailed").await;
        world.quiet().await;
        world.served("web", &[80]).await.unwrap();
        let note = world.events("thief").await[0].note.clone().unwrap();
        assert!(
            note.contains("can not reuse load balancer lb-1: a controller created it"),
            "{note}"
        );
        running.end().await;
    });
}

#[test]
fn an_own_load_balancer_that_is_named_for_reuse_goes_with_its_service() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        let made = world.until_served("web", &[80]).await;
        world.patch("web", reuse(&made.about.id)).await;
        world.until_reason("web", "SyncLoadBalancerFailed").await;
        world.delete::<Service>(&key("web")).await;
        world.until_absent("web").await;
        assert!(world.cloud.all().is_empty());
        running.end().await;
    });
}

#[test]
fn a_reused_load_balancer_that_got_the_tags_of_its_service_is_not_deleted_with_it() {
    run(async |world: World| {
        let id = by_hand(&world, "shared", IpVersion::Ipv4).await;
        let running = world.start().await;
        let service = world.service("web", reuse(&id)).await;
        until_ports(&world, &id, &[22, 80]).await;
        world.quiet().await;
        let owner = Owner::of(&world.settings.cluster, &service);
        world.cloud.tag(&id, &owner.tags()).await.unwrap();
        world.delete::<Service>(&key("web")).await;
        world.until_absent("web").await;
        assert_eq!(ports(&world, &id), [22]);
        running.end().await;
    });
}

#[test]
fn a_service_that_asks_for_a_load_balancer_it_cannot_have_is_served_by_its_own_with_the_nodes_of_the_day()
 {
    run(async |world: World| {
        let running = world.start().await;
        world.service("other", json!({})).await;
        let others = world.until_served("other", &[80]).await.about.id;
        world.service("web", json!({})).await;
        let own = world.until_served("web", &[80]).await.about.id;
        for (id, number) in [("lb-none".into(), 4), (others.clone(), 5)] {
            world.annotate("web", json!({"reuse": id})).await;
            world.until_reason("web", "SyncLoadBalancerFailed").await;
            world.quiet().await;
            world.node(&format!("n{number}"), json!({})).await;
            let instance = format!("i-{number}");
            let what = format!("{instance} is a backend of {own}");
            world
                .cluster
                .eventually(&what, async || {
                    let own = world.balancer(&own).unwrap();
                    targets(&own).contains(&instance)
                })
                .await;
        }
        let own_now = world.balancer(&own).unwrap();
        assert_eq!(
            world.addresses("web").await,
            [own_now.about.address.to_string()]
        );
        // A listener is not added: the Service has a mistake.
        world
            .patch(
                "web",
                json!({"spec": {"ports": [{"name": "http", "port": 80}, {"name": "b", "port": 81}]}}),
            )
            .await;
        world.quiet().await;
        assert_eq!(ports(&world, &own), [80]);
        world.annotate("web", json!({"reuse": null})).await;
        until_ports(&world, &own, &[80, 81]).await;
        running.end().await;
    });
}

#[test]
fn a_missing_load_balancer_is_reused_when_it_appears() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", reuse(&"lb-1".into())).await;
        world.until_reason("web", "SyncLoadBalancerFailed").await;
        let id = by_hand(&world, "shared", IpVersion::Ipv4).await;
        until_ports(&world, &id, &[22, 80]).await;
        running.end().await;
    });
}

#[test]
fn a_change_to_a_reused_load_balancer_and_back_leaves_nothing_behind() {
    run(async |world: World| {
        let shared = by_hand(&world, "shared", IpVersion::Ipv4).await;
        let other = by_hand(&world, "other", IpVersion::Ipv4).await;
        let running = world.start().await;
        world.service("web", json!({})).await;
        let own = world.until_served("web", &[80]).await.about.id;
        world.annotate("web", json!({"reuse": shared})).await;
        until_ports(&world, &shared, &[22, 80]).await;
        world
            .cluster
            .eventually("the own one is gone", async || {
                world.balancer(&own).is_none()
            })
            .await;
        let address = world.balancer(&shared).unwrap().about.address.to_string();
        assert_eq!(world.addresses("web").await, [address]);
        world.annotate("web", json!({"reuse": other})).await;
        until_ports(&world, &other, &[22, 80]).await;
        until_ports(&world, &shared, &[22]).await;
        world.annotate("web", json!({"reuse": null})).await;
        world.until_served("web", &[80]).await;
        until_ports(&world, &other, &[22]).await;
        world.delete::<Service>(&key("web")).await;
        world.until_absent("web").await;
        let names: Vec<_> = world
            .cloud
            .all()
            .into_iter()
            .map(|one| (one.about.name.clone(), targets(&one).len()))
            .collect();
        assert_eq!(names, [("shared".to_owned(), 0), ("other".to_owned(), 0)]);
        running.end().await;
    });
}

#[test]
fn an_own_load_balancer_is_found_by_its_tags_when_another_is_reused() {
    run(async |world: World| {
        let shared = by_hand(&world, "shared", IpVersion::Ipv4).await;
        let running = world.start().await;
        world.service("web", json!({})).await;
        let own = world.until_served("web", &[80]).await.about.id;
        world.quiet().await;
        let patch = json!({"metadata": {
            "labels": {"lb.reeve.dev/loadbalancer-id": null},
            "annotations": {"lb.reeve.dev/reuse": shared},
        }});
        world.patch("web", patch).await;
        until_ports(&world, &shared, &[22, 80]).await;
        let gone = async || world.balancer(&own).is_none();
        world.cluster.eventually("the own one is gone", gone).await;
        running.end().await;
    });
}

#[test]
fn a_service_moves_to_a_load_balancer_only_where_all_of_its_ports_are_free() {
    run(async |world: World| {
        let shared = by_hand(&world, "shared", IpVersion::Ipv4).await;
        listen_by_hand(&world, &shared, tcp(80)).await;
        let running = world.start().await;
        world.service("web", json!({})).await;
        let own = world.until_served("web", &[80]).await.about;
        world.annotate("web", json!({"reuse": shared})).await;
        world.until_reason("web", "SyncLoadBalancerFailed").await;
        world.quiet().await;
        sleep(Duration::from_secs(3600)).await;
        let now = world.balancer(&own.id).expect("it serves");
        assert!(now.about.delete_protection);
        assert_eq!(ports(&world, &own.id), [80]);
        assert_eq!(world.addresses("web").await, [own.address.to_string()]);
        let note = world.events("web").await.into_iter().find_map(|one| {
            let note = one.note?;
            note.contains("listeners of others at").then_some(note)
        });
        assert!(note.is_some_and(|note| note.contains("80")));
        // The port is freed.
        world.cloud.delete_listener(&shared, tcp(80)).await.unwrap();
        until_ports(&world, &shared, &[22, 80]).await;
        let gone = async || world.balancer(&own.id).is_none();
        world.cluster.eventually("the own one is gone", gone).await;
        running.end().await;
    });
}

#[test]
fn a_service_with_a_mistake_does_not_move() {
    run(async |world: World| {
        let shared = by_hand(&world, "shared", IpVersion::Ipv4).await;
        let running = world.start().await;
        world.service("web", json!({})).await;
        let own = world.until_served("web", &[80]).await.about.id;
        let wrong = json!({"reuse": shared, "scheduler": "fastest"});
        world.annotate("web", wrong).await;
        world.until_reason("web", "SyncLoadBalancerFailed").await;
        world.quiet().await;
        assert_eq!(ports(&world, &own), [80]);
        assert_eq!(ports(&world, &shared), [22]);
        // A Service that has none yet has none here either.
        let mut fresh = reuse(&shared);
        fresh["metadata"]["annotations"]["lb.reeve.dev/scheduler"] = json!("fastest");
        fresh["spec"] = json!({"ports": [{"port": 443}]});
        world.service("fresh", fresh).await;
        world.until_reason("fresh", "SyncLoadBalancerFailed").await;
        assert!(world.addresses("fresh").await.is_empty());
        world.annotate("web", json!({"scheduler": null})).await;
        until_ports(&world, &shared, &[22, 80]).await;
        running.end().await;
    });
}

#[test]
fn a_plan_names_what_a_move_deletes_and_clears() {
    run(async |world: World| {
        let shared = by_hand(&world, "shared", IpVersion::Ipv4).await;
        let running = world.start().await;
        world.service("web", json!({})).await;
        let own = world.until_served("web", &[80]).await.about.id;
        world.quiet().await;
        running.end().await;
        world.annotate("web", json!({"reuse": shared})).await;
        let plan = world.plan("web").await;
        assert!(
            plan.contains(&format!("delete load balancer {own}")),
            "{plan}"
        );
        world
            .annotate("web", json!({"preserve-on-delete": "yes"}))
            .await;
        let plan = world.plan("web").await;
        assert!(plan.contains("does not come to load balancer"), "{plan}");
        assert!(!plan.contains("delete load balancer"), "{plan}");
        world
            .annotate("web", json!({"preserve-on-delete": null}))
            .await;
        let running = world.start().await;
        until_ports(&world, &shared, &[22, 80]).await;
        world.quiet().await;
        running.end().await;
        world.annotate("web", json!({"reuse": null})).await;
        let plan = world.plan("web").await;
        assert!(plan.contains("has no load balancer\ncreate"), "{plan}");
        assert!(
            plan.contains(&format!("load balancer {shared} stays")),
            "{plan}"
        );
        assert!(plan.contains("delete listener"), "{plan}");
    });
}
