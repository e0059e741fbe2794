//! Structs and maps in each other.

use serde_json::{Value, json};

use super::super::set::Set;
use super::world::{World, undeclared_world, world};

fn nested() -> World {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    world(json!({
        "struct": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "integer"}}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "map": texts,
        "maps": {"type": "object", "additionalProperties": texts},
        "free": {"type": "object"},
        "lists": {"type": "object", "additionalProperties": {
            "type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set",
        }},
    }))
}

#[test]
pub(super) fn what_is_applied_next_replaces_parts_at_each_depth() {
    let item = |value: Value| {
        json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": value}},
        })
    };
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let set =
        json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
    let fields = json!({
        "listOfLists": item(set.clone()), "listOfMaps": item(texts.clone()),
        "mapOfLists": {"type": "object", "additionalProperties": set},
        "mapOfMaps": {"type": "object", "additionalProperties": texts},
        "deep": {"$ref": "Maps"},
    });
    let lists = |name: &str, members: [&str; 2]| json!([{"name": name, "value": members}]);
    let maps = |name: &str, keys: [&str; 2]| json!([{"name": name, "value": {keys[0]: "1", keys[1]: "2"}}]);
    let (old, new) = (["q", "r"], ["p", "r"]);
    let cases: [(&str, Value, Value, &[&str]); 9] = [
        (
            "listOfLists",
            lists("k", old),
            lists("k", new),
            &[
                "[name=\"k\"]",
                "[name=\"k\"].name",
                "[name=\"k\"].value[=\"p\"]",
                "[name=\"k\"].value[=\"r\"]",
            ],
        ),
        (
            "listOfLists",
            lists("k", old),
            lists("l", new),
            &[
                "[name=\"l\"]",
                "[name=\"l\"].name",
                "[name=\"l\"].value[=\"p\"]",
                "[name=\"l\"].value[=\"r\"]",
            ],
        ),
        (
            "listOfMaps",
            maps("k", old),
            maps("k", new),
            &[
                "[name=\"k\"]",
                "[name=\"k\"].name",
                "[name=\"k\"].value.p",
                "[name=\"k\"].value.r",
            ],
        ),
        (
            "listOfMaps",
            maps("k", old),
            maps("l", new),
            &[
                "[name=\"l\"]",
                "[name=\"l\"].name",
                "[name=\"l\"].value.p",
                "[name=\"l\"].value.r",
            ],
        ),
        (
            "mapOfLists",
            json!({"k": old}),
            json!({"k": new}),
            &[".k", ".k[=\"p\"]", ".k[=\"r\"]"],
        ),
        (
            "mapOfLists",
            json!({"k": old}),
            json!({"l": new}),
            &[".l", ".l[=\"p\"]", ".l[=\"r\"]"],
        ),
        (
            "mapOfMaps",
            json!({"k": {"q": "1", "r": "2"}}),
            json!({"k": {"p": "1", "r": "3"}}),
            &[".k", ".k.p", ".k.r"],
        ),
        (
            "mapOfMaps",
            json!({"k": {"q": "1", "r": "2"}}),
            json!({"l": {"p": "1", "r": "3"}}),
            &[".l", ".l.p", ".l.r"],
        ),
        (
            "deep",
            json!({"k": {"l": {"m": null}}}),
            json!({"k": {"n": {"m": null}}}),
            &[".k", ".k.n", ".k.n.m"],
        ),
    ];
    for (field, before, after, owned) in cases {
        let owned: Vec<String> = owned.iter().map(|path| format!(".{field}{path}")).collect();
        let owned: Vec<&str> = owned.iter().map(String::as_str).collect();
        world(fields.clone())
            .apply("a", json!({field: before}))
            .apply("a", json!({field: after}))
            .is(json!({field: after}))
            .owners(&[("a+", &owned)]);
    }
}

#[test]
pub(super) fn a_struct_goes_with_its_last_field() {
    nested()
        .apply("a", json!({"struct": {"name": "x", "value": 1}}))
        .owners(&[("a+", &[".struct.name", ".struct.value"])])
        .apply("a", json!({}))
        .is(json!({}))
        .owners(&[]);
}

#[test]
pub(super) fn a_struct_that_is_applied_without_fields_stays() {
    nested()
        .apply("a", json!({"struct": {"name": "x"}}))
        .apply("a", json!({"struct": null}))
        .is(json!({"struct": null}))
        .owners(&[("a+", &[".struct"])]);
}

#[test]
pub(super) fn what_another_manager_added_to_a_struct_stays() {
    for rest in [json!({}), json!({"struct": {}}), json!({"struct": null})] {
        nested()
            .apply("a", json!({"struct": {"name": "x"}}))
            .update("b", json!({"struct": {"name": "x", "value": 1}}))
            .apply("a", rest)
            .is(json!({"struct": {"value": 1}}));
    }
    nested()
        .apply("a", json!({"struct": {"name": "x"}}))
        .update("b", json!({"struct": {"name": "y", "value": 1}}))
        .apply("a", json!({"struct": null}))
        .is(json!({"struct": {"name": "y", "value": 1}}));
}

#[test]
fn an_update_owns_the_parts_that_it_makes() {
    nested()
        .update(
            "u",
            json!({"struct": {"name": "x"}, "maps": {"k": {"a": "1"}}}),
        )
        .owners(&[(
            "u",
            &[".struct", ".struct.name", ".maps", ".maps.k", ".maps.k.a"],
        )])
        .update(
            "v",
            json!({"struct": {"name": "x", "value": 1}, "maps": {"k": {"a": "1", "b": "2"}}}),
        )
        .owners(&[
            (
                "u",
                &[".struct", ".struct.name", ".maps", ".maps.k", ".maps.k.a"],
            ),
            ("v", &[".struct.value", ".maps.k.b"]),
        ]);
}

#[test]
fn an_apply_owns_the_entries_of_maps_and_not_the_maps() {
    nested()
        .apply(
            "a",
            json!({"map": {"x": "1"}, "maps": {"k": {"a": "1"}}, "lists": {"l": ["s"]}}),
        )
        .owners(&[(
            "a+",
            &[
                ".map.x",
                ".maps.k",
                ".maps.k.a",
                ".lists.l",
                ".lists.l[=\"s\"]",
            ],
        )])
        .apply("a", json!({"maps": {"k": {"b": "2"}}}))
        .is(json!({"maps": {"k": {"b": "2"}}}));
}

#[test]
fn an_empty_map_is_a_value_and_an_empty_list_is_not() {
    nested()
        .apply("a", json!({"map": {}, "lists": {"l": []}}))
        .owners(&[("a+", &[".map", ".lists.l"])])
        .is(json!({"map": {}, "lists": {"l": []}}));
}

#[test]
pub(super) fn a_map_that_is_one_value_has_one_owner() {
    nested()
        .apply("a", json!({"whole": {"x": "1"}}))
        .owners(&[("a+", &[".whole"])])
        .conflict("b", json!({"whole": {"y": "2"}}), &["a.whole"])
        .update("b", json!({"whole": {"x": "1", "y": "2"}}))
        .owners(&[("b", &[".whole"])])
        .force("a", json!({"whole": {"z": "3"}}))
        .is(json!({"whole": {"z": "3"}}));
}

#[test]
fn undeclared_values_have_entries_and_whole_lists() {
    nested()
        .apply("a", json!({"free": {"m": {"x": 1}, "l": [{"a": 1}]}}))
        .owners(&[("a+", &[".free.m", ".free.m.x", ".free.l"])])
        .apply("b", json!({"free": {"m": {"y": 2}}}))
        .conflict("b", json!({"free": {"l": []}}), &["a.free.l"])
        .apply("a", json!({"free": {"m": {"x": 1}}}))
        .is(json!({"free": {"m": {"x": 1, "y": 2}}}));
}

#[test]
fn a_value_may_change_its_shape_where_no_type_is_declared() {
    undeclared_world()
        .apply("a", json!({"v": 1}))
        .apply("a", json!({"v": {"x": 1}}))
        .is(json!({"v": {"x": 1}}))
        .apply("a", json!({"v": [1]}))
        .is(json!({"v": [1]}))
        .owners(&[("a+", &[".v"])])
        .update("u", json!({"v": {"x": 1}}))
        .conflict("a", json!({"v": [1]}), &["u.v"]);
}

#[test]
pub(super) fn ignored_fields_are_neither_owned_nor_stolen() {
    let ignored = Set::of(&[&["maps", "c"], &["struct"]]);
    nested()
        .ignoring("g/v1", ignored.clone())
        .update(
            "u",
            json!({"maps": {"a": {"x": "1"}, "c": {"y": "1"}}, "struct": {"name": "x"}}),
        )
        .owners(&[("u", &[".maps", ".maps.a", ".maps.a.x"])])
        .apply(
            "a",
            json!({"maps": {"a": {"z": "1"}, "c": {"y": "2"}}, "struct": {"name": "y"}}),
        )
        .owners(&[
            ("a+", &[".maps.a", ".maps.a.z"]),
            ("u", &[".maps", ".maps.a", ".maps.a.x"]),
        ]);
    // The fields count in the version of the writer.
    nested()
        .ignoring("g/v2", ignored)
        .apply("a", json!({"maps": {"c": {"y": "1"}}}))
        .apply_in("g/v2", "b", json!({"maps": {"a": {}, "c": {"z": "1"}}}))
        .owners(&[("a+", &[".maps.c", ".maps.c.y"]), ("b+", &[".maps.a"])]);
}
