//! CustomResourceDefinitions and their life cycle.

use serde_json::{Value, json};

use super::kinds::{DEFINITIONS, open_schema, own};
use super::{cases, config_map};
use crate::conformance::case::{Case, MERGE};

const DOGS: &str = "/apis/{own}/v1/namespaces/{ns}/dogs";

/// Defines Dog and waits until it is established and served. (A real server serves it from `NamesAccepted` on.)
async fn dogs(t: &Case, schema: Value) {
    t.make(DEFINITIONS, own("dogs", "Dog", schema)).await;
    established(t, "dogs.{own}").await;
    t.until(DOGS, |answer| answer.code == 200).await;
}

fn dog(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "{own}/v1", "kind": "Dog", "metadata": {"name": name}, "spec": spec})
}

fn conditions(definition: &Value) -> Value {
    let all = definition["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    all.iter()
        .map(|one| json!([one["type"], one["status"], one["reason"], one["message"]]))
        .collect()
}

async fn established(t: &Case, name: &str) -> Value {
    let answer = t
        .until(&format!("{DEFINITIONS}/{name}"), |answer| {
            let all = answer.body["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            all.iter()
                .any(|one| one["type"] == "Established" && one["status"] == "True")
        })
        .await;
    answer.body
}

/// The server's answer to a wrong definition.
async fn refused(t: &mut Case, change: impl Fn(&mut Value)) {
    let mut definition = own("dogs", "Dog", open_schema());
    change(&mut definition);
    t.post(DEFINITIONS, definition).await;
}

cases! { "definitions";
    ["CRD-1"] "a definition is created with defaults and without conditions" => |t| {
        t.post(DEFINITIONS, own("dogs", "Dog", open_schema())).await;
    }
    ["CRD-1"] "the conditions of an accepted definition, its names and its stored versions" => |t| {
        t.make(DEFINITIONS, own("dogs", "Dog", open_schema())).await;
        let definition = established(t, "dogs.{own}").await;
        t.note("conditions", conditions(&definition));
        t.note("acceptedNames", definition["status"]["acceptedNames"].clone());
        t.note("storedVersions", definition["status"]["storedVersions"].clone());
        t.note("generation", definition["metadata"]["generation"].clone());
    }
    ["CRD-1"] "a kind that another definition of the group has is not accepted" => |t| {
        t.make(DEFINITIONS, own("dogs", "Dog", open_schema())).await;
        established(t, "dogs.{own}").await;
        t.make(DEFINITIONS, own("hounds", "Dog", open_schema())).await;
        let definition = t.until(&format!("{DEFINITIONS}/hounds.{{own}}"), |answer| answer.body["status"]["conditions"].as_array().is_some_and(|all| all.len() >= 2)).await;
        t.note("conditions", conditions(&definition.body));
        t.note("acceptedNames", definition.body["status"]["acceptedNames"].clone());
        t.get("/apis/{own}/v1/namespaces/{ns}/hounds").await;
    }
    ["CRD-1"] "the name of a definition is its plural and group" => |t| {
        refused(t, |definition| definition["metadata"]["name"] = json!("cats.{own}")).await;
    }
    ["CRD-1"] "a definition without a schema" => |t| {
        refused(t, |definition| definition["spec"]["versions"][0]["schema"] = Value::Null).await;
    }
    ["CRD-1"] "a definition without versions or with two stored versions" => |t| {
        refused(t, |definition| definition["spec"]["versions"] = json!([])).await;
        refused(t, |definition| {
            let mut second = definition["spec"]["versions"][0].clone();
            second["name"] = json!("v2");
            if let Some(versions) = definition["spec"]["versions"].as_array_mut() { versions.push(second) }
        }).await;
    }
    ["CRD-1"] "a definition without a scope or with a wrong one" => |t| {
        refused(t, |definition| definition["spec"]["scope"] = Value::Null).await;
        refused(t, |definition| definition["spec"]["scope"] = json!("Galaxy")).await;
    }
    ["CRD-1"] "a definition with illegal names" => |t| {
        refused(t, |definition| definition["spec"]["names"]["kind"] = json!("not a kind")).await;
        refused(t, |definition| definition["spec"]["names"]["singular"] = json!("Dog!")).await;
        refused(t, |definition| definition["spec"]["group"] = Value::Null).await;
    }
    ["CRD-4"] "a schema that is not structural" => |t| {
        refused(t, |definition| definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"spec": {"properties": {"a": {"type": "string"}}}}})).await;
        refused(t, |definition| definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"spec": {"type": "array"}}})).await;
        refused(t, |definition| definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "string"})).await;
    }
    ["CRD-4"] "a schema with a wrong default or a wrong type" => |t| {
        let spec = |property: Value| json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": property}}}});
        refused(t, |definition| definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = spec(json!({"type": "integer", "default": "x"}))).await;
        refused(t, |definition| definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = spec(json!({"type": "strin"}))).await;
    }
    ["CRD-4"] "a schema with an invalid pattern" => |t| {
        refused(t, |definition| definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
            json!({"type": "object", "properties": {"spec": {"type": "string", "pattern": "("}}})).await;
    }
    ["CRD-4"] "the error of a pattern has Go's text" => |t| {
        for pattern in ["(", "[a", "a)", "*a", "a|*", "+?", "a**", "a*?+", "a{2}{3}", "a{2,1}", "a{1001}", "(a{100}){100}", "[z-a]", "x[^a", "(?<n", "(?P<n>a)(?P<n>b)",
            "(?P<a b>c)", "\\pX", "\\p{Nothing}", "[[:nothing:]]", "(?z)a", "(?i-:a)", "(?", "\\q", "[\\q]", "\\1", "\\x4", "\\C", "(?=a)", "a\\",
            "a{,2}", "a{", "[[a]", "[a&&b]", "\\Qa.b\\E", "\\x{42}", "\\103", "\\P{^Lu}", "(?i)", "^*", "()*", "\\p{greek}", "\\p{Letter}"] {
            let answer = t.setup_any("POST", &format!("{DEFINITIONS}?dryRun=All"), &[], own("dogs", "Dog",
                json!({"type": "object", "properties": {"spec": {"type": "string", "pattern": pattern}}}))).await;
            t.note(pattern, json!([answer.code, answer.body["details"]["causes"][0]["message"]]));
        }
    }
    ["CRD-6"] "a schema with a rule that does not compile" => |t| {
        refused(t, |definition| definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"spec": {
            "type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "self.b > 1"}]}}})).await;
    }
    ["CRD-6"] "a schema with a rule that calls an unknown function, or makes an object" => |t| {
        for rule in ["unknown(self)", "self.a.unknown(1) > 0", "Foo{x: 1}.x == 1"] {
            let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": rule}]}}});
            refused(t, |definition| definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema.clone()).await;
        }
    }
    ["CRD-6"] "a rule that is estimated to cost too much" => |t| {
        let numbers = json!({"type": "array", "items": {"type": "integer"}});
        t.post(&format!("{DEFINITIONS}?dryRun=All"), own("dogs", "Dog", json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"a": numbers, "b": numbers},
            "x-kubernetes-validations": [{"rule": "self.a.all(x, self.b.all(y, x + y < 5000000))"}]}}}))).await;
    }
    ["CRD-7"] "a map list without keys" => |t| {
        refused(t, |definition| definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"spec": {
            "type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}}})).await;
    }
    ["CRD-2"] "before it is defined a kind is not found, in plain text" => |t| {
        t.get(DOGS).await;
        t.get("/apis/{own}/v1").await;
        t.get("/apis/{own}").await;
        t.post(DOGS, dog("a", json!({}))).await;
    }
    ["CRD-2"] "a version that is not served is not found" => |t| {
        let mut definition = own("dogs", "Dog", open_schema());
        let mut second = definition["spec"]["versions"][0].clone();
        second["name"] = json!("v2");
        second["served"] = json!(false);
        second["storage"] = json!(false);
        if let Some(versions) = definition["spec"]["versions"].as_array_mut() { versions.push(second) }
        t.make(DEFINITIONS, definition).await;
        t.until(DOGS, |answer| answer.code == 200).await;
        t.get("/apis/{own}/v2/namespaces/{ns}/dogs").await;
        t.get("/apis/{own}/v1/namespaces/{ns}/cats").await;
    }
    ["CRD-8"] "an object is read in each served version" => |t| {
        let mut definition = own("dogs", "Dog", open_schema());
        let mut second = definition["spec"]["versions"][0].clone();
        second["name"] = json!("v1beta1");
        second["storage"] = json!(false);
        second["deprecated"] = json!(true);
        if let Some(versions) = definition["spec"]["versions"].as_array_mut() { versions.push(second) }
        t.make(DEFINITIONS, definition).await;
        t.until(DOGS, |answer| answer.code == 200).await;
        t.until("/apis/{own}/v1beta1/namespaces/{ns}/dogs", |answer| answer.code == 200).await;
        t.make(DOGS, dog("a", json!({"legs": 4}))).await;
        t.get("/apis/{own}/v1beta1/namespaces/{ns}/dogs/a").await;
        t.get("/apis/{own}/v1beta1/namespaces/{ns}/dogs").await;
        t.get(&format!("{DOGS}/a")).await;
    }
    ["CRD-3"] "the deletion of a definition deletes its objects and ends watches, and it may be created again" => |t| {
        dogs(t, open_schema()).await;
        let made = t.make(DOGS, dog("a", json!({}))).await;
        let mut watch = t.watch(&format!("{DOGS}?watch=true&resourceVersion={}", made.version())).await;
        t.setup("DELETE", &format!("{DEFINITIONS}/dogs.{{own}}"), Value::Null).await;
        t.events_to_end(&mut watch).await;
        t.until(&format!("{DEFINITIONS}/dogs.{{own}}"), |answer| answer.code == 404).await;
        t.until(DOGS, |answer| answer.code == 404).await;
        t.get(DOGS).await;
        dogs(t, open_schema()).await;
        t.get(DOGS).await;
    }
    ["CRD-3"] "the answer to a definition's delete has the finalizer" => |t| {
        dogs(t, open_schema()).await;
        let answer = t.setup("DELETE", &format!("{DEFINITIONS}/dogs.{{own}}"), Value::Null).await;
        t.note("finalizers", answer.body["metadata"]["finalizers"].clone());
        t.note("terminating", json!(answer.body["metadata"]["deletionTimestamp"].is_string()));
        t.note("conditions", conditions(&answer.body));
    }
    ["CRD-3"] "a definition waits for the finalizers of its objects, and accepts no new objects" => |t| {
        dogs(t, open_schema()).await;
        let mut held = dog("a", json!({}));
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        t.make(DOGS, held).await;
        t.setup("DELETE", &format!("{DEFINITIONS}/dogs.{{own}}"), Value::Null).await;
        t.until(&format!("{DOGS}/a"), |answer| answer.body["metadata"]["deletionTimestamp"].is_string()).await;
        t.post(DOGS, dog("late", json!({}))).await;
        t.get(DOGS).await;
        t.setup("PATCH", &format!("{DOGS}/a"), json!({"metadata": {"finalizers": null}})).await;
        t.until(&format!("{DEFINITIONS}/dogs.{{own}}"), |answer| answer.code == 404).await;
    }
    ["CRD-1 U-1"] "a PUT of a definition without a version" => |t| {
        t.make(DEFINITIONS, own("dogs", "Dog", open_schema())).await;
        established(t, "dogs.{own}").await;
        t.put(&format!("{DEFINITIONS}/dogs.{{own}}"), own("dogs", "Dog", open_schema())).await;
    }
    ["CRD-1"] "the scope, the group and the names of a definition do not change" => |t| {
        t.make(DEFINITIONS, own("dogs", "Dog", open_schema())).await;
        established(t, "dogs.{own}").await;
        t.patch(MERGE, &format!("{DEFINITIONS}/dogs.{{own}}"), json!({"spec": {"scope": "Cluster"}})).await;
        t.patch(MERGE, &format!("{DEFINITIONS}/dogs.{{own}}"), json!({"spec": {"group": "other.example.com"}})).await;
        t.patch(MERGE, &format!("{DEFINITIONS}/dogs.{{own}}"), json!({"spec": {"names": {"plural": "cats"}}})).await;
    }
    ["G-1"] "the generation of a definition counts changes of its spec" => |t| {
        t.make(DEFINITIONS, own("dogs", "Dog", open_schema())).await;
        established(t, "dogs.{own}").await;
        let path = format!("{DEFINITIONS}/dogs.{{own}}");
        let labelled = t.setup("PATCH", &path, json!({"metadata": {"labels": {"x": "y"}}})).await;
        t.note("labelled", labelled.body["metadata"]["generation"].clone());
        let changed = t.setup("PATCH", &path, json!({"spec": {"names": {"shortNames": ["dg"]}}})).await;
        t.note("changed", changed.body["metadata"]["generation"].clone());
    }
    ["CRD-4"] "fields that a new schema does not have any more are pruned at a read" => |t| {
        let schema = |name: &str| json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {name: {"type": "integer"}, "both": {"type": "integer", "default": 1}}}}});
        dogs(t, schema("old")).await;
        t.make(DOGS, dog("a", json!({"old": 1}))).await;
        t.setup("PATCH", &format!("{DEFINITIONS}/dogs.{{own}}"), json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema("new")}}]}})).await;
        t.until(&format!("{DOGS}/a"), |answer| answer.body["spec"]["old"].is_null()).await;
        t.get(&format!("{DOGS}/a")).await;
        t.get(DOGS).await;
    }
    ["CRD-4"] "a new default appears in objects stored before" => |t| {
        let schema = |default: Value| json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": default}}}});
        dogs(t, schema(json!({"type": "integer"}))).await;
        t.make(DOGS, dog("a", json!({}))).await;
        t.setup("PATCH", &format!("{DEFINITIONS}/dogs.{{own}}"), json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema(json!({"type": "integer", "default": 7}))}}]}})).await;
        t.until(&format!("{DOGS}/a"), |answer| answer.body["spec"]["n"] == 7).await;
        t.get(&format!("{DOGS}/a")).await;
    }
    ["CRD-10"] "an object moves to a new storage version with its next write, also with one that changes nothing" => |t| {
        let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": open_schema()}});
        let versions = |first: bool| json!({"spec": {"versions": [version("v1", first), version("v2", !first)]}});
        let path = format!("{DEFINITIONS}/dogs.{{own}}");
        let mut definition = own("dogs", "Dog", open_schema());
        definition["spec"]["versions"] = versions(true)["spec"]["versions"].clone();
        t.make(DEFINITIONS, definition).await;
        t.until(DOGS, |answer| answer.code == 200).await;
        let made = t.make(DOGS, dog("a", json!({"n": 1}))).await;
        let one = format!("{DOGS}/a");
        let same = t.setup("PUT", &one, made.body.clone()).await;
        t.note("a write that changes nothing is a write", json!(same.version() != made.version()));
        let moved = t.setup("PATCH", &path, versions(false)).await;
        t.note("storedVersions", moved.body["status"]["storedVersions"].clone());
        // A real server takes the new definition a little later.
        let mut now = same;
        for _ in 0..150 {
            now = t.setup("PUT", &one, now.body.clone()).await;
            if now.version() != made.version() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        t.note("it is one after the move", json!(now.version() != made.version()));
        let again = t.setup("PUT", &one, now.body.clone()).await;
        t.note("and only once", json!(again.version() != now.version()));
        t.get(&one).await;
        t.get("/apis/{own}/v2/namespaces/{ns}/dogs/a").await;
        let only_v2 = json!({"spec": {"versions": [version("v2", true)]}});
        t.patch(MERGE, &path, only_v2.clone()).await;
        let status = t.setup("PATCH", &format!("{path}/status"), json!({"status": {"storedVersions": ["v2"]}})).await;
        t.note("storedVersions after a write of the status", status.body["status"]["storedVersions"].clone());
        let left = t.setup("PATCH", &path, only_v2).await;
        t.note("storedVersions without v1", left.body["status"]["storedVersions"].clone());
    }
    ["CRD-4 CRD-10"] "an object gets the defaults of the version in which it is stored, in each version" => |t| {
        let version = |name: &str, storage: bool, default: Value| json!({"name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer"}, "c": default}}}}}});
        let default = |text: &str| json!({"type": "string", "default": text});
        let mut definition = own("dogs", "Dog", open_schema());
        let none = json!({"type": "string"});
        definition["spec"]["versions"] = json!([version("v1", true, none.clone()), version("v2", false, none)]);
        t.make(DEFINITIONS, definition).await;
        t.until(DOGS, |answer| answer.code == 200).await;
        t.make(DOGS, dog("a", json!({"a": 1}))).await;
        let moved = json!([version("v1", false, default("of v1")), version("v2", true, default("of v2"))]);
        t.setup("PATCH", &format!("{DEFINITIONS}/dogs.{{own}}"), json!({"spec": {"versions": moved}})).await;
        let in_v2 = "/apis/{own}/v2/namespaces/{ns}/dogs";
        t.until(&format!("{DOGS}/a"), |answer| answer.body["spec"]["c"].is_string()).await;
        for path in [DOGS, in_v2] {
            let found = t.setup("GET", &format!("{path}/a"), Value::Null).await;
            t.note("stored in v1", found.body["spec"].clone());
        }
        let mut body = dog("b", json!({"a": 1}));
        body["apiVersion"] = json!("{own}/v2");
        t.make(in_v2, body).await;
        for path in [DOGS, in_v2] {
            let found = t.setup("GET", &format!("{path}/b"), Value::Null).await;
            t.note("stored in v2", found.body["spec"].clone());
        }
    }
    ["CRD-1"] "a group of kubernetes.io needs an approval" => |t| {
        let mut definition = own("dogs", "Dog", open_schema());
        definition["metadata"]["name"] = json!("dogs.conformance.k8s.io");
        definition["spec"]["group"] = json!("conformance.k8s.io");
        t.post(DEFINITIONS, definition).await;
    }
    ["CRD-1"] "a short name that is already in use" => |t| {
        let mut first = own("dogs", "Dog", open_schema());
        first["spec"]["names"]["shortNames"] = json!(["d"]);
        t.make(DEFINITIONS, first).await;
        established(t, "dogs.{own}").await;
        let mut second = own("ducks", "Duck", open_schema());
        second["spec"]["names"]["shortNames"] = json!(["d"]);
        t.make(DEFINITIONS, second).await;
        let definition = t.until(&format!("{DEFINITIONS}/ducks.{{own}}"), |answer| answer.body["status"]["conditions"].as_array().is_some_and(|all| all.len() >= 2)).await;
        t.note("conditions", conditions(&definition.body));
        t.note("acceptedNames", definition.body["status"]["acceptedNames"].clone());
    }
    ["CRD-2 W-1"] "a watch of definitions shows the conditions one by one" => |t| {
        let marker = t.make("{cm}", config_map("marker", "1")).await.version();
        t.make(DEFINITIONS, own("dogs", "Dog", open_schema())).await;
        established(t, "dogs.{own}").await;
        let mut watch = t.watch_unwritten(&format!("{DEFINITIONS}?watch=true&fieldSelector=metadata.name%3Ddogs.{{own}}&resourceVersion={marker}")).await;
        for _ in 0..3 {
            let event = t.event_unwritten(&mut watch).await;
            t.note(event["type"].as_str().unwrap_or_default(), conditions(&event["object"]));
        }
    }
    ["CRD-2 W-6"] "a watch ends when its definition changes" => |t| {
        dogs(t, open_schema()).await;
        let first = t.make(DOGS, dog("a", json!({}))).await;
        let mut watch = t.watch_unwritten(&format!("{DOGS}?watch=true&resourceVersion={}", first.version())).await;
        let path = format!("{DEFINITIONS}/dogs.{{own}}");
        // Labels of the definition are no change of what is served.
        t.setup("PATCH", &path, json!({"metadata": {"labels": {"a": "b"}}})).await;
        t.setup("PATCH", &format!("{DOGS}/a"), json!({"spec": {"x": 1}})).await;
        let event = t.event_unwritten(&mut watch).await;
        t.note("still watched", event["type"].clone());
        t.setup("PATCH", &path, json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "description": "changed"}}}]}})).await;
        let rest = t.unwritten_to_end(&mut watch).await;
        t.note("ended after", json!(rest.len()));
    }
}
