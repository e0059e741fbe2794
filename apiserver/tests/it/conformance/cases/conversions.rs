//! Custom resources that a webhook converts.

use serde_json::{Value, json};

use super::cases;
use super::kinds::{DEFINITIONS, own};
use crate::conformance::case::{Case, MERGE};
use crate::conformance::webhook::{Reply, Webhook};

const V1: &str = "/apis/{own}/v1/namespaces/{ns}/dogs";
const V2: &str = "/apis/{own}/v2/namespaces/{ns}/dogs";

/// Defines Dog with `spec.address` in v1, which is stored, and `spec.host` and `spec.port` in v2.
async fn dogs(t: &mut Case, webhook: &Webhook) {
    t.hide(webhook.url(), "{webhook}");
    t.make(DEFINITIONS, definition(webhook)).await;
    for collection in [V1, V2] {
        t.until(collection, |answer| answer.code == 200).await;
    }
}

fn definition(webhook: &Webhook) -> Value {
    let text = json!({"type": "string"});
    let schema = |fields: Value| json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}});
    let mut definition = own("dogs", "Dog", json!({"type": "object"}));
    definition["spec"]["versions"] = json!([
        {"name": "v1", "served": true, "storage": true, "schema": schema(json!({"address": text}))},
        {"name": "v2", "served": true, "storage": false, "schema": schema(json!({"host": text, "port": text}))},
    ]);
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": webhook.config("/convert"), "conversionReviewVersions": ["v1"]}});
    definition
}

fn dog(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{{own}}/{version}"), "kind": "Dog", "metadata": {"name": name}, "spec": spec})
}

/// The review with converted objects; `change` may change it.
fn converted(request: &Value, change: fn(&mut Value)) -> Reply {
    let to = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let objects = request["objects"].as_array().into_iter().flatten();
    let objects: Vec<Value> = objects
        .map(|object| {
            let (mut new, spec) = (object.clone(), &object["spec"]);
            let part = |name: &str| spec[name].as_str().unwrap_or_default();
            new["apiVersion"] = json!(to);
            new["spec"] = if to.ends_with("v1") {
                json!({"address": format!("{}:{}", part("host"), part("port"))})
            } else {
                let (host, port) = part("address").split_once(':').unwrap_or_default();
                json!({"host": host, "port": port})
            };
            new
        })
        .collect();
    let mut review = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "response": {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}});
    change(&mut review);
    Reply::Document(review)
}

cases! { "conversions";
    ["CRD-11"] "a webhook converts objects between the versions of their kind" => |t| {
        let webhook = Webhook::start(|request| converted(request, |_| {}));
        dogs(t, &webhook).await;
        t.post(V2, dog("v2", "a", json!({"host": "h", "port": "1"}))).await;
        t.get(&format!("{V1}/a")).await;
        t.get(&format!("{V2}/a")).await;
        t.patch(MERGE, &format!("{V2}/a"), json!({"spec": {"port": "2"}})).await;
        t.post(V1, dog("v1", "b", json!({"address": "i:3"}))).await;
        t.get(V2).await;
        t.delete(&format!("{V2}/a")).await;
        t.get(V1).await;
    }
    ["CRD-11"] "a webhook may change labels and annotations, and no other metadata" => |t| {
        let webhook = Webhook::start(|request| converted(request, |review| {
            let metadata = &mut review["response"]["convertedObjects"][0]["metadata"];
            metadata["labels"] = json!({"converted": "yes"});
            metadata["finalizers"] = json!(["example.com/f"]);
        }));
        dogs(t, &webhook).await;
        t.post(V2, dog("v2", "a", json!({"host": "h", "port": "1"}))).await;
        t.get(&format!("{V1}/a")).await;
    }
    ["CRD-11"] "an object that a webhook does not convert is not stored" => |t| {
        let webhook = Webhook::start(|request| {
            let host = request["objects"][0]["spec"]["host"].as_str().unwrap_or_default();
            match host {
                "failure" => converted(request, |review| review["response"]["result"] = json!({"status": "Failure", "message": "not today"})),
                "silent" => converted(request, |review| review["response"]["result"] = json!({})),
                "no-response" => converted(request, |review| review["response"] = Value::Null),
                "count" => converted(request, |review| review["response"]["convertedObjects"] = json!([])),
                "version" => converted(request, |review| review["response"]["convertedObjects"][0]["apiVersion"] = json!("example.com/v9")),
                "kind" => converted(request, |review| review["response"]["convertedObjects"][0]["kind"] = json!("Cat")),
                "name" => converted(request, |review| review["response"]["convertedObjects"][0]["metadata"]["name"] = json!("other")),
                "namespace" => converted(request, |review| review["response"]["convertedObjects"][0]["metadata"]["namespace"] = json!("other")),
                "metadata" => converted(request, |review| review["response"]["convertedObjects"][0]["metadata"] = Value::Null),
                "labels" => converted(request, |review| review["response"]["convertedObjects"][0]["metadata"]["labels"] = json!({"a": 1})),
                "label" => converted(request, |review| review["response"]["convertedObjects"][0]["metadata"]["labels"] = json!({"a b": "c"})),
                "status" => Reply::Status(500, "broken"),
                _ => converted(request, |_| {}),
            }
        });
        dogs(t, &webhook).await;
        for host in ["failure", "silent", "no-response", "count", "version", "kind", "name", "namespace", "metadata", "labels", "label", "status"] {
            t.post(V2, dog("v2", "a", json!({"host": host, "port": "1"}))).await;
        }
        t.get(V1).await;
    }
    ["CRD-11"] "the webhook of a definition is checked" => |t| {
        let webhook = Webhook::start(|request| converted(request, |_| {}));
        for change in [
            json!({"clientConfig": {}}),
            json!({"clientConfig": {"url": "http://example.com", "service": {"namespace": "a", "name": "b"}}}),
            json!({"clientConfig": {"url": "http://example.com/convert"}}),
            json!({"clientConfig": {"service": {"namespace": "a", "name": "b", "port": 0, "path": "x"}}}),
            json!({"conversionReviewVersions": []}),
            json!({"conversionReviewVersions": ["v1", "v1", "V 2"]}),
            json!({"conversionReviewVersions": ["v7"]}),
        ] {
            let mut body = definition(&webhook);
            body["spec"]["conversion"]["webhook"]["clientConfig"] = json!({"url": "https://example.com/convert"});
            for (field, value) in change.as_object().expect("fields") {
                body["spec"]["conversion"]["webhook"][field] = value.clone();
            }
            t.post(DEFINITIONS, body).await;
        }
    }
}
