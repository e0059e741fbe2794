//! Scalars with one and with several managers.

use serde_json::{Value, json};

use super::world::{World, world};

fn leaves() -> World {
    world(json!({
        "numeric": {"type": "integer"},
        "string": {"type": "string"},
        "bool": {"type": "boolean"},
        "any": {"x-kubernetes-int-or-string": true},
    }))
}

#[test]
pub(super) fn an_apply_sets_the_values_and_owns_them() {
    leaves()
        .apply("a", json!({"numeric": 1, "string": "x"}))
        .apply("a", json!({"numeric": 2, "string": "y", "bool": false}))
        .is(json!({"numeric": 2, "string": "y", "bool": false}))
        .owners(&[("a+", &[".numeric", ".string", ".bool"])]);
}

#[test]
pub(super) fn an_apply_in_another_version_replaces_the_entry() {
    let world = leaves()
        .apply("a", json!({"numeric": 1}))
        .apply_in("g/v2", "a", json!({"numeric": 2, "bool": true}))
        .owners(&[("a+", &[".numeric", ".bool"])]);
    let entries = world.live["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0]["apiVersion"], "g/v2");
}

#[test]
pub(super) fn an_update_of_other_fields_is_no_conflict() {
    for version in ["g/v1", "g/v2"] {
        leaves()
            .apply("a", json!({"numeric": 1, "string": "x"}))
            .update_in(
                version,
                "b",
                json!({"numeric": 1, "string": "x", "bool": true}),
            )
            .apply("a", json!({"numeric": 2, "string": "y"}))
            .is(json!({"numeric": 2, "string": "y", "bool": true}))
            .owners(&[("a+", &[".numeric", ".string"]), ("b", &[".bool"])]);
    }
}

#[test]
pub(super) fn an_update_takes_what_it_changes_and_an_apply_conflicts_then() {
    leaves()
        .apply("a", json!({"numeric": 1, "string": "x"}))
        .update("b", json!({"numeric": 1, "string": "z", "bool": true}))
        .owners(&[("a+", &[".numeric"]), ("b", &[".string", ".bool"])])
        .conflict("a", json!({"numeric": 2, "string": "y"}), &["b.string"])
        .force("a", json!({"numeric": 2, "string": "y"}))
        .is(json!({"numeric": 2, "string": "y", "bool": true}))
        .owners(&[("a+", &[".numeric", ".string"]), ("b", &[".bool"])]);
}

#[test]
pub(super) fn a_conflict_reaches_across_versions() {
    leaves()
        .apply_in("g/v1", "a", json!({"string": "x"}))
        .update_in("g/v3", "b", json!({"string": "y"}))
        .conflict("a", json!({"string": "z"}), &["b.string"])
        .force("a", json!({"string": "z"}))
        .is(json!({"string": "z"}))
        .owners(&[("a+", &[".string"])]);
}

#[test]
pub(super) fn what_is_not_applied_any_more_goes() {
    leaves()
        .apply("a", json!({"numeric": 1, "string": "x", "bool": false}))
        .apply("a", json!({"string": "y"}))
        .is(json!({"string": "y"}))
        .owners(&[("a+", &[".string"])])
        .apply_in("g/v2", "a", json!({"bool": true}))
        .is(json!({"bool": true}));
}

#[test]
pub(super) fn an_apply_that_omits_what_an_update_changed_leaves_it() {
    leaves()
        .apply("a", json!({"numeric": 2}))
        .update("b", json!({"numeric": 1}))
        .apply("a", json!({}))
        .is(json!({"numeric": 1}))
        .owners(&[("b", &[".numeric"])]);
}

#[test]
pub(super) fn a_manager_without_fields_has_no_entry() {
    leaves()
        .update("a", json!({"string": "x"}))
        .update("a", json!({}))
        .owners(&[]);
    leaves()
        .apply("a", json!({"string": "x"}))
        .update("b", json!({"string": "y"}))
        .owners(&[("b", &[".string"])]);
    leaves()
        .apply("a", json!({"string": "x"}))
        .apply("a", json!({}))
        .is(json!({}))
        .owners(&[]);
}

#[test]
fn managers_share_what_they_apply_alike() {
    leaves()
        .apply("a", json!({"numeric": 1, "string": "x"}))
        .apply("b", json!({"numeric": 1, "bool": true}))
        .owners(&[
            ("a+", &[".numeric", ".string"]),
            ("b+", &[".numeric", ".bool"]),
        ])
        .conflict("b", json!({"numeric": 2}), &["a.numeric"])
        .apply("a", json!({"string": "x"}))
        .is(json!({"numeric": 1, "string": "x", "bool": true}))
        .apply("b", json!({"bool": true}))
        .is(json!({"string": "x", "bool": true}));
}

#[test]
fn an_update_to_the_same_value_owns_nothing() {
    leaves()
        .apply("a", json!({"numeric": 1}))
        .update("b", json!({"numeric": 1}))
        .owners(&[("a+", &[".numeric"])]);
}

#[test]
fn an_updater_of_a_shared_value_takes_it_from_all() {
    leaves()
        .apply("a", json!({"string": "x"}))
        .apply("b", json!({"string": "x"}))
        .update("c", json!({"string": "y"}))
        .owners(&[("c", &[".string"])])
        .conflict("a", json!({"string": "x"}), &["c.string"])
        .apply("a", json!({"string": "y"}))
        .owners(&[("a+", &[".string"]), ("c", &[".string"])])
        .apply("a", json!({}))
        .is(json!({"string": "y"}));
}

#[test]
fn a_removed_field_has_no_owner() {
    leaves()
        .apply("a", json!({"numeric": 1, "string": "x"}))
        .apply("b", json!({"numeric": 1}))
        .update("c", json!({"string": "x"}))
        .owners(&[("a+", &[".string"])])
        .apply("b", json!({"numeric": 1}))
        .is(json!({"numeric": 1, "string": "x"}))
        .owners(&[("a+", &[".string"]), ("b+", &[".numeric"])]);
}

#[test]
fn null_is_a_value_that_is_owned() {
    leaves()
        .apply("a", json!({"string": null}))
        .is(json!({"string": null}))
        .owners(&[("a+", &[".string"])])
        .apply("a", json!({}))
        .is(json!({}));
}

#[test]
fn a_value_that_is_a_number_or_a_text_changes_between_them() {
    leaves()
        .apply("a", json!({"any": 80}))
        .apply("a", json!({"any": "http"}))
        .is(json!({"any": "http"}))
        .update("b", json!({"any": 8080}))
        .owners(&[("b", &[".any"])])
        .conflict("a", json!({"any": "http"}), &["b.any"]);
}

#[test]
fn values_of_another_type_and_unknown_fields_are_refused() {
    let cases: [(Value, &str); 4] = [
        (
            json!({"numeric": "1"}),
            "failed to create typed patch object (/; g/v1, Kind=Thing): .numeric: expected numeric (int or float), got string",
        ),
        (
            json!({"string": 1}),
            ".string: expected string, got &value.valueUnstructured{Value:1}",
        ),
        (json!({"bool": "x"}), ".bool: expected boolean, got &{x}"),
        (
            json!({"bool": 1, "numeric": true, "string": "x"}),
            "errors:\n  .bool: expected boolean, got &{1}\n  .numeric: expected numeric (int or float), got bool",
        ),
    ];
    for (fields, text) in cases {
        leaves().refused("a", fields, text);
    }
    leaves().refused(
        "a",
        json!({"other": 1}),
        ".other: field not declared in schema",
    );
}
