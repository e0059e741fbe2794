//! Objects without declared fields: each map has parts, and each list is one value.

use serde_json::{Value, json};

use super::world::undeclared_world;

#[test]
pub(super) fn undeclared_values_are_applied_again() {
    undeclared_world()
        .apply("a", json!({"size": 1, "text": "x"}))
        .apply("a", json!({"size": 2, "text": "y", "on": false}))
        .is(json!({"size": 2, "text": "y", "on": false}))
        .owners(&[("a+", &[".size", ".text", ".on"])]);
}

#[test]
pub(super) fn an_update_of_other_undeclared_values_is_no_conflict() {
    undeclared_world()
        .apply("a", json!({"size": 1, "text": "x"}))
        .update("u", json!({"size": 1, "text": "x", "on": true}))
        .apply("a", json!({"size": 2, "text": "x"}))
        .is(json!({"size": 2, "text": "x", "on": true}))
        .owners(&[("a+", &[".size", ".text"]), ("u", &[".on"])]);
}

#[test]
pub(super) fn an_update_of_an_undeclared_value_is_a_conflict() {
    undeclared_world()
        .apply("a", json!({"size": 1, "text": "x"}))
        .update("u", json!({"size": 1, "text": "of u", "on": true}))
        .conflict("a", json!({"size": 2, "text": "of a"}), &["u.text"])
        .force("a", json!({"size": 2, "text": "of a"}))
        .is(json!({"size": 2, "text": "of a", "on": true}))
        .owners(&[("a+", &[".size", ".text"]), ("u", &[".on"])]);
}

#[test]
pub(super) fn undeclared_values_that_are_not_applied_any_more_go() {
    undeclared_world()
        .apply("a", json!({"size": 1, "text": "x", "on": false}))
        .apply("a", json!({"text": "y"}))
        .is(json!({"text": "y"}))
        .owners(&[("a+", &[".text"])])
        .apply("a", json!({}))
        .is(json!({}))
        .owners(&[]);
}

#[test]
pub(super) fn an_applier_whose_only_undeclared_value_is_updated_owns_nothing() {
    undeclared_world()
        .apply("a", json!({"text": "x"}))
        .update("u", json!({"text": "y"}))
        .is(json!({"text": "y"}))
        .owners(&[("u", &[".text"])]);
}

#[test]
pub(super) fn an_undeclared_list_is_one_value() {
    undeclared_world()
        .apply("a", json!({"list": ["x", "z"]}))
        .apply("a", json!({"list": ["x", "w", "z", "y"]}))
        .is(json!({"list": ["x", "w", "z", "y"]}))
        .owners(&[("a+", &[".list"])])
        .update("u", json!({"list": ["x", "y", "z", "w"]}))
        .conflict("a", json!({"list": ["x"]}), &["u.list"])
        .force("a", json!({"list": ["x"]}))
        .is(json!({"list": ["x"]}))
        .owners(&[("a+", &[".list"])]);
}

/// An object with values at several depths.
fn deep(size: i64, depth: i64, list: Value, item: i64) -> Value {
    json!({"size": size, "outer": {"inner": {
        "depth": depth, "list": list, "items": [{"name": "i", "value": item}],
    }}})
}

#[test]
pub(super) fn undeclared_values_conflict_at_each_depth() {
    for [first, second, third] in [["g/v1"; 3], ["g/v1", "g/v2", "g/v3"]] {
        let mut changed = deep(1, 9, json!([7, 8]), 2);
        changed["more"] = json!(5);
        let wanted = deep(2, 1, json!([8, 7]), 1);
        let mut expected = wanted.clone();
        expected["more"] = json!(5);
        let mut world = undeclared_world()
            .apply_in(first, "a", deep(1, 1, json!([7]), 1))
            .update_in(second, "u", changed);
        let conflicts = world.conflicts_in(third, "a", &wanted);
        let at = |field: &str| format!("u.outer.inner.{field}");
        assert_eq!(conflicts, [at("depth"), at("items"), at("list")]);
        world.try_apply(third, "a", &wanted, true).unwrap();
        world.is(expected).owners(&[
            (
                "a+",
                &[
                    ".size",
                    ".outer.inner.depth",
                    ".outer.inner.list",
                    ".outer.inner.items",
                    ".outer",
                    ".outer.inner",
                ],
            ),
            ("u", &[".more"]),
        ]);
    }
}
