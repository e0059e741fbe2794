//! Status codes, methods, media types.

use serde_json::{Value, json};

use super::{cases, config_map, widget};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A field of protobuf: texts and messages of less than 128 bytes, so that the whole is a text.
fn message(number: u8, content: &str) -> String {
    let length = u8::try_from(content.len()).expect("it is short");
    assert!(length < 0x80, "it is short");
    format!(
        "{}{}{content}",
        char::from(number << 3 | 2),
        char::from(length)
    )
}

/// A body in protobuf.
fn in_envelope(api_version: &str, kind: &str, object: &str) -> Value {
    let of = message(1, api_version) + &message(2, kind);
    json!(format!("k8s\0{}{}", message(1, &of), message(2, object)))
}

cases! { "errors";
    ["E-1 E-3"] "a missing object is named with its plural and group" => |t| {
        t.get("{cm}/nothing").await;
        t.get("{w}/nothing").await;
        t.get("/api/v1/namespaces/no-such-namespace").await;
        t.get("{g}/nothing").await;
        t.get("/apis/apps/v1/namespaces/{ns}/deployments/nothing").await;
    }
    ["E-3"] "methods that a path does not have" => |t| {
        t.post("{cm}/a", config_map("a", "1")).await;
        t.put("{cm}", config_map("a", "1")).await;
        t.patch(crate::conformance::case::MERGE, "{cm}", json!({})).await;
        t.post("{w}/a", widget("a", json!({}))).await;
        t.put("{w}", widget("a", json!({}))).await;
        t.patch(crate::conformance::case::MERGE, "{w}", json!({})).await;
        t.send("OPTIONS", "{cm}", &[], Value::Null).await;
    }
    ["E-3"] "a create in all namespaces is not allowed" => |t| {
        t.post("/api/v1/configmaps", config_map("a", "1")).await;
        t.post("/apis/{group}/v1/widgets", widget("a", json!({}))).await;
        t.delete("/api/v1/configmaps").await;
    }
    ["E-3"] "a namespaced path of a cluster-scoped kind, and the reverse" => |t| {
        t.get("/apis/{group}/v1/namespaces/{ns}/gadgets").await;
        t.get("/apis/{group}/v1/widgets/a").await;
        t.get("/api/v1/namespaces/{ns}/namespaces").await;
    }
    ["E-3"] "a body of another media type is not supported" => |t| {
        t.send("POST", "{cm}", &[("content-type", "text/plain")], config_map("a", "1")).await;
        t.send("POST", "{w}", &[("content-type", "text/plain")], widget("a", json!({}))).await;
        t.make("{cm}", config_map("b", "1")).await;
        t.send("PUT", "{cm}/b", &[("content-type", "application/xml")], config_map("b", "1")).await;
    }
    ["PB-1"] "bodies in protobuf" => |t| {
        let headers = [("content-type", PROTOBUF)];
        let metadata = |name: &str| message(1, &message(1, name));
        let data = message(2, &(message(1, "key") + &message(2, "1")));
        for object in [metadata("a") + &data, metadata("a"), metadata("Not A Name"), data.clone(), metadata("unknown") + &message(9, "odd")] {
            t.send("POST", "{cm}", &headers, in_envelope("v1", "ConfigMap", &object)).await;
        }
        t.send("POST", "{cm}", &headers, in_envelope("", "", &metadata("untyped"))).await;
        t.send("POST", "{cm}?fieldValidation=Strict", &headers, in_envelope("v1", "ConfigMap", &(metadata("strict") + &message(9, "odd")))).await;
        t.send("PUT", "{cm}/a", &headers, in_envelope("v1", "ConfigMap", &metadata("a"))).await;
        t.send("PUT", "{cm}/a", &headers, in_envelope("v1", "ConfigMap", &metadata("b"))).await;
        t.send("DELETE", "{cm}/a", &headers, in_envelope("v1", "DeleteOptions", &message(5, "All"))).await;
        t.send("DELETE", "{cm}/a", &headers, in_envelope("v1", "DeleteOptions", &message(4, "Odd"))).await;
        t.send("DELETE", "{cm}/a", &headers, in_envelope("v1", "DeleteOptions", &message(4, "Background"))).await;
    }
    ["E-3 PB-1"] "bodies in protobuf that cannot be read" => |t| {
        let headers = [("content-type", PROTOBUF)];
        for body in ["{}", "k8s\0", "k8s\0\n", "k8s\0\u{12}\u{5}\n", "k8s\0\u{12}\u{1}\n", "k8s\0\u{12}\u{2}\u{8}\u{1}", "k8s\0\u{12}\u{1}\u{c}"] {
            t.send("POST", "{cm}", &headers, json!(body)).await;
        }
        t.send("POST", "{cm}", &headers, in_envelope("v1", "ConfigMap", "\n\u{5}")).await;
        t.send("POST", "{cm}", &headers, in_envelope("v1", "Secret", &message(1, &message(1, "a")))).await;
        t.send("POST", "{cm}", &headers, in_envelope("v1", "Odd", &message(1, &message(1, "a")))).await;
        t.send("POST", "{cm}", &headers, in_envelope("v2", "ConfigMap", &message(1, &message(1, "a")))).await;
        t.send("PATCH", "{cm}/a", &headers, in_envelope("v1", "ConfigMap", &message(1, &message(1, "a")))).await;
    }
    ["PB-1"] "bodies in protobuf about custom resources" => |t| {
        let headers = [("content-type", PROTOBUF)];
        let scale = |name: &str| in_envelope("autoscaling/v1", "Scale", &(message(1, &message(1, name)) + &message(2, "\u{8}\u{3}")));
        t.make("{w}", widget("a", json!({}))).await;
        t.send("PUT", "{w}/a/scale", &headers, scale("a")).await;
        t.send("PUT", "{w}/a/scale", &headers, scale("b")).await;
        t.send("DELETE", "{w}/a", &headers, in_envelope("v1", "DeleteOptions", &message(4, "Background"))).await;
    }
    ["E-1 FV-1"] "warnings come with a refusal too" => |t| {
        t.make("{cm}", config_map("there", "1")).await;
        t.make("{w}", widget("there", json!({}))).await;
        let odd = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "odd": 1});
        t.post("{cm}", odd("there")).await;
        t.post("{cm}", odd("Not A Name")).await;
        t.post("/api/v1/namespaces/no-such-namespace/configmaps", odd("a")).await;
        t.put("{cm}/nothing", odd("nothing")).await;
        t.put("{cm}/there", odd("other")).await;
        t.put("{cm}/there", json!({"metadata": {"name": "there", "resourceVersion": "1"}, "odd": 1})).await;
        t.patch(crate::conformance::case::MERGE, "{cm}/there", json!({"metadata": {"name": "other"}, "odd": 1})).await;
        t.patch(crate::conformance::case::MERGE, "{cm}/nothing", json!({"odd": 1})).await;
        t.post("{w}", widget("there", json!({"odd": 1}))).await;
        t.post("{w}", widget("a", json!({"odd": 1, "replicas": -1}))).await;
        t.put("{w}/there", widget("there", json!({"odd": 1}))).await;
        t.patch(crate::conformance::case::MERGE, "{w}/there", json!({"spec": {"odd": 1, "replicas": -1}})).await;
        t.post("{w}?fieldValidation=Strict", widget("a", json!({"odd": 1}))).await;
        t.post("{w}?fieldValidation=Ignore", widget("a", json!({"odd": 1, "replicas": -1}))).await;
    }
    ["E-1 CRD-5"] "illegal labels in an update" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.make("{w}", widget("a", json!({}))).await;
        t.patch(crate::conformance::case::MERGE, "{cm}/a", json!({"metadata": {"labels": {"a": "b@d"}}})).await;
        t.patch(crate::conformance::case::MERGE, "{w}/a", json!({"metadata": {"labels": {"a": "b@d"}}})).await;
    }
    ["E-1 FV-1"] "a warning is sent once" => |t| {
        t.send("POST", "{w}", &[], json!(r#"{"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "finalizers": ["odd", "odd"]}, "spec": {"odd": 1, "odd": 2}}"#)).await;
        t.patch(crate::conformance::case::MERGE, "{w}/a", json!({"metadata": {"finalizers": null}})).await;
    }
    ["E-1 FV-1"] "long warnings are truncated" => |t| {
        let mut spec = serde_json::Map::new();
        for at in 0..30 {
            spec.insert(format!("odd{at:02}{}", "x".repeat(300)), json!(1));
        }
        t.make("{cm}", config_map("there", "1")).await;
        let body = json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
        let (code, warnings) = t.warnings_of("POST", "{w}", body).await;
        t.note("code", json!(code));
        t.note("warnings", json!(warnings));
    }
    ["E-3"] "a body that is null" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.make("{w}", widget("a", json!({}))).await;
        for path in ["{cm}", "{w}", "/apis/apps/v1/namespaces/{ns}/deployments"] {
            t.send("POST", path, &[], json!("null")).await;
            t.send("POST", &format!("{path}?fieldValidation=Ignore"), &[], json!("null")).await;
            t.send("POST", &format!("{path}?fieldValidation=Strict"), &[], json!(" null\n")).await;
        }
        for path in ["{cm}/a", "{w}/a", "{w}/a/status", "{w}/a/scale"] {
            t.send("PUT", path, &[], json!("null")).await;
        }
        t.send("POST", "{cm}", &[("content-type", "application/yaml")], json!("null")).await;
        t.send("POST", "{w}", &[("content-type", "application/yaml")], json!("~")).await;
        t.send("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &[], json!("null")).await;
    }
    ["E-3 P-1"] "a patch that is null" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        t.make("{w}", widget("a", json!({}))).await;
        for kind in [crate::conformance::case::MERGE, crate::conformance::case::JSON_PATCH, crate::conformance::case::STRATEGIC] {
            t.send("PATCH", "{cm}/a", &[("content-type", kind)], json!("null")).await;
        }
        for kind in [crate::conformance::case::MERGE, crate::conformance::case::JSON_PATCH] {
            t.send("PATCH", "{w}/a", &[("content-type", kind)], json!("null")).await;
        }
        t.send("DELETE", "{cm}/a", &[], json!("null")).await;
        t.send("DELETE", "{w}/a", &[], json!("null")).await;
    }
    ["E-3"] "a body that is a text, a number or a list" => |t| {
        for body in ["\"x\"", "5", "true", "[{}]"] {
            t.send("POST", "{cm}", &[], json!(body)).await;
            t.send("POST", "{w}", &[], json!(body)).await;
        }
        t.send("POST", "{cm}", &[("content-type", "application/yaml")], json!("- a\n")).await;
        t.send("POST", "{w}", &[("content-type", "application/yaml")], json!("just text")).await;
    }
    ["E-3"] "plain scalars of YAML have the types of YAML 1.1" => |t| {
        let yaml = [("content-type", "application/yaml")];
        for scalars in [
            "[y, Y, yes, Yes, YES, n, no, on, On, off, true, TRUE]",
            "[~, null, Null, NULL, '', \"y\", 'no']",
            "[0x1F, 0o17, 017, 08, 0b101, 1_000, +12, -3, 12e3, 1.5, .5, 1e3, 190:20:30]",
            "[2001-12-14, 1.2.3, 12Gi, 1s, =, <<]",
        ] {
            let body = format!("metadata: {{name: a}}\nspec: {{free: {{a: {scalars}}}}}\n");
            let body = format!("apiVersion: {{group}}/v1\nkind: Widget\n{body}");
            t.send("POST", "{w}?dryRun=All", &yaml, json!(body)).await;
        }
        for body in [
            "metadata: {name: y}\n",
            "metadata: {name: a}\ndata: {k: 1}\n",
            "metadata: {name: a}\ndata: {1: v}\n",
            "metadata: {name: a}\ndata: &d {k: v}\nbinaryData: *d\n",
            "metadata: {name: a}\ndata: {<<: {k: v}, l: w}\n",
            "metadata: {name: a}\n---\nmetadata: {name: b}\n",
        ] {
            t.send("POST", "{cm}?dryRun=All", &yaml, json!(body)).await;
        }
    }
    ["E-3"] "odd YAML: keys that are not text, duplicate keys, and unreadable documents" => |t| {
        for body in [
            "metadata: {name: a}\ndata: {y: v}\n",
            "metadata: {name: a}\ndata: {k: v, k: w}\n",
            "metadata: {name: tRue}\n",
            "metadata: {name: a\n",
        ] {
            let yaml = [("content-type", "application/yaml")];
            t.send("POST", "{cm}?dryRun=All", &yaml, json!(body)).await;
        }
    }
    ["E-3"] "an unknown subresource is not found" => |t| {
        t.make("{w}", widget("a", json!({}))).await;
        t.get("{w}/a/nothing").await;
        t.get("{cm}/a/nothing").await;
        t.get("{w}/a/status/more").await;
    }
    ["E-3"] "a protobuf answer is not forced" => |t| {
        t.make("{w}", widget("a", json!({}))).await;
        t.get_as("application/vnd.kubernetes.protobuf,application/json", "{w}/a").await;
        t.get_as("application/vnd.kubernetes.protobuf", "{w}/a").await;
    }
    ["E-3"] "a HEAD is a GET without the body" => |t| {
        t.make("{cm}", config_map("a", "1")).await;
        let reply = t.setup_any("HEAD", "{cm}/a", &[], Value::Null).await;
        t.note("code", json!(reply.code));
    }
    ["E-3"] "a query that cannot be read is refused" => |t| {
        t.get("{cm}?limit=1.5").await;
        t.get("{cm}?timeoutSeconds=x").await;
    }
    ["E-3"] "unknown query parameters, empty ones and a bare question mark are fine" => |t| {
        t.get("{cm}?").await;
        t.get("{cm}?&nothing=1&limit=").await;
        t.get("{cm}?timeout=32s&pretty=true").await;
    }
    ["E-3"] "a malformed timeout is refused" => |t| {
        t.post("{cm}?timeout=soon", config_map("a", "1")).await;
        t.post("{cm}?timeout=5", config_map("a", "1")).await;
        t.post("{cm}?timeout=5x", config_map("a", "1")).await;
        t.get("{cm}?timeout=--5s").await;
        t.get("{cm}?timeout=").await;
        t.get("{cm}?timeout=-5s").await;
    }
    ["E-1"] "a name that a path cannot have" => |t| {
        t.get("{cm}/a%2Fb").await;
        t.get("{w}/..").await;
        t.get("{cm}/%20").await;
    }
    ["D-7"] "a patch of a namespace does not change its finalizers" => |t| {
        t.make("/api/v1/namespaces", json!({"metadata": {"name": "{me}-x"}})).await;
        t.patch(crate::conformance::case::MERGE, "/api/v1/namespaces/{me}-x", json!({"spec": {"finalizers": []}})).await;
        t.setup("DELETE", "/api/v1/namespaces/{me}-x", Value::Null).await;
    }
    ["U-1"] "a Service keeps its cluster IP, and cannot lose it" => |t| {
        let services = "/api/v1/namespaces/{ns}/services";
        t.make(services, json!({"metadata": {"name": "a"}, "spec": {"clusterIP": "None", "selector": {"app": "a"}, "ports": [{"port": 80}]}})).await;
        let path = format!("{services}/a");
        let answer = t.setup("GET", &path, Value::Null).await;
        t.note("spec", answer.body["spec"].clone());
        t.patch(crate::conformance::case::MERGE, &path, json!({"spec": {"clusterIP": "10.96.0.77"}})).await;
    }
    ["C-1"] "a Service without ports, with a wrong port" => |t| {
        let services = "/api/v1/namespaces/{ns}/services";
        t.post(services, json!({"metadata": {"name": "a"}, "spec": {}})).await;
        t.post(services, json!({"metadata": {"name": "b"}, "spec": {"ports": [{"port": 70000}]}})).await;
        t.post(services, json!({"metadata": {"name": "1a"}, "spec": {"ports": [{"port": 80}]}})).await;
    }
    ["C-1"] "a Deployment without required fields is invalid" => |t| {
        t.post("/apis/apps/v1/namespaces/{ns}/deployments", json!({"metadata": {"name": "a"}, "spec": {}})).await;
        t.post("/apis/apps/v1/namespaces/{ns}/deployments", json!({"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "c"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})).await;
    }
    ["C-1"] "a Lease of a negative duration is invalid" => |t| {
        t.post("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", json!({"metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}})).await;
    }
    ["C-1"] "times of a Lease are micro-times, in any time zone" => |t| {
        let leases = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases";
        t.post(leases, json!({"metadata": {"name": "a"}, "spec": {"renewTime": "2026-01-01T01:00:00.5+01:00"}})).await;
        let answer = t.make(leases, json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "me", "renewTime": "2026-01-01T01:00:00.500000+01:00"}})).await;
        t.note("renewTime is in UTC with six digits", json!(answer.text("/spec/renewTime") == "2026-01-01T00:00:00.500000Z"));
        t.post("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", json!({"metadata": {"name": "b"}, "spec": {"renewTime": "soon"}})).await;
    }
    ["C-1"] "a wrong type in a built-in cannot be decoded" => |t| {
        t.post("{cm}", json!({"metadata": {"name": "a"}, "data": {"key": 5}})).await;
        t.post("{cm}", json!({"metadata": {"name": "a"}, "data": []})).await;
        t.post("{cm}", json!({"metadata": "a"})).await;
    }
}
