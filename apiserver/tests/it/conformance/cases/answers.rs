//! Answers of admission webhooks that are not quite right, and authorities that are none.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::webhooks::{
    CONFIGURATIONS, MUTATING, VALIDATING, configure, hook, record, rule, settle, with,
};
use super::{cases, config_map, widget};
use crate::conformance::case::MERGE;
use crate::conformance::webhook::{Reply, Webhook, allow, deny, patch};

/// A block of PEM with three bytes.
fn block(kind: &str) -> String {
    format!("-----BEGIN {kind}-----\nYWJj\n-----END {kind}-----\n")
}

/// A patch as it is, also one that is none.
fn raw(patch: &str) -> Reply {
    Reply::Response(
        json!({"allowed": true, "patch": STANDARD.encode(patch), "patchType": "JSONPatch"}),
    )
}

/// Sets one field of an object.
fn set(path: &str, value: Value) -> Reply {
    patch(&json!([{"op": "add", "path": path, "value": value}]))
}

/// The changes that the webhooks of these cases make to the metadata and the type of an object, by its label `change`.
fn change(object: &Value) -> Reply {
    match object["metadata"]["labels"]["change"]
        .as_str()
        .unwrap_or_default()
    {
        "uid" => set("/metadata/uid", json!("other")),
        "no-uid" => patch(&json!([{"op": "remove", "path": "/metadata/uid"}])),
        "name" => set("/metadata/name", json!("other")),
        "no-name" => patch(&json!([{"op": "remove", "path": "/metadata/name"}])),
        "namespace" => set("/metadata/namespace", json!("default")),
        "no-namespace" => patch(&json!([{"op": "remove", "path": "/metadata/namespace"}])),
        "version" => set("/metadata/resourceVersion", json!("1")),
        "no-version" => patch(&json!([{"op": "remove", "path": "/metadata/resourceVersion"}])),
        "created" => set("/metadata/creationTimestamp", json!("2001-01-01T00:00:00Z")),
        "kind" => set("/kind", json!("Other")),
        "no-kind" => patch(&json!([{"op": "remove", "path": "/kind"}])),
        "api-version" => set("/apiVersion", json!("example.com/v1")),
        "no-metadata" => patch(&json!([{"op": "remove", "path": "/metadata"}])),
        "text" => patch(&json!([{"op": "replace", "path": "", "value": "text"}])),
        "label" => set("/metadata/labels/a", json!(1)),
        "labels" => set("/metadata/labels", json!("text")),
        "annotation" => set("/metadata/annotations", json!({"a": true, "b": "c"})),
        "finalizers" => set("/metadata/finalizers", json!("example.com/f")),
        "finalizer" => set("/metadata/finalizers", json!([1])),
        "owners" => set("/metadata/ownerReferences", json!("text")),
        "owner" => set("/metadata/ownerReferences", json!([1])),
        "number" => set("/metadata/name", json!(5)),
        "time" => set("/metadata/deletionTimestamp", json!("yesterday")),
        "unknown" => set("/metadata/other", json!("text")),
        _ => allow(),
    }
}

fn changed(mut object: Value, change: &str) -> Value {
    object["metadata"]["labels"] = json!({"change": change});
    object
}

const TYPES: [&str; 9] = [
    "label",
    "labels",
    "annotation",
    "finalizers",
    "finalizer",
    "owners",
    "owner",
    "time",
    "unknown",
];
const IDENTITY: [&str; 15] = [
    "uid",
    "no-uid",
    "name",
    "no-name",
    "namespace",
    "no-namespace",
    "version",
    "no-version",
    "created",
    "kind",
    "no-kind",
    "api-version",
    "no-metadata",
    "number",
    "text",
];

cases! { "answers";
    ["A-3"] "a part of an answer with another type is no answer" => |t| {
        let webhook = Webhook::start(|request| {
            let mut response = json!({"uid": request["uid"], "allowed": true});
            match request["name"].as_str().unwrap_or_default() {
                "patch-texts" => response["patch"] = json!(["x"]),
                "patch-bytes" => { response["patch"] = json!([91, 93]); response["patchType"] = json!("JSONPatch"); }
                "patch-number" => response["patch"] = json!([300]),
                "patch-map" => response["patch"] = json!({}),
                "patch-garbage" => { response["patch"] = json!("%%%"); response["patchType"] = json!("JSONPatch"); }
                "code" => response["status"] = json!({"code": "403"}),
                "code-float" => response["status"] = json!({"code": 4.5}),
                "code-large" => response["status"] = json!({"code": 99_999_999_999_i64}),
                "message" => response["status"] = json!({"message": 1}),
                "details" => response["status"] = json!({"details": "x"}),
                "causes" => response["status"] = json!({"details": {"causes": [{"message": 1}]}}),
                "retry" => response["status"] = json!({"details": {"retryAfterSeconds": "1"}}),
                "metadata" => response["status"] = json!({"metadata": []}),
                "warnings" => response["warnings"] = json!([1]),
                "warnings-null" => response["warnings"] = json!([null, "careful"]),
                "annotations" => response["auditAnnotations"] = json!({"a": 1}),
                "annotations-list" => response["auditAnnotations"] = json!([]),
                _ => response["allowed"] = json!(1),
            }
            Reply::Document(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}))
        });
        configure(t, MUTATING, "a", &webhook, &[hook("a", &webhook)]).await;
        for name in ["patch-texts", "patch-bytes", "patch-number", "patch-map", "patch-garbage", "code", "code-float", "code-large", "message", "details", "causes", "retry",
            "metadata", "warnings", "warnings-null", "annotations", "annotations-list", "allowed"] {
            t.post("{cm}", config_map(name, "1")).await;
        }
    }
    ["A-3"] "a document that is not a review is no answer" => |t| {
        let webhook = Webhook::start(|request| {
            let response = json!({"uid": request["uid"], "allowed": true});
            Reply::Document(match request["name"].as_str().unwrap_or_default() {
                "list" => json!([]),
                "text" => json!("x"),
                "null" => Value::Null,
                "empty" => json!({}),
                "kind" => json!({"kind": "ConfigMap", "apiVersion": "v1", "response": response}),
                "other" => json!({"kind": "Other", "apiVersion": "admission.k8s.io/v1", "response": response}),
                "group" => json!({"kind": "AdmissionReview", "apiVersion": "example.com/v1", "response": response}),
                "version" => json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v9", "response": response}),
                "no-kind" => json!({"apiVersion": "admission.k8s.io/v1", "response": response}),
                "no-version" => json!({"kind": "AdmissionReview", "response": response}),
                "kind-number" => json!({"kind": 1, "apiVersion": "admission.k8s.io/v1", "response": response}),
                "status" => json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": 403, "reason": "Forbidden"}),
                _ => json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
            })
        });
        configure(t, VALIDATING, "a", &webhook, &[hook("a", &webhook)]).await;
        for name in ["list", "text", "null", "empty", "kind", "other", "group", "version", "no-kind", "no-version", "kind-number", "status", "success"] {
            t.post("{cm}", config_map(name, "1")).await;
        }
    }
    ["A-3"] "a patch that is not a list of operations is a failure" => |t| {
        let webhook = Webhook::start(|request| match request["name"].as_str().unwrap_or_default() {
            "map" => raw("{}"),
            "text" => raw("\"x\""),
            "number" => raw("1"),
            "null" => raw("null"),
            "garbage" => raw("not json"),
            "cut" => raw("[{"),
            "blank" => raw(" "),
            "items" => raw("[1]"),
            "op" => raw(r#"[{"op":"other","path":"/data"}]"#),
            "path" => raw(r#"[{"op":"add","value":1}]"#),
            "value" => raw(r#"[{"op":"add","path":"/data/x"}]"#),
            "pointer" => raw(r#"[{"op":"add","path":"data","value":{}}]"#),
            _ => raw(r#"[{"op":"test","path":"/data/key","value":"other"}]"#),
        });
        configure(t, MUTATING, "a", &webhook, &[hook("a", &webhook)]).await;
        for name in ["map", "text", "number", "null", "garbage", "cut", "blank", "items", "op", "path", "value", "pointer", "test"] {
            t.post("{cm}", config_map(name, "1")).await;
        }
    }
    ["A-2"] "metadata of another type is dropped from custom resources, and refused of others" => |t| {
        let webhook = Webhook::start(|request| change(&request["object"]));
        let rules = json!({"rules": [rule(&["CREATE", "UPDATE"], "{group}", "v1", &["widgets"]), rule(&["CREATE", "UPDATE"], "", "v1", &["configmaps"])]});
        configure(t, MUTATING, "a", &webhook, &[with("a", &webhook, rules)]).await;
        for name in TYPES {
            t.post("{w}", changed(widget(name, json!({"replicas": 1})), name)).await;
            t.post("{cm}", changed(config_map(name, "1"), name)).await;
        }
    }
    ["A-2"] "a webhook does not change which object is written" => |t| {
        let webhook = Webhook::start(|request| change(&request["object"]));
        let rules = json!({"rules": [rule(&["CREATE", "UPDATE"], "{group}", "v1", &["widgets"]), rule(&["CREATE", "UPDATE"], "", "v1", &["configmaps"])]});
        t.setup("POST", "{w}", widget("a", json!({"replicas": 1}))).await;
        t.setup("POST", "{cm}", config_map("a", "1")).await;
        configure(t, MUTATING, "a", &webhook, &[with("a", &webhook, rules)]).await;
        settle(t, "{w}").await;
        settle(t, "{cm}").await;
        for name in IDENTITY {
            let label = json!({"metadata": {"labels": {"change": name}}});
            t.patch(MERGE, "{w}/a", label.clone()).await;
            settle(t, "{w}").await;
            if ["no-name", "no-metadata"].contains(&name) {
                // Kinds differ in how often they list this cause.
                let answer = t.setup_any("PATCH", "{cm}/a", &[("content-type", MERGE)], label).await;
                t.note(name, json!([answer.code, answer.body["message"]]));
                continue;
            }
            t.patch(MERGE, "{cm}/a", label).await;
            settle(t, "{cm}").await;
        }
        for name in ["uid", "no-uid"] {
            t.put("{cm}/a", changed(config_map("a", "2"), name)).await;
            settle(t, "{cm}").await;
        }
        for name in IDENTITY {
            t.post("{w}", changed(widget(name, json!({"replicas": 1})), name)).await;
            t.post("{cm}", changed(config_map(name, "1"), name)).await;
        }
    }
    ["A-1"] "the deletion of a collection ends with the first denial, and each object has its own review" => |t| {
        let webhook = Webhook::start(|request| match request["oldObject"]["metadata"]["name"].as_str() {
            Some("b") => deny(json!({"code": 403, "message": "not b"})),
            _ => allow(),
        });
        for name in ["a", "b", "c"] {
            t.setup("POST", "{cm}", config_map(name, "1")).await;
        }
        configure(t, VALIDATING, "a", &webhook, &[hook("a", &webhook)]).await;
        t.delete("{cm}?dryRun=All&fieldSelector=metadata.name%3Da").await;
        record(t, &webhook);
        t.delete_with("{cm}", json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"})).await;
        record(t, &webhook);
        let left = t.setup("GET", "{cm}", Value::Null).await;
        let names = left.body["items"].as_array().into_iter().flatten();
        let names: Vec<Value> = names.map(|item| item["metadata"]["name"].clone()).collect();
        t.note("left", json!(names));
    }
    ["A-3"] "a bundle without an authority fails, and one authority is enough" => |t| {
        let webhook = Webhook::start(|_| allow());
        let authority = webhook.config("/")["caBundle"].as_str().map(|text| STANDARD.decode(text).expect("base64")).expect("a bundle");
        let authority = String::from_utf8(authority).expect("PEM");
        let bundles = [
            ("text", "abc".to_owned()),
            ("key", block("PRIVATE KEY")),
            ("damaged", block("CERTIFICATE")),
            ("blank", " \n".to_owned()),
            ("mixed", format!("# a comment\n{}{}{authority}{}", block("CERTIFICATE"), block("PRIVATE KEY"), block("CERTIFICATE"))),
            ("cut", format!("-----BEGIN CERTIFICATE-----\nYWJj\n{authority}-----BEGIN CERTIFICATE-----\n")),
        ];
        let rules = json!([rule(&["CREATE"], "", "v1", &["configmaps"])]);
        let hooks: Vec<Value> = bundles.iter().map(|(name, bundle)| {
            let mut config = webhook.config("/a");
            config["caBundle"] = json!(STANDARD.encode(bundle));
            let condition = format!("object.metadata.name == '{name}'");
            with(name, &webhook, json!({"clientConfig": config, "rules": rules, "matchConditions": [{"name": "own", "expression": condition}]}))
        }).collect();
        configure(t, VALIDATING, "a", &webhook, &hooks).await;
        for (name, _) in bundles {
            t.post("{cm}", config_map(name, "1")).await;
        }
        for bundle in [json!("%%%"), json!("YWJj"), json!("YWJ"), json!(""), json!([97]), json!(1), Value::Null] {
            let mut config = webhook.config("/a");
            config["caBundle"] = bundle;
            let hook = with("a", &webhook, json!({"clientConfig": config}));
            let body = json!({"metadata": {"name": "{me}-x"}, "webhooks": [hook]});
            let answer = t.setup_any("POST", &format!("{CONFIGURATIONS}/validatingwebhookconfigurations?dryRun=All"), &[], body).await;
            t.note("stored", json!([answer.code, answer.body["message"], answer.body["webhooks"][0]["clientConfig"]["caBundle"]]));
        }
    }
}
