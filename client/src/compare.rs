//! Two states of an object as JSON: their difference, without what is equal in another notation.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use serde_json::{Map, Value};

use crate::patch::difference;

/// The fields of `to` beyond `from`, as a merge patch that removes nothing.
pub(crate) fn added(from: &Value, to: &Value) -> Value {
    let mut change = difference(from, to);
    if let Some(change) = change.as_object_mut() {
        change.retain(|_, value| !value.is_null());
    }
    change
}

pub(crate) fn is_empty(change: &Value) -> bool {
    change.as_object().is_some_and(Map::is_empty)
}

/// The status of an object, or the rest of it, without the fields that every write changes.
pub(crate) fn part(mut object: Value, status: bool) -> Value {
    if status {
        return object["status"].take();
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    object
}

/// Removes nulls, empty lists, and empty labels and annotations.
pub(crate) fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|name, value| {
                    !matches!(&**name, "labels" | "annotations") || !is_empty(value)
                });
            }
            fields.retain(|_, value| {
                !value.is_null() && !value.as_array().is_some_and(Vec::is_empty)
            });
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

pub(crate) fn digest(change: &Value) -> u64 {
    fn feed(value: &Value, hasher: &mut DefaultHasher) {
        match value {
            Value::Object(fields) => {
                // Independent of the order of the fields.
                let mut names: Vec<&String> = fields.keys().collect();
                names.sort_unstable();
                ("{", names.len()).hash(hasher);
                for name in names {
                    name.hash(hasher);
                    feed(&fields[name], hasher);
                }
            }
            Value::Array(items) => {
                ("[", items.len()).hash(hasher);
                items.iter().for_each(|item| feed(item, hasher));
            }
            other => other.to_string().hash(hasher),
        }
    }
    let mut hasher = DefaultHasher::new();
    feed(change, &mut hasher);
    hasher.finish()
}
