//! Lists in which an identity occurs twice: updates may write them, applies may not.

use serde_json::json;

use super::world::{World, world};

fn lists() -> World {
    world(json!({
        "set": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"},
        "unrelated": {"type": "integer"},
        "list": {
            "type": "array",
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "one": {"type": "integer"}, "two": {"type": "integer"},
            }},
        },
    }))
}

#[test]
pub(super) fn a_duplicate_of_a_set_is_owned_once() {
    lists()
        .update("a", json!({"set": [1, 1, 3]}))
        .owners(&[("a", &[".set", ".set[=1]", ".set[=3]"])]);
}

#[test]
pub(super) fn adding_or_removing_a_duplicate_takes_the_member() {
    for (before, after) in [([1, 3, 4], vec![1, 1, 3, 4]), ([1, 1, 3], vec![1, 3])] {
        let world = lists()
            .update("a", json!({"set": before}))
            .update("b", json!({"set": after}));
        assert_eq!(world.owned()["b"], [".set[=1]"]);
        assert!(!world.owned()["a"].contains(&".set[=1]".to_owned()));
    }
}

#[test]
pub(super) fn an_applied_member_replaces_its_duplicates() {
    lists()
        .update("u", json!({"set": [1, 1, 3, 4]}))
        .conflict("a", json!({"set": [1]}), &["u.set[=1]"])
        .force("a", json!({"set": [1]}))
        .is(json!({"set": [1, 3, 4]}))
        .owners(&[
            ("a+", &[".set[=1]"]),
            ("u", &[".set", ".set[=3]", ".set[=4]"]),
        ]);
}

#[test]
pub(super) fn duplicates_that_are_not_applied_stay() {
    lists()
        .update("u", json!({"set": [1, 1, 3, 4]}))
        .apply("a", json!({"set": [5]}))
        .is(json!({"set": [1, 1, 3, 4, 5]}));
    lists()
        .update("u", json!({"list": [{"name": "a", "one": 1}, {"name": "a", "one": 2}, {"name": "b", "one": 3}]}))
        .apply("a", json!({"unrelated": 5}))
        .is(json!({"unrelated": 5, "list": [{"name": "a", "one": 1}, {"name": "a", "one": 2}, {"name": "b", "one": 3}]}))
        .owners(&[
            ("a+", &[".unrelated"]),
            (
                "u",
                &[
                    ".list",
                    ".list[name=\"a\"]",
                    ".list[name=\"b\"]",
                    ".list[name=\"b\"].name",
                    ".list[name=\"b\"].one",
                ],
            ),
        ]);
}

#[test]
pub(super) fn a_change_of_duplicated_items_takes_them_as_one() {
    let b = json!({"name": "b", "one": 3});
    lists()
        .update(
            "u",
            json!({"list": [{"name": "a", "one": 1}, {"name": "a", "one": 2}, b]}),
        )
        .update(
            "v",
            json!({"list": [{"name": "a", "one": 1}, {"name": "a", "one": 2, "two": 3}, b]}),
        )
        .owners(&[
            (
                "u",
                &[
                    ".list",
                    ".list[name=\"b\"]",
                    ".list[name=\"b\"].name",
                    ".list[name=\"b\"].one",
                ],
            ),
            ("v", &[".list[name=\"a\"]"]),
        ]);
}

#[test]
pub(super) fn a_change_in_a_duplicate_takes_all_of_its_key() {
    let b = json!({"name": "b", "one": 3});
    let a = |one: i64| json!({"name": "a", "one": one});
    let of_b: &[&str] = &[
        ".list",
        ".list[name=\"b\"]",
        ".list[name=\"b\"].name",
        ".list[name=\"b\"].one",
    ];
    lists()
        .update("u", json!({"list": [a(1), a(2), b]}))
        .owners(&[("u", &[of_b, &[".list[name=\"a\"]"]].concat())])
        .update("v", json!({"list": [a(1), a(4), b]}))
        .owners(&[("u", of_b), ("v", &[".list[name=\"a\"]"])]);
}

#[test]
pub(super) fn another_item_beside_duplicates_belongs_to_its_writer() {
    let a = [
        json!({"name": "a", "one": 1}),
        json!({"name": "a", "one": 2}),
    ];
    lists()
        .update("u", json!({"list": a}))
        .update("v", json!({"list": [a[0], a[1], {"name": "b", "one": 3}]}))
        .owners(&[
            ("u", &[".list", ".list[name=\"a\"]"]),
            (
                "v",
                &[
                    ".list[name=\"b\"]",
                    ".list[name=\"b\"].name",
                    ".list[name=\"b\"].one",
                ],
            ),
        ]);
}

#[test]
pub(super) fn an_applier_that_drops_an_item_leaves_its_duplicates() {
    let (a, b) = (
        json!({"name": "a", "one": 1}),
        json!({"name": "b", "one": 3}),
    );
    let all = json!({"list": [a, {"name": "a", "one": 2}, b]});
    lists()
        .apply("a", json!({"list": [a, b]}))
        .update("u", all.clone())
        .apply("a", json!({"list": [b]}))
        .is(all)
        .owners(&[
            (
                "a+",
                &[
                    ".list[name=\"b\"]",
                    ".list[name=\"b\"].name",
                    ".list[name=\"b\"].one",
                ],
            ),
            ("u", &[".list[name=\"a\"]"]),
        ]);
}

#[test]
pub(super) fn a_new_duplicate_takes_the_item_from_its_owner() {
    lists()
        .update("u", json!({"list": [{"name": "a", "one": 1}, {"name": "b", "one": 3}]}))
        .update("v", json!({"list": [{"name": "a", "one": 1}, {"name": "a", "two": 3}, {"name": "b", "one": 3}]}))
        .owners(&[
            (
                "u",
                &[
                    ".list",
                    ".list[name=\"b\"]",
                    ".list[name=\"b\"].name",
                    ".list[name=\"b\"].one",
                ],
            ),
            ("v", &[".list[name=\"a\"]"]),
        ]);
}

#[test]
pub(super) fn an_applied_item_replaces_its_duplicates() {
    let b = json!({"name": "b", "one": 3});
    lists()
        .update(
            "u",
            json!({"list": [{"name": "a", "one": 1}, {"name": "a", "one": 2}, b]}),
        )
        .conflict(
            "a",
            json!({"list": [{"name": "a", "one": 2}]}),
            &["u.list[name=\"a\"]"],
        )
        .force("a", json!({"list": [{"name": "a", "one": 2}]}))
        .is(json!({"list": [{"name": "a", "one": 2}, b]}))
        .owners(&[
            (
                "a+",
                &[
                    ".list[name=\"a\"]",
                    ".list[name=\"a\"].name",
                    ".list[name=\"a\"].one",
                ],
            ),
            (
                "u",
                &[
                    ".list",
                    ".list[name=\"b\"]",
                    ".list[name=\"b\"].name",
                    ".list[name=\"b\"].one",
                ],
            ),
        ]);
}

#[test]
pub(super) fn another_item_of_a_list_with_duplicates_merges() {
    let a = [
        json!({"name": "a", "one": 1}),
        json!({"name": "a", "one": 2}),
    ];
    lists()
        .update("u", json!({"list": [a[0], a[1], {"name": "b", "one": 3}]}))
        .conflict(
            "a",
            json!({"list": [{"name": "b", "one": 4}]}),
            &["u.list[name=\"b\"].one"],
        )
        .force("a", json!({"list": [{"name": "b", "one": 4}]}))
        .is(json!({"list": [a[0], a[1], {"name": "b", "one": 4}]}));
}

#[test]
fn duplicates_are_not_applied() {
    lists()
        .refused(
            "a",
            json!({"set": [1, 1]}),
            ".set: duplicate entries for key [=1]",
        )
        .refused(
            "a",
            json!({"list": [{"name": "a"}, {"name": "a"}]}),
            ".list: duplicate entries for key [name=\"a\"]",
        );
}
