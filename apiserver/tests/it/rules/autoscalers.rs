//! HorizontalPodAutoscalers written through both versions of autoscaling.

use http::Method;
use reeve_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::rules::raw::*;

const V1: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/a";
const V2: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/a";

/// Applies `parts` of the autoscaler.
async fn apply(server: &ApiServer, path: &str, manager: &str, parts: Value) -> Value {
    let version = if path.starts_with(V1) { "v1" } else { "v2" };
    let mut body = parts;
    body["apiVersion"] = json!(format!("autoscaling/{version}"));
    body["kind"] = json!("HorizontalPodAutoscaler");
    body["metadata"] = json!({"name": "a"});
    let path = format!("{path}?fieldManager={manager}&force=true");
    let kind = "application/apply-patch+yaml";
    let body = body.to_string();
    let answer = try_send(server, Method::PATCH, &path, kind, body).await;
    answer.unwrap().expect_ok()
}

fn spec(behavior: Option<Value>) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let mut spec = json!({"maxReplicas": 3, "scaleTargetRef": target});
    if let Some(behavior) = behavior {
        spec["behavior"] = behavior;
    }
    json!({ "spec": spec })
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_changes_only_owners_does_not_convert_the_object() {
    let server = server().await;
    apply(&server, V2, "m1", spec(None)).await;
    let status = format!("{V1}/status");
    let percent = json!({"status": {"currentCPUUtilizationPercentage": 10}});
    apply(&server, &status, "m1", percent.clone()).await;
    let current = async || {
        let found = get(&server, V2).await.expect_ok();
        found["status"]["currentMetrics"][0]["resource"]["current"].clone()
    };
    // Version v1 has no absent average: another write through it would make it zero.
    assert_eq!(current().await, json!({"averageUtilization": 10}));
    let applied = apply(&server, &status, "m2", percent).await;
    assert_eq!(
        applied["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    assert_eq!(current().await, json!({"averageUtilization": 10}));
    let more = json!({"status": {"currentCPUUtilizationPercentage": 10, "currentReplicas": 1}});
    apply(&server, &status, "m2", more).await;
    let expected = json!({"averageUtilization": 10, "averageValue": "0"});
    assert_eq!(current().await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_behaviour_that_its_manager_empties_is_gone_though_another_one_writes_through_v1() {
    let server = server().await;
    let rules = json!({"scaleDown": {"stabilizationWindowSeconds": 60}});
    apply(&server, V2, "m1", spec(Some(rules))).await;
    let replicas = json!({"spec": {"minReplicas": 2}});
    apply(&server, V1, "m2", replicas).await;
    let applied = apply(&server, V2, "m1", spec(Some(json!({})))).await;
    assert_eq!(applied["spec"]["behavior"], Value::Null);
    let seen = get(&server, V1).await.expect_ok();
    assert_eq!(seen["metadata"]["annotations"], Value::Null);
}
