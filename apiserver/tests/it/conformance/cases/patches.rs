//! The four kinds of patches.

use serde_json::{Value, json};

use super::{cases, config_map, widget};
use crate::conformance::case::{APPLY, JSON_PATCH, MERGE, STRATEGIC};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/{ns}/deployments";

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": "a"}}, "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {
            "containers": [
                {"name": "one", "image": "one:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], "ports": [{"containerPort": 80}]},
                {"name": "two", "image": "two:1", "args": ["x", "y"]},
            ],
            "tolerations": [{"key": "t1", "operator": "Exists"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        }},
    }})
}

/// The parts of a Deployment without server defaults.
fn essence(body: &Value) -> Value {
    let pod = &body["spec"]["template"]["spec"];
    let containers: Vec<Value> = pod["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|container| json!({"name": container["name"], "image": container["image"], "env": container["env"], "args": container["args"],
            "ports": container["ports"].as_array().map(|ports| ports.iter().map(|port| port["containerPort"].clone()).collect::<Vec<_>>())}))
        .collect();
    json!({"labels": body["metadata"]["labels"], "finalizers": body["metadata"]["finalizers"],
        "replicas": body["spec"]["replicas"], "containers": containers, "tolerations": pod["tolerations"],
        "volumes": pod["volumes"], "nodeSelector": pod["nodeSelector"], "generation": body["metadata"]["generation"]})
}

/// Applies a strategic patch to a new Deployment and records the result.
async fn strategic(t: &mut crate::conformance::case::Case, patch: Value) {
    t.make(DEPLOYMENTS, deployment("a")).await;
    let path = format!("{DEPLOYMENTS}/a");
    let answer = t.setup_as(STRATEGIC, &path, patch.clone()).await;
    t.note(&format!("after {patch}"), essence(&answer.body));
}

cases! { "patches";
    ["P-1"] "a merge patch sets, adds and removes" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.patch(MERGE, "{cm}/a", json!({"data": {"other": "2"}, "metadata": {"labels": {"x": "y"}}})).await;
        t.patch(MERGE, "{cm}/a", json!({"data": {"key": null}, "metadata": {"labels": null}})).await;
    }
    ["P-1"] "a merge patch replaces lists" => |t| {
        t.make("{w}", widget("a", json!({"tags": ["x", "y"]}))).await;
        t.patch(MERGE, "{w}/a", json!({"spec": {"tags": ["z"]}})).await;
    }
    ["P-1"] "a JSON patch adds, replaces, removes, moves, copies and tests" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.patch(JSON_PATCH, "{cm}/a", json!([
            {"op": "test", "path": "/data/key", "value": "1"},
            {"op": "add", "path": "/data/added", "value": "2"},
            {"op": "replace", "path": "/data/key", "value": "3"},
            {"op": "copy", "from": "/data/key", "path": "/data/copied"},
            {"op": "move", "from": "/data/added", "path": "/data/moved"},
        ])).await;
        t.patch(JSON_PATCH, "{cm}/a", json!([{"op": "remove", "path": "/data/moved"}])).await;
    }
    ["P-1"] "a JSON patch whose test fails changes nothing" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.patch(JSON_PATCH, "{cm}/a", json!([{"op": "replace", "path": "/data/key", "value": "2"}, {"op": "test", "path": "/data/key", "value": "1"}])).await;
        t.get("{cm}/a").await;
    }
    ["P-1"] "a JSON patch with a missing path is unprocessable" => |t| {
        t.make("{w}", widget("a", json!({}))).await;
        t.patch(JSON_PATCH, "{w}/a", json!([{"op": "remove", "path": "/spec/color"}])).await;
        t.patch(JSON_PATCH, "{w}/a", json!([{"op": "add", "path": "/spec/limits/x", "value": 1}])).await;
        t.patch(JSON_PATCH, "{w}/a", json!([{"op": "replace", "path": "/spec/color", "value": "red"}])).await;
        t.patch(JSON_PATCH, "{w}/a", json!([{"op": "leap", "path": "/spec/color", "value": "red"}])).await;
    }
    ["P-1"] "a JSON patch adds to the end of a list and inside it" => |t| {
        t.make("{w}", widget("a", json!({"tags": ["b"]}))).await;
        t.patch(JSON_PATCH, "{w}/a", json!([{"op": "add", "path": "/spec/tags/-", "value": "c"}, {"op": "add", "path": "/spec/tags/0", "value": "a"}])).await;
    }
    ["P-1"] "a JSON patch that is not a list is refused" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.patch(JSON_PATCH, "{cm}/a", json!({"op": "add"})).await;
        t.patch(MERGE, "{cm}/a", json!("nonsense")).await;
        t.patch(MERGE, "{w}/a", json!("[1]")).await;
    }
    ["P-1"] "a patch of another media type is not supported" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.patch("text/plain", "{cm}/a", json!({})).await;
        t.patch("application/json", "{cm}/a", json!({})).await;
    }
    ["P-1"] "a patch with a stale version is a conflict, with the current one it is not" => |t| {
        let first = t.make("{cm}", config_map("a", "1")).await.version();
        let second = t.setup("PATCH", "{cm}/a", json!({"data": {"key": "2"}})).await.version();
        t.patch(MERGE, "{cm}/a", json!({"metadata": {"resourceVersion": first}, "data": {"key": "3"}})).await;
        t.patch(MERGE, "{cm}/a", json!({"metadata": {"resourceVersion": second}, "data": {"key": "3"}})).await;
    }
    ["P-1"] "a patch of an absent object is not found" => |t| {
        t.patch(MERGE, "{cm}/nothing", json!({"data": {}})).await;
        t.patch(MERGE, "{w}/nothing", json!({"spec": {}})).await;
        t.patch(JSON_PATCH, "{w}/nothing", json!([])).await;
    }
    ["P-1"] "a patch cannot change the name, the uid or the kind" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.patch(MERGE, "{cm}/a", json!({"metadata": {"name": "b"}})).await;
        t.patch(MERGE, "{cm}/a", json!({"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}})).await;
        t.patch(MERGE, "{cm}/a", json!({"kind": "ServiceAccount"})).await;
        t.patch(MERGE, "{cm}/a", json!({"metadata": {"namespace": "other"}})).await;
    }
    ["P-1 CRD-5"] "a patch whose result is invalid" => |t| {
        t.make("{w}", widget("a", json!({}))).await;
        t.patch(MERGE, "{w}/a", json!({"spec": {"replicas": -1}})).await;
        t.patch(JSON_PATCH, "{w}/a", json!([{"op": "add", "path": "/spec/size", "value": "huge"}])).await;
    }
    ["P-1"] "a JSON patch of more than 10,000 operations is too large" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        let operations: Vec<Value> = (0..10_001).map(|_| json!({"op": "test", "path": "/data/key", "value": "1"})).collect();
        let answer = t.setup_any("PATCH", "{cm}/a", &[("content-type", JSON_PATCH)], Value::Array(operations)).await;
        t.note("answer", answer.body);
    }
    ["P-2"] "a strategic patch of a custom resource is not supported" => |t| {
        t.make("{w}", widget("a", json!({}))).await;
        t.patch(STRATEGIC, "{w}/a", json!({"spec": {"color": "red"}})).await;
        t.patch(STRATEGIC, "{w}/a/status", json!({"status": {}})).await;
    }
    ["P-2"] "a strategic patch merges containers by name and env by name" => |t| {
        strategic(t, json!({"spec": {"template": {"spec": {"containers": [{"name": "one", "image": "one:2", "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]}]}}}})).await;
    }
    ["P-2"] "a strategic patch adds a container before the others" => |t| {
        strategic(t, json!({"spec": {"template": {"spec": {"containers": [{"name": "three", "image": "three:1"}]}}}})).await;
    }
    ["P-2"] "a strategic patch deletes a list entry by its key" => |t| {
        strategic(t, json!({"spec": {"template": {"spec": {"containers": [{"name": "two", "$patch": "delete"}, {"name": "one", "env": [{"name": "A", "$patch": "delete"}]}]}}}})).await;
    }
    ["P-2"] "a strategic patch replaces a list with the replace directive" => |t| {
        strategic(t, json!({"spec": {"template": {"spec": {"containers": [{"$patch": "replace"}, {"name": "new", "image": "new:1"}]}}}})).await;
    }
    ["P-2"] "a strategic patch replaces a map with the replace directive" => |t| {
        strategic(t, json!({"metadata": {"labels": {"$patch": "replace", "b": "c"}}})).await;
    }
    ["P-2"] "a strategic patch orders a list with the order directive" => |t| {
        strategic(t, json!({"spec": {"template": {"spec": {"$setElementOrder/containers": [{"name": "two"}, {"name": "one"}], "containers": [{"name": "two", "image": "two:2"}]}}}})).await;
    }
    ["P-2"] "a strategic patch replaces lists without a merge key" => |t| {
        strategic(t, json!({"spec": {"template": {"spec": {"tolerations": [{"key": "t2", "operator": "Exists"}]}}}})).await;
        t.make(DEPLOYMENTS, deployment("b")).await;
        let path = format!("{DEPLOYMENTS}/b");
        let answer = t.setup_as(STRATEGIC, &path, json!({"spec": {"template": {"spec": {"containers": [{"name": "two", "args": ["z"]}]}}}})).await;
        t.note("args are replaced", essence(&answer.body));
    }
    ["P-2"] "a strategic patch merges finalizers as a set, and deletes from it" => |t| {
        t.make("{cm}", json!({"metadata": {"name": "a", "finalizers": ["example.com/a", "example.com/b"]}})).await;
        t.patch(STRATEGIC, "{cm}/a", json!({"metadata": {"finalizers": ["example.com/c"]}})).await;
        t.patch(STRATEGIC, "{cm}/a", json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}})).await;
    }
    ["P-2"] "a strategic patch retains only the listed keys" => |t| {
        strategic(t, json!({"spec": {"template": {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}}}})).await;
    }
    ["P-2"] "a strategic patch removes a field by null" => |t| {
        t.make("{cm}", json!({"metadata": {"name": "a", "labels": {"x": "y", "z": "w"}}, "data": {"key": "1"}})).await;
        t.patch(STRATEGIC, "{cm}/a", json!({"metadata": {"labels": {"x": null}}, "data": null})).await;
    }
    ["P-2"] "an unknown directive is refused" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.patch(STRATEGIC, "{cm}/a", json!({"metadata": {"labels": {"$patch": "maybe"}}})).await;
    }
    ["P-2"] "a strategic list entry without its merge key is refused" => |t| {
        t.make(DEPLOYMENTS, deployment("a")).await;
        let path = format!("{DEPLOYMENTS}/a");
        t.patch(STRATEGIC, &path, json!({"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}})).await;
    }
    ["G-1"] "the generation of a Deployment counts changes of its spec" => |t| {
        let made = t.make(DEPLOYMENTS, deployment("a")).await;
        t.note("made", made.body["metadata"]["generation"].clone());
        let path = format!("{DEPLOYMENTS}/a");
        let labelled = t.setup("PATCH", &path, json!({"metadata": {"labels": {"x": "y"}}})).await;
        t.note("labelled", labelled.body["metadata"]["generation"].clone());
        let paused = t.setup("PATCH", &path, json!({"spec": {"paused": true}})).await;
        t.note("paused", paused.body["metadata"]["generation"].clone());
    }
    ["SSA-1"] "an apply creates a missing object, and a second one changes nothing" => |t| {
        t.keep_managed_fields();
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"key": "1"}});
        t.patch(APPLY, "{cm}/a?fieldManager=me", body.clone()).await;
        t.patch(APPLY, "{cm}/a?fieldManager=me", body).await;
    }
    ["SSA-1"] "an apply without a field manager is invalid" => |t| {
        t.patch(APPLY, "{cm}/a", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})).await;
    }
    ["SSA-1"] "a conflicting apply names the other manager, and force overrides it" => |t| {
        let body = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"key": value}});
        t.patch(APPLY, "{cm}/a?fieldManager=me", body("1")).await;
        t.patch(APPLY, "{cm}/a?fieldManager=you", body("2")).await;
        t.patch(APPLY, "{cm}/a?fieldManager=you&force=true", body("2")).await;
    }
    ["SSA-1"] "an apply that empties a map or list with an owner leaves a null, which is invalid" => |t| {
        let body = |spec: Value| json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
        t.patch(APPLY, "{w}/a?fieldManager=me", body(json!({"tags": ["x"], "limits": {"cpu": 1}}))).await;
        t.patch(APPLY, "{w}/a?fieldManager=me", body(json!({"tags": ["x"], "limits": {}}))).await;
        t.patch(APPLY, "{w}/a?fieldManager=me", body(json!({"tags": ["x"]}))).await;
        let status = |status: Value| json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a"}, "status": status});
        t.patch(APPLY, "{w}/a/status?fieldManager=me", status(json!({"replicas": 1}))).await;
        t.patch(APPLY, "{w}/a/status?fieldManager=me", status(json!({}))).await;
        t.patch(MERGE, "{w}/a/status", json!({"status": null})).await;
    }
    ["SSA-1"] "force on another patch is invalid" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.patch(MERGE, "{cm}/a?force=true", json!({})).await;
    }
    ["P-1"] "a merge patch drops nulls within the lists that it sets" => |t| {
        t.make("{w}", widget("a", json!({"free": {"list": [{"x": 1}], "kept": {"y": 1}}}))).await;
        let patch = |free: Value| json!({"spec": {"free": free}});
        t.patch(MERGE, "{w}/a", patch(json!({"list": [{"a": null, "b": 1}, null, [{"c": null}, null, 1]], "fresh": {"d": null, "e": [{"f": null}]}, "kept": [{"g": null, "h": {"i": null}}]}))).await;
        t.patch(MERGE, "{w}/a", patch(json!({"kept": {"j": null, "k": {"l": null}}, "list": null}))).await;
    }
    ["P-1"] "an operation of a JSON patch with an unknown field, or one twice" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        let patch = r#"[{"op": "add", "path": "/data/x", "value": "1", "extra": true}, {"op": "test", "path": "/data/x", "path": "/data/x", "value": "1"}]"#;
        for validation in ["", "?fieldValidation=Ignore", "?fieldValidation=Warn", "?fieldValidation=Strict"] {
            t.send("PATCH", &format!("{{cm}}/a{validation}"), &[("content-type", JSON_PATCH)], json!(patch)).await;
        }
    }
    ["P-1"] "a JSON patch that copies an object into itself again and again" => |t| {
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({"a": deep});
        }
        t.make("{w}", widget("a", json!({"free": {}}))).await;
        let mut operations = vec![json!({"op": "add", "path": "/spec/free/a", "value": deep})];
        let mut depth = 101;
        for _ in 0..7 {
            let leaf = format!("/spec/free{}", "/a".repeat(depth));
            operations.push(json!({"op": "copy", "from": "/spec/free/a", "path": format!("{leaf}/a")}));
            depth *= 2;
        }
        let answer = t.setup_any("PATCH", "{w}/a", &[("content-type", JSON_PATCH)], json!(operations)).await;
        // A busy kube-apiserver may take longer for the copies than a request may.
        let is_refused = answer.code < 500 || (answer.code == 504 && !t.is_built_in());
        t.note("answer", json!([answer.code >= 400, is_refused]));
        t.get("{w}/a").await;
    }
}
