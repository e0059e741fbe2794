//! Server-side apply: subresources, what is reset, owners that the server adds and merges, the change from client-side
//! apply, and the checks of a patch.

use serde_json::{Value, json};

use super::{cases, config_map, widget};
use crate::conformance::case::{APPLY, JSON_PATCH, MERGE};

const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A ConfigMap to apply.
fn data(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn ingress(fields: Value) -> Value {
    let mut body =
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "a"}});
    for (name, value) in fields.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

fn status(status: Value) -> Value {
    json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a"}, "status": status})
}

fn scale(version: &str, replicas: u64) -> Value {
    json!({"apiVersion": version, "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": replicas}})
}

/// A ConfigMap as client-side apply sends it.
fn with_annotation(applied: &Value) -> Value {
    let mut body = applied.clone();
    body["metadata"]["annotations"] = json!({LAST_APPLIED: applied.to_string()});
    body
}

cases! { "ownership";
    ["SSA-2 S-1"] "an apply of the status owns the status, and changes nothing else" => |t| {
        t.keep_managed_fields();
        t.make("{w}?fieldManager=maker", widget("a", json!({"color": "red"}))).await;
        let mut body = status(json!({"phase": "Up", "conditions": [{"type": "Ready", "status": "True"}]}));
        body["metadata"]["labels"] = json!({"x": "y"});
        body["spec"] = json!({"color": "blue"});
        t.patch(APPLY, "{w}/a/status?fieldManager=one", body).await;
        t.patch(APPLY, "{w}/a/status?fieldManager=two", status(json!({"phase": "Down"}))).await;
        t.patch(APPLY, "{w}/a/status?fieldManager=two&force=true", status(json!({"phase": "Down"}))).await;
        t.patch(APPLY, "{w}/a/status?fieldManager=two", status(json!({"replicas": 1}))).await;
    }
    ["SSA-2 S-1"] "an apply of the status of an absent object is not found" => |t| {
        t.patch(APPLY, "{w}/nothing/status?fieldManager=one", status(json!({"phase": "Up"}))).await;
        t.patch(APPLY, &format!("{INGRESSES}/a/status?fieldManager=one"), ingress(json!({"status": {}}))).await;
    }
    ["SSA-2"] "an apply of the object resets the status, and does not own it" => |t| {
        t.keep_managed_fields();
        let mut body = widget("a", json!({"color": "red"}));
        body["status"] = json!({"phase": "Up"});
        t.patch(APPLY, "{w}/a?fieldManager=one", body).await;
        t.patch(APPLY, "{w}/a/status?fieldManager=one", status(json!({"phase": "Down"}))).await;
        t.put("{w}/a/status?fieldManager=two", {
            let mut body = t.setup("GET", "{w}/a", Value::Null).await.body;
            body["spec"]["color"] = "blue".into();
            body["status"]["phase"] = "Away".into();
            body["metadata"]["labels"] = json!({"x": "y"});
            body
        }).await;
    }
    ["SSA-2"] "an apply of a built-in object and of its status reset each other's fields" => |t| {
        t.keep_managed_fields();
        let class = |name: &str| json!({"ingressClassName": name, "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}});
        let address = |ip: &str| json!({"loadBalancer": {"ingress": [{"ip": ip}]}});
        t.patch(APPLY, &format!("{INGRESSES}/a?fieldManager=one"), ingress(json!({"spec": class("x"), "status": address("10.0.0.1")}))).await;
        t.patch(APPLY, &format!("{INGRESSES}/a/status?fieldManager=one"), ingress(json!({"spec": class("y"), "status": address("10.0.0.2")}))).await;
        t.patch(MERGE, &format!("{INGRESSES}/a/status?fieldManager=two"), json!({"spec": class("z"), "status": address("10.0.0.3")})).await;
        t.patch(MERGE, &format!("{INGRESSES}/a?fieldManager=three"), json!({"spec": class("z"), "status": address("10.0.0.4")})).await;
        t.patch(APPLY, &format!("{INGRESSES}/a/status?fieldManager=one"), ingress(json!({"status": address("10.0.0.2")}))).await;
    }
    ["SSA-2 SC-1"] "an apply of the scale owns the replicas of the object" => |t| {
        t.keep_managed_fields();
        t.patch(APPLY, "{w}/a?fieldManager=one", widget("a", json!({"replicas": 1, "color": "red"}))).await;
        t.patch(APPLY, "{w}/a/scale?fieldManager=two", scale("autoscaling/v1", 2)).await;
        t.patch(APPLY, "{w}/a/scale?fieldManager=two&force=true", scale("autoscaling/v1", 2)).await;
        t.get("{w}/a").await;
        t.patch(APPLY, "{w}/a?fieldManager=one", widget("a", json!({"replicas": 1, "color": "red"}))).await;
        t.patch(APPLY, "{w}/a?fieldManager=one", widget("a", json!({"color": "red"}))).await;
        t.patch(APPLY, "{w}/a/scale?fieldManager=two", json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}})).await;
        t.patch(MERGE, "{w}/a/scale?fieldManager=three", json!({"spec": {"replicas": 4}})).await;
        t.get("{w}/a").await;
    }
    ["SSA-2 SC-1"] "an apply of the scale of an absent object, and one of another version" => |t| {
        t.patch(APPLY, "{w}/nothing/scale?fieldManager=two", scale("autoscaling/v1", 2)).await;
        t.make("{w}", widget("a", json!({}))).await;
        t.patch(APPLY, "{w}/a/scale?fieldManager=two", scale("autoscaling/v2", 2)).await;
        t.patch(APPLY, "{w}/a/scale?fieldManager=two", widget("a", json!({}))).await;
        t.patch(APPLY, "{w}/a/scale", scale("autoscaling/v1", 2)).await;
    }
    ["SSA-3"] "the fields of an object without owners belong to before-first-apply" => |t| {
        t.keep_managed_fields();
        t.make("{cm}?fieldManager=maker", config_map("a", "1")).await;
        t.patch(MERGE, "{cm}/a", json!({"metadata": {"managedFields": [{}]}})).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", data(json!({"key": "2"}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", data(json!({"key": "1", "more": "1"}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", data(json!({"more": "1"}))).await;
        t.make("{w}?fieldManager=maker", widget("a", json!({"color": "red"}))).await;
        t.patch(JSON_PATCH, "{w}/a", json!([{"op": "replace", "path": "/metadata/managedFields", "value": []}])).await;
        t.patch(MERGE, "{w}/a?fieldManager=two", json!({"spec": {"color": "blue"}})).await;
        t.patch(APPLY, "{w}/a/status?fieldManager=one", status(json!({"phase": "Up"}))).await;
    }
    ["SSA-3"] "more than ten managers that update are merged into ancient-changes" => |t| {
        t.keep_managed_fields();
        t.make("{cm}?fieldManager=u00", config_map("a", "1")).await;
        for updater in 1..=9 {
            t.setup("PATCH", &format!("{{cm}}/a?fieldManager=u{updater:02}"), json!({"data": {format!("k{updater}"): "1"}})).await;
        }
        t.patch(MERGE, "{cm}/a?fieldManager=u10", json!({"data": {"k10": "1"}})).await;
        t.patch(MERGE, "{cm}/a?fieldManager=u11", json!({"data": {"k11": "1"}})).await;
        t.patch(MERGE, "{cm}/a?fieldManager=u11", json!({"data": {"k1": null}})).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", data(json!({"k2": "2"}))).await;
    }
    ["SSA-3"] "an apply of kubectl takes over what client-side apply wrote" => |t| {
        t.keep_managed_fields();
        t.make("{cm}?fieldManager=kubectl-client-side-apply", with_annotation(&data(json!({"a": "1", "b": "1"})))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=other", data(json!({"a": "2"}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=kubectl", data(json!({"a": "2"}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=kubectl", data(json!({"a": "3", "c": "1"}))).await;
    }
    ["SSA-3"] "an apply of kubectl conflicts with what others changed since client-side apply" => |t| {
        t.keep_managed_fields();
        t.make("{cm}?fieldManager=kubectl-client-side-apply", with_annotation(&data(json!({"a": "1", "b": "1"})))).await;
        t.setup("PATCH", "{cm}/a?fieldManager=other", json!({"data": {"b": "2"}})).await;
        t.patch(APPLY, "{cm}/a?fieldManager=kubectl", data(json!({"a": "2", "b": "3"}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=kubectl&force=true", data(json!({"a": "2", "b": "3"}))).await;
    }
    ["SSA-3"] "an annotation of client-side apply that cannot be read takes nothing over" => |t| {
        let mut body = data(json!({"a": "1"}));
        body["metadata"]["annotations"] = json!({LAST_APPLIED: "nonsense"});
        t.make("{cm}?fieldManager=kubectl-client-side-apply", body).await;
        t.patch(APPLY, "{cm}/a?fieldManager=kubectl", data(json!({"a": "2"}))).await;
        t.setup("PATCH", "{cm}/a", json!({"metadata": {"annotations": {LAST_APPLIED: "{\"apiVersion\":\"v2\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"},\"data\":{\"a\":\"1\"}}"}}})).await;
        t.patch(APPLY, "{cm}/a?fieldManager=kubectl", data(json!({"a": "2"}))).await;
    }
    ["SSA-4"] "an apply with managedFields is refused" => |t| {
        let entry = json!({"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}});
        for fields in [json!([entry]), json!([{}]), json!([]), Value::Null] {
            let mut body = data(json!({"a": "1"}));
            body["metadata"]["managedFields"] = fields;
            t.patch(APPLY, "{cm}/a?fieldManager=one", body).await;
        }
    }
    ["SSA-4"] "an apply of another version, kind, name or namespace is refused" => |t| {
        let with = |path: &str, value: Value| {
            let mut body = data(json!({"a": "1"}));
            *body.pointer_mut(path).unwrap() = value;
            body
        };
        t.patch(APPLY, "{cm}/a?fieldManager=one", with("/apiVersion", json!("v2"))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", with("/apiVersion", json!("apps/v1"))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", with("/kind", json!("Secret"))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", with("/metadata/name", json!("b"))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", with("/metadata", json!({"name": "a", "namespace": "other"}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", json!({"kind": "ConfigMap"})).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", json!({"apiVersion": "v1"})).await;
        t.patch(APPLY, "{w}/a?fieldManager=one", json!({"apiVersion": "{group}/v2", "kind": "Widget", "metadata": {"name": "a"}})).await;
        t.patch(APPLY, "{w}/a?fieldManager=one", json!({"apiVersion": "{group}/v1", "kind": "Gadget", "metadata": {"name": "a"}})).await;
    }
    ["SSA-4"] "an apply with a uid or a version of an object that does not exist, or has others" => |t| {
        let with = |field: &str, value: &str| {
            let mut body = data(json!({"a": "1"}));
            body["metadata"][field] = value.into();
            body
        };
        let uid = "11111111-2222-3333-4444-555555555555";
        t.patch(APPLY, "{cm}/a?fieldManager=one", with("uid", uid)).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", with("resourceVersion", "1")).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", data(json!({"a": "1"}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", with("uid", uid)).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", with("resourceVersion", "1")).await;
    }
    ["SSA-4"] "an apply that does not fit the type is refused" => |t| {
        t.patch(APPLY, "{cm}/a?fieldManager=one", data(json!([1]))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", data(json!({"a": {"b": 1}}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "extra": 1})).await;
        t.patch(APPLY, "{w}/a?fieldManager=one", widget("a", json!({"tags": ["x", "x"]}))).await;
        t.patch(APPLY, "{w}/a?fieldManager=one", widget("a", json!({"ports": [{"number": 1}]}))).await;
        t.patch(APPLY, "{w}/a?fieldManager=one", widget("a", json!({"ports": [{"name": "x"}, {"name": "x"}]}))).await;
        t.patch(APPLY, "{w}/a?fieldManager=one", json!("[1]")).await;
        t.patch(APPLY, "{w}/a?fieldManager=one", widget("a", json!({"unknown": 1}))).await;
    }
    ["SSA-4"] "a field manager that is too long or has unprintable characters is invalid" => |t| {
        let long = "m".repeat(129);
        t.patch(APPLY, &format!("{{cm}}/a?fieldManager={long}"), data(json!({"a": "1"}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=%07", data(json!({"a": "1"}))).await;
        t.make("{cm}", config_map("a", "1")).await;
        t.patch(MERGE, &format!("{{cm}}/a?fieldManager={long}"), json!({})).await;
    }
    ["SSA-1 DR-1"] "a dry run of an apply shows the result and stores nothing" => |t| {
        t.keep_managed_fields();
        t.patch(APPLY, "{cm}/a?fieldManager=one&dryRun=All", data(json!({"a": "1"}))).await;
        t.get("{cm}/a").await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", data(json!({"a": "1"}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=two&dryRun=All", data(json!({"a": "2"}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=two&dryRun=All&force=true", data(json!({"a": "2"}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one&dryRun=All", data(json!({}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one&dryRun=Some", data(json!({}))).await;
        t.get("{cm}/a").await;
    }
    ["SSA-1 MF-1"] "an apply of equal fields shares them, and each removes only its own" => |t| {
        t.keep_managed_fields();
        t.patch(APPLY, "{cm}/a?fieldManager=one", data(json!({"a": "1", "b": "1"}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=two", data(json!({"a": "1", "c": "1"}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", data(json!({"b": "1"}))).await;
        t.patch(APPLY, "{cm}/a?fieldManager=two", data(json!({}))).await;
        t.patch(MERGE, "{cm}/a?fieldManager=two", json!({"data": {"b": "2"}})).await;
        t.patch(APPLY, "{cm}/a?fieldManager=one", data(json!({"b": "1"}))).await;
    }
}
