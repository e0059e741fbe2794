//! Two states of an object as JSON: their difference, without what is equal in another notation.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use serde_json::{Map, Value};

/// The merge patches of an object: of all but its status, empty if that is equal, and of its status.
pub(crate) type Patches = (Value, Option<Value>);

/// The merge patches that make `from` into `to`. A field that is equal in another notation is left out, so that the changes
/// of others to it are kept. What differs is sent as it is, since a schema may require a list that is empty.
pub(crate) fn patches(from: &Value, to: &Value) -> Patches {
    let mut patch = differing(from, to);
    let status = patch
        .as_object_mut()
        .and_then(|patch| patch.remove("status"));
    (patch, status)
}

/// The merge patch of the fields that the status `to` has beyond `from`, which removes none; `None` without such fields.
pub(crate) fn status_patch(from: &Value, to: &Value) -> Option<Value> {
    if to.is_null() || is_empty(&pruned(to.clone())) {
        return None;
    }
    let has = |name: &str| from.get(name).is_some_and(|value| !value.is_null());
    let mut patch = if from.is_null() || is_empty(from) {
        to.clone()
    } else {
        differing(from, to)
    };
    if let Some(fields) = patch.as_object_mut() {
        fields.retain(|name, value| {
            let empties = value.as_array().is_some_and(Vec::is_empty) && has(name);
            !value.is_null() && !empties
        });
    }
    Some(patch).filter(|patch| !is_empty(patch))
}

/// The merge patch of the fields that differ in any notation.
fn differing(from: &Value, to: &Value) -> Value {
    let (plain_from, plain_to) = (pruned(from.clone()), pruned(to.clone()));
    difference_of(from, to, &plain_from, &plain_to)
}

/// As [`differing`]; `plain_from` and `plain_to` are the same values without empty ones.
fn difference_of(from: &Value, to: &Value, plain_from: &Value, plain_to: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (from, to) else {
        return to.clone();
    };
    let none = Value::Object(Map::new());
    let mut patch = Map::new();
    let names = before.keys().chain(after.keys());
    for name in names {
        let (was, is) = (plain_from.get(name), plain_to.get(name));
        if was == is || patch.contains_key(name) {
            continue;
        }
        let change = match (before.get(name), after.get(name)) {
            (_, None) => Value::Null,
            (Some(before @ Value::Object(_)), Some(after @ Value::Object(_))) => {
                difference_of(before, after, was.unwrap_or(&none), is.unwrap_or(&none))
            }
            (_, Some(after)) => after.clone(),
        };
        patch.insert(name.clone(), change);
    }
    Value::Object(patch)
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

/// The value without nulls, empty lists, and empty labels and annotations.
pub(crate) fn pruned(mut value: Value) -> Value {
    prune(&mut value);
    value
}

fn prune(value: &mut Value) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(spec: Value, status: Value) -> Value {
        json!({"spec": spec, "status": status})
    }

    #[test]
    fn a_patch_has_values_as_they_are_and_only_of_a_part_that_differs() {
        let none = (json!({}), None);
        for (case, from, to, patches_of) in [
            (
                "another notation of all but the status",
                object(json!({"a": 1}), json!({})),
                object(
                    json!({"a": 1, "b": [], "c": null}),
                    json!({"d": [{"e": []}]}),
                ),
                (json!({}), Some(json!({"d": [{"e": []}]}))),
            ),
            (
                "another notation of a list beside a field that differs",
                object(json!({"a": [{"b": 1}], "n": 1}), json!({})),
                object(
                    json!({"a": [{"b": 1, "c": []}], "d": [], "n": 2}),
                    json!({}),
                ),
                (json!({"spec": {"n": 2}}), None),
            ),
            (
                "a new field with an empty list",
                object(json!({"a": 1}), json!({})),
                object(json!({"a": 1, "new": {"list": []}}), json!({})),
                (json!({"spec": {"new": {"list": []}}}), None),
            ),
            (
                "another notation everywhere",
                object(json!({"a": 1}), json!({"d": [{}]})),
                object(json!({"a": 1, "b": []}), json!({"d": [{"e": []}]})),
                none.clone(),
            ),
            (
                "an emptied list",
                object(json!({"a": [1]}), json!({"d": []})),
                object(json!({"a": []}), json!({})),
                (json!({"spec": {"a": []}}), None),
            ),
            (
                "an empty list within a list",
                object(json!({"a": [{"b": 1, "c": []}]}), json!({})),
                object(json!({"a": [{"b": 2, "c": []}]}), json!({})),
                (json!({"spec": {"a": [{"b": 2, "c": []}]}}), None),
            ),
            (
                "no labels",
                json!({"metadata": {"labels": {"a": "1"}}}),
                json!({"metadata": {"labels": {}}}),
                (json!({"metadata": {"labels": {"a": null}}}), None),
            ),
            (
                "nothing",
                object(json!({}), json!({})),
                object(json!({}), json!({})),
                none,
            ),
        ] {
            assert_eq!(patches(&from, &to), patches_of, "{case}");
        }
    }

    #[test]
    fn a_patch_of_the_status_of_a_new_object_removes_and_empties_nothing() {
        let list = json!([{"type": "Ready"}]);
        for (case, from, to, patch) in [
            (
                "no status",
                Value::Null,
                json!({"phase": "Up", "list": []}),
                Some(json!({"phase": "Up", "list": []})),
            ),
            ("of the server", json!({"list": list}), json!({}), None),
            (
                "emptied",
                json!({"list": list}),
                json!({"phase": "Up", "list": [], "other": null}),
                Some(json!({"phase": "Up"})),
            ),
            ("only empty", Value::Null, json!({"list": []}), None),
            ("none", json!({"list": list}), Value::Null, None),
        ] {
            assert_eq!(status_patch(&from, &to), patch, "{case}");
        }
    }
}
