//! The kinds that are written, and the writes.

use std::fmt;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::random::Random;

/// A kind that is written.
pub struct Subject {
    /// The path of its collection.
    pub path: &'static str,
    pub resource: &'static str,
    api_version: &'static str,
    kind: &'static str,
    /// What an apply or a patch may have, in the form of [`Random::value`].
    parts: Value,
    /// What a whole object has besides.
    base: Value,
    /// What a status may have.
    status: Option<Value>,
    has_scale: bool,
}

/// One write.
pub struct Write {
    pub manager: String,
    pub what: What,
    pub subresource: &'static str,
    pub force: bool,
    pub body: Value,
}

/// The verb of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Apply,
    Create,
    Merge,
    /// Reads the object, merges the body into it and writes it.
    Replace,
}

pub static SUBJECTS: LazyLock<Vec<Subject>> =
    LazyLock::new(|| vec![config_map(), deployment(), service(), part()]);

fn metadata() -> Value {
    json!({"+": {
        "labels": {"+": {"l1": {"?": ["a", "b"]}, "l2": "c"}},
        "annotations": {"+": {"n1": {"?": ["a", "b"]}}},
        "finalizers": {"*": ["example.com/one", "example.com/two"]},
    }})
}

fn config_map() -> Subject {
    Subject {
        path: "/api/v1/namespaces/default/configmaps",
        resource: "configmaps",
        api_version: "v1",
        kind: "ConfigMap",
        parts: json!({
            "metadata": metadata(),
            "data": {"+": {"a": {"?": ["1", "2"]}, "b": {"?": ["1", "2"]}, "c": "x"}},
            "binaryData": {"+": {"z": "eA=="}},
        }),
        base: json!({}),
        status: None,
        has_scale: false,
    }
}

fn deployment() -> Subject {
    let container = |name: &str| {
        json!({
            "name": name,
            "image": {"?": ["one", "two:1"]},
            "ports": {"*": [
                {"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"},
                {"containerPort": 81, "protocol": "TCP", "name": "web"},
            ]},
            "env": {"*": [
                {"name": "A", "value": {"?": ["1", "2"]}},
                {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ]},
            "args": {"*": ["x", "y"]},
            "resources": {"+": {"limits": {"+": {"cpu": {"?": ["1", "500m"]}, "memory": "1Gi"}}}},
            "livenessProbe": {"?": [null, {"httpGet": {"port": 80}}, {"tcpSocket": {"port": "web"}, "periodSeconds": 5}]},
        })
    };
    let selector = json!({"matchLabels": {"app": "o"}});
    Subject {
        path: "/apis/apps/v1/namespaces/default/deployments",
        resource: "deployments",
        api_version: "apps/v1",
        kind: "Deployment",
        parts: json!({
            "metadata": metadata(),
            "spec": {
                "selector": selector,
                "replicas": {"?": [1, 2, 3]},
                "paused": {"?": [true, false]},
                "minReadySeconds": {"?": [0, 5]},
                "strategy": {"?": [{}, {"type": "Recreate", "rollingUpdate": null}, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": {"?": [1, "10%"]}}}]},
                "template": {
                    "metadata": {"labels": {"app": "o"}},
                    "spec": {
                        "containers": {"?": [
                            [container("c1")],
                            [container("c1"), container("c2")],
                            [container("c2"), container("c1")],
                        ]},
                        "volumes": {"*": [
                            {"name": "v", "emptyDir": {}},
                            {"name": "w", "configMap": {"name": {"?": ["x", "y"]}}},
                        ]},
                        "tolerations": {"*": [{"key": "a", "operator": "Exists"}, {"key": "b", "value": "c"}]},
                        "nodeSelector": {"+": {"disk": {"?": ["ssd", "hdd"]}, "zone": "z"}},
                        "securityContext": {"+": {"runAsUser": 1000}},
                    },
                },
            },
        }),
        base: json!({}),
        status: Some(json!({"+": {
            "observedGeneration": {"?": [1, 2]},
            "replicas": {"?": [0, 3]},
            "conditions": {"*": [
                {"type": "Available", "status": {"?": ["True", "False"]}, "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Progressing", "status": "True", "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        }})),
        has_scale: true,
    }
}

fn service() -> Subject {
    Subject {
        path: "/api/v1/namespaces/default/services",
        resource: "services",
        api_version: "v1",
        kind: "Service",
        parts: json!({
            "metadata": metadata(),
            "spec": {
                "ports": {"?": [
                    [{"name": "a", "port": 80}],
                    [{"name": "a", "port": 80, "protocol": "TCP", "targetPort": {"?": [8080, "web"]}}, {"name": "b", "port": 81, "appProtocol": "http"}],
                    [{"name": "b", "port": 80, "protocol": "UDP"}, {"name": "a", "port": 80}],
                ]},
                "selector": {"+": {"app": {"?": ["x", "y"]}, "tier": "z"}},
                "sessionAffinity": {"?": ["None", "ClientIP"]},
                "publishNotReadyAddresses": {"?": [true, false]},
            },
        }),
        base: json!({}),
        status: Some(json!({"+": {
            "loadBalancer": {"ingress": {"*": [{"ip": "10.0.0.1"}, {"hostname": "h"}]}},
        }})),
        has_scale: false,
    }
}

fn part() -> Subject {
    Subject {
        path: "/apis/owners.example.com/v1/namespaces/default/parts",
        resource: "parts",
        api_version: "owners.example.com/v1",
        kind: "Part",
        parts: json!({
            "metadata": metadata(),
            "spec": {"+": {
                "color": {"?": ["red", "blue", null]},
                "replicas": {"?": [1, 2]},
                "tags": {"*": ["a", "b", "c"]},
                "items": {"*": [
                    {"name": "x", "value": {"?": [1, 2]}, "set": {"*": [1, 2]}},
                    {"name": "y"},
                    {"name": "z", "value": 3},
                ]},
                "pairs": {"*": [
                    {"port": 80, "text": {"?": ["a", "b"]}},
                    {"port": 80, "protocol": "UDP"},
                    {"port": 81, "protocol": "TCP"},
                ]},
                "list": {"*": [1, 2]},
                "map": {"+": {"a": {"?": ["1", "2"]}, "b": "1"}},
                "whole": {"+": {"a": {"?": ["1", "2"]}, "b": "1"}},
                "free": {"?": [{}, {"a": {"b": {"?": [1, 2]}}}, {"a": {"c": [1]}}, {"d": [{"e": 1}]}, {"a": 1}]},
                "either": {"?": [1, "1"]},
                "template": {"metadata": {"labels": {"+": {"a": "b"}}}, "more": {"?": [1, {"x": 1}]}},
            }},
        }),
        base: json!({}),
        status: Some(json!({"+": {
            "phase": {"?": ["Up", "Down"]},
            "conditions": {"*": [{"type": "A", "status": {"?": ["True", "False"]}}, {"type": "B", "status": "True"}]},
        }})),
        has_scale: true,
    }
}

/// The definition of Parts.
pub fn definition() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "additionalProperties": text});
    let mut whole = texts.clone();
    whole["x-kubernetes-map-type"] = "atomic".into();
    let conditions = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        "items": {"type": "object", "required": ["type"], "properties": {"type": text, "status": text}},
    });
    let spec = json!({"type": "object", "properties": {
        "color": {"type": "string", "nullable": true},
        "replicas": {"type": "integer"},
        "size": {"type": "integer", "default": 3},
        "tags": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
        "items": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": text, "value": {"type": "integer"},
                "set": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"},
            }},
        },
        "pairs": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"type": "object", "required": ["port"], "properties": {
                "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "text": text,
            }},
        },
        "list": {"type": "array", "items": {"type": "integer"}},
        "map": texts,
        "whole": whole,
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "either": {"x-kubernetes-int-or-string": true},
        "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "metadata": {"type": "object", "properties": {"labels": texts}},
        }},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "parts.owners.example.com"},
        "spec": {
            "group": "owners.example.com", "scope": "Namespaced",
            "names": {"plural": "parts", "singular": "part", "kind": "Part", "listKind": "PartList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": spec,
                    "status": {"type": "object", "properties": {"phase": text, "replicas": {"type": "integer"}, "conditions": conditions}},
                }}},
            }],
        },
    })
}

// === impl Write ===

impl Write {
    pub fn random(subject: &Subject, name: &str, random: &mut Random) -> Self {
        let manager = format!("m{}", random.below(4));
        let with_status = subject.status.as_ref().filter(|_| random.chance(20));
        let what = *random.pick(&[
            What::Apply,
            What::Apply,
            What::Apply,
            What::Merge,
            What::Replace,
            What::Create,
        ]);
        let typed = |api_version: &str, kind: &str, mut body: Value| {
            body["apiVersion"] = api_version.into();
            body["kind"] = kind.into();
            body["metadata"]["name"] = name.into();
            body
        };
        if let Some(form) = with_status {
            let what = if what == What::Apply {
                What::Apply
            } else {
                What::Merge
            };
            let body = json!({"status": random.value(form), "metadata": random.value(&metadata())});
            return Self {
                manager,
                what,
                subresource: "/status",
                force: what == What::Apply && random.chance(40),
                body: typed(subject.api_version, subject.kind, body),
            };
        }
        if subject.has_scale && random.chance(12) {
            let what = if what == What::Apply {
                What::Apply
            } else {
                What::Merge
            };
            let body = json!({"spec": {"replicas": random.below(3) + 1}, "metadata": {}});
            return Self {
                manager,
                what,
                subresource: "/scale",
                force: what == What::Apply && random.chance(40),
                body: typed("autoscaling/v1", "Scale", body),
            };
        }
        let mut body = random.value(&subject.base);
        let parts = random.value(&subject.parts);
        for (field, value) in parts.as_object().into_iter().flatten() {
            if field == "spec" || random.chance(70) {
                body[field] = value.clone();
            }
        }
        if !body["metadata"].is_object() {
            body["metadata"] = json!({});
        }
        thin(&mut body, subject.kind, random);
        Self {
            manager,
            what,
            subresource: "",
            force: what == What::Apply && random.chance(35),
            body: typed(subject.api_version, subject.kind, body),
        }
    }
}

/// Removes some optional fields below `spec`.
fn thin(body: &mut Value, kind: &str, random: &mut Random) {
    let keep: &[&str] = match kind {
        "Deployment" => &["selector", "template"],
        "Service" => &["ports"],
        _ => return,
    };
    let mut drop_some = |map: &mut serde_json::Map<String, Value>, keep: &[&str]| {
        map.retain(|name, _| keep.contains(&name.as_str()) || random.chance(60));
    };
    if let Some(spec) = body["spec"].as_object_mut() {
        drop_some(spec, keep);
    }
    if let Some(pod) = body
        .pointer_mut("/spec/template/spec")
        .and_then(Value::as_object_mut)
    {
        drop_some(pod, &["containers"]);
        let containers = pod["containers"].as_array_mut();
        for container in containers.into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                drop_some(container, &["name", "image"]);
            }
        }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let force = if self.force { " force" } else { "" };
        write!(
            f,
            "{} {:?}{force} {} {}",
            self.manager, self.what, self.subresource, self.body
        )
    }
}
