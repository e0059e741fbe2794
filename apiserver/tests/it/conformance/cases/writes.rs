//! Creating and updating, status, scale, dry-run.

use serde_json::{Value, json};

use super::{cases, config_map, gadget, widget};
use crate::conformance::case::MERGE;

cases! { "writes";
    ["C-1"] "a create answers 201 with what the server sets" => |t| {
        t.post("{cm}", config_map("a", "1")).await;
        t.post("{w}", widget("a", json!({"color": "red"}))).await;
    }
    ["C-1"] "a create must not have a version" => |t| {
        t.post("{cm}", json!({"metadata": {"name": "a", "resourceVersion": "5"}})).await;
        t.post("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "resourceVersion": "5"}})).await;
    }
    ["C-1"] "uid, times and generation of a create are the server's" => |t| {
        let sent = json!({"name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7,
            "deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5, "selfLink": "/x"});
        t.post("{cm}", json!({"metadata": sent})).await;
        t.post("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": sent})).await;
    }
    ["C-1"] "a namespace in the body must be the path's" => |t| {
        t.post("{cm}", json!({"metadata": {"name": "a", "namespace": "other"}})).await;
        t.post("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "other"}})).await;
    }
    ["C-1"] "a wrong apiVersion or kind is refused" => |t| {
        t.post("{cm}", json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}})).await;
        t.post("{cm}", json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})).await;
        t.post("{w}", json!({"apiVersion": "{group}/v2", "kind": "Widget", "metadata": {"name": "a"}})).await;
        t.post("{w}", json!({"apiVersion": "{group}/v1", "kind": "Gizmo", "metadata": {"name": "a"}})).await;
    }
    ["C-1"] "apiVersion and kind may be omitted" => |t| {
        t.post("{cm}", json!({"metadata": {"name": "a"}})).await;
        t.post("{w}", json!({"metadata": {"name": "a"}})).await;
    }
    ["C-1"] "a create without a name is refused" => |t| {
        t.post("{cm}", json!({"metadata": {}})).await;
        t.post("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget"})).await;
    }
    ["C-1"] "a generated name has five characters after the prefix" => |t| {
        let answer = t.setup("POST", "{cm}", json!({"metadata": {"generateName": "pre-"}})).await;
        let name = answer.text("/metadata/name");
        t.note("prefix and length", json!([&name[..4], name.len()]));
        t.note("generateName", answer.body["metadata"]["generateName"].clone());
    }
    ["C-1 CRD-9"] "an illegal name is invalid" => |t| {
        t.post("{cm}", config_map("Not_Legal", "1")).await;
        t.post("{w}", widget("Not_Legal", json!({}))).await;
        t.post("/api/v1/namespaces", json!({"metadata": {"name": "not.legal"}})).await;
    }
    ["C-1 CRD-9"] "illegal labels, annotations and finalizers are invalid" => |t| {
        t.post("{cm}", json!({"metadata": {"name": "a", "labels": {"a b": "x"}}})).await;
        t.post("{cm}", json!({"metadata": {"name": "a", "labels": {"ok": "-no-"}}})).await;
        t.post("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "labels": {"ok": "-no-"}, "annotations": {"/": "x"}}})).await;
        t.post("{cm}", json!({"metadata": {"name": "a", "finalizers": ["nodomain"]}})).await;
    }
    ["C-1"] "a label that is not a text cannot be decoded" => |t| {
        t.post("{cm}", json!({"metadata": {"name": "a", "labels": {"n": 5}}})).await;
        t.post("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "labels": {"n": 5}}})).await;
    }
    ["C-1 D-7"] "a create in a namespace that does not exist is not found" => |t| {
        t.post("/api/v1/namespaces/no-such-namespace/configmaps", config_map("a", "1")).await;
        t.post("/apis/{group}/v1/namespaces/no-such-namespace/widgets", widget("a", json!({}))).await;
    }
    ["C-1"] "a body that is not JSON is refused" => |t| {
        t.post("{cm}", json!("{\"metadata\": ")).await;
        t.post("{w}", json!("nonsense")).await;
        t.post("{cm}", json!("[]")).await;
    }
    ["C-1"] "a create without a body is refused" => |t| {
        t.post("{cm}", Value::Null).await;
        t.post("{w}", Value::Null).await;
    }
    ["C-1"] "a YAML body is accepted" => |t| {
        t.send("POST", "{cm}", &[("content-type", "application/yaml")], json!("metadata:\n  name: a\ndata:\n  key: value\n")).await;
    }
    ["C-1"] "a namespace that already exists, a list as a body, another path's kind" => |t| {
        t.post("/api/v1/namespaces", json!({"metadata": {"name": "{ns}"}})).await;
        t.post("{cm}", json!({"apiVersion": "v1", "kind": "ConfigMapList", "items": []})).await;
    }
    ["C-2"] "a create of an existing object is a conflict" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.make("{w}", widget("a", json!({}))).await;
        t.post("{cm}", config_map("a", "2")).await;
        t.post("{w}", widget("a", json!({}))).await;
    }
    ["C-2 D-2"] "a create of a terminating object has its own message" => |t| {
        t.make("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "finalizers": ["example.com/hold"]}})).await;
        t.setup("DELETE", "{w}/a", Value::Null).await;
        t.post("{w}", widget("a", json!({}))).await;
        t.setup("PATCH", "{w}/a", json!({"metadata": {"finalizers": null}})).await;
    }
    ["U-1"] "a PUT without a version is allowed for ConfigMaps and refused for custom resources" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.make("{w}", widget("a", json!({}))).await;
        t.put("{cm}/a", config_map("a", "2")).await;
        t.put("{w}/a", widget("a", json!({"color": "red"}))).await;
    }
    ["U-1"] "a PUT of a Lease without a version" => |t| {
        let leases = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases";
        t.make(leases, json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}})).await;
        t.put(&format!("{leases}/a"), json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "you"}})).await;
    }
    ["U-1"] "a PUT with a stale version is a conflict" => |t| {
        let made = t.make("{cm}", config_map("a", "1")).await.version();
        t.setup("PATCH", "{cm}/a", json!({"data": {"key": "2"}})).await;
        t.put("{cm}/a", json!({"metadata": {"name": "a", "resourceVersion": made}})).await;
        let made = t.make("{w}", widget("a", json!({}))).await.version();
        t.setup("PATCH", "{w}/a", json!({"spec": {"color": "red"}})).await;
        t.put("{w}/a", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "resourceVersion": made}})).await;
    }
    ["U-1"] "a PUT with the current version replaces" => |t| {
        let made = t.make("{w}", widget("a", json!({"color": "red", "flag": true}))).await.version();
        t.put("{w}/a", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "resourceVersion": made}, "spec": {"color": "blue"}})).await;
    }
    ["U-1"] "a PUT with a version that is not a number is invalid" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.put("{cm}/a", json!({"metadata": {"name": "a", "resourceVersion": "abc"}})).await;
    }
    ["U-2"] "a PUT with another uid is a conflict" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.put("{cm}/a", json!({"metadata": {"name": "a", "uid": "11111111-2222-3333-4444-555555555555"}})).await;
    }
    ["U-2"] "a PUT with another name or namespace is refused" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.put("{cm}/a", config_map("b", "1")).await;
        t.put("{cm}/a", json!({"metadata": {"name": "a", "namespace": "other"}})).await;
        t.put("{cm}/a", json!({"metadata": {}})).await;
    }
    ["U-2"] "a PUT cannot change uid, times or generation" => |t| {
        let made = t.make("{w}", widget("a", json!({}))).await;
        t.put("{w}/a", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "resourceVersion": made.version(),
            "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9, "deletionTimestamp": "2001-01-01T00:00:00Z", "labels": {"a": "b"}}})).await;
    }
    ["U-1"] "a PUT of an absent object is not found" => |t| {
        t.put("{cm}/nothing", config_map("nothing", "1")).await;
        t.put("{w}/nothing", widget("nothing", json!({}))).await;
    }
    ["U-1"] "an immutable ConfigMap cannot change" => |t| {
        t.make("{cm}", json!({"metadata": {"name": "a"}, "data": {"key": "1"}, "immutable": true})).await;
        t.put("{cm}/a", json!({"metadata": {"name": "a"}, "data": {"key": "2"}, "immutable": true})).await;
    }
    ["C-1"] "a ConfigMap key must be legal" => |t| {
        t.post("{cm}", json!({"metadata": {"name": "a"}, "data": {"not legal": "1"}})).await;
    }
    ["C-1"] "a Secret's stringData becomes data, and its type is Opaque" => |t| {
        t.post("/api/v1/namespaces/{ns}/secrets", json!({"metadata": {"name": "a"}, "stringData": {"key": "value"}})).await;
    }
    ["C-1"] "a Secret's data must be base64" => |t| {
        t.post("/api/v1/namespaces/{ns}/secrets", json!({"metadata": {"name": "a"}, "data": {"key": "!"}})).await;
    }
    ["G-1"] "the generation of a custom resource counts changes of its spec" => |t| {
        t.post("{w}", widget("a", json!({}))).await;
        t.patch(MERGE, "{w}/a", json!({"metadata": {"labels": {"x": "y"}}})).await;
        t.patch(MERGE, "{w}/a", json!({"spec": {"color": "red"}})).await;
        t.patch(MERGE, "{w}/a/status", json!({"status": {"phase": "Up"}})).await;
        t.patch(MERGE, "{w}/a", json!({"status": {"phase": "Down"}})).await;
    }
    ["G-1"] "without a status subresource a change of status also counts" => |t| {
        t.post("{g}", gadget(json!({"a": 1}))).await;
        t.patch(MERGE, "{g}/{me}", json!({"status": {"phase": "Up"}})).await;
        t.patch(MERGE, "{g}/{me}", json!({"metadata": {"annotations": {"x": "y"}}})).await;
        t.delete("{g}/{me}").await;
    }
    ["G-1 D-1"] "a pending deletion raises the generation by one" => |t| {
        t.post("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "finalizers": ["example.com/hold"]}})).await;
        t.delete("{w}/a").await;
        t.delete("{w}/a").await;
        t.patch(MERGE, "{w}/a", json!({"metadata": {"finalizers": null}})).await;
    }
    ["G-1"] "kinds without a generation have none" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.patch(MERGE, "{cm}/a", json!({"data": {"key": "2"}})).await;
    }
    ["S-1"] "a create drops the status if it is a subresource" => |t| {
        t.post("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a"}, "status": {"phase": "Up"}})).await;
    }
    ["S-1"] "the main resource keeps the stored status" => |t| {
        t.make("{w}", widget("a", json!({}))).await;
        t.setup("PATCH", "{w}/a/status", json!({"status": {"phase": "Up"}})).await;
        t.patch(MERGE, "{w}/a", json!({"status": {"phase": "Down"}, "spec": {"color": "red"}})).await;
    }
    ["S-1"] "the status subresource changes only status" => |t| {
        t.make("{w}", widget("a", json!({"color": "red"}))).await;
        t.patch(MERGE, "{w}/a/status", json!({"metadata": {"labels": {"x": "y"}}, "spec": {"color": "blue"}, "status": {"phase": "Up"}})).await;
        t.get("{w}/a/status").await;
    }
    ["S-1"] "a PUT of status checks the version" => |t| {
        let first = t.make("{w}", widget("a", json!({}))).await.version();
        let second = t.setup("PATCH", "{w}/a", json!({"spec": {"color": "red"}})).await.version();
        t.put("{w}/a/status", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "resourceVersion": first}, "status": {"phase": "Up"}})).await;
        t.put("{w}/a/status", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a"}, "status": {"phase": "Up"}})).await;
        t.put("{w}/a/status", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "resourceVersion": second}, "status": {"phase": "Up"}})).await;
    }
    ["S-1"] "without the subresource its path is not found" => |t| {
        t.make("{g}", gadget(json!({}))).await;
        t.get("{g}/{me}/status").await;
        t.patch(MERGE, "{g}/{me}/status", json!({"status": {}})).await;
        t.setup("DELETE", "{g}/{me}", Value::Null).await;
        t.get("{cm}/a/status").await;
    }
    ["S-1"] "status accepts neither POST nor DELETE" => |t| {
        t.make("{w}", widget("a", json!({}))).await;
        t.post("{w}/a/status", widget("a", json!({}))).await;
        t.delete("{w}/a/status").await;
    }
    ["S-1 CRD-5"] "a wrong status is invalid" => |t| {
        t.make("{w}", widget("a", json!({}))).await;
        t.patch(MERGE, "{w}/a/status", json!({"status": {"replicas": "many"}})).await;
    }
    ["SC-1"] "the scale of a custom resource" => |t| {
        t.make("{w}", widget("a", json!({"replicas": 3}))).await;
        t.setup("PATCH", "{w}/a/status", json!({"status": {"replicas": 2, "selector": "app=a"}})).await;
        t.get("{w}/a/scale").await;
        t.patch(MERGE, "{w}/a/scale", json!({"spec": {"replicas": 5}})).await;
        t.get("{w}/a").await;
        t.patch(MERGE, "{w}/a/scale", json!({"spec": {"replicas": -1}})).await;
    }
    ["SC-1"] "a PUT of scale checks the version" => |t| {
        let first = t.make("{w}", widget("a", json!({}))).await.version();
        let second = t.setup("PATCH", "{w}/a", json!({"spec": {"color": "red"}})).await.version();
        let scale = |version: &str| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a", "namespace": "{ns}", "resourceVersion": version}, "spec": {"replicas": 4}});
        t.put("{w}/a/scale", scale(&first)).await;
        t.put("{w}/a/scale", scale(&second)).await;
    }
    ["SC-1"] "the scale of a Deployment" => |t| {
        let deployments = "/apis/apps/v1/namespaces/{ns}/deployments";
        t.make(deployments, json!({"metadata": {"name": "a"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": {
            "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})).await;
        let scale = t.setup("GET", &format!("{deployments}/a/scale"), Value::Null).await;
        t.note("scale", json!([scale.body["kind"], scale.body["apiVersion"], scale.body["spec"], scale.body["status"]["selector"]]));
    }
    ["DR-1"] "a dry-run create stores nothing and sends no event" => |t| {
        let first = t.make("{cm}", config_map("first", "1")).await;
        let mut watch = t.watch(&format!("{{cm}}?watch=true&resourceVersion={}", first.version())).await;
        t.post("{cm}?dryRun=All", config_map("a", "1")).await;
        t.post("{w}?dryRun=All", widget("a", json!({}))).await;
        t.get("{cm}/a").await;
        t.make("{cm}", config_map("marker", "1")).await;
        t.events(&mut watch, 1).await;
    }
    ["DR-1"] "dry-run updates, patches and deletes change nothing" => |t| {
        t.make("{w}", widget("a", json!({"color": "red"}))).await;
        t.patch(MERGE, "{w}/a?dryRun=All", json!({"spec": {"color": "blue"}})).await;
        t.delete("{w}/a?dryRun=All").await;
        t.delete_with("{w}/a", json!({"dryRun": ["All"]})).await;
        t.get("{w}/a").await;
    }
    ["DR-1"] "a dry run makes the checks of a real run" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.post("{cm}?dryRun=All", config_map("a", "1")).await;
        t.post("{w}?dryRun=All", widget("a", json!({"replicas": -1}))).await;
    }
    ["DR-1 C-1"] "a dry-run create may have a version, and validation comes before a version is refused" => |t| {
        let versioned = |name: &str| json!({"metadata": {"name": name, "resourceVersion": "5"}});
        t.post("{cm}?dryRun=All", versioned("a")).await;
        t.post("{cm}", versioned("Not_Legal")).await;
        t.post("{cm}?dryRun=All", versioned("Not_Legal")).await;
        t.make("{cm}", config_map("there", "1")).await;
        t.post("{cm}?dryRun=All", versioned("there")).await;
        t.post("{cm}", versioned("there")).await;
    }
    ["DR-1"] "another dryRun value is invalid" => |t| {
        t.post("{cm}?dryRun=true", config_map("a", "1")).await;
        t.delete("{cm}/a?dryRun=none").await;
    }
    ["FV-1"] "unknown fields of a built-in: a warning, an error, or nothing" => |t| {
        let body = |name: &str| json!({"metadata": {"name": name}, "dta": {"key": "value"}});
        t.post("{cm}", body("a")).await;
        t.post("{cm}?fieldValidation=Warn", body("b")).await;
        t.post("{cm}?fieldValidation=Strict", body("c")).await;
        t.post("{cm}?fieldValidation=Ignore", body("d")).await;
    }
    ["FV-1 CRD-4"] "unknown fields of a custom resource: a warning, an error, or nothing; always pruned" => |t| {
        let body = |name: &str| widget(name, json!({"colr": "red", "strict": {"must": "x", "other": 1}}));
        t.post("{w}", body("a")).await;
        t.post("{w}?fieldValidation=Strict", body("c")).await;
        t.post("{w}?fieldValidation=Ignore", body("d")).await;
    }
    ["FV-1"] "duplicate fields" => |t| {
        t.post("{cm}?fieldValidation=Strict", json!("{\"metadata\":{\"name\":\"a\",\"name\":\"b\"}}")).await;
        t.post("{w}?fieldValidation=Strict", json!("{\"apiVersion\":\"{group}/v1\",\"kind\":\"Widget\",\"metadata\":{\"name\":\"a\"},\"spec\":{\"color\":\"red\",\"color\":\"blue\"}}")).await;
        t.post("{w}", json!("{\"apiVersion\":\"{group}/v1\",\"kind\":\"Widget\",\"metadata\":{\"name\":\"a\"},\"spec\":{\"color\":\"red\",\"color\":\"blue\"}}")).await;
    }
    ["FV-1"] "unknown fields in a strict patch and a strict PUT" => |t| {
        t.make("{w}", widget("a", json!({}))).await;
        t.patch(MERGE, "{w}/a?fieldValidation=Strict", json!({"spec": {"colr": "red"}})).await;
        t.make("{cm}", config_map("a", "1")).await;
        t.patch(MERGE, "{cm}/a?fieldValidation=Strict", json!({"dta": {"key": "2"}})).await;
        t.put("{cm}/a?fieldValidation=Strict", json!({"metadata": {"name": "a"}, "dta": {}})).await;
    }
    ["FV-1"] "another value of fieldValidation is invalid" => |t| {
        t.post("{cm}?fieldValidation=Maybe", config_map("a", "1")).await;
    }
    ["FV-1"] "unknown metadata of a custom resource is an error when strict" => |t| {
        t.post("{w}?fieldValidation=Strict", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "lables": {}}})).await;
    }
    ["C-1"] "a field manager must not be too long" => |t| {
        t.post(&format!("{{cm}}?fieldManager={}", "m".repeat(129)), config_map("a", "1")).await;
    }
    ["MF-1"] "managedFields name the manager, by default the user agent" => |t| {
        t.keep_managed_fields();
        t.post("{cm}", config_map("a", "1")).await;
        t.post("{cm}?fieldManager=me", config_map("b", "1")).await;
    }
    ["MF-1"] "managedFields of a custom resource and of its status" => |t| {
        t.keep_managed_fields();
        t.post("{w}?fieldManager=me", widget("a", json!({"color": "red", "tags": ["x"]}))).await;
        t.patch(MERGE, "{w}/a/status?fieldManager=it", json!({"status": {"phase": "Up"}})).await;
    }
    ["MF-1"] "managedFields can be cleared" => |t| {
        t.keep_managed_fields();
        t.make("{cm}", config_map("a", "1")).await;
        t.patch(MERGE, "{cm}/a", json!({"metadata": {"managedFields": [{}]}})).await;
    }
    ["C-1"] "a Namespace has its phase, its finalizer and its name as a label" => |t| {
        t.get("/api/v1/namespaces/{ns}").await;
    }
    ["C-1"] "an Event of one group can be read in the other" => |t| {
        t.post("/apis/events.k8s.io/v1/namespaces/{ns}/events", json!({"metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "example.com/c", "reportingInstance": "c-0", "action": "Doing", "reason": "Did", "type": "Normal", "note": "it did",
            "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": "{ns}"}})).await;
        t.get("/api/v1/namespaces/{ns}/events/e").await;
    }
    ["C-1"] "an Event without required fields is invalid" => |t| {
        t.post("/apis/events.k8s.io/v1/namespaces/{ns}/events", json!({"metadata": {"name": "e"}, "regarding": {"namespace": "{ns}"}})).await;
        t.post("/api/v1/namespaces/{ns}/events", json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "elsewhere"}})).await;
    }
    ["U-1 U-2"] "a PUT with a uid or a version creates nothing" => |t| {
        let leases = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases";
        let lease = |name: &str, uid: Value, version: Value| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "uid": uid, "resourceVersion": version}, "spec": {"holderIdentity": "a"}});
        t.put(&format!("{leases}/a"), lease("a", json!("00000000-0000-0000-0000-000000000001"), Value::Null)).await;
        t.put(&format!("{leases}/b"), lease("b", json!("00000000-0000-0000-0000-000000000001"), json!("7"))).await;
        t.put(&format!("{leases}/c"), lease("c", Value::Null, json!("7"))).await;
        t.put("{cm}/a", json!({"metadata": {"name": "a", "uid": "00000000-0000-0000-0000-000000000001"}})).await;
    }
    ["C-1"] "owner references that are equal are stored once, with a warning" => |t| {
        let named = |name: &str, uid: &str, kind: &str| json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid});
        let (one, two) = (t.make("{cm}", config_map("owner", "1")).await, t.make("{cm}", config_map("other", "1")).await);
        let (one, two) = (&*one.uid(), &*two.uid());
        let owner = |uid: &str| named("owner", uid, "ConfigMap");
        let other = |uid: &str| named("other", uid, "ConfigMap");
        let map = |name: &str, owners: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}});
        t.post("{cm}", map("a", json!([owner(one), other(two), owner(one), other(two), owner(one)]))).await;
        let mut blocking = owner(one);
        blocking["blockOwnerDeletion"] = json!(true);
        t.post("{cm}", map("b", json!([owner(one), blocking]))).await;
        t.patch(MERGE, "{cm}/a", json!({"metadata": {"ownerReferences": [owner(one), owner(one)]}})).await;
        t.post("{cm}", map("c", json!([named("owner", one, "Event")]))).await;
    }
    ["CRD-9"] "an object that is too large to store" => |t| {
        let text = "x".repeat(1_600_000);
        let answer = t.setup_any("POST", "{w}", &[], widget("a", json!({"free": {"text": text}}))).await;
        t.note("answer", answer.body);
        let text = "x".repeat(1_400_000);
        let answer = t.setup_any("POST", "{w}", &[], widget("a", json!({"free": {"text": text}}))).await;
        t.note("smaller", json!(answer.code));
        let answer = t.setup_any("PATCH", "{w}/a", &[("content-type", MERGE)], json!({"spec": {"free": {"more": "x".repeat(200_000)}}})).await;
        t.note("larger", answer.body);
    }
}
