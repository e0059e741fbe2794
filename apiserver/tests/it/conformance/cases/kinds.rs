//! CustomResourceDefinitions.

use serde_json::{Value, json};

/// The shared kinds: plural, kind, namespaced.
pub const SHARED: &[(&str, &str, bool)] =
    &[("widgets", "Widget", true), ("gadgets", "Gadget", false)];

pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Widget has everything; Gadget has no subresources, columns or closed schema.
pub fn shared() -> Vec<Value> {
    vec![widgets(), gadgets()]
}

fn widgets() -> Value {
    let spec = json!({
        "type": "object",
        "properties": {
            "replicas": {"type": "integer", "minimum": 0, "maximum": 100, "default": 1},
            "size": {"type": "string", "enum": ["small", "big"]},
            "color": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 10, "minLength": 2},
            "day": {"type": "string", "format": "date-time"},
            "ratio": {"type": "number", "exclusiveMaximum": true, "maximum": 1},
            "even": {"type": "integer", "multipleOf": 2},
            "flag": {"type": "boolean"},
            "port": {"x-kubernetes-int-or-string": true},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "note": {"type": "string", "nullable": true},
            "mode": {"type": "string", "default": "auto"},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "maxItems": 4},
            "ports": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": {"type": "string"},
                        "number": {"type": "integer", "format": "int32"},
                        "protocol": {"type": "string", "default": "TCP"},
                    },
                },
            },
            "limits": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 3},
            "strict": {"type": "object", "required": ["must"], "properties": {"must": {"type": "string"}, "may": {"type": "string"}}},
            "either": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
            "low": {"type": "integer"},
            "high": {"type": "integer"},
            "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}]},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.low) || !has(self.high) || self.low <= self.high",
             "messageExpression": "self.high > 10 ? 'low is above a high high' : 'low is above a low high'", "fieldPath": ".low", "reason": "FieldValueForbidden"},
            {"rule": "!has(self.color) || self.color != 'beige'", "message": "beige is no color"},
        ],
    });
    let status = json!({
        "type": "object",
        "properties": {
            "replicas": {"type": "integer"},
            "selector": {"type": "string"},
            "phase": {"type": "string"},
            "conditions": {"type": "array", "items": {"type": "object", "properties": {
                "type": {"type": "string"}, "status": {"type": "string"}, "since": {"type": "string", "format": "date-time"}}}},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.{group}"},
        "spec": {
            "group": "{group}",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["conformance"]},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "A widget.",
                    "properties": {"spec": spec, "status": status},
                }},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                }},
                "selectableFields": [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.replicas"}],
                "additionalPrinterColumns": [
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
                    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "description": "How many."},
                    {"name": "Flag", "type": "boolean", "jsonPath": ".spec.flag"},
                    {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                    {"name": "Since", "type": "date", "jsonPath": ".status.conditions[0].since"},
                    {"name": "Tags", "type": "string", "jsonPath": ".spec.tags", "priority": 1},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
    })
}

fn gadgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.{group}"},
        "spec": {
            "group": "{group}",
            "scope": "Cluster",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// A definition of `kind` in the case's own group, with `schema` for its one version.
pub fn own(plural: &str, kind: &str, schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{{own}}")},
        "spec": {
            "group": "{own}",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// A schema that accepts any object.
pub fn open_schema() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
