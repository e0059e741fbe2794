//! Strategic merge patch: lists merge by key, and directives for the rest.
//!
//! `$patch: delete|replace|merge`, `$retainKeys`, `$setElementOrder/<list>` and
//! `$deleteFromPrimitiveList/<list>`. (apimachinery: `util/strategicpatch`.)

use serde_json::{Map, Value};

use super::error::{Error, go_map, no_merge_key, unknown_directive};
use super::types::{Field, Type};
use crate::kinds::data::Patch as Strategy;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList/";

/// Merges `patch` into `original`; both are objects of type `of`.
pub(super) fn apply(of: Type, original: &Value, patch: Value) -> Result<Value, Error> {
    let original = match original {
        Value::Object(map) => map.clone(),
        _ => Map::new(),
    };
    match patch {
        Value::Object(patch) => merge_map(of, original, patch).map(Value::Object),
        _ => Ok(Value::Object(original)),
    }
}

fn merge_map(
    of: Type,
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
) -> Result<Map<String, Value>, Error> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => {
            patch.remove(DIRECTIVE);
            return Ok(patch);
        }
        Some("delete") => return Ok(Map::new()),
        _ => {
            if let Some(directive) = patch.get(DIRECTIVE).cloned() {
                return Err(unknown_directive(&directive, &Value::Object(patch)));
            }
        }
    }
    retain_keys(&mut original, &mut patch)?;
    set_element_orders(of, &mut original, &mut patch)?;
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_FROM_LIST) {
            delete_from_list(&mut original, list, &value);
            continue;
        }
        if value.is_null() {
            original.remove(&name);
            continue;
        }
        let merged = match (original.remove(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let Field { strategy, of } = of.field(&name);
                if strategy == Strategy::Replace {
                    Some(Value::Object(new))
                } else {
                    Some(Value::Object(merge_map(of, old, new)?))
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                Some(Value::Array(merge_list(of.field(&name), old, new)?))
            }
            (Some(_), new @ (Value::Object(_) | Value::Array(_))) | (None, new) => {
                without_directives(without_nulls(new))
            }
            (Some(_), new) => Some(new),
        };
        if let Some(merged) = merged {
            original.insert(name, merged);
        }
    }
    Ok(original)
}

/// `$retainKeys` lists every key to keep; keys set by the patch must be among them.
fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), Error> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let malformed = || Error::Malformed("invalid patch format of retainKeys".to_owned());
    let Value::Array(keys) = keys else {
        return Err(malformed());
    };
    let retained = |name: &str| keys.iter().any(|key| key == name);
    let strays = patch.iter().any(|(name, value)| {
        !value.is_null()
            && !name.starts_with(DELETE_FROM_LIST)
            && !name.starts_with(SET_ELEMENT_ORDER)
            && !retained(name)
    });
    if strays {
        return Err(malformed());
    }
    original.retain(|name, _| retained(name));
    Ok(())
}

/// `$setElementOrder/<list>` is the order of the patch's items in the result.
fn set_element_orders(
    of: Type,
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), Error> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|name| name.starts_with(SET_ELEMENT_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let list = directive[SET_ELEMENT_ORDER.len()..].to_owned();
        let Some(Value::Array(order)) = patch.remove(&directive) else {
            return Err(Error::Directive(format!("expected a list for {directive}")));
        };
        let field = of.field(&list);
        let added = match patch.remove(&list) {
            None => None,
            Some(Value::Array(items)) => Some(items),
            Some(other) => {
                return Err(Error::Directive(format!(
                    "expected a []interface {{}} for {list}, but received a {}",
                    go_map(&other)
                )));
            }
        };
        check_order(field.strategy, added.as_deref().unwrap_or_default(), &order)?;
        let live = match original.get(&list) {
            None => None,
            Some(Value::Array(items)) => Some(items.clone()),
            Some(other) => {
                return Err(Error::Directive(format!(
                    "expected a []interface {{}} for {list}, but received a {}",
                    go_map(other)
                )));
            }
        };
        let merged = match (live.clone(), added) {
            (None, None) => continue,
            (Some(live), None) => live,
            (None, Some(added)) => match without_directives(Value::Array(added)) {
                Some(Value::Array(items)) => items,
                _ => continue,
            },
            (Some(live), Some(added)) => merge_list(field, live, added)?,
        };
        let live = live.unwrap_or_default();
        let ordered = in_order(field.strategy, merged, &order, &live)?;
        original.insert(list, Value::Array(ordered));
    }
    Ok(())
}

/// The items of the patch must be in the order list, in the same order.
fn check_order(strategy: Strategy, added: &[Value], order: &[Value]) -> Result<(), Error> {
    if added.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in added.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let mut found = false;
        for wanted in rest.by_ref() {
            if identity(strategy, item)? == identity(strategy, wanted)? {
                found = true;
                break;
            }
        }
        if !found {
            return Err(Error::Directive(format!(
                "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                go_map(&Value::Array(added.to_vec())),
                go_map(&Value::Array(order.to_vec())),
            )));
        }
    }
    Ok(())
}

fn delete_from_list(original: &mut Map<String, Value>, list: &str, deleted: &Value) {
    let (Some(Value::Array(items)), Value::Array(deleted)) = (original.get_mut(list), deleted)
    else {
        return;
    };
    items.retain(|item| !deleted.contains(item));
}

fn merge_list(field: Field, old: Vec<Value>, new: Vec<Value>) -> Result<Vec<Value>, Error> {
    match field.strategy {
        Strategy::Default | Strategy::Replace => Ok(new),
        _ if old.is_empty() && new.is_empty() => Ok(old),
        Strategy::MergeSet => {
            let mut merged: Vec<Value> = Vec::with_capacity(old.len() + new.len());
            for item in old.iter().chain(&new) {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            in_order(field.strategy, merged, &new, &old)
        }
        Strategy::MergeBy(key) => merge_by_key(field, key, old, new),
    }
}

fn merge_by_key(
    field: Field,
    key: &str,
    mut old: Vec<Value>,
    new: Vec<Value>,
) -> Result<Vec<Value>, Error> {
    let mut plain = Vec::with_capacity(new.len());
    let mut replace = false;
    for item in new {
        if !item.is_object() {
            let text = format!("cannot restore struct from: {}", json_type(&item));
            return Err(Error::Directive(text));
        }
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let Some(gone) = item.get(key) else {
                    return Err(no_merge_key(&item, key));
                };
                old.retain(|candidate| candidate.get(key) != Some(gone));
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(Error::Directive(
                    "merging lists cannot yet be specified in the patch".to_owned(),
                ));
            }
            _ => return Err(unknown_directive(directive, &item)),
        }
    }
    if replace {
        return Ok(plain);
    }
    let mut merged = old.clone();
    for item in &plain {
        let Some(identity) = item.get(key) else {
            return Err(no_merge_key(item, key));
        };
        let present = merged
            .iter_mut()
            .find(|candidate| candidate.get(key) == Some(identity));
        match (present, item) {
            (Some(present), Value::Object(patch)) => {
                let original = match present.take() {
                    Value::Object(map) => map,
                    _ => Map::new(),
                };
                *present = Value::Object(merge_map(field.of, original, patch.clone())?);
            }
            _ => merged.push(item.clone()),
        }
    }
    in_order(field.strategy, merged, &plain, &old)
}

/// Items in `order` in that order, the others in their order in `live`.
fn in_order(
    strategy: Strategy,
    items: Vec<Value>,
    order: &[Value],
    live: &[Value],
) -> Result<Vec<Value>, Error> {
    let places = |list: &[Value]| -> Result<Vec<Value>, Error> {
        list.iter().map(|item| identity(strategy, item)).collect()
    };
    let (order, live) = (places(order)?, places(live)?);
    let place = |list: &[Value], key: &Value| list.iter().position(|other| other == key);
    let mut from_patch = Vec::new();
    let mut from_server = Vec::new();
    for item in items {
        let key = identity(strategy, &item)?;
        match place(&order, &key) {
            Some(index) => from_patch.push((index, key, item)),
            None => from_server.push((place(&live, &key).unwrap_or(usize::MAX), key, item)),
        }
    }
    from_patch.sort_by_key(|(index, _, _)| *index);
    from_server.sort_by_key(|(index, _, _)| *index);

    let mut ordered = Vec::with_capacity(from_patch.len() + from_server.len());
    let mut server = from_server.into_iter().peekable();
    for (_, key, item) in from_patch {
        if let Some(bound) = place(&live, &key) {
            while let Some((_, _, earlier)) = server.next_if(|(index, _, _)| *index < bound) {
                ordered.push(earlier);
            }
        }
        ordered.push(item);
    }
    ordered.extend(server.map(|(_, _, item)| item));
    Ok(ordered)
}

/// The identity of an item of a merging list: its merge key, or its value.
fn identity(strategy: Strategy, item: &Value) -> Result<Value, Error> {
    match strategy {
        Strategy::MergeBy(key) => item
            .get(key)
            .cloned()
            .ok_or_else(|| no_merge_key(item, key)),
        _ => Ok(item.clone()),
    }
}

/// The value without maps that carry a directive; `None` when it is one itself.
fn without_directives(value: Value) -> Option<Value> {
    Some(match value {
        Value::Object(map) => {
            if map.contains_key(DIRECTIVE) {
                return None;
            }
            Value::Object(
                map.into_iter()
                    .filter_map(|(name, value)| Some((name, without_directives(value)?)))
                    .collect(),
            )
        }
        Value::Array(items) => {
            Value::Array(items.into_iter().filter_map(without_directives).collect())
        }
        other => other,
    })
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name, without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::data;
    use proptest::prelude::*;
    use serde_json::json;

    fn pod(original: Value, patch: Value) -> Result<Value, Error> {
        apply(Type::of_kind(data::root("", "v1", "Pod")), &original, patch)
    }

    fn containers(names: &[(&str, &str)]) -> Value {
        let items: Vec<Value> = names
            .iter()
            .map(|(name, image)| json!({"name": name, "image": image}))
            .collect();
        json!({"spec": {"containers": items}})
    }

    #[test]
    fn each_directive_does_what_its_name_says() {
        let cases = [
            (
                "merge by key, new items after",
                containers(&[("a", "1"), ("b", "1")]),
                containers(&[("b", "2"), ("c", "1")]),
                containers(&[("a", "1"), ("b", "2"), ("c", "1")]),
            ),
            (
                "delete an item",
                containers(&[("a", "1"), ("b", "1")]),
                json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
                containers(&[("b", "1")]),
            ),
            (
                "replace a list",
                containers(&[("a", "1"), ("b", "1")]),
                json!({"spec": {"containers": [{"name": "c"}, {"$patch": "replace"}]}}),
                json!({"spec": {"containers": [{"name": "c"}]}}),
            ),
            (
                "replace a map",
                json!({"spec": {"nodeSelector": {"a": "1"}, "x": 1}}),
                json!({"spec": {"nodeSelector": {"$patch": "replace", "b": "2"}}}),
                json!({"spec": {"nodeSelector": {"b": "2"}, "x": 1}}),
            ),
            (
                "delete a map's content",
                json!({"spec": {"nodeSelector": {"a": "1"}}}),
                json!({"spec": {"nodeSelector": {"$patch": "delete"}}}),
                json!({"spec": {"nodeSelector": {}}}),
            ),
            (
                "retain keys",
                json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
                json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]}}),
                json!({"spec": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}}),
            ),
            (
                "element order of maps",
                containers(&[("a", "1"), ("b", "1"), ("c", "1")]),
                json!({"spec": {
                    "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
                    "containers": [{"name": "a", "image": "2"}],
                }}),
                containers(&[("b", "1"), ("c", "1"), ("a", "2")]),
            ),
            (
                "element order of a set",
                json!({"metadata": {"finalizers": ["a", "b"]}}),
                json!({"metadata": {"$setElementOrder/finalizers": ["c", "a"], "finalizers": ["c"]}}),
                json!({"metadata": {"finalizers": ["c", "a", "b"]}}),
            ),
            (
                "delete from a set",
                json!({"metadata": {"finalizers": ["a", "b"]}}),
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
                json!({"metadata": {"finalizers": ["b"]}}),
            ),
            (
                "a set grows without doubles",
                json!({"metadata": {"finalizers": ["a", "b"]}}),
                json!({"metadata": {"finalizers": ["b", "c"]}}),
                json!({"metadata": {"finalizers": ["a", "b", "c"]}}),
            ),
            (
                "null removes",
                json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
                json!({"metadata": {"labels": {"a": null}, "annotations": null}}),
                json!({"metadata": {"labels": {"b": "2"}}}),
            ),
            (
                "nulls and directives of new maps are left out",
                json!({}),
                json!({"spec": {"nodeSelector": {"a": null, "b": "1"}, "containers": [{"name": "a", "$patch": "delete"}, {"name": "b"}]}}),
                json!({"spec": {"nodeSelector": {"b": "1"}, "containers": [{"name": "b"}]}}),
            ),
            (
                "a list without a key is replaced",
                json!({"spec": {"tolerations": [{"key": "a"}]}}),
                json!({"spec": {"tolerations": [{"key": "b"}]}}),
                json!({"spec": {"tolerations": [{"key": "b"}]}}),
            ),
            (
                "another type wins",
                json!({"spec": {"nodeSelector": {"a": "1"}}}),
                json!({"spec": {"nodeSelector": ["x"]}}),
                json!({"spec": {"nodeSelector": ["x"]}}),
            ),
            (
                "nested lists merge",
                json!({"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}}),
                json!({"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}}),
                json!({"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]}]}}),
            ),
        ];
        for (name, original, patch, expected) in cases {
            let patched = pod(original, patch).unwrap();
            if name == "nested lists merge" || name == "merge by key, new items after" {
                // Order of untouched and added items: see the next test.
                assert_eq!(sorted(patched), sorted(expected), "{name}");
            } else {
                assert_eq!(patched, expected, "{name}");
            }
        }
    }

    fn sorted(mut value: Value) -> Value {
        match &mut value {
            Value::Array(items) => {
                for item in items.iter_mut() {
                    *item = sorted(item.take());
                }
                items.sort_by_key(ToString::to_string);
            }
            Value::Object(map) => {
                for item in map.values_mut() {
                    *item = sorted(item.take());
                }
            }
            _ => {}
        }
        value
    }

    #[test]
    fn items_of_the_server_keep_their_place_before_those_they_preceded() {
        let patched = pod(
            containers(&[("a", "1"), ("b", "1"), ("c", "1")]),
            containers(&[("b", "2"), ("d", "1")]),
        )
        .unwrap();
        // The patch's items keep together in their order; `c`, which stood after `b`, comes last.
        assert_eq!(
            patched,
            containers(&[("a", "1"), ("b", "2"), ("d", "1"), ("c", "1")])
        );
    }

    #[test]
    fn wrong_directives_are_refused() {
        let original = containers(&[("a", "1")]);
        let cases = [
            (
                json!({"spec": {"$patch": "foo"}}),
                Error::Directive("unknown patch type: foo in map: map[$patch:foo]".into()),
            ),
            (
                json!({"spec": {"containers": [{"image": "x"}]}}),
                Error::Directive(
                    "map: map[image:x] does not contain declared merge key: name".into(),
                ),
            ),
            (
                json!({"spec": {"containers": [{"$patch": "delete"}]}}),
                Error::Directive(
                    "map: map[$patch:delete] does not contain declared merge key: name".into(),
                ),
            ),
            (
                json!({"spec": {"$retainKeys": ["x"], "y": 1}}),
                Error::Malformed("invalid patch format of retainKeys".into()),
            ),
            (
                json!({"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}}),
                Error::Directive(
                    "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n".into(),
                ),
            ),
        ];
        for (patch, expected) in cases {
            assert_eq!(pod(original.clone(), patch), Err(expected));
        }
    }

    fn any_containers() -> impl Strategy_<Value = Value> {
        prop::collection::btree_map("[a-e]", "[1-3]", 0..5).prop_map(|map| {
            let pairs: Vec<(&str, &str)> = map
                .iter()
                .map(|(name, image)| (name.as_str(), image.as_str()))
                .collect();
            containers(&pairs)
        })
    }
    use proptest::strategy::Strategy as Strategy_;

    proptest! {
        #[test]
        fn a_patch_twice_is_a_patch_once(original in any_containers(), patch in any_containers()) {
            let once = pod(original, patch.clone()).unwrap();
            let twice = pod(once.clone(), patch).unwrap();
            prop_assert_eq!(once, twice);
        }

        #[test]
        fn merging_keeps_every_item_of_both_once(original in any_containers(), patch in any_containers()) {
            let merged = pod(original.clone(), patch.clone()).unwrap();
            let names = |value: &Value| -> std::collections::BTreeSet<String> {
                value["spec"]["containers"].as_array().into_iter().flatten()
                    .map(|item| item["name"].to_string()).collect()
            };
            let expected: std::collections::BTreeSet<String> =
                names(&original).union(&names(&patch)).cloned().collect();
            prop_assert_eq!(merged["spec"]["containers"].as_array().map_or(0, Vec::len), expected.len());
            prop_assert_eq!(names(&merged), expected);
        }
    }
}
