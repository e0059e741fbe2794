//! Valid objects at the edge of a rule, and objects that grow.

use serde_json::{Value, json};

use crate::rules::raw::*;

const VOLUMES: &str = "/api/v1/persistentvolumes";

#[tokio::test(start_paused = true)]
async fn objects_at_the_edge_of_a_rule_are_accepted() {
    let server = server().await;
    let limits = json!({"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "300m"}, "maxLimitRequestRatio": {"cpu": "3"}});
    let slice = json!({"metadata": {"name": "s"}, "addressType": "FQDN", "endpoints": [{"addresses": ["example.com."]}]});
    let webhook = json!({
        "name": "w.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://example.com"},
        "matchConditions": [{"name": "c", "expression": "object.metadata.?labels['a'].orValue('') == 'b'"}],
    });
    for (path, object) in [
        (
            "/api/v1/namespaces/default/limitranges",
            json!({"metadata": {"name": "l"}, "spec": {"limits": [limits]}}),
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            slice,
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            json!({"metadata": {"name": "w"}, "webhooks": [webhook]}),
        ),
    ] {
        post(&server, path, &object).await.expect_ok();
    }
}

#[tokio::test(start_paused = true)]
async fn the_ports_of_the_host_are_defaults_of_pods_and_not_of_their_templates() {
    let server = server().await;
    let container =
        |name: &str| json!({"name": name, "image": "i", "ports": [{"containerPort": 8080}]});
    let spec = json!({"hostNetwork": true, "containers": [container("a"), container("b")]});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec},
    }});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let made = post(&server, path, &deployment).await.expect_ok();
    let port = &made["spec"]["template"]["spec"]["containers"][0]["ports"][0];
    assert_eq!(port["hostPort"], Value::Null);
    let initial =
        json!({"name": "i", "image": "i", "ports": [{"containerPort": 80, "hostPort": 8081}]});
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "hostNetwork": true, "containers": [container("a")], "initContainers": [initial],
    }});
    let path = "/api/v1/namespaces/default/pods";
    let made = post(&server, path, &pod).await.expect_ok();
    assert_eq!(made["spec"]["containers"][0]["ports"][0]["hostPort"], 8080);
}

#[tokio::test(start_paused = true)]
async fn the_secret_for_expansions_of_a_volume_can_be_set_once() {
    let server = server().await;
    let volume = json!({"metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "d.example.com", "volumeHandle": "h"},
    }});
    post(&server, VOLUMES, &volume).await.expect_ok();
    let secret = |name: &str| json!({"spec": {"csi": {"controllerExpandSecretRef": {"name": name, "namespace": "default"}}}});
    let path = format!("{VOLUMES}/v");
    merge(&server, &path, &secret("a")).await.expect_ok();
    assert_eq!(merge(&server, &path, &secret("b")).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_many_keys_is_checked_in_one_pass() {
    let server = server().await;
    let spread: Vec<Value> = (0..40_000)
        .map(|n| json!({"maxSkew": 1, "topologyKey": format!("k{n}"), "whenUnsatisfiable": "DoNotSchedule"}))
        .collect();
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "i"}], "topologySpreadConstraints": spread,
    }});
    // A check of each pair would not end within the time of a test.
    post(&server, "/api/v1/namespaces/default/pods", &pod).await;
    let ports: Vec<Value> = (0..20_001)
        .map(|n| json!({"name": format!("p{n}"), "port": 1}))
        .collect();
    let slice =
        json!({"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [], "ports": ports});
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let refused = post(&server, path, &slice).await;
    assert_eq!(refused.code, 422);
    assert!(
        refused.message().contains("must have at most 20000 items"),
        "{}",
        refused.message()
    );
}
