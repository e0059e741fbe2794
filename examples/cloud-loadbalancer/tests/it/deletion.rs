//! Services that are deleted, change their type or class, and what they may leave behind.

use std::time::Duration;

use cloud_loadbalancer::provider::memory;
use cloud_loadbalancer::provider::{Error, Kind, Provider};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{World, key, run, run_with, run_with_equal_names, targets, tcp};

async fn serving(world: &World) -> cloud_loadbalancer::provider::memory::Snapshot {
    world.service("web", json!({})).await;
    world.until_served("web", &[80]).await
}

#[test]
fn a_deletion_lifts_the_protection_and_waits_until_the_load_balancer_is_gone() {
    run(async |world: World| {
        let running = world.start().await;
        serving(&world).await;
        world.quiet().await;
        world.changes();
        world.delete::<Service>(&key("web")).await;
        world
            .cluster
            .eventually("the deletion begins", async || {
                world.cloud.all()[0].listeners.is_empty()
            })
            .await;
        assert!(world.get("web").await.is_some(), "the finalizer holds it");
        world.until_gone("web").await;
        assert_eq!(world.changes(), ["set_delete_protection", "delete"]);
        world.until_reason("web", "DeletedLoadBalancer").await;
        running.end().await;
    });
}

#[test]
fn a_change_of_the_type_and_back_makes_a_new_load_balancer() {
    run(async |world: World| {
        let running = world.start().await;
        serving(&world).await;
        world
            .patch("web", json!({"spec": {"type": "NodePort"}}))
            .await;
        let empty = async || world.cloud.all().is_empty();
        world.cluster.eventually("the cloud is empty", empty).await;
        world.quiet().await;
        let meta = world.get("web").await.unwrap().metadata;
        assert_eq!(meta.finalizers, None);
        world
            .patch("web", json!({"spec": {"type": "LoadBalancer"}}))
            .await;
        // The cloud remembers the token of the first for a day.
        world.until_served("web", &[80]).await;
        assert_eq!(world.cloud.created(), 2);
        running.end().await;
    });
}

#[test]
fn a_service_that_gets_another_class_loses_its_load_balancer_and_can_be_deleted() {
    run(async |world: World| {
        let running = world.start().await;
        serving(&world).await;
        running.end().await;
        // The type between the two classes is not seen.
        world
            .patch("web", json!({"spec": {"type": "ClusterIP"}}))
            .await;
        world
            .patch(
                "web",
                json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/lb"}}),
            )
            .await;
        let running = world.start().await;
        let empty = async || world.cloud.all().is_empty();
        world.cluster.eventually("the cloud is empty", empty).await;
        world.quiet().await;
        let meta = world.get("web").await.unwrap().metadata;
        assert!(meta.labels.unwrap_or_default().is_empty());
        // The other controller has a finalizer of its own, if any.
        assert_eq!(meta.finalizers, None);
        world.delete::<Service>(&key("web")).await;
        world.until_absent("web").await;
        running.end().await;
    });
}

#[test]
fn a_service_that_is_deleted_while_no_process_runs_leaves_nothing() {
    run(async |world: World| {
        let running = world.start().await;
        serving(&world).await;
        running.crash().await;
        world.delete::<Service>(&key("web")).await;
        let running = world.start().await;
        world.until_gone("web").await;
        running.end().await;
    });
}

#[test]
fn a_deletion_that_fails_half_way_goes_on() {
    run(async |world: World| {
        let running = world.start().await;
        serving(&world).await;
        world.cloud.fail_next_deletion();
        world.delete::<Service>(&key("web")).await;
        world.until_gone("web").await;
        world.until_reason("web", "DeleteLoadBalancerFailed").await;
        running.end().await;
    });
}

#[test]
fn a_protection_that_was_switched_on_by_hand_is_lifted() {
    run(async |world: World| {
        let running = world.start().await;
        world
            .service(
                "web",
                json!({"metadata": {"annotations": {"lb.reeve.dev/delete-protection": "off"}}}),
            )
            .await;
        let lb = async || {
            world
                .cloud
                .all()
                .first()
                .filter(|one| one.listeners.iter().any(|one| one.running))
                .cloned()
        };
        let id = world.cluster.eventually("it is there", lb).await.about.id;
        world.quiet().await;
        world.cloud.set_delete_protection(&id, true).await.unwrap();
        world.delete::<Service>(&key("web")).await;
        world.until_gone("web").await;
        running.end().await;
    });
}

/// The search shows a new load balancer after two minutes.
const SLOW: memory::Settings = memory::Settings {
    lag: Duration::from_secs(120),
    ..memory::Settings::DEFAULT
};

#[test]
fn a_load_balancer_whose_creation_was_not_seen_is_found_before_the_finalizer_goes() {
    let note = |at: &str| json!({ "creating": at }).to_string();
    for note in [
        note("2026-01-01T00:00:00Z"),
        // The creation waited for its turn long after the note, or the clock was set back since.
        note("1971-01-01T00:00:00Z"),
        note("2999-01-01T00:00:00Z"),
        "not JSON".to_owned(),
    ] {
        run_with(SLOW, async |world: World| {
            let running = world.start().await;
            world.service("web", json!({})).await;
            world
                .cluster
                .eventually("it is created", async || world.cloud.created() == 1)
                .await;
            running.crash().await;
            // As if the id had never been recorded.
            let labels = json!({"lb.reeve.dev/loadbalancer-id": null});
            world.patch("web", json!({"metadata": {"labels": labels, "annotations": {"lb.reeve.dev/state": note}}})).await;
            world.delete::<Service>(&key("web")).await;
            let running = world.start().await;
            sleep(Duration::from_secs(100)).await;
            assert!(
                world.get("web").await.is_some(),
                "a search does not show it yet: {note}"
            );
            world.until_gone("web").await;
            running.end().await;
        });
    }
}

#[test]
fn other_settings_between_two_attempts_of_a_creation_make_no_second_load_balancer() {
    run(async |world: World| {
        world.effects.arm(3, crate::world::Phase::After);
        let running = world.start().await;
        world.service("web", json!({})).await;
        world
            .cluster
            .eventually("it is created", async || world.cloud.created() == 1)
            .await;
        world
            .cluster
            .eventually("the process hangs", async || world.effects.fired())
            .await;
        running.crash().await;
        assert_eq!(
            world.effects.names().last().map(String::as_str),
            Some("create")
        );
        world.annotate("web", json!({"spec": "slb.s3.large"})).await;
        let running = world.start().await;
        let made = world.until_served("web", &[80]).await;
        assert_eq!(
            (world.cloud.created(), &*made.about.spec),
            (1, "slb.s3.large")
        );
        running.end().await;
    });
}

#[test]
fn a_preserved_load_balancer_keeps_its_listeners_and_is_not_managed_any_more() {
    run(async |world: World| {
        let running = world.start().await;
        let made = serving(&world).await;
        world
            .annotate("web", json!({"preserve-on-delete": "true"}))
            .await;
        world.quiet().await;
        world.changes();
        world.delete::<Service>(&key("web")).await;
        world.until_absent("web").await;
        assert_eq!(
            world.changes(),
            [
                "set_delete_protection",
                "set_modification_protection",
                "untag"
            ]
        );
        let left = world.balancer(&made.about.id).unwrap();
        assert_eq!((left.listeners.len(), targets(&left).len()), (1, 3));
        assert!(left.about.tags.is_empty());
        world.until_reason("web", "PreservedOnDelete").await;
        running.end().await;
    });
}

#[test]
fn a_preserved_load_balancer_is_not_taken_back_by_its_service() {
    run_with_equal_names(async |world: World| {
        let running = world.start().await;
        let made = serving(&world).await;
        world
            .annotate("web", json!({"preserve-on-delete": "true"}))
            .await;
        world.quiet().await;
        world
            .patch("web", json!({"spec": {"type": "NodePort"}}))
            .await;
        world.until_reason("web", "PreservedOnDelete").await;
        world.quiet().await;
        // The cloud answers the token of the first creation for a day.
        world
            .patch("web", json!({"spec": {"type": "LoadBalancer"}}))
            .await;
        world
            .annotate("web", json!({"preserve-on-delete": null}))
            .await;
        let own = world.until_served("web", &[80]).await;
        assert_ne!(own.about.id, made.about.id);
        world.delete::<Service>(&key("web")).await;
        world.until_absent("web").await;
        let left = world.cloud.all();
        assert_eq!((left.len(), &left[0].about.id), (1, &made.about.id));
        assert_eq!((left[0].listeners.len(), targets(&left[0]).len()), (1, 3));
        running.end().await;
    });
}

#[test]
fn a_load_balancer_that_lost_its_tags_by_hand_gets_them_back() {
    run(async |world: World| {
        let running = world.start().await;
        let made = serving(&world).await;
        let keys: Vec<String> = made.about.tags.keys().cloned().collect();
        world.cloud.untag(&made.about.id, &keys).await.unwrap();
        sleep(Duration::from_secs(700)).await;
        let back = world.served("web", &[80]).await.unwrap();
        assert_eq!(back.about, made.about);
        running.end().await;
    });
}

#[test]
fn a_service_of_the_same_name_gets_a_load_balancer_of_its_own() {
    run(async |world: World| {
        let running = world.start().await;
        let first = serving(&world).await;
        world.delete::<Service>(&key("web")).await;
        world.until_absent("web").await;
        let second = serving(&world).await;
        assert_ne!(first.about.id, second.about.id);
        assert_eq!(world.cloud.all().len(), 1);
        running.end().await;
    });
}

#[test]
fn an_orphan_is_reported_and_deleted_on_request_only() {
    run(async |world: World| {
        let running = world.start().await;
        let made = serving(&world).await;
        world.service("other", json!({})).await;
        let other = world.until_served("other", &[80]).await;
        running.crash().await;
        // Someone forces the finalizer, and another Service takes the name.
        world
            .patch("web", json!({"metadata": {"finalizers": null}}))
            .await;
        world.delete::<Service>(&key("web")).await;
        let running = world.start().await;
        serving(&world).await;
        sleep(Duration::from_secs(3600)).await;
        assert!(world.balancer(&made.about.id).is_some());
        assert_eq!(running.metric("ccm_orphans"), Some(1.0));
        running.end().await;
        let mut settings = world.settings.clone();
        settings.gc_orphans = true;
        let running = world.start_with(settings).await;
        sleep(Duration::from_secs(650)).await;
        assert!(
            world.balancer(&made.about.id).is_some(),
            "one search is not enough"
        );
        sleep(Duration::from_secs(650)).await;
        assert_eq!(world.balancer(&made.about.id), None);
        assert!(world.balancer(&other.about.id).is_some());
        world.served("web", &[80]).await.unwrap();
        assert_eq!(world.cloud.all().len(), 2);
        running.end().await;
    });
}

#[test]
fn two_load_balancers_with_the_tags_of_one_service_are_reported_and_both_deleted_with_it() {
    run(async |world: World| {
        let running = world.start().await;
        let made = serving(&world).await;
        running.end().await;
        // A copy by hand, with all tags.
        let about = made.about;
        let create = cloud_loadbalancer::model::Create {
            name: "copy".to_owned(),
            fixed: about.fixed.clone(),
            internet: None,
            instance_charge: None,
            spec: None,
            tags: about.tags.clone(),
            identity: Default::default(),
        };
        let token = cloud_loadbalancer::provider::Token::new("by hand");
        world.cloud.create(&token, &create).await.unwrap();
        world
            .patch(
                "web",
                json!({"metadata": {"labels": {"lb.reeve.dev/loadbalancer-id": null}}}),
            )
            .await;
        sleep(Duration::from_secs(20)).await;
        let running = world.start().await;
        world.until_reason("web", "SyncLoadBalancerFailed").await;
        assert_eq!(world.cloud.created(), 2);
        assert_eq!(world.balancer(&about.id).unwrap().listeners[0].key, tcp(80));
        world.delete::<Service>(&key("web")).await;
        world.until_gone("web").await;
        running.end().await;
    });
}

#[test]
fn a_deletion_is_tried_until_the_cloud_allows_it() {
    run(async |world: World| {
        let running = world.start().await;
        serving(&world).await;
        let away = Error::new(Kind::Unavailable, "ServiceUnavailable", "later");
        world.cloud.refuse("delete", Some(away));
        world.delete::<Service>(&key("web")).await;
        sleep(Duration::from_secs(7200)).await;
        assert!(world.get("web").await.is_some());
        world.cloud.refuse("delete", None);
        world.until_gone("web").await;
        running.end().await;
    });
}
