//! Deleting: finalizers, preconditions, propagation, namespaces, the garbage collector.

use serde_json::{Value, json};

use super::{cases, config_map, gadget, labelled, widget};
use crate::conformance::case::{Case, MERGE};

fn held(name: &str) -> Value {
    json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": name, "finalizers": ["example.com/hold"]}})
}

fn owned(name: &str, owner: &str, uid: &str, block: bool) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": block}]}})
}

/// Waits until an object is gone.
async fn gone(t: &Case, path: &str) {
    t.until(path, |answer| answer.code == 404).await;
}

const PODS: &str = "/api/v1/namespaces/{ns}/pods";

fn pod(node: Option<&str>) -> Value {
    json!({"metadata": {"name": "a"}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
}

/// Makes a Pod on a node of its own.
async fn running(t: &Case) {
    t.until(
        "/api/v1/namespaces/{ns}/serviceaccounts/default",
        |answer| answer.code == 200,
    )
    .await;
    t.make("/api/v1/nodes", json!({"metadata": {"name": "{me}"}}))
        .await;
    t.make(PODS, pod(Some("{me}"))).await;
}

/// Deletes the Pod and its node.
async fn ended(t: &Case) {
    let now = json!({"gracePeriodSeconds": 0});
    t.setup_any("DELETE", &format!("{PODS}/a"), &[], now).await;
    t.setup("DELETE", "/api/v1/nodes/{me}", Value::Null).await;
}

/// The code of a deletion of the Pod with `options`, and its grace and time, in seconds after `first`.
async fn graced(t: &Case, options: Value, first: &mut Option<jiff::Timestamp>) -> Value {
    let answer = t
        .setup_any("DELETE", &format!("{PODS}/a"), &[], options)
        .await;
    let metadata = &answer.body["metadata"];
    let time = metadata["deletionTimestamp"].as_str();
    let time: Option<jiff::Timestamp> = time.and_then(|time| time.parse().ok());
    let first = *first.get_or_insert(time.unwrap_or_default());
    let after = time.map(|time| time.duration_since(first).as_secs());
    json!([
        answer.code,
        answer.body["kind"],
        metadata["deletionGracePeriodSeconds"],
        after
    ])
}

cases! { "delete";
    ["D-1"] "a delete without finalizers answers a Status with the uid" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.make("{w}", widget("a", json!({}))).await;
        t.delete("{cm}/a").await;
        t.delete("{w}/a").await;
        t.get("{cm}/a").await;
        t.delete("{cm}/a").await;
        t.delete("{w}/a").await;
    }
    ["D-1"] "a delete of a Service or ServiceAccount answers the object" => |t| {
        for (path, body) in [
            ("/api/v1/namespaces/{ns}/serviceaccounts", json!({"metadata": {"name": "a"}})),
            ("/api/v1/namespaces/{ns}/services", json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}})),
            ("/api/v1/namespaces/{ns}/secrets", json!({"metadata": {"name": "a"}})),
            ("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", json!({"metadata": {"name": "a"}})),
        ] {
            t.make(path, body).await;
            let answer = t.setup("DELETE", &format!("{path}/a"), Value::Null).await;
            t.note(path, json!([answer.body["kind"], answer.body["status"].is_string()]));
        }
    }
    ["D-1"] "a delete with finalizers answers the object with its deletion time; a second one changes nothing" => |t| {
        t.make("{cm}", json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})).await;
        t.delete("{cm}/a").await;
        t.delete("{cm}/a").await;
        t.setup("PATCH", "{cm}/a", json!({"metadata": {"finalizers": null}})).await;
    }
    ["D-2"] "the last finalizer's removal deletes, and answers the object" => |t| {
        t.make("{w}", held("a")).await;
        t.delete("{w}/a").await;
        t.patch(MERGE, "{w}/a", json!({"metadata": {"finalizers": null}})).await;
        t.get("{w}/a").await;
    }
    ["D-2"] "a PUT without finalizers deletes" => |t| {
        t.make("{w}", held("a")).await;
        let version = t.delete("{w}/a").await.version();
        t.put("{w}/a", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "resourceVersion": version}})).await;
        t.get("{w}/a").await;
    }
    ["D-2"] "no finalizer can be added while deleting" => |t| {
        t.make("{w}", held("a")).await;
        t.setup("DELETE", "{w}/a", Value::Null).await;
        t.patch(MERGE, "{w}/a", json!({"metadata": {"finalizers": ["example.com/hold", "example.com/late"]}})).await;
        t.patch(MERGE, "{w}/a", json!({"metadata": {"finalizers": ["example.com/other"]}})).await;
        t.make("{cm}", json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})).await;
        t.setup("DELETE", "{cm}/a", Value::Null).await;
        t.patch(MERGE, "{cm}/a", json!({"metadata": {"finalizers": ["example.com/hold", "example.com/late"]}})).await;
        t.setup("PATCH", "{w}/a", json!({"metadata": {"finalizers": null}})).await;
        t.setup("PATCH", "{cm}/a", json!({"metadata": {"finalizers": null}})).await;
    }
    ["D-2"] "the spec of a terminating object may change" => |t| {
        t.make("{w}", held("a")).await;
        t.setup("DELETE", "{w}/a", Value::Null).await;
        t.patch(MERGE, "{w}/a", json!({"spec": {"color": "red"}})).await;
        t.setup("PATCH", "{w}/a", json!({"metadata": {"finalizers": null}})).await;
    }
    ["D-3"] "a delete with another uid is a conflict" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.delete_with("{cm}/a", json!({"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}})).await;
    }
    ["D-3"] "a delete with another version is a conflict, with the current one it is not" => |t| {
        let first = t.make("{w}", widget("a", json!({}))).await;
        let second = t.setup("PATCH", "{w}/a", json!({"spec": {"color": "red"}})).await.version();
        t.delete_with("{w}/a", json!({"preconditions": {"resourceVersion": first.version()}})).await;
        t.delete_with("{w}/a", json!({"preconditions": {"resourceVersion": second, "uid": first.uid()}})).await;
    }
    ["D-3"] "delete options in the query" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.delete("{cm}/a?propagationPolicy=Orphan&orphanDependents=true").await;
        t.delete("{cm}/a?propagationPolicy=Sideways").await;
        t.delete("{cm}/a?gracePeriodSeconds=x").await;
        t.delete("{cm}/a?propagationPolicy=Background&gracePeriodSeconds=0").await;
    }
    ["D-3"] "wrong delete options" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.delete_with("{cm}/a", json!({"propagationPolicy": "Sideways"})).await;
        t.delete_with("{cm}/a", json!({"kind": "ConfigMap", "apiVersion": "v1"})).await;
        t.delete_with("{cm}/a", json!("nonsense")).await;
        t.delete_with("{cm}/a", json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})).await;
    }
    ["D-4"] "a foreground delete without dependents, step by step" => |t| {
        let made = t.make("{cm}", config_map("a", "1")).await;
        let mut watch = t.watch(&format!("{{cm}}?watch=true&resourceVersion={}", made.version())).await;
        t.delete_with("{cm}/a", json!({"propagationPolicy": "Foreground"})).await;
        t.events(&mut watch, 2).await;
        gone(t, "{cm}/a").await;
    }
    ["D-4 D-5"] "a foreground delete waits for dependents that block it" => |t| {
        let owner = t.make("{cm}", config_map("owner", "1")).await;
        let mut dependent = owned("dependent", "owner", &owner.uid(), true);
        dependent["metadata"]["finalizers"] = json!(["example.com/hold"]);
        let last = t.make("{cm}", dependent).await;
        let mut watch = t.watch(&format!("{{cm}}?watch=true&resourceVersion={}", last.version())).await;
        t.delete_with("{cm}/owner", json!({"propagationPolicy": "Foreground"})).await;
        // The owner gets its deletion time, then the dependent.
        t.events(&mut watch, 2).await;
        t.get("{cm}/owner").await;
        t.setup("PATCH", "{cm}/dependent", json!({"metadata": {"finalizers": null}})).await;
        gone(t, "{cm}/owner").await;
        t.events(&mut watch, 2).await;
    }
    ["D-4 D-5"] "an orphaning delete removes the owner reference" => |t| {
        let owner = t.make("{cm}", config_map("owner", "1")).await;
        let last = t.make("{cm}", owned("dependent", "owner", &owner.uid(), false)).await;
        let mut watch = t.watch(&format!("{{cm}}?watch=true&resourceVersion={}", last.version())).await;
        t.delete_with("{cm}/owner", json!({"propagationPolicy": "Orphan"})).await;
        gone(t, "{cm}/owner").await;
        t.events(&mut watch, 3).await;
        t.get("{cm}/dependent").await;
    }
    ["D-5"] "a background delete lets the collector remove dependents" => |t| {
        let owner = t.make("{cm}", config_map("owner", "1")).await;
        let last = t.make("{cm}", owned("dependent", "owner", &owner.uid(), false)).await;
        let mut watch = t.watch(&format!("{{cm}}?watch=true&resourceVersion={}", last.version())).await;
        t.delete("{cm}/owner").await;
        gone(t, "{cm}/dependent").await;
        t.events(&mut watch, 2).await;
    }
    ["D-5"] "a dependent with another living owner loses only the reference" => |t| {
        let first = t.make("{cm}", config_map("first", "1")).await;
        let second = t.make("{cm}", config_map("second", "1")).await;
        let reference = |name: &str, uid: String| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid});
        t.make("{cm}", json!({"metadata": {"name": "dependent", "ownerReferences": [reference("first", first.uid()), reference("second", second.uid())]}})).await;
        t.setup("DELETE", "{cm}/first", Value::Null).await;
        t.until("{cm}/dependent", |answer| answer.body["metadata"]["ownerReferences"].as_array().is_some_and(|all| all.len() == 1)).await;
        t.get("{cm}/dependent").await;
    }
    ["D-4 D-5"] "a foreground delete continues when a dependent has another living owner" => |t| {
        let going = t.make("{cm}", config_map("going", "1")).await;
        let living = t.make("{cm}", config_map("living", "1")).await;
        let reference = |name: &str, uid: String| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true});
        t.make("{cm}", json!({"metadata": {"name": "dependent", "ownerReferences": [reference("going", going.uid()), reference("living", living.uid())]}})).await;
        t.setup("DELETE", "{cm}/going", json!({"propagationPolicy": "Foreground"})).await;
        gone(t, "{cm}/going").await;
        t.get("{cm}/dependent").await;
    }
    ["D-5"] "a cluster-scoped object that names a namespaced owner stays, with an event" => |t| {
        let owner = t.make("{cm}", config_map("owner", "1")).await;
        // After this, the collector has processed the owner.
        t.make("{cm}", owned("dependent", "never", "11111111-2222-3333-4444-555555555555", false)).await;
        gone(t, "{cm}/dependent").await;
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        let mut role = owned("{me}", "owner", &owner.uid(), false);
        role["rules"] = json!([]);
        t.make(roles, role).await;
        let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{me}";
        let reported = t.until(events, |answer| answer.body["items"].as_array().is_some_and(|all| !all.is_empty())).await;
        let event = &reported.body["items"][0];
        t.note("event", json!([event["reason"], event["type"], event["count"], event["source"], event["reportingComponent"], event["involvedObject"]["kind"], event["involvedObject"]["apiVersion"], event["involvedObject"]["namespace"]]));
        t.note("message", json!(event["message"].as_str().map(|text| text.replace(&owner.uid(), "UID"))));
        t.setup("DELETE", "{cm}/owner", Value::Null).await;
        let still = t.setup("GET", &format!("{roles}/{{me}}"), Value::Null).await;
        t.note("still there", still.body["metadata"]["ownerReferences"].is_array().into());
        t.setup("DELETE", &format!("{roles}/{{me}}"), Value::Null).await;
    }
    ["D-7"] "a namespace waits for foreign finalizers in its spec" => |t| {
        let path = "/api/v1/namespaces/{me}-x";
        let made = t.make("/api/v1/namespaces", json!({"metadata": {"name": "{me}-x"}, "spec": {"finalizers": ["example.com/hold"]}})).await;
        t.note("made", made.body["spec"].clone());
        t.setup("DELETE", path, Value::Null).await;
        let waiting = t.until(path, |answer| answer.body["spec"]["finalizers"].as_array().is_some_and(|all| all.len() == 1)).await;
        t.note("waiting", waiting.body["spec"].clone());
        let mut last = t.setup("GET", path, Value::Null).await.body;
        last["spec"] = json!({});
        last["metadata"]["resourceVersion"] = Value::Null;
        t.setup("PUT", &format!("{path}/finalize"), last).await;
        gone(t, path).await;
    }
    ["D-5"] "an object whose owner never existed is collected" => |t| {
        t.make("{cm}", owned("dependent", "never", "11111111-2222-3333-4444-555555555555", false)).await;
        gone(t, "{cm}/dependent").await;
    }
    ["D-5"] "custom resources may be owners and dependents" => |t| {
        let owner = t.make("{w}", widget("owner", json!({}))).await;
        let reference = json!({"apiVersion": "{group}/v1", "kind": "Widget", "name": "owner", "uid": owner.uid()});
        t.make("{cm}", json!({"metadata": {"name": "dependent", "ownerReferences": [reference]}})).await;
        t.make("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "dependent", "ownerReferences": [reference]}})).await;
        t.setup("DELETE", "{w}/owner", Value::Null).await;
        gone(t, "{cm}/dependent").await;
        gone(t, "{w}/dependent").await;
    }
    ["D-4"] "a default delete of a custom resource that already has the foreground finalizer" => |t| {
        t.make("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "finalizers": ["orphan"]}})).await;
        t.delete_with("{w}/a", json!({"propagationPolicy": "Background"})).await;
    }
    ["D-6"] "a collection is deleted by selector, and the answer is the list" => |t| {
        for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
            t.make("{cm}", labelled(name, json!({"app": app}))).await;
        }
        t.delete("{cm}?labelSelector=app%3Dx").await;
        t.get("{cm}").await;
    }
    ["D-6"] "a collection of custom resources is deleted" => |t| {
        t.make("{w}", widget("a", json!({}))).await;
        t.make("{w}", held("b")).await;
        t.delete("{w}").await;
        t.get("{w}").await;
        t.setup("PATCH", "{w}/b", json!({"metadata": {"finalizers": null}})).await;
    }
    ["D-6"] "a dry-run delete of a collection deletes nothing" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.delete("{cm}?dryRun=All").await;
        t.get("{cm}").await;
    }
    ["D-7"] "a namespace is deleted with its contents" => |t| {
        t.make("/api/v1/namespaces", json!({"metadata": {"name": "{me}-x"}})).await;
        t.make("/api/v1/namespaces/{me}-x/configmaps", config_map("a", "1")).await;
        t.make("/apis/{group}/v1/namespaces/{me}-x/widgets", widget("a", json!({}))).await;
        t.delete("/api/v1/namespaces/{me}-x").await;
        gone(t, "/api/v1/namespaces/{me}-x").await;
        t.get("/api/v1/namespaces/{me}-x/configmaps").await;
        t.get("/apis/{group}/v1/namespaces/{me}-x/widgets").await;
    }
    ["D-7"] "a terminating namespace accepts no new objects, and waits for the finalizers of its contents" => |t| {
        t.make("/api/v1/namespaces", json!({"metadata": {"name": "{me}-x"}})).await;
        let widgets = "/apis/{group}/v1/namespaces/{me}-x/widgets";
        t.make(widgets, held("a")).await;
        t.setup("DELETE", "/api/v1/namespaces/{me}-x", Value::Null).await;
        t.until(&format!("{widgets}/a"), |answer| answer.body["metadata"]["deletionTimestamp"].is_string()).await;
        t.post("/api/v1/namespaces/{me}-x/configmaps", config_map("late", "1")).await;
        t.post(widgets, widget("late", json!({}))).await;
        let namespace = t.until("/api/v1/namespaces/{me}-x", |answer| {
            answer.body["status"]["conditions"].as_array().is_some_and(|all| all.len() == 5)
        }).await;
        t.note("phase", namespace.body["status"]["phase"].clone());
        let conditions = namespace.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let shown: Vec<Value> = conditions.iter().map(|one| json!([one["type"], one["status"], one["reason"], one["message"]])).collect();
        t.note("conditions", json!(shown));
        t.setup("PATCH", &format!("{widgets}/a"), json!({"metadata": {"finalizers": null}})).await;
        gone(t, "/api/v1/namespaces/{me}-x").await;
    }
    ["D-7"] "the first namespaces cannot be deleted" => |t| {
        t.delete("/api/v1/namespaces/default").await;
        t.delete("/api/v1/namespaces/kube-system").await;
        t.delete("/api/v1/namespaces/kube-public").await;
    }
    ["D-8"] "a pod without a node is deleted at once" => |t| {
        let pods = "/api/v1/namespaces/{ns}/pods";
        t.until("/api/v1/namespaces/{ns}/serviceaccounts/default", |answer| answer.code == 200).await;
        t.make(pods, json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})).await;
        let answer = t.setup("DELETE", &format!("{pods}/a"), Value::Null).await;
        t.note("answer", json!([answer.body["kind"], answer.body["metadata"]["deletionGracePeriodSeconds"]]));
        t.get(&format!("{pods}/a")).await;
    }
    ["D-8"] "a pod on a node stays until it is deleted with no grace" => |t| {
        let pods = "/api/v1/namespaces/{ns}/pods";
        t.until("/api/v1/namespaces/{ns}/serviceaccounts/default", |answer| answer.code == 200).await;
        t.make("/api/v1/nodes", json!({"metadata": {"name": "{me}"}})).await;
        t.make(pods, json!({"metadata": {"name": "a"}, "spec": {"nodeName": "{me}", "containers": [{"name": "c", "image": "i"}]}})).await;
        let answer = t.setup("DELETE", &format!("{pods}/a"), Value::Null).await;
        let metadata = &answer.body["metadata"];
        t.note("answer", json!([answer.body["kind"], metadata["deletionGracePeriodSeconds"], metadata["deletionTimestamp"].is_string()]));
        let answer = t.setup("DELETE", &format!("{pods}/a"), json!({"gracePeriodSeconds": 0})).await;
        t.note("answer", json!([answer.body["kind"]]));
        t.get(&format!("{pods}/a")).await;
        t.setup("DELETE", "/api/v1/nodes/{me}", Value::Null).await;
    }
    ["D-1"] "a cluster-scoped custom resource is deleted" => |t| {
        t.make("{g}", gadget(json!({}))).await;
        t.delete("{g}/{me}").await;
        t.get("{g}/{me}").await;
    }
    ["D-8 W-1"] "a pod that goes at once is marked before, and a watch shows both" => |t| {
        t.until("/api/v1/namespaces/{ns}/serviceaccounts/default", |answer| answer.code == 200).await;
        let made = t.make(PODS, pod(None)).await;
        let mut watch = t.watch_unwritten(&format!("{PODS}?watch=true&resourceVersion={}", made.version())).await;
        let answer = t.setup("DELETE", &format!("{PODS}/a"), Value::Null).await;
        let shown = |kind: &Value, object: &Value| {
            let metadata = &object["metadata"];
            json!([kind, metadata["deletionGracePeriodSeconds"], metadata["deletionTimestamp"].is_string(), metadata["generation"]])
        };
        t.note("answer", shown(&answer.body["kind"], &answer.body));
        let mut versions = vec![made.version(), answer.version()];
        for _ in 0..2 {
            let event = t.event_unwritten(&mut watch).await;
            t.note("event", shown(&event["type"], &event["object"]));
            versions.push(event["object"]["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned());
        }
        let number = |at: usize| versions[at].parse::<u64>().unwrap_or_default();
        t.note("the answer has the version of the end, which comes after that of the mark", json!([number(1) == number(3), number(3) > number(2), number(2) > number(0)]));
    }
    ["D-8 W-1"] "a pod on a node that is deleted with no grace is marked before" => |t| {
        running(t).await;
        let now = t.setup("GET", &format!("{PODS}/a"), Value::Null).await;
        let mut watch = t.watch_unwritten(&format!("{PODS}?watch=true&resourceVersion={}", now.version())).await;
        t.setup("DELETE", &format!("{PODS}/a"), json!({"gracePeriodSeconds": 0})).await;
        for _ in 0..2 {
            let event = t.event_unwritten(&mut watch).await;
            let metadata = &event["object"]["metadata"];
            t.note("event", json!([event["type"], metadata["deletionGracePeriodSeconds"], metadata["deletionTimestamp"].is_string(), metadata["generation"]]));
        }
        ended(t).await;
    }
    ["D-8"] "the grace of a pod becomes shorter and not longer" => |t| {
        running(t).await;
        let mut first = None;
        for options in [json!({"gracePeriodSeconds": 300}), json!({"gracePeriodSeconds": 400}), json!(null), json!({"gracePeriodSeconds": 100}), json!({"gracePeriodSeconds": 100})] {
            let answer = graced(t, options.clone(), &mut first).await;
            t.note(&options.to_string(), answer);
        }
        ended(t).await;
    }
    ["D-8"] "a negative grace of a pod is a second" => |t| {
        running(t).await;
        for _ in 0..2 {
            let mut first = None;
            let answer = graced(t, json!({"gracePeriodSeconds": -1}), &mut first).await;
            t.note("answer", answer);
        }
        ended(t).await;
    }
    ["D-8"] "a pod that ends while it is deleted stays for its grace" => |t| {
        running(t).await;
        let mut first = None;
        let answer = graced(t, json!({"gracePeriodSeconds": 300}), &mut first).await;
        t.note("deleted", answer);
        t.setup("PATCH", &format!("{PODS}/a/status"), json!({"status": {"phase": "Succeeded"}})).await;
        let answer = graced(t, json!(null), &mut first).await;
        t.note("deleted again", answer);
        let left = t.setup_any("GET", &format!("{PODS}/a"), &[], Value::Null).await;
        t.note("left", json!(left.code));
        ended(t).await;
    }
    ["D-8 D-4"] "a pod that is being deleted takes no other propagation" => |t| {
        running(t).await;
        t.setup("DELETE", &format!("{PODS}/a"), json!({"gracePeriodSeconds": 300})).await;
        t.setup_any("DELETE", &format!("{PODS}/a"), &[], json!({"propagationPolicy": "Foreground"})).await;
        let left = t.setup("GET", &format!("{PODS}/a"), Value::Null).await;
        t.note("finalizers", left.body["metadata"]["finalizers"].clone());
        ended(t).await;
    }
    ["D-4"] "orphanDependents in the answers of deletions that wait" => |t| {
        for (name, options) in [("a", json!({"orphanDependents": false})), ("b", json!({"orphanDependents": true})), ("c", json!({"propagationPolicy": "Background"})), ("d", json!({"propagationPolicy": "Foreground"}))] {
            t.make("{w}", held(name)).await;
            let answer = t.setup_any("DELETE", &format!("{{w}}/{name}"), &[], options.clone()).await;
            t.note(&options.to_string(), json!([answer.code, answer.body["kind"], answer.body["metadata"]["finalizers"]]));
            t.setup("PATCH", &format!("{{w}}/{name}"), json!({"metadata": {"finalizers": null}})).await;
        }
    }
    ["D-1"] "with options in the body those of the query do not count" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        let answer = t.setup_any("DELETE", "{cm}/a?dryRun=All", &[], json!({"gracePeriodSeconds": 0})).await;
        t.note("answer", json!([answer.code, answer.body["status"]]));
        let left = t.setup_any("GET", "{cm}/a", &[], Value::Null).await;
        t.note("left", json!(left.code));
    }
    ["D-4 D-5"] "owners of one another go in the foreground, too" => |t| {
        let a = t.make("{cm}", config_map("a", "1")).await.uid();
        let b = t.make("{cm}", owned("b", "a", &a, true)).await.uid();
        let reference = owned("a", "b", &b, true)["metadata"]["ownerReferences"].clone();
        t.setup("PATCH", "{cm}/a", json!({"metadata": {"ownerReferences": reference}})).await;
        t.setup("DELETE", "{cm}/a", json!({"propagationPolicy": "Foreground"})).await;
        gone(t, "{cm}/a").await;
        gone(t, "{cm}/b").await;
        t.note("both", json!("gone"));
    }
    ["D-4 D-5"] "an owner goes when a dependent that stays blocks it no more" => |t| {
        let a = t.make("{cm}", config_map("a", "1")).await.uid();
        let mut b = owned("b", "a", &a, true);
        b["metadata"]["finalizers"] = json!(["example.com/hold"]);
        t.make("{cm}", b).await;
        t.setup("DELETE", "{cm}/a", json!({"propagationPolicy": "Foreground"})).await;
        t.until("{cm}/b", |answer| answer.body["metadata"]["deletionTimestamp"].is_string()).await;
        let there = t.setup_any("GET", "{cm}/a", &[], Value::Null).await;
        t.note("waits", json!(there.code));
        let reference = owned("b", "a", &a, false)["metadata"]["ownerReferences"].clone();
        t.setup("PATCH", "{cm}/b", json!({"metadata": {"ownerReferences": reference}})).await;
        gone(t, "{cm}/a").await;
        t.setup("PATCH", "{cm}/b", json!({"metadata": {"finalizers": null}})).await;
        gone(t, "{cm}/b").await;
        t.note("both", json!("gone"));
    }
    ["D-7"] "a namespace deletes its pods first" => |t| {
        let namespace = "/api/v1/namespaces/{me}-pods";
        t.make("/api/v1/namespaces", json!({"metadata": {"name": "{me}-pods"}})).await;
        t.until(&format!("{namespace}/serviceaccounts/default"), |answer| answer.code == 200).await;
        let mut held = pod(None);
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        t.make(&format!("{namespace}/pods"), held).await;
        t.make(&format!("{namespace}/configmaps"), config_map("a", "1")).await;
        t.setup("DELETE", namespace, Value::Null).await;
        t.until(&format!("{namespace}/pods/a"), |answer| answer.body["metadata"]["deletionTimestamp"].is_string()).await;
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        let there = t.setup_any("GET", &format!("{namespace}/configmaps/a"), &[], Value::Null).await;
        t.note("beside the pod", json!(there.code));
        t.setup("PATCH", &format!("{namespace}/pods/a"), json!({"metadata": {"finalizers": null}})).await;
        gone(t, namespace).await;
        t.note("without it", json!("gone"));
    }
}
