//! Changes by hand, attributes that cannot change, and dry runs.

use std::time::Duration;

use cloud_loadbalancer::Settings;
use cloud_loadbalancer::model::State;
use cloud_loadbalancer::provider::{Abilities, Error, Kind, Provider, memory};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{World, key, run, run_with, tcp};

#[test]
fn changes_by_hand_are_repaired_within_the_period() {
    run(async |world: World| {
        let running = world.start().await;
        world
            .service(
                "web",
                json!({"metadata": {"annotations": {"lb.reeve.dev/spec": "slb.s2.small"}}}),
            )
            .await;
        let made = world.until_served("web", &[80]).await;
        let (cloud, id) = (&world.cloud, &made.about.id);
        cloud.set_modification_protection(id, false).await.unwrap();
        cloud.set_spec(id, "slb.s9.huge").await.unwrap();
        cloud.set_delete_protection(id, false).await.unwrap();
        cloud.delete_listener(id, tcp(80)).await.unwrap();
        sleep(Duration::from_secs(670)).await;
        let repaired = world.served("web", &[80]).await.unwrap();
        assert_eq!(repaired.about.spec, "slb.s2.small");
        running.end().await;
    });
}

#[test]
fn a_change_that_fails_halfway_and_is_taken_back_leaves_nothing_of_it() {
    run(async |world: World| {
        let running = world.start().await;
        let before = json!({"spec": "slb.s1.small", "bandwidth": "5"});
        world.service("web", json!({})).await;
        world.annotate("web", before.clone()).await;
        world.until_served("web", &[80]).await;
        world.quiet().await;
        let refusal = Error::new(Kind::Invalid, "InvalidSpec", "there is no such size");
        world.cloud.refuse("set_spec", Some(refusal));
        let change = json!({"spec": "slb.s2.small", "bandwidth": "50"});
        world.annotate("web", change).await;
        world.until_reason("web", "SyncLoadBalancerFailed").await;
        assert_eq!(world.only("web").await.about.internet.bandwidth, 50);
        world.annotate("web", before).await;
        world.quiet().await;
        assert_eq!(world.only("web").await.about.internet.bandwidth, 5);
        running.end().await;
    });
}

#[test]
fn a_load_balancer_that_was_switched_off_is_reported_changed_and_deleted() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        let made = world.until_served("web", &[80]).await;
        world.cloud.switch(&made.about.id, State::Inactive);
        world.annotate("web", json!({"bandwidth": "50"})).await;
        world.until_reason("web", "LoadBalancerNotServing").await;
        world.quiet().await;
        assert_eq!(world.only("web").await.about.internet.bandwidth, 50);
        world.delete::<Service>(&key("web")).await;
        world.until_gone("web").await;
        running.end().await;
    });
}

#[test]
fn a_locked_load_balancer_is_reported_and_deleted_once_it_is_unlocked() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        let made = world.until_served("web", &[80]).await;
        world.cloud.switch(&made.about.id, State::Locked);
        world.annotate("web", json!({"bandwidth": "50"})).await;
        world.until_reason("web", "LoadBalancerNotServing").await;
        world.until_reason("web", "SyncLoadBalancerFailed").await;
        world.delete::<Service>(&key("web")).await;
        world.until_reason("web", "DeleteLoadBalancerFailed").await;
        world.cloud.switch(&made.about.id, State::Active);
        world.until_gone("web").await;
        running.end().await;
    });
}

#[test]
fn a_load_balancer_that_is_pending_for_long_is_reported() {
    let slow = memory::Settings {
        provisioning: Duration::from_secs(3600),
        ..memory::Settings::DEFAULT
    };
    run_with(slow, async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        sleep(Duration::from_secs(290)).await;
        assert!(!world.reasons("web").await.contains("LoadBalancerNotReady"));
        world.until_reason("web", "LoadBalancerNotReady").await;
        sleep(Duration::from_secs(3600)).await;
        world.served("web", &[80]).await.unwrap();
        running.end().await;
    });
}

#[test]
fn a_load_balancer_that_was_deleted_by_hand_comes_back() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        for round in 1..=2 {
            let made = world.until_served("web", &[80]).await;
            world
                .cloud
                .set_delete_protection(&made.about.id, false)
                .await
                .unwrap();
            world.cloud.delete(&made.about.id).await.unwrap();
            sleep(Duration::from_secs(700)).await;
            let back = world.served("web", &[80]).await.unwrap();
            assert_ne!(
                back.about.id, made.about.id,
                "though the token of the first is remembered"
            );
            assert_eq!(world.cloud.created(), round + 1);
        }
        assert!(world.reasons("web").await.contains("LoadBalancerLost"));
        running.end().await;
    });
}

#[test]
fn an_affinity_that_the_cloud_does_not_have_is_shortened_and_not_set_again() {
    let hour = memory::Settings {
        abilities: &Abilities {
            longest_affinity: |_| Duration::from_secs(3600),
            ..Abilities::ALL
        },
        ..memory::Settings::DEFAULT
    };
    for seconds in [600, 3600, 7200, 10_800] {
        run_with(hour, async |world: World| {
            let running = world.start().await;
            let spec = json!({
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}},
            });
            world.service("web", json!({"spec": spec})).await;
            let made = world.until_served("web", &[80]).await;
            let affinity = made.listeners[0].settings.affinity;
            assert_eq!(affinity, Some(Duration::from_secs(seconds.min(3600))));
            world.quiet().await;
            world.changes();
            sleep(Duration::from_secs(1400)).await;
            assert_eq!(world.changes(), [] as [&str; 0], "{seconds} s");
            running.end().await;
        });
    }
}

#[test]
fn an_attribute_that_cannot_change_is_reported_and_left() {
    run(async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        world.until_served("web", &[80]).await;
        world.changes();
        world
            .annotate("web", json!({"address-type": "intranet", "zone": "z-1"}))
            .await;
        world.until_reason("web", "ImmutableAttribute").await;
        world.quiet().await;
        assert_eq!(world.changes(), [] as [&str; 0]);
        let notes: Vec<_> = world
            .events("web")
            .await
            .into_iter()
            .filter_map(|event| event.note)
            .collect();
        let wanted = "address-type is internet and cannot change to intranet; create the Service again to change it";
        assert!(notes.iter().any(|note| note == wanted), "{notes:?}");
        running.end().await;
    });
}

#[test]
fn a_dry_run_reports_and_writes_nothing() {
    run(async |world: World| {
        let settings = Settings {
            dry_run: true,
            ..world.settings.clone()
        };
        let running = world.start_with(settings).await;
        world.service("web", json!({})).await;
        world.until_reason("web", "DryRun").await;
        world.quiet().await;
        assert_eq!(world.changes(), [] as [&str; 0]);
        let requests = world.cluster.requests().all();
        assert!(
            !requests
                .iter()
                .any(|request| request.verb == "patch" && request.resource == "services")
        );
        let events = world.events("web").await;
        let note = events[0].note.clone().unwrap();
        assert!(
            note.starts_with("Service default/web: has no load balancer\ncreate load balancer a"),
            "{note}"
        );
        running.end().await;
    });
}
