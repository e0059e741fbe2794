//! A cloud that cannot do everything: no tokens, so that a late creation makes a second load balancer; and settings without effect.

use std::time::Duration;

use cloud_loadbalancer::identity::{NOTE_ANNOTATION, SERVICE_TAG};
use cloud_loadbalancer::model::{Create, LbId};
use cloud_loadbalancer::provider::memory::Settings;
use cloud_loadbalancer::provider::{Abilities, Lack, Provider, Token};
use k8s_openapi::api::core::v1::Service;
use kube_core::ResourceExt;
use serde_json::json;
use tokio::time::sleep;

use crate::crashes::everywhere_in;
use crate::world::{World, equal_names, key, run_with};

/// A cloud without tokens that accepts two load balancers of one name.
const NO_TOKENS: Abilities = Abilities {
    tokens: false,
    ..Abilities::ALL
};

fn no_tokens() -> Settings {
    Settings {
        abilities: &NO_TOKENS,
        ..equal_names()
    }
}

fn without_tokens(case: impl AsyncFnOnce(World)) {
    run_with(no_tokens(), case);
}

/// What a creation makes that arrives after another one: the same tags, and no listeners. The name differs, since the cloud would
/// find the first one by it.
async fn late(world: &World, service: &Service) -> LbId {
    let mut all = world.of(service);
    let about = all.remove(0).about;
    let mut identity = about.tags.clone();
    identity.remove(SERVICE_TAG);
    let create = Create {
        name: "late".to_owned(),
        fixed: about.fixed,
        internet: None,
        instance_charge: None,
        spec: None,
        tags: about.tags,
        identity,
    };
    let created = world.cloud.create(&Token::new("late"), &create).await;
    created.unwrap()
}

async fn until_one_is_left(world: &World, kept: &LbId) {
    let left = async || {
        let all = world.cloud.all();
        let ids: Vec<_> = all.iter().map(|one| one.about.id.clone()).collect();
        (ids == [kept.clone()])
            .then_some(())
            .ok_or(format!("{ids:?}"))
    };
    world
        .cluster
        .eventually("the published one is left", left)
        .await;
}

#[test]
fn a_late_creation_is_deleted_when_its_window_is_over() {
    without_tokens(async |world: World| {
        let running = world.start().await;
        let service = world.service("web", json!({})).await;
        let kept = world.until_served("web", &[80]).await.about.id;
        let second = late(&world, &service).await;
        assert_ne!(second, kept);
        // Long before the next full comparison, which is ten minutes later.
        sleep(world.cloud.visible_within()).await;
        until_one_is_left(&world, &kept).await;
        world.until_served("web", &[80]).await;
        let service = world.get("web").await.unwrap();
        assert_eq!(service.annotations()[NOTE_ANNOTATION], "{}");
        running.end().await;
    });
}

#[test]
fn a_creation_that_is_later_than_its_window_is_deleted_at_the_next_full_comparison() {
    without_tokens(async |world: World| {
        let running = world.start().await;
        let service = world.service("web", json!({})).await;
        let kept = world.until_served("web", &[80]).await.about.id;
        sleep(Duration::from_secs(120)).await;
        late(&world, &service).await;
        sleep(world.settings.drift_period).await;
        until_one_is_left(&world, &kept).await;
        running.end().await;
    });
}

#[test]
fn of_two_load_balancers_without_a_record_the_one_with_the_least_id_stays() {
    without_tokens(async |world: World| {
        let running = world.start().await;
        let service = world.service("web", json!({})).await;
        let first = world.until_served("web", &[80]).await.about.id;
        running.end().await;
        let second = late(&world, &service).await;
        assert!(first < second);
        sleep(Duration::from_secs(60)).await;
        let label = json!({"lb.reeve.dev/loadbalancer-id": null});
        world
            .patch("web", json!({"metadata": {"labels": label}}))
            .await;
        let running = world.start().await;
        until_one_is_left(&world, &first).await;
        world.until_served("web", &[80]).await;
        running.end().await;
    });
}

#[test]
fn a_deletion_waits_for_a_creation_that_may_be_late() {
    without_tokens(async |world: World| {
        let running = world.start().await;
        let service = world.service("web", json!({})).await;
        world.until_served("web", &[80]).await;
        let late = async {
            sleep(Duration::from_secs(1)).await;
            late(&world, &service).await;
        };
        world.delete::<Service>(&key("web")).await;
        late.await;
        world.until_gone("web").await;
        running.end().await;
    });
}

#[test]
fn a_cloud_with_tokens_keeps_two_load_balancers_of_one_service_for_a_person_to_see() {
    run_with(equal_names(), async |world: World| {
        let running = world.start().await;
        let service = world.service("web", json!({})).await;
        world.until_served("web", &[80]).await;
        late(&world, &service).await;
        sleep(world.settings.drift_period * 2).await;
        assert_eq!(world.cloud.all().len(), 2);
        running.end().await;
    });
}

#[test]
fn a_setting_without_effect_is_reported_and_the_service_is_served() {
    const ABILITIES: Abilities = Abilities {
        lacks: &[Lack {
            annotation: "spec",
            reason: "load balancers have no size",
        }],
        ..Abilities::ALL
    };
    let settings = Settings {
        abilities: &ABILITIES,
        ..Settings::default()
    };
    run_with(settings, async |world: World| {
        let running = world.start().await;
        world.service("web", json!({})).await;
        world.until_served("web", &[80]).await;
        world.changes();
        world.annotate("web", json!({"spec": "slb.s3.large"})).await;
        world.until_reason("web", "UnsupportedSetting").await;
        world.until_served("web", &[80]).await;
        assert_eq!(world.changes(), [] as [&str; 0]);
        let events = world.events("web").await;
        let notes: Vec<_> = events.into_iter().filter_map(|event| event.note).collect();
        let text = "lb.reeve.dev/spec: it has no effect: load balancers have no size";
        assert!(notes.iter().any(|note| note == text), "{notes:?}");
        running.end().await;
    });
}

#[test]
fn a_crash_during_a_life_in_a_cloud_without_tokens_leaves_one_load_balancer_and_then_none() {
    let nothing = async |_: &World| {};
    let effects = everywhere_in(no_tokens(), 1, nothing, async |world| {
        world.service("web", json!({})).await;
        world.until_served("web", &[80]).await;
        world.quiet().await;
        world.until_served("web", &[80]).await;
        world.delete::<Service>(&key("web")).await;
        world.until_gone("web").await;
    });
    assert!(effects >= 20, "{effects}");
}
