//! Selectors, tables and metadata.

use serde_json::{Value, json};

use super::{cases, config_map, labelled, widget};
use crate::conformance::case::{Case, METADATA, METADATA_LIST, TABLE};

async fn three(t: &Case) {
    t.make("{cm}", labelled("a", json!({"app": "x", "tier": "1"})))
        .await;
    t.make("{cm}", labelled("b", json!({"app": "y", "tier": "3"})))
        .await;
    t.make("{cm}", config_map("c", "1")).await;
}

/// The names of the objects that a label selector selects.
async fn found(t: &mut Case, selector: &str) {
    let path = format!("{{cm}}?labelSelector={}", encoded(selector));
    let answer = t.setup("GET", &path, Value::Null).await;
    let items = answer.body["items"].as_array().cloned().unwrap_or_default();
    let names: Vec<&Value> = items.iter().map(|item| &item["metadata"]["name"]).collect();
    t.note(selector, json!(names));
}

fn encoded(selector: &str) -> String {
    selector
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect()
}

cases! { "select";
    ["SEL-1"] "label selectors of every form" => |t| {
        three(t).await;
        for selector in [
            "app=x", "app==x", "app!=x", "app in (x,y)", "app in (x)", "app notin (x)", "app", "!app", "tier>1", "tier<3", "app=x,tier=1", "app=x,tier=2",
            "app in (x, z),!other", "app=", "app in ()", "", " app = x ",
        ] {
            found(t, selector).await;
        }
    }
    ["SEL-1"] "label selectors with wrong syntax" => |t| {
        for selector in ["app=x y", "app in x", "(", "app,,tier", "=x", "app=-x-", "tier>x", "a/b/c=d", "app=x,"] {
            t.get(&format!("{{cm}}?labelSelector={}", encoded(selector))).await;
        }
    }
    ["SEL-2"] "field selectors on name and namespace" => |t| {
        three(t).await;
        t.get("{cm}?fieldSelector=metadata.name%3Db").await;
        t.get("{cm}?fieldSelector=metadata.name!%3Db").await;
        t.get("{cm}?fieldSelector=metadata.name%3D%3Da,metadata.namespace%3D{ns}").await;
        t.get("{cm}?fieldSelector=metadata.name%3Da,metadata.name%3Db").await;
    }
    ["SEL-2"] "field selectors on other fields are refused" => |t| {
        t.get("{cm}?fieldSelector=data.key%3D1").await;
        t.get("{w}?fieldSelector=spec.size%3Dbig").await;
        t.get("{cm}?fieldSelector=metadata.name").await;
        t.get("{cm}?fieldSelector=metadata.uid%3D1").await;
    }
    ["SEL-2"] "selectable fields of a custom resource" => |t| {
        t.make("{w}", widget("a", json!({"color": "red", "replicas": 3}))).await;
        t.make("{w}", widget("b", json!({"color": "blue"}))).await;
        t.make("{w}", widget("c", json!({}))).await;
        t.get("{w}?fieldSelector=spec.color%3Dred").await;
        t.get("{w}?fieldSelector=spec.color%3D").await;
        t.get("{w}?fieldSelector=spec.color!%3Dred,spec.replicas%3D1").await;
    }
    ["SEL-2"] "field selectors of Secrets, Events and Namespaces" => |t| {
        t.make("/api/v1/namespaces/{ns}/secrets", json!({"metadata": {"name": "a"}, "type": "example.com/x"})).await;
        t.make("/api/v1/namespaces/{ns}/secrets", json!({"metadata": {"name": "b"}})).await;
        t.get("/api/v1/namespaces/{ns}/secrets?fieldSelector=type%3DOpaque").await;
        t.make("/api/v1/namespaces/{ns}/events", json!({"metadata": {"name": "e"}, "reason": "Did", "type": "Normal", "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": "{ns}"}})).await;
        for selector in ["involvedObject.name%3Da,involvedObject.kind%3DConfigMap", "reason%3DDid,type%3DNormal", "involvedObject.name%3Db", "reason!%3DDid"] {
            let answer = t.setup("GET", &format!("/api/v1/namespaces/{{ns}}/events?fieldSelector={selector}"), Value::Null).await;
            t.note(selector, json!(answer.body["items"].as_array().map(Vec::len)));
        }
        t.get("/api/v1/namespaces?fieldSelector=status.phase%3DActive,metadata.name%3D{ns}").await;
    }
    ["SEL-1 SEL-2"] "both selectors at once" => |t| {
        three(t).await;
        t.get("{cm}?labelSelector=app&fieldSelector=metadata.name%3Db").await;
    }
    ["T-1"] "a table of custom resources with their columns" => |t| {
        t.make("{w}", widget("a", json!({"color": "red", "replicas": 3, "flag": true, "tags": ["x", "y"]}))).await;
        t.setup("PATCH", "{w}/a/status", json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]}})).await;
        t.make("{w}", widget("b", json!({}))).await;
        let answer = t.send_unwritten("GET", "{w}", &[("accept", TABLE)]).await;
        t.note("table", answer.body);
    }
    ["T-1"] "a table without its own columns has the age" => |t| {
        t.make("{g}", super::gadget(json!({}))).await;
        let answer = t.send_unwritten("GET", "{g}/{me}", &[("accept", TABLE)]).await;
        t.note("table", answer.body);
        t.setup("DELETE", "{g}/{me}", Value::Null).await;
    }
    ["T-1"] "a table of ConfigMaps, and of one" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        let answer = t.send_unwritten("GET", "{cm}", &[("accept", TABLE)]).await;
        t.note("table", answer.body);
        let answer = t.send_unwritten("GET", "{cm}/a", &[("accept", TABLE)]).await;
        t.note("table", answer.body);
    }
    ["T-1"] "a table whose rows have the object, or nothing" => |t| {
        t.make("{w}", widget("a", json!({"color": "red"}))).await;
        for include in ["Object", "None", "Metadata", "Everything"] {
            let answer = t.send_unwritten("GET", &format!("{{w}}?includeObject={include}"), &[("accept", TABLE)]).await;
            t.note(include, if answer.code == 200 { answer.body["rows"][0]["object"].clone() } else { answer.body });
        }
    }
    ["T-1"] "tables of the other built-in kinds have these columns" => |t| {
        for path in [
            "/api/v1/namespaces/{ns}/secrets", "/api/v1/namespaces/{ns}/services", "/api/v1/namespaces/{ns}/serviceaccounts", "/api/v1/namespaces/{ns}/pods",
            "/api/v1/namespaces/{ns}/events", "/api/v1/namespaces?fieldSelector=metadata.name%3Dnone", "/apis/apps/v1/namespaces/{ns}/deployments",
            "/apis/apps/v1/namespaces/{ns}/replicasets", "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses", "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        ] {
            let answer = t.send_unwritten("GET", path, &[("accept", TABLE)]).await;
            let columns = answer.body["columnDefinitions"].as_array().cloned().unwrap_or_default();
            let shown: Vec<Value> = columns.iter().map(|one| json!([one["name"], one["type"], one["format"], one["priority"]])).collect();
            t.note(path, json!(shown));
        }
    }
    ["T-1"] "only metadata, of an object and of a list" => |t| {
        t.make("{w}", widget("a", json!({"color": "red"}))).await;
        t.get_as(METADATA, "{w}/a").await;
        t.get_as(METADATA_LIST, "{w}").await;
        t.make("{cm}", config_map("a", "1")).await;
        t.get_as(METADATA, "{cm}/a").await;
        t.get_as(METADATA_LIST, "{cm}").await;
    }
    ["T-1"] "only metadata, as the answer to a write" => |t| {
        t.send("POST", "{cm}", &[("accept", METADATA)], config_map("a", "1")).await;
        t.send("PATCH", "{cm}/a", &[("accept", METADATA), ("content-type", crate::conformance::case::MERGE)], json!({"data": {"key": "2"}})).await;
    }
    ["T-1"] "an Accept header that cannot be served" => |t| {
        t.get_as("text/html", "{cm}").await;
        t.get_as("application/json;as=Chair;v=v1;g=meta.k8s.io", "{cm}").await;
        t.get_as("application/json;as=Table;v=v7;g=meta.k8s.io", "{w}").await;
        t.get_as("application/cbor-seq", "{w}").await;
    }
    ["T-1"] "an Accept header for any type, or with a preference, gets JSON" => |t| {
        t.make("{w}", widget("a", json!({}))).await;
        t.get_as("*/*", "{w}/a").await;
        t.get_as("text/html, application/*;q=0.5", "{w}/a").await;
    }
    ["T-1"] "YAML on request" => |t| {
        t.make("{w}", widget("a", json!({"color": "red"}))).await;
        let answer = t.send_raw("GET", "{w}/a", &[("accept", "application/yaml")]).await;
        t.note("begins", json!(answer.lines().take(1).collect::<Vec<_>>()));
    }
}
