//! The kinds that are written.

use std::sync::LazyLock;

use serde_json::{Value, json};

/// A kind that is written, in each of its versions.
pub struct Subject {
    pub resource: &'static str,
    pub kind: &'static str,
    pub forms: Vec<Form>,
    pub has_scale: bool,
}

/// A version of a kind.
pub struct Form {
    /// The path of its collection.
    pub path: &'static str,
    pub api_version: &'static str,
    /// What an apply or a patch may have, in the form of [`Random::value`](super::random::Random::value).
    pub parts: Value,
    /// What a status may have.
    pub status: Option<Value>,
    /// The fields below `spec` that each write has.
    pub kept: &'static [&'static str],
}

pub static SUBJECTS: LazyLock<Vec<Subject>> = LazyLock::new(|| {
    vec![
        config_map(),
        deployment(),
        service(),
        part(),
        autoscaler(),
        cron_job(),
    ]
});

/// What the metadata of any write may have.
pub fn metadata() -> Value {
    json!({"+": {
        "labels": {"+": {"l1": {"?": ["a", "b"]}, "l2": "c"}},
        "annotations": {"+": {"n1": {"?": ["a", "b"]}}},
        "finalizers": {"*": ["example.com/one", "example.com/two"]},
    }})
}

fn config_map() -> Subject {
    Subject {
        resource: "configmaps",
        kind: "ConfigMap",
        forms: vec![Form {
            path: "/api/v1/namespaces/default/configmaps",
            api_version: "v1",
            parts: json!({
                "metadata": metadata(),
                "data": {"+": {"a": {"?": ["1", "2"]}, "b": {"?": ["1", "2"]}, "c": "x"}},
                "binaryData": {"+": {"z": "eA=="}},
            }),
            status: None,
            kept: &[],
        }],
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
        resource: "deployments",
        kind: "Deployment",
        forms: vec![Form {
            path: "/apis/apps/v1/namespaces/default/deployments",
            api_version: "apps/v1",
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
            status: Some(json!({"+": {
                "observedGeneration": {"?": [1, 2]},
                "replicas": {"?": [0, 3]},
                "conditions": {"*": [
                    {"type": "Available", "status": {"?": ["True", "False"]}, "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "Progressing", "status": "True", "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ]},
            }})),
            kept: &["selector", "template"],
        }],
        has_scale: true,
    }
}

fn service() -> Subject {
    Subject {
        resource: "services",
        kind: "Service",
        forms: vec![Form {
            path: "/api/v1/namespaces/default/services",
            api_version: "v1",
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
            status: Some(json!({"+": {
                "loadBalancer": {"ingress": {"*": [{"ip": "10.0.0.1"}, {"hostname": "h"}]}},
            }})),
            kept: &["ports"],
        }],
        has_scale: false,
    }
}

/// An autoscaler, which is stored as v2 and is written through v1, too.
fn autoscaler() -> Subject {
    let target = json!({"?": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": {"?": ["x", "y"]}},
        {"kind": "ReplicationController", "name": "x"},
    ]});
    let metric = |name: &str| json!({"type": "Resource", "resource": {"name": name, "target": {"type": "Utilization", "averageUtilization": {"?": [50, 60]}}}});
    let pods = json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": {"?": ["1", "1500m"]}}}});
    let policies = json!({"?": [
        [{"type": "Pods", "value": {"?": [4, 5]}, "periodSeconds": 15}],
        [{"type": "Percent", "value": 10, "periodSeconds": 60}, {"type": "Pods", "value": 1, "periodSeconds": 60}],
    ]});
    Subject {
        resource: "horizontalpodautoscalers",
        kind: "HorizontalPodAutoscaler",
        forms: vec![
            Form {
                path: "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
                api_version: "autoscaling/v2",
                parts: json!({
                    "metadata": metadata(),
                    "spec": {
                        "scaleTargetRef": target,
                        "minReplicas": {"?": [1, 2]},
                        "maxReplicas": {"?": [3, 4]},
                        "metrics": {"?": [[metric("cpu")], [metric("cpu"), pods], [metric("memory"), metric("cpu")]]},
                        "behavior": {"+": {
                            "scaleDown": {"+": {"stabilizationWindowSeconds": {"?": [0, 60]}, "policies": policies}},
                            "scaleUp": {"+": {"selectPolicy": {"?": ["Min", "Disabled"]}, "policies": policies}},
                        }},
                    },
                }),
                status: Some(json!({"+": {
                    "observedGeneration": 1,
                    "currentReplicas": {"?": [0, 3]},
                    "desiredReplicas": {"?": [0, 3]},
                    "conditions": {"*": [
                        {"type": "AbleToScale", "status": {"?": ["True", "False"]}, "lastTransitionTime": "2026-01-01T00:00:00Z"},
                        {"type": "ScalingActive", "status": "True", "reason": "Valid"},
                    ]},
                }})),
                kept: &["scaleTargetRef", "maxReplicas"],
            },
            Form {
                path: "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
                api_version: "autoscaling/v1",
                parts: json!({
                    "metadata": metadata(),
                    "spec": {
                        "scaleTargetRef": target,
                        "minReplicas": {"?": [1, 2]},
                        "maxReplicas": {"?": [3, 4]},
                        "targetCPUUtilizationPercentage": {"?": [50, 60]},
                    },
                }),
                status: Some(json!({"+": {
                    "observedGeneration": 1,
                    "currentReplicas": {"?": [0, 3]},
                    "desiredReplicas": {"?": [0, 3]},
                    "currentCPUUtilizationPercentage": {"?": [10, 90]},
                }})),
                kept: &["scaleTargetRef", "maxReplicas"],
            },
        ],
        has_scale: false,
    }
}

fn cron_job() -> Subject {
    let container = |name: &str| {
        json!({
            "name": name,
            "image": {"?": ["one", "two:1"]},
            "envFrom": {"*": [{"configMapRef": {"name": "x"}}, {"secretRef": {"name": {"?": ["x", "y"]}}}]},
            "volumeMounts": {"*": [{"name": "v", "mountPath": "/v"}, {"name": "v", "mountPath": "/w", "readOnly": true}]},
        })
    };
    Subject {
        resource: "cronjobs",
        kind: "CronJob",
        forms: vec![Form {
            path: "/apis/batch/v1/namespaces/default/cronjobs",
            api_version: "batch/v1",
            parts: json!({
                "metadata": metadata(),
                "spec": {
                    "schedule": {"?": ["@daily", "*/5 * * * *"]},
                    "suspend": {"?": [true, false]},
                    "concurrencyPolicy": {"?": ["Allow", "Forbid"]},
                    "startingDeadlineSeconds": {"?": [10, null]},
                    "failedJobsHistoryLimit": {"?": [0, 1]},
                    "jobTemplate": {
                        "metadata": {"+": {"labels": {"+": {"a": {"?": ["b", "c"]}, "d": "e"}}}},
                        "spec": {
                            "backoffLimit": {"?": [1, 2]},
                            "template": {"spec": {
                                "restartPolicy": {"?": ["Never", "OnFailure"]},
                                "containers": {"?": [[container("c1")], [container("c2"), container("c1")]]},
                                "volumes": [{"name": "v", "emptyDir": {}}],
                                "imagePullSecrets": {"*": [{"name": "p"}, {"name": "q"}]},
                                "hostAliases": {"*": [{"ip": "10.0.0.1", "hostnames": {"*": ["a", "b"]}}]},
                            }},
                        },
                    },
                },
            }),
            status: Some(json!({"+": {
                "lastScheduleTime": {"?": ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]},
                "active": {"*": [{"kind": "Job", "name": "x"}, {"kind": "Job", "name": "y", "uid": "1"}]},
            }})),
            kept: &["schedule", "jobTemplate"],
        }],
        has_scale: false,
    }
}

fn part() -> Subject {
    Subject {
        resource: "parts",
        kind: "Part",
        forms: vec![Form {
            path: "/apis/owners.example.com/v1/namespaces/default/parts",
            api_version: "owners.example.com/v1",
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
            status: Some(json!({"+": {
                "phase": {"?": ["Up", "Down"]},
                "conditions": {"*": [{"type": "A", "status": {"?": ["True", "False"]}}, {"type": "B", "status": "True"}]},
            }})),
            kept: &[],
        }],
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
