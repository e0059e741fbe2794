//! Writes that fail.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::networking::v1::Ingress;
use kube_core::params::DeleteParams;
use reeve_apiserver::faults::Rule;
use reeve_controller::client;
use reeve_informer::ObjectKey;
use serde_json::json;
use tokio::time::sleep;

use crate::behaviour::world::World;

fn creates() -> Rule {
    Rule::new().verb("create").resource("ingresses")
}

async fn a_refused_write_ends_after_its_retries_and_is_tried_again_at_the_next_change(
    world: World,
) {
    let program = world.start().await;
    let refused = world
        .server
        .faults()
        .add(creates().status(403, "the quota is used up"));
    world.service("web", Some("on")).await;
    world.until_event("web", "SyncFailed").await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(
        refused.hits(),
        1 + 1 + 8,
        "as the original: one attempt, and more while it counts up to 8 retries"
    );
    refused.remove();
    world.annotate("web", Some("again")).await;
    world.until_ingress("web").await;
    program.end().await;
}

async fn an_invalid_write_causes_an_event_and_is_not_tried_again(world: World) {
    let program = world.start().await;
    let refused = world
        .server
        .faults()
        .add(creates().status(422, "spec.rules[0].host: invalid"));
    world.service("web", Some("on")).await;
    world.until_event("web", "InvalidIngress").await;
    world.quiet().await;
    assert_eq!(refused.hits(), 1);
    program.end().await;
}

async fn a_denial_of_a_webhook_is_tried_again(world: World) {
    let program = world.start().await;
    let why = "admission webhook \"validate.nginx.ingress.kubernetes.io\" denied the request: host and path are already defined";
    let denied = world
        .server
        .faults()
        .add(creates().times(3).status(400, why));
    world.service("web", Some("on")).await;
    world.until_ingress("web").await;
    assert_eq!(denied.hits(), 3);
    program.end().await;
}

async fn an_outage_that_is_longer_than_all_retries_loses_nothing(world: World) {
    for rule in [
        creates().status(503, "later"),
        creates().status(429, "slow down"),
        creates().reset(),
    ] {
        let world = World::new(world.form).await;
        let program = world.start().await;
        let away = world.server.faults().add(rule);
        world.service("web", Some("on")).await;
        sleep(Duration::from_secs(600)).await;
        assert!(away.hits() > 10, "{}", away.hits());
        away.remove();
        // One refusal after the outage does not end the retries.
        let refused = world
            .server
            .faults()
            .add(creates().times(1).status(403, "not yet"));
        // There is no event: only the back-off starts the next attempt.
        sleep(Duration::from_secs(1000)).await;
        assert_eq!(refused.hits(), 1);
        assert!(world.ingress("web").await.is_some());
        assert_eq!(world.event_reasons("web").await, ["IngressCreated"]);
        program.end().await;
    }
}

async fn a_create_whose_answer_is_lost_is_recognised(world: World) {
    let program = world.start().await;
    let lost = world.server.faults().add(creates().times(1).lose_answer());
    world.service("web", Some("on")).await;
    world.until_ingress("web").await;
    world.quiet().await;
    assert_eq!(lost.hits(), 1);
    let reasons = world.event_reasons("web").await;
    assert!(
        !reasons.contains(&"IngressConflict".to_owned()),
        "{reasons:?}"
    );
    world.annotate("web", None).await;
    world.until_no_ingress("web").await;
    program.end().await;
}

async fn a_terminating_namespace_gets_no_repeated_creations(world: World) {
    let program = world.start().await;
    let _: Namespace = world.create(json!({"metadata": {"name": "shop"}})).await;
    let service = json!({
        "metadata": {"namespace": "shop", "name": "web", "annotations": {"ingress/http": "on"}},
        "spec": {"ports": [{"port": 80}]},
    });
    let _: Service = world.create(service).await;
    let key = ObjectKey::namespaced("shop", "web");
    let ingress = async || client::optional(world.client.get::<Ingress>(&key).await).unwrap();
    world
        .until("there is an Ingress", async |_| ingress().await.is_some())
        .await;
    // The Service outlives its Ingress, and requests a new one in a namespace that refuses new objects.
    let held = serde_json::json!({"metadata": {"finalizers": ["example.com/held"]}});
    let patch = kube_core::params::Patch::Merge(held);
    world.client.patch::<Service>(&key, &patch).await.unwrap();
    world
        .client
        .delete::<Namespace>(&ObjectKey::cluster("shop"), &DeleteParams::default())
        .await
        .unwrap();
    world
        .until("there is no Ingress", async |_| ingress().await.is_none())
        .await;
    world.quiet().await;
    assert!(ingress().await.is_none());
    let refused = |request: &reeve_apiserver::record::RequestRecord| {
        request.verb == "create" && request.code == 403
    };
    let refused = world.requests().into_iter().filter(refused).count();
    assert!(
        refused <= 1,
        "{refused} creations in a terminating namespace"
    );
    program.end().await;
}

on_both_forms!(
    a_refused_write_ends_after_its_retries_and_is_tried_again_at_the_next_change,
    an_invalid_write_causes_an_event_and_is_not_tried_again,
    a_denial_of_a_webhook_is_tried_again,
    an_outage_that_is_longer_than_all_retries_loses_nothing,
    a_create_whose_answer_is_lost_is_recognised,
    a_terminating_namespace_gets_no_repeated_creations,
);
