//! Custom resources that a webhook converts.

use serde_json::{Value, json};

use super::cases;
use super::kinds::{DEFINITIONS, own};
use crate::conformance::case::{APPLY, Answer, Case, MERGE};
use crate::conformance::webhook::{Reply, Webhook};

pub(super) const V1: &str = "/apis/{own}/v1/namespaces/{ns}/dogs";
const V2: &str = "/apis/{own}/v2/namespaces/{ns}/dogs";

/// Defines Dog with `spec.address` in v1, which is stored, and `spec.host` and `spec.port` in v2.
pub(super) async fn dogs(t: &mut Case, webhook: &Webhook) {
    t.keep(webhook);
    t.hide(webhook.url(), "{webhook}");
    let mut definition = definition(webhook);
    definition["spec"]["versions"][1]["selectableFields"] = json!([{"jsonPath": ".spec.host"}]);
    t.make(DEFINITIONS, definition).await;
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

pub(super) fn dog(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{{own}}/{version}"), "kind": "Dog", "metadata": {"name": name}, "spec": spec})
}

/// The review with converted objects; `change` may change it.
pub(super) fn converted(request: &Value, change: fn(&mut Value)) -> Reply {
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
                "list" => Reply::Document(json!([])),
                "other" => Reply::Document(json!({"kind": "ConfigMap", "apiVersion": "v1"})),
                "admission" => Reply::Document(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"})),
                "v1beta1" => converted(request, |review| review["apiVersion"] = json!("apiextensions.k8s.io/v1beta1")),
                "no-kind" => converted(request, |review| review["kind"] = Value::Null),
                "answer" => Reply::Document(json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no"})),
                "uid" => converted(request, |review| review["response"]["uid"] = json!("other")),
                "typed" => converted(request, |review| review["response"]["result"] = json!({"status": "Success", "code": "200"})),
                "objects" => converted(request, |review| review["response"]["convertedObjects"] = json!("none")),
                "object" => converted(request, |review| review["response"]["convertedObjects"] = json!(["none"])),
                _ => converted(request, |_| {}),
            }
        });
        dogs(t, &webhook).await;
        for host in ["failure", "silent", "no-response", "count", "version", "kind", "name", "namespace", "metadata", "labels", "label", "status",
            "list", "other", "admission", "v1beta1", "no-kind", "answer", "uid", "typed", "objects", "object"] {
            t.post(V2, dog("v2", "a", json!({"host": host, "port": "1"}))).await;
        }
        t.get(V1).await;
    }
    ["CRD-11"] "the owners of fields are followed through all versions" => |t| {
        let webhook = Webhook::start(|request| converted(request, |_| {}));
        dogs(t, &webhook).await;
        t.keep_managed_fields();
        let mut labelled = dog("v1", "a", json!({"address": "h:1"}));
        labelled["metadata"]["labels"] = json!({"a": "b"});
        t.post(&format!("{V1}?fieldManager=one"), labelled).await;
        t.patch(MERGE, &format!("{V2}/a?fieldManager=two"), json!({"spec": {"port": "2"}})).await;
        t.patch(MERGE, &format!("{V2}/a?fieldManager=three"), json!({"metadata": {"labels": {"c": "d"}}})).await;
        t.patch(APPLY, &format!("{V1}/b?fieldManager=one"), dog("v1", "b", json!({"address": "h:1"}))).await;
        t.patch(APPLY, &format!("{V2}/b?fieldManager=two"), dog("v2", "b", json!({"host": "h", "port": "1"}))).await;
        t.patch(APPLY, &format!("{V2}/b?fieldManager=two"), dog("v2", "b", json!({"host": "h", "port": "2"}))).await;
        t.patch(APPLY, &format!("{V2}/b?fieldManager=two&force=true"), dog("v2", "b", json!({"host": "h", "port": "2"}))).await;
        t.patch(APPLY, &format!("{V2}/b?fieldManager=two"), dog("v2", "b", json!({"host": "h"}))).await;
        t.patch(APPLY, &format!("{V1}/b?fieldManager=two"), dog("v1", "b", json!({}))).await;
    }
    ["CRD-11"] "selectors match the version of the request" => |t| {
        let webhook = Webhook::start(|request| converted(request, |_| {}));
        dogs(t, &webhook).await;
        for (name, address) in [("a", "h:1"), ("b", "i:1"), ("c", "h:2"), ("d", "h:3")] {
            t.setup("POST", V1, dog("v1", name, json!({"address": address}))).await;
        }
        t.get(&format!("{V2}?fieldSelector=spec.host%3Dh")).await;
        t.get(&format!("{V1}?fieldSelector=spec.host%3Dh")).await;
        let mut watch = t.watch(&format!("{V2}?watch=true&fieldSelector=spec.host%3Dh")).await;
        t.events(&mut watch, 3).await;
        t.setup_as(MERGE, &format!("{V1}/a"), json!({"spec": {"address": "i:1"}})).await;
        t.events(&mut watch, 1).await;
        t.delete(&format!("{V2}?fieldSelector=spec.host%21%3Dh")).await;
        t.get(V1).await;
    }
    ["CRD-11"] "an established definition keeps an authority for its webhook" => |t| {
        let webhook = Webhook::start(|request| converted(request, |_| {}));
        t.keep(&webhook);
        t.hide(webhook.url(), "{webhook}");
        let path = format!("{DEFINITIONS}/dogs.{{own}}");
        let mut body = definition(&webhook);
        let good = body["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].clone();
        body["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = json!("YWJj");
        t.make(DEFINITIONS, body).await;
        let established = |answer: &Answer| {
            let conditions = answer.body["status"]["conditions"].as_array();
            conditions.into_iter().flatten().find(|one| one["type"] == "Established").cloned().unwrap_or_default()
        };
        let refused = t.until(&path, |answer| established(answer)["reason"] == "InvalidCABundle").await;
        let refused = established(&refused);
        t.note("condition", json!([refused["status"], refused["reason"], refused["message"]]));
        t.get(V1).await;
        let bundle = |bundle: &str| json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}});
        let damaged = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCllXSmoKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
        let good = good.as_str().expect("a bundle");
        for text in ["IA==", damaged, good] {
            let answer = t.setup_any("PATCH", &path, &[("content-type", MERGE)], bundle(text)).await;
            t.note("before", json!([answer.code, answer.body["message"]]));
        }
        t.until(&path, |answer| established(answer)["status"] == "True").await;
        for text in ["YWJj", "IA==", damaged, "%%%", "", good] {
            let answer = t.setup_any("PATCH", &path, &[("content-type", MERGE)], bundle(text)).await;
            t.note("after", json!([answer.code, answer.body["message"], answer.body["details"]["causes"]]));
        }
        t.until(V1, |answer| answer.code == 200).await;
        t.post(V2, dog("v2", "a", json!({"host": "h", "port": "1"}))).await;
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
