//! Of custom resources: fields that a schema does not have are removed, absent fields are set.
//!
//! (apiextensions-apiserver: `schema/pruning`, `schema/defaulting`.)

use serde_json::{Map, Number, Value};

use super::node::{Additional, Schema, is_type_or_metadata};
use super::{meta, typed};

/// Prunes a whole custom object; `apiVersion`, `kind` and the fields of ObjectMeta stay.
pub(super) fn prune_object(root: &Schema, object: &mut Value) {
    let Value::Object(map) = object else { return };
    if let Some(metadata) = map.get_mut("metadata") {
        typed::settle(meta::schema(), metadata);
    }
    prune_map(root, true, map);
    prune_embedded_metadata(root, object);
}

/// Whether pruning would remove something from a value of `schema`.
pub(crate) fn would_prune(schema: &Schema, value: &Value) -> bool {
    let mut pruned = value.clone();
    prune(schema, &mut pruned);
    pruned != *value
}

/// Prunes a value below the top.
pub(super) fn prune(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => prune_map(schema, schema.embedded, map),
        Value::Array(items) => {
            for item in items {
                match &schema.items {
                    Some(of) if schema.preserve_unknown => prune_preserved(of, item),
                    Some(of) => prune(of, item),
                    None if schema.preserve_unknown => {}
                    None => prune_all(item),
                }
            }
        }
        _ => {}
    }
}

fn prune_map(schema: &Schema, embedded: bool, map: &mut Map<String, Value>) {
    map.retain(|name, value| {
        if embedded && is_type_or_metadata(name) {
            return true;
        }
        if let Some(of) = schema.properties.get(name) {
            prune(of, value);
            return true;
        }
        match &schema.additional {
            Additional::Of(of) => prune(of, value),
            Additional::Any if !schema.preserve_unknown => prune_all(value),
            Additional::Any => {}
            Additional::Unspecified => return schema.preserve_unknown,
        }
        true
    });
}

/// Below a node that preserves unknown fields, only values with a schema are pruned.
fn prune_preserved(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                if schema.embedded && is_type_or_metadata(name) {
                    continue;
                }
                if let Some(of) = schema.field(name) {
                    prune(of, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = &schema.items {
                for item in items {
                    prune_preserved(of, item);
                }
            }
        }
        _ => {}
    }
}

/// Removes all fields of all objects below: nothing is specified there.
pub(super) fn prune_all(value: &mut Value) {
    match value {
        Value::Object(map) => map.clear(),
        Value::Array(items) => items.iter_mut().for_each(prune_all),
        _ => {}
    }
}

fn prune_embedded_metadata(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            if schema.embedded
                && let Some(metadata) = map.get_mut("metadata")
            {
                prune(meta::schema(), metadata);
            }
            for (name, value) in map.iter_mut() {
                if let Some(of) = schema.field(name) {
                    prune_embedded_metadata(of, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = &schema.items {
                for item in items {
                    prune_embedded_metadata(of, item);
                }
            }
        }
        _ => {}
    }
}

/// Sets the default of each field that is absent, or null where null is forbidden.
pub(super) fn set_defaults(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, of) in &schema.properties {
                let Some(default) = &of.default else { continue };
                let wanted = match map.get(name) {
                    None => true,
                    Some(value) => value.is_null() && !of.nullable,
                };
                if wanted {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map.iter_mut() {
                if let Some(of) = schema.properties.get(name) {
                    set_defaults(of, value);
                } else if let Additional::Of(of) = &schema.additional {
                    replace_null(of, value);
                    set_defaults(of, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = &schema.items {
                for item in items {
                    replace_null(of, item);
                    set_defaults(of, item);
                }
            }
        }
        _ => {}
    }
}

fn replace_null(schema: &Schema, value: &mut Value) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *value = default.clone();
    }
}

/// Removes null fields that are neither nullable nor got a default.
pub(super) fn remove_forbidden_nulls(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let Some(of) = schema.field(name) else {
                return true;
            };
            if value.is_null() && !of.nullable {
                return false;
            }
            remove_forbidden_nulls(of, value);
            true
        }),
        Value::Array(items) => {
            if let Some(of) = &schema.items {
                for item in items {
                    remove_forbidden_nulls(of, item);
                }
            }
        }
        _ => {}
    }
}

/// Converts numbers without a fraction to integers, as in Go (`2.0` is stored as `2`).
pub(super) fn integral_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(float) = number.as_f64()
                && number.is_f64()
                && float.fract() == 0.0
                && float.abs() < 9e15
            {
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "integral and small enough, as checked"
                )]
                let integer = float as i64;
                *number = Number::from(integer);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(integral_numbers),
        Value::Object(map) => map.values_mut().for_each(integral_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::ObjectSchema;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn schema() -> ObjectSchema {
        ObjectSchema::custom(&json!({
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {
                "a": {"type": "string"},
                "l": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
                "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"y": {"type": "string"}}}},
                "p": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"q": {"type": "object", "properties": {"r": {"type": "string"}}}},
                },
                "emb": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": true,
                    "properties": {"spec": {"type": "object", "properties": {"z": {"type": "string"}}}},
                },
                "d": {"type": "string", "default": "dd"},
                "dn": {"type": "string", "nullable": true, "default": "nn"},
                "do": {"type": "object", "default": {}, "properties": {"e": {"type": "integer", "default": 3}}},
                "dl": {"type": "array", "items": {"type": "object", "properties": {"f": {"type": "string", "default": "ff"}}}},
                "ln": {"type": "array", "items": {"type": "string", "default": "q"}},
                "dm": {"type": "object", "additionalProperties": {"type": "string", "default": "dd"}},
            }}},
        }))
    }

    fn pruned(spec: Value) -> Value {
        let mut object = json!({"apiVersion": "g.io/v1", "kind": "Qux", "metadata": {"name": "x"}, "spec": spec});
        schema().prune(&mut object);
        object["spec"].take()
    }

    fn defaulted(spec: Value) -> Value {
        let mut object = json!({"spec": spec});
        schema().default(&mut object);
        object["spec"].take()
    }

    #[test]
    fn unknown_fields_go_wherever_they_are() {
        let cases = [
            ("a field", json!({"a": "1", "u": 1}), json!({"a": "1"})),
            (
                "in a list",
                json!({"l": [{"x": 1, "w": 2}]}),
                json!({"l": [{"x": 1}]}),
            ),
            (
                "in a map",
                json!({"m": {"k": {"y": "1", "v": {}}}}),
                json!({"m": {"k": {"y": "1"}}}),
            ),
            (
                "not where unknown fields are preserved, but below what is known there",
                json!({"p": {"any": {"b": 1}, "q": {"r": "1", "s": 2}}}),
                json!({"p": {"any": {"b": 1}, "q": {"r": "1"}}}),
            ),
            (
                "in an embedded object, whose type and metadata stay",
                json!({"emb": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "y", "bad": 1}, "spec": {"z": "1", "zz": 1}, "extra": 1}}),
                json!({"emb": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "y"}, "spec": {"z": "1"}}}),
            ),
        ];
        for (name, spec, expected) in cases {
            assert_eq!(pruned(spec), expected, "{name}");
        }
    }

    #[test]
    fn at_the_top_only_type_metadata_and_known_fields_stay() {
        let mut object = json!({"apiVersion": "g.io/v1", "kind": "Qux", "metadata": {"name": "x", "foo": 1}, "spec": {}, "top": {}});
        schema().prune(&mut object);
        assert_eq!(
            object,
            json!({"apiVersion": "g.io/v1", "kind": "Qux", "metadata": {"name": "x"}, "spec": {}})
        );
    }

    #[test]
    fn defaults_come_where_a_field_is_absent_or_null_and_may_not_be() {
        let all = json!({"d": "dd", "dn": "nn", "do": {"e": 3}});
        assert_eq!(defaulted(json!({})), all);
        assert_eq!(
            defaulted(
                json!({"d": null, "dn": null, "do": null, "dl": [{}, {"f": null}], "ln": [null, "r"], "dm": {"k": null}})
            ),
            json!({"d": "dd", "dn": null, "do": {"e": 3}, "dl": [{"f": "ff"}, {"f": "ff"}], "ln": ["q", "r"], "dm": {"k": "dd"}})
        );
    }

    #[test]
    fn a_null_that_may_not_be_and_has_no_default_goes() {
        assert_eq!(
            defaulted(json!({"a": null, "m": {"k": null}, "d": "x", "dn": "x", "do": {"e": 1}})),
            json!({"m": {}, "d": "x", "dn": "x", "do": {"e": 1}})
        );
    }

    #[test]
    fn numbers_without_a_fraction_become_integers() {
        assert_eq!(
            pruned(json!({"p": {"n": 2.0, "f": 2.5}})),
            json!({"p": {"n": 2, "f": 2.5}})
        );
    }

    fn any_spec() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..9).prop_map(Value::from),
            "[a-c]".prop_map(Value::from),
        ];
        let name = || {
            prop::sample::select(vec![
                "a", "l", "m", "p", "q", "emb", "spec", "metadata", "kind", "d", "dn", "do", "dl",
                "ln", "x", "f",
            ])
        };
        leaf.prop_recursive(4, 32, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(name(), inner, 0..5).prop_map(|map| Value::Object(
                    map.into_iter()
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect()
                )),
            ]
        })
    }

    proptest! {
        #[test]
        fn pruning_twice_is_pruning_once(spec in any_spec()) {
            let once = pruned(spec);
            prop_assert_eq!(pruned(once.clone()), once);
        }

        #[test]
        fn defaulting_twice_is_defaulting_once(spec in any_spec()) {
            let once = defaulted(spec);
            prop_assert_eq!(defaulted(once.clone()), once);
        }

        #[test]
        fn nothing_is_unknown_in_a_pruned_object(spec in any_spec()) {
            let mut object = json!({"apiVersion": "g.io/v1", "kind": "Qux", "metadata": {"name": "x"}, "spec": spec});
            schema().prune(&mut object);
            prop_assert_eq!(schema().strict_errors_of(&object), Vec::<String>::new());
        }
    }
}
