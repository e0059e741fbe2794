//! Fields whose map type replaces that of the type they refer to, and fields that are not declared.

use serde_json::json;

use super::world::{World, world};

fn overridden() -> World {
    world(json!({
        "parts": {"$ref": "Whole", "x-kubernetes-map-type": "granular"},
        "whole": {"$ref": "Parts", "x-kubernetes-map-type": "atomic"},
        "as_declared": {"$ref": "Whole"},
    }))
}

#[test]
pub(super) fn a_field_gives_parts_to_a_type_that_is_one_value() {
    overridden()
        .apply("a", json!({"parts": {"name": "x"}}))
        .apply("b", json!({"parts": {"value": 2}}))
        .is(json!({"parts": {"name": "x", "value": 2}}))
        .owners(&[("a+", &[".parts.name"]), ("b+", &[".parts.value"])]);
    overridden()
        .apply("a", json!({"as_declared": {"name": "x"}}))
        .conflict(
            "b",
            json!({"as_declared": {"value": 2}}),
            &["a.as_declared"],
        );
}

#[test]
pub(super) fn a_field_makes_one_value_of_a_type_with_parts() {
    overridden()
        .apply("a", json!({"whole": {"name": "x"}}))
        .conflict("b", json!({"whole": {"value": 2}}), &["a.whole"])
        .apply("a", json!({"whole": {"name": "y", "value": 2}}))
        .is(json!({"whole": {"name": "y", "value": 2}}))
        .owners(&[("a+", &[".whole"])]);
}

#[test]
pub(super) fn preserved_fields_have_owners_beside_declared_ones() {
    let schema = json!({
        "type": "object", "properties": {"known": {"type": "integer"}},
        "x-kubernetes-preserve-unknown-fields": true,
    });
    World::new(&schema)
        .apply("a", json!({"known": 1, "unknown": "x"}))
        .apply("a", json!({"known": 2, "unknown": "y"}))
        .is(json!({"known": 2, "unknown": "y"}))
        .owners(&[("a+", &[".known", ".unknown"])])
        .refused("a", json!({"known": "x"}), ".known: expected numeric");
}
