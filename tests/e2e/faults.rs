//! A gateway that is away, and objects that should not be there.

use serde_json::json;

use crate::world::World;

on_both_servers!(
    a_gateway_that_is_away_is_retried_and_the_reason_is_shown,
    a_dead_gateway_does_not_hang_a_deletion_for_ever_when_released,
    original_bad_objects_end_failed_with_the_reason,
);

async fn a_gateway_that_is_away_is_retried_and_the_reason_is_shown(mut world: World) {
    let _operator = world.operator("ipblock-operator-0").await;
    world.gateway_down().await;
    world
        .create("waiting", json!({"ip": "203.0.113.90", "duration": "1h"}))
        .await;
    world
        .until("the status says what is wrong", async |world| {
            let block = world.block("waiting").await.expect("it is there");
            block["status"]["phase"] == "pending"
                && block["status"]["message"]
                    .as_str()
                    .is_some_and(|message| message.contains("refused"))
        })
        .await;
    world
        .until("one Event says it as well", async |world| {
            world
                .event_reasons("waiting")
                .await
                .iter()
                .any(|reason| reason == "BanFailed")
        })
        .await;
    world.gateway_up().await;
    world.phase("waiting", "active").await;
    world.enforces(&["203.0.113.90"]).await;
}

async fn a_dead_gateway_does_not_hang_a_deletion_for_ever_when_released(mut world: World) {
    let _operator = world.operator("ipblock-operator-0").await;
    world
        .create("held", json!({"ip": "203.0.113.91", "duration": "1h"}))
        .await;
    world.phase("held", "active").await;
    world.gateway_down().await;
    world.delete("held").await;
    let held = world
        .block("held")
        .await
        .expect("the finalizer holds it while the ban may still be there");
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    world
        .patch(
            "held",
            json!({"metadata": {"annotations": {ipblock_operator::api::RELEASE_ANNOTATION: "true"}}}),
        )
        .await;
    world
        .until("the annotation releases it", async |world| {
            world.block("held").await.is_none()
        })
        .await;
}

async fn original_bad_objects_end_failed_with_the_reason(world: World) {
    // Made before the CRD had its checks: put in by taking the checks away for a moment.
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ipblocks.ops.yiiong.top";
    let crd = world.request("GET", path, &serde_json::Value::Null).await;
    let mut open = crd.clone();
    open["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    world.request("PUT", path, &open).await;
    world
        .until("a bad object can be made", async |world| {
            let body = json!({"apiVersion": "ops.yiiong.top/v1", "kind": "IPBlock", "metadata": {"name": "bad"}, "spec": {"ip": "not-an-ip", "duration": "soon"}});
            world.try_request("POST", "/apis/ops.yiiong.top/v1/namespaces/default/ipblocks", &body).await.is_ok()
        })
        .await;
    let _operator = world.operator("ipblock-operator-0").await;
    let failed = world.phase("bad", "failed").await;
    assert!(
        failed["status"]["message"]
            .as_str()
            .is_some_and(|message| message.contains("not-an-ip")),
        "{failed:#}"
    );
    world
        .create("good", json!({"ip": "203.0.113.92", "duration": "1h"}))
        .await;
    world.phase("good", "active").await;
}
