//! Connections to Pods, Services and nodes: their routes, what admission is asked, and why they fail without a node.

use serde_json::{Value, json};

use super::cases;
use super::webhooks::{MUTATING, VALIDATING, configure, record, with};
use crate::conformance::case::Case;
use crate::conformance::webhook::{Webhook, allow, deny, patch};

const PODS: &str = "/api/v1/namespaces/{ns}/pods";
const SERVICES: &str = "/api/v1/namespaces/{ns}/services";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Creates a Pod with these containers.
async fn pod(t: &Case, name: &str, containers: &[&str]) {
    let account = "/api/v1/namespaces/{ns}/serviceaccounts/default";
    t.until(account, |answer| answer.code == 200).await;
    let containers: Vec<Value> = containers
        .iter()
        .map(|name| json!({"name": name, "image": "i"}))
        .collect();
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": containers, "automountServiceAccountToken": false}});
    t.setup("POST", PODS, pod).await;
}

/// Binds a Pod to a node.
async fn bind(t: &Case, pod: &str, node: &str) {
    let binding = json!({"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}});
    t.setup("POST", &format!("{PODS}/{pod}/binding"), binding)
        .await;
}

/// A rule for connections.
fn connections(resources: &[&str]) -> Value {
    json!({"rules": [{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}]})
}

cases! { "connections";
    ["CON-1"] "a stream needs a Pod, one of its containers and a node" => |t| {
        pod(t, "a", &["c"]).await;
        pod(t, "b", &["c", "d"]).await;
        for path in ["a/exec?command=sh", "a/exec?container=x", "a/attach", "a/portforward?ports=80", "a/portforward?ports=x", "a/portforward?ports=70000",
            "a/portforward?ports=-1", "a/exec?dryRun=All", "a/exec?dryRun=", "absent/exec", "absent/portforward", "b/exec", "b/attach?container=d", "b/portforward"] {
            t.post(&format!("{PODS}/{path}"), Value::Null).await;
        }
        t.get(&format!("{PODS}/a/exec?command=sh&stdin=true")).await;
    }
    ["CON-1"] "a stream takes GET and POST, at its own path" => |t| {
        for method in ["PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] {
            t.send(method, &format!("{PODS}/a/exec"), &[], Value::Null).await;
        }
        for path in ["{ns}/pods/a/exec/more", "{ns}/pods/a/attach/", "{ns}/pods/a/nothing", "{ns}/configmaps/a/exec", "{ns}/pods/exec"] {
            t.post(&format!("/api/v1/namespaces/{path}"), Value::Null).await;
        }
        t.get("/api/v1/pods/a/exec").await;
        t.send("POST", &format!("{PODS}/a/exec"), &[("accept", "image/png")], Value::Null).await;
    }
    ["CON-1"] "a stream to a Pod on a node is an upgrade" => |t| {
        pod(t, "a", &["c"]).await;
        bind(t, "a", "{me}-absent").await;
        t.post(&format!("{PODS}/a/exec"), Value::Null).await;
        t.post(&format!("{PODS}/a/portforward"), Value::Null).await;
        t.setup("POST", "/api/v1/nodes", json!({"metadata": {"name": "{me}"}})).await;
        pod(t, "b", &["c"]).await;
        bind(t, "b", "{me}").await;
        t.post(&format!("{PODS}/b/exec"), Value::Null).await;
        let addresses = json!({"status": {"addresses": [{"type": "Other", "address": "x"}]}});
        t.setup("PATCH", "/api/v1/nodes/{me}/status", addresses).await;
        t.post(&format!("{PODS}/b/exec"), Value::Null).await;
        t.get("/api/v1/nodes/{me}/proxy/").await;
        let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}});
        t.setup("PATCH", "/api/v1/nodes/{me}/status", addresses).await;
        t.post(&format!("{PODS}/b/exec"), Value::Null).await;
        t.get(&format!("{PODS}/b/attach")).await;
        t.get("/api/v1/nodes/{me}/proxy/").await;
        t.get("/api/v1/nodes/{me}:10250/proxy").await;
        t.setup("DELETE", "/api/v1/nodes/{me}", Value::Null).await;
    }
    ["CON-2"] "a proxy needs a target with an address" => |t| {
        pod(t, "a", &["c"]).await;
        for path in ["a/proxy", "a:80/proxy/x", "http:a:80/proxy", "ftp:a:80/proxy", ":80/proxy", "a:b:c:d/proxy", "absent/proxy", "a/proxy?dryRun=All", "a/proxy/?path=x"] {
            t.get(&format!("{PODS}/{path}")).await;
        }
        let local = json!({"status": {"podIPs": [{"ip": "127.0.0.1"}], "podIP": "127.0.0.1"}});
        t.setup("PATCH", &format!("{PODS}/a/status"), local).await;
        t.get(&format!("{PODS}/a/proxy/")).await;
        t.get("/api/v1/nodes/absent/proxy/healthz").await;
        t.get("/api/v1/nodes/a:b:c:d/proxy/").await;
        for method in ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"] {
            t.send(method, &format!("{PODS}/absent/proxy/x"), &[], Value::Null).await;
        }
    }
    ["CON-2"] "a proxy to a Service needs endpoints" => |t| {
        let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80}]}});
        t.setup("POST", SERVICES, service).await;
        // The controllers of a real server make none for a Service without a selector.
        for path in ["s/proxy/", "s:81/proxy/", "s:80/proxy/", "absent/proxy/", "absent:80/proxy/", "ftp:s:80/proxy/"] {
            t.get(&format!("{SERVICES}/{path}")).await;
        }
        let endpoints = |subsets: Value| json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "s"}, "subsets": subsets});
        t.setup("POST", "/api/v1/namespaces/{ns}/endpoints", endpoints(json!([]))).await;
        t.get(&format!("{SERVICES}/s/proxy/")).await;
        let subsets = json!([{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"name": "web", "port": 80}]}]);
        t.setup("PUT", "/api/v1/namespaces/{ns}/endpoints/s", endpoints(subsets)).await;
        for path in ["s/proxy/", "s:80/proxy/", "https:s:web/proxy/"] {
            t.get(&format!("{SERVICES}/{path}")).await;
        }
    }
    ["A-9"] "a connection is asked about with its options" => |t| {
        let webhook = Webhook::start(|_| allow());
        pod(t, "a", &["c"]).await;
        let of_namespace = connections(&["pods/*", "services/proxy"]);
        let mut of_nodes = connections(&["nodes/proxy"]);
        of_nodes["matchConditions"] = json!([{"name": "own", "expression": "request.name == '{me}'"}]);
        configure(t, VALIDATING, "a", &webhook, &[with("a", &webhook, of_namespace), with("nodes", &webhook, of_nodes)]).await;
        for path in ["pods/a/exec?command=sh&command=-c&stdin=true&stdout=1&stderr=false&tty=0&container=c&other=x", "pods/a/exec", "pods/a/attach?stdout=true",
            "pods/a/portforward?ports=80,81&ports=82", "pods/absent/portforward", "pods/https:a:80/proxy/b/c?x=y", "pods/a/proxy/?path=z", "services/s:80/proxy"] {
            t.post(&format!("/api/v1/namespaces/{{ns}}/{path}"), Value::Null).await;
            record(t, &webhook);
        }
        t.get(&format!("{PODS}/a/exec")).await;
        record(t, &webhook);
        t.post("/api/v1/nodes/{me}/proxy/run", Value::Null).await;
        record(t, &webhook);
        // Neither reaches admission.
        t.post(&format!("{PODS}/a/portforward?ports=x"), Value::Null).await;
        t.post(&format!("{PODS}/a/exec?dryRun=All"), Value::Null).await;
        record(t, &webhook);
    }
    ["A-9"] "a webhook refuses a connection, or changes its options" => |t| {
        let webhook = Webhook::start(|request| match request["object"]["container"].as_str().unwrap_or_default() {
            "denied" => deny(json!({"code": 403, "message": "not this one"})),
            "changed" => patch(&json!([{"op": "replace", "path": "/container", "value": "other"}])),
            "list" => patch(&json!([{"op": "replace", "path": "/command", "value": "sh"}])),
            "flag" => patch(&json!([{"op": "add", "path": "/tty", "value": "x"}])),
            "unknown" => patch(&json!([{"op": "add", "path": "/metadata", "value": {"name": "x"}}])),
            "kind" => patch(&json!([{"op": "replace", "path": "/kind", "value": "PodAttachOptions"}])),
            _ => allow(),
        });
        let observer = Webhook::start(|_| allow());
        pod(t, "a", &["c"]).await;
        configure(t, MUTATING, "a", &webhook, &[with("a", &webhook, connections(&["pods/exec"]))]).await;
        let mut selecting = connections(&["pods/exec"]);
        selecting["objectSelector"] = json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]});
        configure(t, VALIDATING, "b", &observer, &[with("b", &observer, connections(&["pods/exec"])), with("c", &observer, selecting)]).await;
        for container in ["denied", "changed", "list", "flag", "unknown", "kind"] {
            t.post(&format!("{PODS}/a/exec?container={container}&command=a"), Value::Null).await;
            record(t, &observer);
        }
    }
    ["A-9"] "a policy sees the options of a connection" => |t| {
        pod(t, "a", &["c"]).await;
        let policy = json!({"metadata": {"name": "{me}"}, "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}},
                "resourceRules": [{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/exec", "pods/portforward"]}]},
            "matchConditions": [{"name": "not-ready", "expression": "request.operation == 'CONNECT' && request.options == null && oldObject == null"}],
            "validations": [
                {"expression": "request.subResource != 'exec' || object.command[0] != 'sh'", "messageExpression": "'no ' + object.command[0] + ' in ' + request.name + ' of ' + namespaceObject.metadata.name"},
                {"expression": "request.subResource != 'portforward' || !has(object.ports)", "message": "no ports", "reason": "Forbidden"}]}});
        t.setup("POST", &format!("{POLICIES}/validatingadmissionpolicies"), policy).await;
        let binding = json!({"metadata": {"name": "{me}"}, "spec": {"policyName": "{me}", "validationActions": ["Deny"]}});
        t.setup("POST", &format!("{POLICIES}/validatingadmissionpolicybindings"), binding).await;
        for _ in 0..200 {
            let answer = t.setup_any("POST", &format!("{PODS}/a/exec?command=sh"), &[], Value::Null).await;
            if answer.code == 422 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        t.post(&format!("{PODS}/a/exec?command=sh"), Value::Null).await;
        t.post(&format!("{PODS}/a/exec?command=ls"), Value::Null).await;
        t.post(&format!("{PODS}/a/portforward?ports=80"), Value::Null).await;
    }
    ["AUTH-1"] "a stream with GET needs the right to create one, too" => |t| {
        pod(t, "a", &["c"]).await;
        let rules = json!([{"apiGroups": [""], "resources": ["pods/exec", "pods/proxy"], "verbs": ["get"]}, {"apiGroups": [""], "resources": ["pods/attach"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
        let roles = format!("{RBAC}/namespaces/{{ns}}/roles");
        t.make(&roles, json!({"metadata": {"name": "r"}, "rules": rules})).await;
        let bindings = format!("{RBAC}/namespaces/{{ns}}/rolebindings");
        t.make(&bindings, json!({"metadata": {"name": "r"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]})).await;
        t.allowed_within("jane", "list").await;
        for (method, path) in [("GET", "a/exec"), ("POST", "a/exec"), ("GET", "a/attach"), ("POST", "a/attach"), ("GET", "absent/exec"),
            ("GET", "a/proxy/"), ("HEAD", "a/proxy/"), ("POST", "a/proxy/"), ("OPTIONS", "a/proxy/")] {
            t.send(method, &format!("{PODS}/{path}"), &[("impersonate-user", "jane")], Value::Null).await;
        }
    }
}
