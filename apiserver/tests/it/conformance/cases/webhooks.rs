//! Admission webhooks: which ones are asked, about what, and what follows from their answers.

use std::time::Duration;

use serde_json::{Value, json};

use super::{cases, config_map, labelled, widget};
use crate::conformance::case::{APPLY, Case, MERGE};
use crate::conformance::webhook::{PROBE, Reply, Webhook, allow, deny, patch};

pub(super) const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";
pub(super) const MUTATING: &str = "MutatingWebhookConfiguration";
pub(super) const VALIDATING: &str = "ValidatingWebhookConfiguration";

/// A webhook for every write to ConfigMaps.
pub(super) fn hook(name: &str, webhook: &Webhook) -> Value {
    with(
        name,
        webhook,
        json!({"rules": [rule(&["*"], "", "v1", &["configmaps"])]}),
    )
}

/// A webhook with these fields.
pub(super) fn with(name: &str, webhook: &Webhook, fields: Value) -> Value {
    let mut hook = json!({
        "name": format!("{name}.example.com"),
        "clientConfig": webhook.config(&format!("/{name}")),
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}},
    });
    for (field, value) in fields.as_object().expect("fields") {
        hook[field] = value.clone();
    }
    hook
}

pub(super) fn rule(operations: &[&str], group: &str, version: &str, resources: &[&str]) -> Value {
    json!({"operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": resources, "scope": "Namespaced"})
}

/// Stores a configuration, and waits until it is in use.
pub(super) async fn configure(
    t: &mut Case,
    kind: &str,
    name: &str,
    webhook: &Webhook,
    hooks: &[Value],
) {
    t.hide(webhook.url(), "{webhook}");
    let probe = format!("probe-{}-{name}", kind[..3].to_lowercase());
    let of_probe = with(
        &probe,
        webhook,
        json!({"rules": [rule(&["CREATE"], "", "v1", &[PROBE])]}),
    );
    let hooks: Vec<Value> = hooks.iter().cloned().chain([of_probe]).collect();
    let plural = format!("{}s", kind.to_lowercase());
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": format!("{{me}}-{name}")}, "webhooks": hooks});
    t.setup("POST", &format!("{CONFIGURATIONS}/{plural}"), body)
        .await;
    let template = json!({"metadata": {"generateName": "probe-"}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
    let path = format!("/api/v1/namespaces/{{ns}}/{PROBE}?dryRun=All");
    for _ in 0..200 {
        t.setup("POST", &path, template.clone()).await;
        if webhook.is_probed(&format!("/{probe}")) {
            webhook.asked();
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{kind} {name} was not in use within some seconds");
}

/// Records the reviews that a webhook got, without the user, which differs from server to server.
pub(super) fn record(t: &mut Case, webhook: &Webhook) {
    for mut question in webhook.asked() {
        let review = question["review"].take();
        let mut request = review["request"].clone();
        if let Some(request) = request.as_object_mut() {
            request.remove("userInfo");
        }
        let label = format!(
            "{} {}",
            question["query"].as_str().unwrap_or_default(),
            review["apiVersion"].as_str().unwrap_or_default()
        );
        t.note(&label, request);
    }
}

/// Reads a collection. A real server updates objects from a cache, which has the last write after this.
pub(super) async fn settle(t: &Case, collection: &str) {
    t.setup("GET", collection, Value::Null).await;
}

/// Adds a label.
fn label(name: &str, value: &str) -> Value {
    json!([{"op": "add", "path": "/metadata/labels", "value": {name: value}}])
}

cases! { "webhooks";
    ["A-1"] "a webhook is asked about each write with the object before and after" => |t| {
        let webhook = Webhook::start(|_| allow());
        configure(t, VALIDATING, "a", &webhook, &[hook("a", &webhook)]).await;
        t.post("{cm}?fieldManager=me&fieldValidation=Strict", config_map("a", "1")).await;
        record(t, &webhook);
        settle(t, "{cm}").await;
        t.put("{cm}/a", config_map("a", "2")).await;
        record(t, &webhook);
        settle(t, "{cm}").await;
        t.patch(MERGE, "{cm}/a", json!({"data": {"key": "3"}})).await;
        record(t, &webhook);
        settle(t, "{cm}").await;
        t.delete_with("{cm}/a", json!({"gracePeriodSeconds": 5, "propagationPolicy": "Background"})).await;
        record(t, &webhook);
        t.get("{cm}").await;
        record(t, &webhook);
    }
    ["A-1"] "a dry run is asked about as one" => |t| {
        let webhook = Webhook::start(|_| allow());
        configure(t, VALIDATING, "a", &webhook, &[hook("a", &webhook)]).await;
        t.post("{cm}?dryRun=All", config_map("a", "1")).await;
        record(t, &webhook);
    }
    ["A-1"] "the deletion of a collection is asked about for each object" => |t| {
        let webhook = Webhook::start(|_| allow());
        t.setup("POST", "{cm}", config_map("a", "1")).await;
        configure(t, VALIDATING, "a", &webhook, &[hook("a", &webhook)]).await;
        t.delete("{cm}").await;
        record(t, &webhook);
    }
    ["A-1"] "subresources have rules of their own" => |t| {
        let webhook = Webhook::start(|_| allow());
        let rules = json!({"rules": [rule(&["*"], "{group}", "v1", &["widgets/status", "widgets/scale"])]});
        configure(t, VALIDATING, "a", &webhook, &[with("a", &webhook, rules)]).await;
        t.setup("POST", "{w}", widget("a", json!({"replicas": 1}))).await;
        settle(t, "{w}").await;
        t.patch(MERGE, "{w}/a/status", json!({"status": {"phase": "Ready"}})).await;
        record(t, &webhook);
        settle(t, "{w}").await;
        t.patch(MERGE, "{w}/a/scale", json!({"spec": {"replicas": 3}})).await;
        record(t, &webhook);
    }
    ["A-1"] "an eviction and a binding are asked about as what they are" => |t| {
        let webhook = Webhook::start(|_| allow());
        let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false}});
        t.until("/api/v1/namespaces/{ns}/serviceaccounts/default", |answer| answer.code == 200).await;
        t.setup("POST", "/api/v1/namespaces/{ns}/pods", pod).await;
        let rules = json!({"rules": [rule(&["*"], "", "v1", &["pods/eviction", "pods/binding"])]});
        configure(t, VALIDATING, "a", &webhook, &[with("a", &webhook, rules)]).await;
        let binding = json!({"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}});
        t.post("/api/v1/namespaces/{ns}/pods/a/binding", binding).await;
        record(t, &webhook);
        t.post("/api/v1/namespaces/{ns}/pods/a/eviction", json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}})).await;
        record(t, &webhook);
    }
    ["A-4"] "a denial has the status of the webhook" => |t| {
        let webhook = Webhook::start(|request| match request["name"].as_str() {
            Some("silent") => Reply::Response(json!({"allowed": false})),
            Some("reason") => deny(json!({"reason": "Because"})),
            Some("low") => deny(json!({"code": 200, "message": "no", "status": "Success"})),
            Some("full") => deny(json!({"code": 418, "message": "no tea", "reason": "Teapot",
                "details": {"name": "n", "kind": "k", "group": "g", "uid": "u", "retryAfterSeconds": 3, "causes": [{"reason": "r", "message": "m", "field": "f"}]}})),
            _ => deny(json!({"code": 403, "message": "no"})),
        });
        configure(t, VALIDATING, "a", &webhook, &[hook("a", &webhook)]).await;
        for name in ["plain", "silent", "reason", "low", "full"] {
            t.post("{cm}", config_map(name, "1")).await;
        }
    }
    ["A-4"] "warnings reach the client, also with a denial" => |t| {
        let webhook = Webhook::start(|request| {
            let allowed = request["name"] == "good";
            Reply::Response(json!({"allowed": allowed, "warnings": ["careful", "careful", "a \"quote\"", "two\nlines", ""]}))
        });
        configure(t, VALIDATING, "a", &webhook, &[hook("a", &webhook)]).await;
        t.post("{cm}", config_map("good", "1")).await;
        t.post("{cm}", config_map("bad", "1")).await;
    }
    ["A-3"] "a call that fails refuses the write, unless failures are ignored" => |t| {
        let webhook = Webhook::start(|request| match request["name"].as_str().unwrap_or_default() {
            "uid" => Reply::Document(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "other", "allowed": true}})),
            "kind" => Reply::Document(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": {"uid": request["uid"], "allowed": true}})),
            "absent" => Reply::Document(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"})),
            "patch" => patch(&label("a", "b")),
            "type" => Reply::Response(json!({"allowed": true, "patchType": "JSONPatch"})),
            "code-500" => Reply::Status(500, "broken\n"),
            "code-404" => Reply::Status(404, "nothing here"),
            "code-400" => Reply::Status(400, "bad"),
            "code-503" => Reply::Status(503, "later"),
            _ => allow(),
        });
        let ignoring = json!({"failurePolicy": "Ignore", "rules": [rule(&["UPDATE"], "", "v1", &["configmaps"])]});
        let creations = json!({"rules": [rule(&["CREATE"], "", "v1", &["configmaps"])]});
        configure(t, VALIDATING, "a", &webhook, &[with("a", &webhook, creations), with("b", &webhook, ignoring)]).await;
        let names = ["uid", "kind", "absent", "patch", "type", "code-500", "code-404", "code-400", "code-503"];
        for name in names {
            t.post("{cm}", config_map(name, "1")).await;
        }
        t.setup("POST", "{cm}", config_map("good", "1")).await;
        settle(t, "{cm}").await;
        t.patch(MERGE, "{cm}/good", json!({"data": {"key": "2"}})).await;
    }
    ["A-3"] "ignored failures let a write pass" => |t| {
        let webhook = Webhook::start(|_| Reply::Status(500, "broken"));
        let ignoring = json!({"failurePolicy": "Ignore", "rules": [rule(&["*"], "", "v1", &["configmaps"])]});
        configure(t, MUTATING, "a", &webhook, &[with("a", &webhook, ignoring.clone())]).await;
        configure(t, VALIDATING, "a", &webhook, &[with("a", &webhook, ignoring)]).await;
        t.post("{cm}", config_map("a", "1")).await;
    }
    ["A-3"] "a webhook that does not answer in time fails" => |t| {
        let webhook = Webhook::start(|_| Reply::Silence);
        let short = json!({"timeoutSeconds": 1, "rules": [rule(&["*"], "", "v1", &["configmaps"])]});
        configure(t, VALIDATING, "a", &webhook, &[with("a", &webhook, short)]).await;
        t.post("{cm}", config_map("a", "1")).await;
    }
    ["A-3"] "an address where nothing listens fails" => |t| {
        let webhook = Webhook::start(|_| allow());
        let rules = json!([rule(&["*"], "", "v1", &["configmaps"])]);
        let nowhere = json!({"clientConfig": {"url": "https://127.0.0.1:1/x"}, "rules": rules});
        configure(t, VALIDATING, "a", &webhook, &[with("a", &webhook, nowhere)]).await;
        t.post("{cm}", config_map("a", "1")).await;
    }
    ["A-3"] "a certificate of another authority fails" => |t| {
        let webhook = Webhook::start(|_| allow());
        let other = Webhook::start(|_| allow());
        let rules = json!([rule(&["*"], "", "v1", &["configmaps"])]);
        let mut config = webhook.config("/a");
        config["caBundle"] = other.config("/a")["caBundle"].clone();
        configure(t, VALIDATING, "a", &webhook, &[with("a", &webhook, json!({"clientConfig": config, "rules": rules}))]).await;
        t.post("{cm}", config_map("a", "1")).await;
    }
    ["A-3"] "a service that does not exist fails" => |t| {
        let webhook = Webhook::start(|_| allow());
        let rules = json!([rule(&["*"], "", "v1", &["configmaps"])]);
        let absent = json!({"clientConfig": {"service": {"namespace": "{ns}", "name": "absent", "path": "/p"}}, "rules": rules});
        configure(t, VALIDATING, "a", &webhook, &[with("a", &webhook, absent)]).await;
        t.post("{cm}", config_map("a", "1")).await;
    }
    ["A-2"] "webhooks that change objects see each other's changes, in the order of their configurations" => |t| {
        let webhook = Webhook::start(|request| {
            let value = request["object"]["data"]["key"].as_str().unwrap_or_default();
            patch(&json!([{"op": "replace", "path": "/data/key", "value": format!("{value}+")}]))
        });
        configure(t, MUTATING, "b", &webhook, &[hook("b1", &webhook), hook("b2", &webhook)]).await;
        configure(t, MUTATING, "a", &webhook, &[hook("a1", &webhook)]).await;
        t.post("{cm}", config_map("a", "1")).await;
        record(t, &webhook);
    }
    ["A-2"] "a patch is followed by defaults and checks" => |t| {
        let webhook = Webhook::start(|request| match request["name"].as_str().unwrap_or_default() {
            "defaults" => patch(&json!([{"op": "add", "path": "/spec/ports/-", "value": {"name": "b", "port": 81}}])),
            "invalid" => patch(&json!([{"op": "add", "path": "/spec/ports/-", "value": {"port": 0}}])),
            "unknown" => patch(&json!([{"op": "add", "path": "/spec/nothing", "value": 1}])),
            "typed" => patch(&json!([{"op": "replace", "path": "/spec/ports", "value": "x"}])),
            "misfit" => patch(&json!([{"op": "remove", "path": "/spec/absent"}])),
            "empty" => patch(&json!([])),
            _ => Reply::Response(json!({"allowed": true, "patch": "e30=", "patchType": "JSONPatch"})),
        });
        let rules = json!({"rules": [rule(&["CREATE"], "", "v1", &["services"])]});
        configure(t, MUTATING, "a", &webhook, &[with("a", &webhook, rules)]).await;
        for name in ["defaults", "invalid", "unknown", "empty", "misfit", "typed"] {
            let service = json!({"metadata": {"name": name}, "spec": {"clusterIP": "None", "ports": [{"name": "a", "port": 80}]}});
            t.post("/api/v1/namespaces/{ns}/services", service).await;
        }
    }
    ["A-2"] "a patch of a deletion is an error, and one without its type a failure" => |t| {
        let webhook = Webhook::start(|request| match request["operation"].as_str() {
            Some("DELETE") => patch(&label("a", "b")),
            _ => Reply::Response(json!({"allowed": true, "patch": "W10="})),
        });
        t.setup("POST", "{cm}", config_map("a", "1")).await;
        configure(t, MUTATING, "a", &webhook, &[hook("a", &webhook)]).await;
        t.delete("{cm}/a").await;
        t.post("{cm}", config_map("b", "1")).await;
    }
    ["A-2"] "a webhook is asked again after a later one changed the object, if it wants" => |t| {
        let webhook = Webhook::start(|request| {
            let labels = &request["object"]["metadata"]["labels"];
            if labels["late"].is_null() { patch(&label("late", "yes")) } else { allow() }
        });
        let watcher = Webhook::start(|_| allow());
        let again = json!({"reinvocationPolicy": "IfNeeded", "rules": [rule(&["*"], "", "v1", &["configmaps"])]});
        configure(t, MUTATING, "a", &watcher, &[with("a", &watcher, again), hook("b", &watcher)]).await;
        configure(t, MUTATING, "z", &webhook, &[hook("z", &webhook)]).await;
        watcher.asked();
        t.post("{cm}", config_map("a", "1")).await;
        record(t, &watcher);
        record(t, &webhook);
    }
    ["A-1"] "objects and namespaces are selected by their labels" => |t| {
        let webhook = Webhook::start(|_| allow());
        let rules = json!([rule(&["*"], "", "v1", &["configmaps"])]);
        let of_object = json!({"objectSelector": {"matchLabels": {"guarded": "yes"}}, "rules": rules});
        let of_namespace = json!({"namespaceSelector": {"matchLabels": {"absent": "yes"}}, "rules": rules});
        configure(t, VALIDATING, "a", &webhook, &[with("object", &webhook, of_object), with("namespace", &webhook, of_namespace)]).await;
        t.post("{cm}", labelled("plain", json!({}))).await;
        t.post("{cm}", labelled("guarded", json!({"guarded": "yes"}))).await;
        record(t, &webhook);
        settle(t, "{cm}").await;
        t.patch(MERGE, "{cm}/guarded", json!({"metadata": {"labels": null}})).await;
        record(t, &webhook);
        settle(t, "{cm}").await;
        t.delete("{cm}/guarded").await;
        record(t, &webhook);
    }
    ["A-1"] "conditions in CEL decide whether a webhook is asked" => |t| {
        let webhook = Webhook::start(|_| allow());
        let rules = json!([rule(&["*"], "", "v1", &["configmaps"])]);
        let conditions = |expressions: &[&str]| {
            let all: Vec<Value> = expressions.iter().enumerate().map(|(at, text)| json!({"name": format!("c{at}"), "expression": text})).collect();
            json!({"rules": rules, "matchConditions": all})
        };
        let of = |name: &str, expressions: &[&str]| with(name, &webhook, conditions(expressions));
        let mut ignoring = of("ignoring", &["object.data.absent == '1'"]);
        ignoring["failurePolicy"] = json!("Ignore");
        let hooks = [
            of("named", &["object != null && object.metadata.name.startsWith('a')"]),
            of("labelled", &["has(object.metadata.labels) && object.metadata.labels['example.com/x'] == 'y'"]),
            of("operation", &["request.operation == 'CREATE'", "request.resource.resource == 'configmaps'", "request.namespace != ''"]),
            of("user", &["request.userInfo.username != '' && 'system:masters' in request.userInfo.groups"]),
            of("allowed", &["authorizer.group('').resource('pods').namespace(request.namespace).check('list').allowed()"]),
            of("refused", &["!authorizer.requestResource.check('update').allowed()"]),
            of("old", &["oldObject == null"]),
            of("never", &["object.data.absent == '1'", "false"]),
            ignoring,
        ];
        configure(t, VALIDATING, "a", &webhook, &hooks).await;
        t.post("{cm}", labelled("a", json!({"example.com/x": "y"}))).await;
        let mut paths: Vec<String> = webhook.asked().iter().map(|one| one["path"].to_string()).collect();
        paths.sort();
        t.note("asked", json!(paths));
        t.post("{cm}", config_map("b", "1")).await;
        let mut paths: Vec<String> = webhook.asked().iter().map(|one| one["path"].to_string()).collect();
        paths.sort();
        t.note("asked", json!(paths));
    }
    ["A-1"] "a condition that fails refuses the write" => |t| {
        let webhook = Webhook::start(|_| allow());
        let rules = json!([rule(&["*"], "", "v1", &["configmaps"])]);
        let failing = json!({"rules": rules, "matchConditions": [{"name": "a", "expression": "object.data.absent == '1'"}, {"name": "b", "expression": "true"}]});
        configure(t, VALIDATING, "a", &webhook, &[with("a", &webhook, failing)]).await;
        t.post("{cm}", config_map("a", "1")).await;
    }
    ["A-1"] "a condition of a webhook does not get the namespace" => |t| {
        let webhook = Webhook::start(|_| allow());
        let rules = json!([rule(&["*"], "", "v1", &["configmaps"])]);
        let needs = |name: &str, text: &str| with(name, &webhook, json!({"rules": rules, "matchConditions": [{"name": "a", "expression": text}]}));
        let hooks = [needs("null", "namespaceObject == null"), needs("some", "namespaceObject != null")];
        configure(t, VALIDATING, "a", &webhook, &hooks).await;
        t.post("{cm}", config_map("a", "1")).await;
        record(t, &webhook);
    }
    ["A-1"] "a rule matches other versions of its resource, if it may" => |t| {
        let webhook = Webhook::start(|_| allow());
        let rules = json!([rule(&["*"], "autoscaling", "v1", &["horizontalpodautoscalers"])]);
        let exact = json!({"rules": rules, "matchPolicy": "Exact"});
        configure(t, VALIDATING, "a", &webhook, &[with("equivalent", &webhook, json!({"rules": rules})), with("exact", &webhook, exact)]).await;
        let scaler = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
        t.post("/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers", scaler).await;
        record(t, &webhook);
    }
    ["A-1"] "an address without a path is asked at its root" => |t| {
        let webhook = Webhook::start(|_| allow());
        let rules = json!([rule(&["*"], "", "v1", &["configmaps"])]);
        let root = json!({"clientConfig": webhook.config(""), "rules": rules});
        configure(t, VALIDATING, "a", &webhook, &[with("a", &webhook, root)]).await;
        t.post("{cm}", config_map("a", "1")).await;
        record(t, &webhook);
    }
    ["A-1"] "a bundle may have the certificate of the webhook itself" => |t| {
        let webhook = Webhook::start(|_| allow());
        let rules = json!([rule(&["*"], "", "v1", &["configmaps"])]);
        let itself = json!({"clientConfig": webhook.config_with_itself("/a"), "rules": rules});
        configure(t, VALIDATING, "a", &webhook, &[with("a", &webhook, itself)]).await;
        t.post("{cm}", config_map("a", "1")).await;
        record(t, &webhook);
    }
    ["A-1"] "a webhook may lead to another path" => |t| {
        let webhook = Webhook::start(|_| allow());
        for code in [307, 308, 302] {
            let rules = json!([rule(&["*"], "", "v1", &["configmaps"])]);
            let path = format!("/redirect-{code}/there");
            let hook = json!({"clientConfig": webhook.config(&path), "rules": rules});
            let name = format!("from-{code}");
            configure(t, VALIDATING, &name, &webhook, &[with(&name, &webhook, hook)]).await;
            t.post("{cm}?dryRun=All", config_map(&name, "1")).await;
            record(t, &webhook);
            if code != 302 {
                let path = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/{{me}}-{name}");
                t.setup("DELETE", &path, Value::Null).await;
                settle(t, "{cm}").await;
            }
        }
    }
    ["A-1"] "the address of a webhook is checked" => |t| {
        let webhook = Webhook::start(|_| allow());
        let addresses = ["http://a.example.com/x", "a.example.com", "https://", "https:///x", "https://user@a.example.com/x",
            "https://a.example.com/x?a=b", "https://a.example.com/x#y", "HTTPS://a.example.com", "https://a.example.com:1/x"];
        for address in addresses {
            let mut hook = hook("a", &webhook);
            hook["clientConfig"] = json!({"url": address});
            let body = json!({"metadata": {"name": "{me}-x"}, "webhooks": [hook]});
            t.post(&format!("{CONFIGURATIONS}/validatingwebhookconfigurations?dryRun=All"), body).await;
        }
    }
    ["A-3"] "an answer with a field of another type is no answer" => |t| {
        let webhook = Webhook::start(|request| {
            let mut response = json!({"uid": request["uid"], "allowed": true});
            match request["name"].as_str().unwrap_or_default() {
                "allowed" => response["allowed"] = json!("true"),
                "uid" => response["uid"] = json!(1),
                "patch-type" => response["patchType"] = json!(true),
                "status" => response["status"] = json!("no"),
                "warnings" => response["warnings"] = json!("careful"),
                "nulls" => response = json!({"uid": request["uid"], "allowed": true, "status": null, "patch": null, "patchType": null, "warnings": null}),
                _ => response = json!(true),
            }
            Reply::Document(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}))
        });
        configure(t, VALIDATING, "a", &webhook, &[hook("a", &webhook)]).await;
        for name in ["allowed", "uid", "patch-type", "status", "warnings", "nulls", "response"] {
            t.post("{cm}", config_map(name, "1")).await;
        }
    }
    ["A-2"] "a webhook may name a new object, but not place it" => |t| {
        let webhook = Webhook::start(|request| match request["name"].as_str().unwrap_or_default() {
            "named" => patch(&json!([{"op": "replace", "path": "/metadata/name", "value": "other"}])),
            "moved" => patch(&json!([{"op": "replace", "path": "/metadata/namespace", "value": "other"}])),
            "bare" => patch(&json!([{"op": "remove", "path": "/metadata/namespace"}])),
            "unnamed" => patch(&json!([{"op": "remove", "path": "/metadata/name"}])),
            _ => patch(&json!([{"op": "add", "path": "/metadata/uid", "value": "other"}])),
        });
        let creations = json!({"rules": [rule(&["CREATE"], "", "v1", &["configmaps"])]});
        configure(t, MUTATING, "a", &webhook, &[with("a", &webhook, creations)]).await;
        for name in ["named", "moved", "bare", "unnamed", "another"] {
            t.post("{cm}", config_map(name, "1")).await;
        }
    }
    ["A-2"] "a patch of a custom resource is read by its schema" => |t| {
        let webhook = Webhook::start(|request| match request["name"].as_str().unwrap_or_default() {
            "unknown" => patch(&json!([{"op": "add", "path": "/spec/nothing", "value": 1}])),
            "typed" => patch(&json!([{"op": "add", "path": "/spec/replicas", "value": "x"}])),
            _ => patch(&label("a", "b")),
        });
        let rules = json!({"rules": [rule(&["*"], "{group}", "v1", &["widgets"])]});
        configure(t, MUTATING, "a", &webhook, &[with("a", &webhook, rules)]).await;
        for name in ["unknown", "typed", "labelled"] {
            t.post("{w}", widget(name, json!({"replicas": 1}))).await;
        }
    }
    ["A-2"] "the fields that a webhook changed belong to the writer" => |t| {
        let webhook = Webhook::start(|_| patch(&label("guarded", "yes")));
        let rules = json!({"rules": [rule(&["*"], "{group}", "v1", &["widgets", "widgets/status"])]});
        configure(t, MUTATING, "a", &webhook, &[with("a", &webhook, rules)]).await;
        t.keep_managed_fields();
        t.post("{w}?fieldManager=creator", widget("a", json!({"replicas": 1}))).await;
        settle(t, "{w}").await;
        let mut second = widget("a", json!({"replicas": 2}));
        second["metadata"]["labels"] = json!({"other": "x"});
        t.put("{w}/a?fieldManager=updater", second).await;
        settle(t, "{w}").await;
        t.patch(MERGE, "{w}/a/status?fieldManager=reporter", json!({"metadata": {"labels": {"guarded": null}}, "status": {"phase": "Ready"}})).await;
        settle(t, "{w}").await;
        t.patch(APPLY, "{w}/a?fieldManager=applier&force=true", widget("a", json!({"replicas": 3}))).await;
        settle(t, "{w}").await;
        t.patch(APPLY, "{w}/new?fieldManager=applier", widget("new", json!({"replicas": 3}))).await;
    }
    ["A-2"] "owners of fields that a webhook breaks are restored" => |t| {
        let webhook = Webhook::start(|request| {
            let entry = |operation: &str, fields: Value| json!([{"manager": "m", "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}]);
            let managers = match request["name"].as_str().unwrap_or_default() {
                "operation" => entry("Bad", json!({})),
                "removed" => Value::Null,
                "valid" => entry("Update", json!({"f:data": {}})),
                _ => json!([]),
            };
            patch(&json!([{"op": "add", "path": "/metadata/managedFields", "value": managers}]))
        });
        configure(t, MUTATING, "a", &webhook, &[hook("a", &webhook)]).await;
        t.keep_managed_fields();
        for name in ["operation", "removed", "valid", "empty"] {
            t.post("{cm}?fieldManager=writer", config_map(name, "1")).await;
        }
    }
    ["A-1"] "a webhook that reads only v1beta1 gets that" => |t| {
        let webhook = Webhook::start(|_| Reply::Document(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": {"allowed": false, "status": {"message": "old"}}})));
        let old = json!({"admissionReviewVersions": ["v0", "v1beta1", "v1"], "rules": [rule(&["*"], "", "v1", &["configmaps"])]});
        configure(t, VALIDATING, "a", &webhook, &[with("a", &webhook, old)]).await;
        t.post("{cm}", config_map("a", "1")).await;
        record(t, &webhook);
    }
}
