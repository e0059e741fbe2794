//! Rules on lists of a type and on embedded objects, checked after the schema itself.
//!
//! (apiextensions-apiserver: `schema/listtype`, `schema/objectmeta`.)

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::{Map, Value};

use super::node::{Additional, ListType, Schema, is_type_or_metadata};
use crate::field::{Errors, FieldError, Path};
use crate::names;

/// Duplicate items of a list that is a set or a map; each is reported once.
pub(super) fn duplicate_errors(schema: &Schema, object: &Value) -> Errors {
    let mut errors = Errors::new();
    walk_lists(schema, object, &Path::root(), &mut errors);
    errors
}

fn walk_lists(schema: &Schema, value: &Value, path: &Path, errors: &mut Errors) {
    match value {
        Value::Array(items) => {
            match schema.list_type {
                ListType::Atomic => {}
                ListType::Set => repeated(items.iter().cloned(), path, errors),
                ListType::Map => {
                    let keys = items.iter().map(|item| map_key(schema, item));
                    repeated(keys, path, errors);
                }
            }
            if let Some(of) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    walk_lists(of, item, &path.index(index), errors);
                }
            }
        }
        Value::Object(map) => {
            for (name, value) in map {
                if let Some(of) = schema.properties.get(name) {
                    walk_lists(of, value, &path.child(name), errors);
                } else if let Additional::Of(of) = &schema.additional {
                    walk_lists(of, value, &path.key(name), errors);
                }
            }
        }
        _ => {}
    }
}

fn repeated(keys: impl Iterator<Item = Value>, path: &Path, errors: &mut Errors) {
    let mut reported: HashMap<Value, bool> = HashMap::new();
    for (index, key) in keys.enumerate() {
        match reported.entry(key) {
            Entry::Occupied(mut earlier) => {
                if !earlier.insert(true) {
                    let key = earlier.key().clone();
                    errors.push(FieldError::duplicate(&path.index(index), key));
                }
            }
            Entry::Vacant(first) => {
                first.insert(false);
            }
        }
    }
}

/// The items of the old form of a list by their keys, where it is a map: only those can be matched with new ones.
pub(crate) fn items_by_key<'a>(
    schema: &Schema,
    old: Option<&'a Value>,
) -> HashMap<Value, &'a Value> {
    let mut items = HashMap::new();
    if let (ListType::Map, Some(Value::Array(before))) = (schema.list_type, old) {
        for item in before {
            items.entry(map_key(schema, item)).or_insert(item);
        }
    }
    items
}

/// The keys of an item of a list that is a map; an absent key has its default.
pub(crate) fn map_key(schema: &Schema, item: &Value) -> Value {
    let mut key = Map::new();
    for name in &schema.list_map_keys {
        let default = schema
            .items
            .as_ref()
            .and_then(|of| of.properties.get(name))
            .and_then(|of| of.default.as_ref());
        if let Some(value) = item.get(name).or(default) {
            key.insert(name.clone(), value.clone());
        }
    }
    Value::Object(key)
}

/// Errors of `apiVersion` and `kind` of embedded objects, and of the names in their metadata.
pub(super) fn embedded_errors(schema: &Schema, object: &Value) -> Errors {
    let mut errors = Errors::new();
    walk_embedded(schema, object, &Path::root(), &mut errors);
    errors
}

fn walk_embedded(schema: &Schema, value: &Value, path: &Path, errors: &mut Errors) {
    match value {
        Value::Array(items) => {
            if let Some(of) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    walk_embedded(of, item, &path.index(index), errors);
                }
            }
        }
        Value::Object(map) => {
            if schema.embedded {
                embedded(map, path, errors);
            }
            for (name, value) in map {
                if schema.embedded && is_type_or_metadata(name) {
                    continue;
                }
                if let Some(of) = schema.properties.get(name) {
                    walk_embedded(of, value, &path.child(name), errors);
                } else if let Additional::Of(of) = &schema.additional {
                    walk_embedded(of, value, &path.key(name), errors);
                }
            }
        }
        _ => {}
    }
}

fn embedded(map: &Map<String, Value>, path: &Path, errors: &mut Errors) {
    for name in ["apiVersion", "kind"] {
        let path = path.child(name);
        match map.get(name) {
            None => errors.push(FieldError::required(&path, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(&path, "", "must not be empty"));
            }
            Some(Value::String(text)) => {
                let wrong = match name {
                    "kind" => names::dns_1035_label(&text.to_lowercase()),
                    _ if text.matches('/').count() > 1 => {
                        vec![format!("unexpected GroupVersion string: {text}")]
                    }
                    _ => Vec::new(),
                };
                for why in wrong {
                    errors.push(FieldError::invalid(&path, text.as_str(), why));
                }
            }
            Some(other) => {
                errors.push(FieldError::invalid(
                    &path,
                    other.clone(),
                    "must be a string",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::aggregate;
    use serde_json::json;

    /// Texts of kube-apiserver 1.36.
    #[test]
    fn items_that_stand_twice_are_named_once() {
        let schema = Schema::parse(&json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"], "items": {
                "type": "object",
                "properties": {"k": {"type": "string"}, "p": {"type": "integer", "default": 1}},
            }},
            "deep": {"type": "object", "additionalProperties": {
                "type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"},
            }},
            "plain": {"type": "array", "items": {"type": "string"}},
        }}));
        let cases = [
            (
                json!({"set": ["a", "b", "a", "a"]}),
                r#"set[2]: Duplicate value: "a""#,
            ),
            (
                json!({"map": [{"k": "a"}, {"k": "a", "p": 1, "v": 2}]}),
                r#"map[1]: Duplicate value: {"k":"a","p":1}"#,
            ),
            (json!({"map": [{"k": "a"}, {"k": "a", "p": 2}]}), ""),
            (
                json!({"deep": {"x": [1, 1]}}),
                "deep[x][1]: Duplicate value: 1",
            ),
            (json!({"plain": ["a", "a"]}), ""),
        ];
        for (object, expected) in cases {
            assert_eq!(
                aggregate(&duplicate_errors(&schema, &object)),
                expected,
                "{object}"
            );
        }
    }

    #[test]
    fn an_embedded_object_needs_its_type() {
        let schema = Schema::parse(&json!({"type": "object", "properties": {
            "e": {"type": "object", "x-kubernetes-embedded-resource": true},
        }}));
        let cases = [
            (
                json!({"e": {"metadata": {"name": "y"}}}),
                "[e.apiVersion: Required value, e.kind: Required value]",
            ),
            (json!({"e": {"apiVersion": "v1", "kind": "Pod"}}), ""),
            (
                json!({"e": {"apiVersion": "", "kind": 5}}),
                r#"[e.apiVersion: Invalid value: "": must not be empty, e.kind: Invalid value: 5: must be a string]"#,
            ),
        ];
        for (object, expected) in cases {
            assert_eq!(
                aggregate(&embedded_errors(&schema, &object)),
                expected,
                "{object}"
            );
        }
    }
}
