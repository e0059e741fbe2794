//! The patch of a mutating webhook.
//!
//! A handler sees the fields that its type has; the object of the request may have others, such as those of a newer version
//! of Kubernetes. The change is therefore the difference between the object as the handler got it and the object that it
//! returned, both written by the same type. That change is made to the object of the request, and the patch is what differs
//! then. Fields without a place in the type stay, and so do forms that the type writes differently (`null`, empty lists).
//! controller-runtime patches the difference to the request, and drops the removals in it.

use std::collections::BTreeSet;

use json_patch::Patch;
use serde_json::{Map, Value};

/// The patch that makes the change from `before` to `after` in `raw`.
pub(super) fn patch(raw: &Value, before: &Value, after: &Value) -> Patch {
    json_patch::diff(raw, &changed(raw, before, after))
}

/// `raw` with the change from `before` to `after`.
fn changed(raw: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return raw.clone();
    }
    match (raw, before, after) {
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => {
            Value::Object(object(raw, before, after))
        }
        (Value::Array(raw), Value::Array(before), Value::Array(after))
            if raw.len() == before.len() =>
        {
            Value::Array(list(raw, before, after))
        }
        _ => after.clone(),
    }
}

fn object(
    raw: &Map<String, Value>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Map<String, Value> {
    let mut result = raw.clone();
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        match (before.get(name), after.get(name)) {
            (Some(old), Some(new)) if old == new => {}
            (_, None) => {
                result.remove(name);
            }
            (old, Some(new)) => {
                let value = match (raw.get(name), old) {
                    (Some(raw), Some(old)) => changed(raw, old, new),
                    _ => new.clone(),
                };
                result.insert(name.clone(), value);
            }
        }
    }
    result
}

/// Each item of `after` is made from the item of `before` that it was: an equal one, else one of the same name, else the
/// one at the same place if neither has a name.
fn list(raw: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let mut free: Vec<bool> = vec![true; before.len()];
    let mut origin: Vec<Option<usize>> = vec![None; after.len()];
    let mut from = 0;
    for (index, new) in after.iter().enumerate() {
        let rest = before.iter().enumerate().skip(from);
        let equal = rest
            .clone()
            .find(|(place, old)| free[*place] && *old == new);
        if let Some((place, _)) = equal {
            free[place] = false;
            origin[index] = Some(place);
            from = place + 1;
        }
    }
    for (index, new) in after.iter().enumerate() {
        if origin[index].is_some() {
            continue;
        }
        let name = name(new);
        let place = match name {
            Some(name) => (0..before.len())
                .find(|place| free[*place] && self::name(&before[*place]) == Some(name)),
            None => Some(index).filter(|place| {
                before.len() == after.len() && free[*place] && self::name(&before[*place]).is_none()
            }),
        };
        if let Some(place) = place {
            free[place] = false;
            origin[index] = Some(place);
        }
    }
    after
        .iter()
        .zip(origin)
        .map(|(new, origin)| match origin {
            Some(place) => changed(&raw[place], &before[place], new),
            None => new.clone(),
        })
        .collect()
}

fn name(item: &Value) -> Option<&str> {
    item.get("name").and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_type_does_not_have_stays_and_what_the_handler_removed_goes() {
        for (name, raw, before, after, expected) in [
            (
                "nothing changed",
                json!({"a": 1, "new": 2}),
                json!({"a": 1}),
                json!({"a": 1}),
                json!({"a": 1, "new": 2}),
            ),
            (
                "a field changed beside one that the type does not have",
                json!({"spec": {"a": 1, "new": 2}}),
                json!({"spec": {"a": 1}}),
                json!({"spec": {"a": 3}}),
                json!({"spec": {"a": 3, "new": 2}}),
            ),
            (
                "a removed field goes",
                json!({"a": 1, "b": 2}),
                json!({"a": 1, "b": 2}),
                json!({"a": 1}),
                json!({"a": 1}),
            ),
            (
                "the type writes an empty list where the request has none",
                json!({"a": 1}),
                json!({"a": 1, "list": []}),
                json!({"a": 1, "list": ["x"]}),
                json!({"a": 1, "list": ["x"]}),
            ),
            (
                "a container is added before one with an unknown field",
                json!([{"name": "a", "new": 1}]),
                json!([{"name": "a"}]),
                json!([{"name": "b"}, {"name": "a", "image": "x"}]),
                json!([{"name": "b"}, {"name": "a", "image": "x", "new": 1}]),
            ),
            (
                "an item without a name is at its place",
                json!([{"ip": "1", "new": 1}, {"ip": "2"}]),
                json!([{"ip": "1"}, {"ip": "2"}]),
                json!([{"ip": "3"}, {"ip": "2"}]),
                json!([{"ip": "3", "new": 1}, {"ip": "2"}]),
            ),
            (
                "items change places",
                json!([{"name": "a", "new": 1}, {"name": "b", "new": 2}]),
                json!([{"name": "a"}, {"name": "b"}]),
                json!([{"name": "b"}, {"name": "a"}]),
                json!([{"name": "b", "new": 2}, {"name": "a", "new": 1}]),
            ),
            (
                "another type of value",
                json!({"port": 80}),
                json!({"port": 80}),
                json!({"port": "http"}),
                json!({"port": "http"}),
            ),
        ] {
            assert_eq!(changed(&raw, &before, &after), expected, "{name}");
            let mut patched = raw.clone();
            json_patch::patch(&mut patched, &patch(&raw, &before, &after)).unwrap();
            assert_eq!(patched, expected, "{name}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..4_i64).prop_map(Value::from),
            "[a/~\"]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("(name|b/c|~d|)", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn the_patch_of_any_change_makes_the_object_that_the_handler_returned(
            before in value(),
            after in value(),
        ) {
            let patch = patch(&before, &before, &after);
            let mut patched = before.clone();
            json_patch::patch(&mut patched, &patch).unwrap();
            prop_assert_eq!(&patched, &after);
            prop_assert_eq!(patch.0.is_empty(), before == after);
        }
    }
}
