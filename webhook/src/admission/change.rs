//! The patch of a mutating webhook.
//!
//! A handler sees the fields that its type has; the object of the request may have others, such as those of a newer version
//! of Kubernetes. The change is therefore the difference between the object as the handler got it and the object that it
//! returned, both written by the same type. That change is made to the object of the request, and the patch is what differs
//! then. Fields without a place in the type stay, and so do forms that the type writes differently (`null`, empty lists).
//! controller-runtime patches the difference to the request, and drops the removals in it.
//!
//! All three are text. One type writes both states, so equal texts are equal values, and only objects on the way to a
//! change are read. Trees of the whole objects would take most of the time of a call.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

use json_patch::jsonptr::{Pointer, PointerBuf};
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation};
use serde::de::Error as _;
use serde_json::value::RawValue;
use serde_json::{Error, Map, Number, Result, Value};

/// The most levels of lists and objects in a changed value, those of serde_json. Texts that are only passed over may have more.
const DEEPEST: usize = 127;

/// The fields of an object, with values that are not read yet.
type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// The patch that makes the change from `before` to `after` in `raw`, all in JSON.
///
/// # Errors
/// When one of them is not JSON.
pub(super) fn patch(raw: &str, before: &str, after: &str) -> Result<Patch> {
    let mut patch = Patch::default();
    descend(&mut PointerBuf::new(), [raw, before, after], &mut patch)?;
    Ok(patch)
}

/// Adds the change at `place`, from the texts there.
fn descend(place: &mut PointerBuf, texts: [&str; 3], patch: &mut Patch) -> Result<()> {
    let [raw, before, after] = texts;
    if before == after {
        return Ok(());
    }
    if !texts.iter().all(|text| text.starts_with('{')) {
        let (raw, before, after) = (value(raw)?, value(before)?, value(after)?);
        add_difference(place, &raw, &changed(&raw, &before, &after), patch);
        return Ok(());
    }
    let (raw, before, after) = (fields(raw)?, fields(before)?, fields(after)?);
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        place.push_back(name);
        match (raw.get(name), before.get(name), after.get(name)) {
            (_, Some(old), Some(new)) if old.get() == new.get() => {}
            (None, _, None) => {}
            // A map has any order in its text.
            (None, Some(old), Some(new)) if is_equal(old, new)? => {}
            (Some(_), _, None) => patch.0.push(PatchOperation::Remove(RemoveOperation {
                path: place.clone(),
            })),
            (Some(raw), Some(old), Some(new)) => {
                descend(place, [raw, old, new].map(|text| text.get()), patch)?;
            }
            // The type left out its default value, and knows a part of what was there.
            (Some(raw), None, Some(new)) if is_object(raw) && is_object(new) => {
                descend(place, [raw.get(), "{}", new.get()], patch)?;
            }
            (Some(raw), None, Some(new)) => {
                add_difference(place, &value(raw.get())?, &value(new.get())?, patch);
            }
            (None, _, Some(new)) => patch.0.push(PatchOperation::Add(AddOperation {
                path: place.clone(),
                value: value(new.get())?,
            })),
        }
        place.pop_back();
    }
    Ok(())
}

fn is_object(text: &RawValue) -> bool {
    text.get().starts_with('{')
}

fn is_equal(one: &RawValue, other: &RawValue) -> Result<bool> {
    Ok(value(one.get())? == value(other.get())?)
}

/// Adds what differs between two values at `place`.
fn add_difference(place: &Pointer, from: &Value, to: &Value, patch: &mut Patch) {
    for mut operation in json_patch::diff(from, to).0 {
        if let PatchOperation::Add(AddOperation { path, .. })
        | PatchOperation::Remove(RemoveOperation { path })
        | PatchOperation::Replace(ReplaceOperation { path, .. }) = &mut operation
        {
            *path = place.concat(path);
        }
        patch.0.push(operation);
    }
}

fn fields(text: &str) -> Result<Fields<'_>> {
    serde_json::from_str(text)
}

/// The value of a text. serde_json reads some numbers with 17 digits as the number beside them, which would be a change
/// that the handler did not make.
fn value(text: &str) -> Result<Value> {
    value_at(text, 0)
}

fn value_at(text: &str, depth: usize) -> Result<Value> {
    if depth > DEEPEST {
        return Err(Error::custom("recursion limit exceeded"));
    }
    Ok(match text.as_bytes().first() {
        Some(b'{') => {
            let fields = fields(text)?.into_iter();
            let fields = fields.map(|(name, text)| Ok((name, value_at(text.get(), depth + 1)?)));
            Value::Object(fields.collect::<Result<_>>()?)
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            let items = items
                .into_iter()
                .map(|text| value_at(text.get(), depth + 1));
            Value::Array(items.collect::<Result<_>>()?)
        }
        _ => {
            let read: Value = serde_json::from_str(text)?;
            let number = text.parse().ok().filter(|_| read.is_f64());
            number
                .and_then(Number::from_f64)
                .map_or(read, Value::Number)
        }
    })
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
                    (Some(raw), None) if raw.is_object() && new.is_object() => {
                        changed(raw, &Value::Object(Map::new()), new)
                    }
                    _ => new.clone(),
                };
                result.insert(name.clone(), value);
            }
        }
    }
    result
}

/// Each item of `after` is made from the item of `before` that it was: an equal one, else one of the same name, else the one
/// at the same place if neither has a name. Of several equal items, or several of one name, each is used once, in order.
fn list(raw: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let mut equal = places(before.iter().enumerate().map(|(place, old)| (old, place)));
    let mut origin: Vec<Option<usize>> = after.iter().map(|new| next(&mut equal, new)).collect();
    // What is left of the first round has no equal item any more.
    let left = equal.into_values().flatten().collect::<BTreeSet<usize>>();
    let named = left
        .iter()
        .filter_map(|place| Some((name(&before[*place])?, *place)));
    let mut named = places(named);
    for index in 0..after.len() {
        if origin[index].is_some() {
            continue;
        }
        origin[index] = match name(&after[index]) {
            Some(name) => next(&mut named, name),
            None => Some(index).filter(|place| {
                before.len() == after.len()
                    && left.contains(place)
                    && name(&before[*place]).is_none()
            }),
        };
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

/// The places of each key, in order.
fn places<'a, T: Hash + Eq + ?Sized>(
    keys: impl Iterator<Item = (&'a T, usize)>,
) -> HashMap<&'a T, VecDeque<usize>> {
    let mut places: HashMap<&T, VecDeque<usize>> = HashMap::new();
    for (key, place) in keys {
        places.entry(key).or_default().push_back(place);
    }
    places
}

/// Takes the next place of `key`.
fn next<T: Hash + Eq + ?Sized>(
    places: &mut HashMap<&T, VecDeque<usize>>,
    key: &T,
) -> Option<usize> {
    places.get_mut(key)?.pop_front()
}

fn name(item: &Value) -> Option<&str> {
    item.get("name").and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn of_values(raw: &Value, before: &Value, after: &Value) -> Patch {
        let [raw, before, after] = [raw, before, after].map(Value::to_string);
        patch(&raw, &before, &after).unwrap()
    }

    #[test]
    fn maps_that_a_type_writes_in_any_order_are_no_change() {
        let raw = r#"{"a": {"x": 1, "y": 2}, "b": [{"x": 1, "y": 2}]}"#;
        let before = r#"{"a":{"x":1,"y":2},"b":[{"x":1,"y":2}]}"#;
        let after = r#"{"b":[{"y":2,"x":1}],"a":{"y":2,"x":1}}"#;
        assert_eq!(patch(raw, before, after).unwrap(), Patch::default());
        // The type adds it, and the request does not have it.
        assert_eq!(patch("{}", before, after).unwrap(), Patch::default());
    }

    #[test]
    fn an_unknown_field_that_is_too_deep_is_an_error() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        let of_levels = |levels: usize| {
            let raw = format!(
                r#"{{"list": [{{"name": "a", "value": 1, "unknown": {}}}]}}"#,
                deep(levels)
            );
            patch(
                &raw,
                r#"{"list":[{"name":"a","value":1}]}"#,
                r#"{"list":[{"name":"a","value":2}]}"#,
            )
        };
        assert_eq!(of_levels(100).unwrap().0.len(), 1);
        let error = of_levels(100_000).unwrap_err().to_string();
        assert_eq!(error, "recursion limit exceeded");
        // Beside the change it is not read.
        let raw = format!(r#"{{"a": 1, "unknown": {}}}"#, deep(100_000));
        assert_eq!(patch(&raw, r#"{"a":1}"#, r#"{"a":2}"#).unwrap().0.len(), 1);
    }

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
                "items without a name change places",
                json!([{"ip": "1", "new": 1}, {"ip": "2", "new": 2}]),
                json!([{"ip": "1"}, {"ip": "2"}]),
                json!([{"ip": "2"}, {"ip": "1"}]),
                json!([{"ip": "2", "new": 2}, {"ip": "1", "new": 1}]),
            ),
            (
                "the second of two items with one name changes, and the first goes behind it",
                json!([{"name": "a", "at": 1, "new": 1}, {"name": "a", "at": 2, "new": 2}]),
                json!([{"name": "a", "at": 1}, {"name": "a", "at": 2}]),
                json!([{"name": "a", "at": 3}, {"name": "a", "at": 1}]),
                json!([{"name": "a", "at": 3, "new": 2}, {"name": "a", "at": 1, "new": 1}]),
            ),
            (
                "items change places",
                json!([{"name": "a", "new": 1}, {"name": "b", "new": 2}]),
                json!([{"name": "a"}, {"name": "b"}]),
                json!([{"name": "b"}, {"name": "a"}]),
                json!([{"name": "b", "new": 2}, {"name": "a", "new": 1}]),
            ),
            (
                "an object that the type left out as its default gets a field",
                json!({"a": {"new": 1}}),
                json!({}),
                json!({"a": {"priority": 5}}),
                json!({"a": {"new": 1, "priority": 5}}),
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
            json_patch::patch(&mut patched, &of_values(&raw, &before, &after)).unwrap();
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

    /// An item of a list: two names and none, so that names and whole items come twice.
    fn item() -> impl Strategy<Value = Value> {
        ("[ab]?", 0..3_i64).prop_map(|(name, value)| {
            let mut item = json!({"value": value});
            if !name.is_empty() {
                item["name"] = json!(name);
            }
            item
        })
    }

    /// Two states of a list: some items change, leave or join, and the order is any.
    fn lists() -> impl Strategy<Value = (Vec<Value>, Vec<Value>)> {
        let items = prop::collection::vec((item(), 0..4_u8), 0..8);
        (items, prop::collection::vec(item(), 0..3)).prop_flat_map(|(items, joining)| {
            let before: Vec<Value> = items.iter().map(|(item, _)| item.clone()).collect();
            let mut after = joining;
            for (item, fate) in items {
                let mut item = item;
                match fate {
                    0 => continue,
                    1 => item["value"] = json!(7),
                    _ => {}
                }
                after.push(item);
            }
            (Just(before), Just(after).prop_shuffle())
        })
    }

    proptest! {
        #![proptest_config(crate::sample::cases(512))]

        #[test]
        fn items_keep_what_the_type_does_not_have_whatever_their_names_and_order(
            (before, after) in lists(),
        ) {
            // The unknown field is a copy of the item as it was.
            let with_copy = |item: &Value| {
                let mut raw = item.clone();
                raw["unknown"] = item.clone();
                raw
            };
            let raw: Vec<Value> = before.iter().map(with_copy).collect();
            let [raw, old, new] = [&raw, &before, &after].map(|list| json!({"list": list}));
            let mut patched = raw.clone();
            json_patch::patch(&mut patched, &of_values(&raw, &old, &new)).unwrap();
            let patched = patched["list"].as_array().unwrap();
            let known = |item: &Value| {
                let mut known = item.clone();
                known.as_object_mut().unwrap().remove("unknown");
                known
            };
            prop_assert_eq!(&patched.iter().map(known).collect::<Vec<_>>(), &after);
            for item in patched.iter().filter(|item| !item["unknown"].is_null()) {
                prop_assert_eq!(item.get("name"), item["unknown"].get("name"));
            }
            let count = |list: &[Value], item: &Value| list.iter().filter(|one| *one == item).count();
            for item in &before {
                // Every item that stays has its own field, and no field is used twice.
                let staying = count(&before, item).min(count(&after, item));
                prop_assert!(count(patched, &with_copy(item)) == staying, "{item}");
                let used = patched.iter().filter(|one| one["unknown"] == *item).count();
                prop_assert!(used <= count(&before, item), "{item}");
            }
        }

        #[test]
        fn the_patch_of_any_change_makes_the_object_that_the_handler_returned(
            before in value(),
            after in value(),
        ) {
            let patch = of_values(&before, &before, &after);
            let mut patched = before.clone();
            json_patch::patch(&mut patched, &patch).unwrap();
            prop_assert_eq!(&patched, &after);
            prop_assert_eq!(patch.0.is_empty(), before == after);
        }

        #[test]
        fn a_number_is_the_one_that_the_handler_returned(
            kept in any::<f64>().prop_filter("in JSON", |number| number.is_finite()),
            new in any::<f64>().prop_filter("in JSON", |number| number.is_finite()),
        ) {
            let before = json!({"list": [kept]});
            let patch = of_values(&before, &before, &json!({"list": [kept, new], "new": new}));
            let text = serde_json::to_string(&patch).unwrap();
            let new = serde_json::to_string(&new).unwrap();
            let added = [format!(r#""path":"/list/1","value":{new}"#), format!(r#""path":"/new","value":{new}"#)];
            prop_assert!(patch.0.len() == 2 && added.iter().all(|added| text.contains(added)), "{}", text);
        }
    }
}
