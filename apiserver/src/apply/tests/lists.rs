//! Sets, lists with keys, and lists that are one value.

use serde_json::json;

use super::world::{World, world};

fn lists() -> World {
    world(json!({
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "whole": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
        "items": {
            "type": "array",
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "value": {"type": "integer"},
                "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            }},
        },
    }))
}

#[test]
pub(super) fn a_set_has_the_members_of_all_managers() {
    lists()
        .apply("a", json!({"set": ["a", "c"]}))
        .apply("a", json!({"set": ["a", "aprime", "c"]}))
        .update("b", json!({"set": ["a", "aprime", "b", "c", "d"]}))
        .apply("a", json!({"set": ["a", "b", "c", "e"]}))
        .is(json!({"set": ["a", "b", "c", "d", "e"]}))
        .owners(&[
            (
                "a+",
                &[
                    ".set[=\"a\"]",
                    ".set[=\"b\"]",
                    ".set[=\"c\"]",
                    ".set[=\"e\"]",
                ],
            ),
            ("b", &[".set[=\"b\"]", ".set[=\"d\"]"]),
        ]);
}

#[test]
pub(super) fn members_of_a_set_are_the_same_in_each_version() {
    let member = |name: &str| format!(".set[=\"{name}\"]");
    let (a, b, c, d) = (member("a"), member("b"), member("c"), member("d"));
    for version in ["g/v1", "g/v2"] {
        let with_update = || {
            lists().apply("a", json!({"set": ["a", "c"]})).update_in(
                version,
                "u",
                json!({"set": ["a", "b", "c", "d"]}),
            )
        };
        with_update()
            .apply("a", json!({"set": ["a", "a2", "c", "c2"]}))
            .is(json!({"set": ["a", "b", "a2", "c", "d", "c2"]}))
            .owners(&[
                ("a+", &[&a, &member("a2"), &c, &member("c2")]),
                ("u", &[&b, &d]),
            ]);
        with_update()
            .apply("a", json!({"set": ["a", "b", "c"]}))
            .is(json!({"set": ["a", "b", "c", "d"]}))
            .owners(&[("a+", &[&a, &b, &c]), ("u", &[&b, &d])]);
        lists()
            .apply("a", json!({"set": ["a", "b", "c", "d"]}))
            .update("u", json!({"set": ["d", "c", "b", "a"]}))
            .apply_in(version, "a", json!({"set": ["a", "c", "b", "d"]}))
            .is(json!({"set": ["a", "c", "b", "d"]}))
            .owners(&[("a+", &[&a, &b, &c, &d])]);
        lists()
            .apply("a", json!({"set": ["a", "b", "c", "d"]}))
            .apply_in(version, "a", json!({"set": ["a", "c", "e"]}))
            .is(json!({"set": ["a", "c", "e"]}))
            .owners(&[("a+", &[&a, &c, &member("e")])]);
    }
}

#[test]
fn the_members_of_an_update_are_below_the_list_it_made() {
    lists()
        .update("a", json!({"set": ["x"]}))
        .owners(&[("a", &[".set", ".set[=\"x\"]"])]);
}

#[test]
pub(super) fn an_apply_orders_what_both_lists_have() {
    lists()
        .apply("a", json!({"set": ["a", "b", "c", "d"]}))
        .apply("a", json!({"set": ["a", "d", "c", "b"]}))
        .is(json!({"set": ["a", "d", "c", "b"]}))
        .update("b", json!({"set": ["a", "d", "c", "b", "x"]}))
        .apply("a", json!({"set": ["b", "a", "c", "d"]}))
        .is(json!({"set": ["b", "x", "a", "c", "d"]}));
}

#[test]
fn live_items_keep_their_place_beside_applied_ones() {
    lists()
        .update("b", json!({"set": ["a", "b", "c", "d"]}))
        .apply("a", json!({"set": ["b", "x", "d"]}))
        .is(json!({"set": ["a", "b", "c", "x", "d"]}))
        .apply("a", json!({"set": ["y", "b"]}))
        .is(json!({"set": ["a", "y", "b", "c", "d"]}));
}

#[test]
fn a_list_that_is_one_value_has_one_owner() {
    lists()
        .apply("a", json!({"whole": ["x", "x"]}))
        .owners(&[("a+", &[".whole"])])
        .conflict("b", json!({"whole": ["x"]}), &["a.whole"])
        .force("b", json!({"whole": ["x"]}))
        .is(json!({"whole": ["x"]}))
        .owners(&[("b+", &[".whole"])]);
}

#[test]
pub(super) fn items_have_the_fields_of_all_managers() {
    lists()
        .apply(
            "a",
            json!({"items": [{"name": "x", "value": 1}, {"name": "y"}]}),
        )
        .apply("b", json!({"items": [{"name": "x", "set": ["s"]}]}))
        .is(json!({"items": [{"name": "x", "value": 1, "set": ["s"]}, {"name": "y"}]}))
        .owners(&[
            (
                "a+",
                &[
                    ".items[name=\"x\"]",
                    ".items[name=\"x\"].name",
                    ".items[name=\"x\"].value",
                    ".items[name=\"y\"]",
                    ".items[name=\"y\"].name",
                ],
            ),
            (
                "b+",
                &[
                    ".items[name=\"x\"]",
                    ".items[name=\"x\"].name",
                    ".items[name=\"x\"].set[=\"s\"]",
                ],
            ),
        ])
        .conflict(
            "b",
            json!({"items": [{"name": "x", "value": 2}]}),
            &["a.items[name=\"x\"].value"],
        )
        .apply("a", json!({"items": [{"name": "y"}]}))
        .is(json!({"items": [{"name": "x", "set": ["s"]}, {"name": "y"}]}));
}

#[test]
pub(super) fn an_item_stays_for_its_other_applier() {
    let of = |name: &str| {
        [
            format!(".items[name=\"{name}\"]"),
            format!(".items[name=\"{name}\"].name"),
        ]
    };
    let (x, y, z) = (of("x"), of("y"), of("z"));
    lists()
        .apply_in(
            "g/v1",
            "a",
            json!({"items": [{"name": "w"}, {"name": "x"}, {"name": "y"}]}),
        )
        .apply_in(
            "g/v2",
            "b",
            json!({"items": [{"name": "y"}, {"name": "z"}]}),
        )
        .apply_in("g/v3", "a", json!({"items": [{"name": "x"}]}))
        .is(json!({"items": [{"name": "x"}, {"name": "y"}, {"name": "z"}]}))
        .owners(&[
            ("a+", &[&x[0], &x[1]]),
            ("b+", &[&y[0], &y[1], &z[0], &z[1]]),
        ]);
    let value = format!("{}.value", x[0]);
    lists()
        .apply_in("g/v1", "a", json!({"items": [{"name": "x", "value": 0}]}))
        .apply_in("g/v2", "b", json!({"items": [{"name": "x", "value": 0}]}))
        .owners(&[
            ("a+", &[&x[0], &x[1], &value]),
            ("b+", &[&x[0], &x[1], &value]),
        ]);
}

#[test]
pub(super) fn an_item_goes_with_what_an_updater_put_in_it() {
    let of_b: &[&str] = &[
        ".items[name=\"x\"]",
        ".items[name=\"x\"].name",
        ".items[name=\"x\"].set[=\"s\"]",
    ];
    lists()
        .apply_in(
            "g/v1",
            "a",
            json!({"items": [{"name": "x"}, {"name": "y", "set": ["t"]}]}),
        )
        .apply_in("g/v2", "b", json!({"items": [{"name": "x", "set": ["s"]}]}))
        .update_in(
            "g/v2",
            "u",
            json!({"items": [{"name": "x", "set": ["s"]}, {"name": "y", "set": ["t", "u"]}]}),
        )
        .apply_in("g/v3", "a", json!({"items": [{"name": "x"}]}))
        .is(json!({"items": [{"name": "x", "set": ["s"]}]}))
        .owners(&[("a+", &of_b[..2]), ("b+", of_b)]);
    // Without the updater, and with the set of the other applier in the item.
    lists()
        .apply_in(
            "g/v1",
            "a",
            json!({"items": [{"name": "y"}, {"name": "x", "set": ["t"]}]}),
        )
        .apply_in("g/v2", "b", json!({"items": [{"name": "x", "set": ["s"]}]}))
        .apply_in("g/v3", "a", json!({"items": [{"name": "y"}]}))
        .is(json!({"items": [{"name": "y"}, {"name": "x", "set": ["s"]}]}))
        .owners(&[
            ("a+", &[".items[name=\"y\"]", ".items[name=\"y\"].name"]),
            ("b+", of_b),
        ]);
}

#[test]
pub(super) fn an_item_goes_with_its_only_applier_and_leaves_what_others_added() {
    lists()
        .apply(
            "a",
            json!({"items": [{"name": "x"}, {"name": "y", "set": ["c"]}]}),
        )
        .apply("b", json!({"items": [{"name": "y", "set": ["d"]}]}))
        .update(
            "c",
            json!({"items": [{"name": "x"}, {"name": "y", "set": ["c", "d", "e"]}]}),
        )
        .apply("a", json!({"items": [{"name": "x"}]}))
        .is(json!({"items": [{"name": "x"}, {"name": "y", "set": ["d", "e"]}]}))
        .owners(&[
            ("a+", &[".items[name=\"x\"]", ".items[name=\"x\"].name"]),
            (
                "b+",
                &[
                    ".items[name=\"y\"]",
                    ".items[name=\"y\"].name",
                    ".items[name=\"y\"].set[=\"d\"]",
                ],
            ),
            ("c", &[".items[name=\"y\"].set[=\"e\"]"]),
        ])
        // An update owns what it added to the item, and not the item.
        .apply("b", json!({}))
        .is(json!({"items": [{"name": "x"}]}));
}

#[test]
fn items_without_identity_are_refused() {
    lists()
        .refused(
            "a",
            json!({"items": [{"value": 1}]}),
            ".items: element 0: associative list with keys has an element that omits all key fields [\"name\"]",
        )
        .refused("a", json!({"items": [1]}), "non-map elements")
        .refused("a", json!({"items": [null]}), "may not have a null element")
        .refused("a", json!({"set": [["x"]]}), "lists as elements")
        .refused("a", json!({"set": [{}]}), "a map type")
        .refused("a", json!({"set": {"a": 1}}), ".set: expected list, got &{map[a:1]}");
}

fn ports() -> World {
    world(json!({"ports": {
        "type": "array",
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
        "items": {"type": "object", "properties": {
            "port": {"type": "integer"},
            "protocol": {"type": "string", "default": "TCP"},
            "name": {"type": "string"},
        }},
    }}))
}

#[test]
pub(super) fn a_missing_key_has_its_default() {
    ports()
        .apply(
            "a",
            json!({"ports": [{"port": 80}, {"port": 80, "protocol": "UDP"}]}),
        )
        .is(json!({"ports": [{"port": 80}, {"port": 80, "protocol": "UDP"}]}))
        .owners(&[(
            "a+",
            &[
                ".ports[port=80,protocol=\"TCP\"]",
                ".ports[port=80,protocol=\"TCP\"].port",
                ".ports[port=80,protocol=\"UDP\"]",
                ".ports[port=80,protocol=\"UDP\"].port",
                ".ports[port=80,protocol=\"UDP\"].protocol",
            ],
        )]);
}

#[test]
pub(super) fn items_that_are_one_by_a_default_conflict() {
    ports()
        .apply(
            "a",
            json!({"ports": [{"port": 80, "protocol": "TCP", "name": "x"}]}),
        )
        .conflict(
            "b",
            json!({"ports": [{"port": 80, "name": "y"}]}),
            &["a.ports[port=80,protocol=\"TCP\"].name"],
        );
}

#[test]
pub(super) fn an_item_may_omit_a_key_without_a_default_if_it_has_another() {
    ports()
        .apply("a", json!({"ports": [{"protocol": "TCP", "name": "x"}]}))
        .owners(&[(
            "a+",
            &[
                ".ports[protocol=\"TCP\"]",
                ".ports[protocol=\"TCP\"].name",
                ".ports[protocol=\"TCP\"].protocol",
            ],
        )]);
}

#[test]
pub(super) fn an_ambiguous_key_is_refused() {
    for other in [json!({"port": 80}), json!({"port": 80, "protocol": "TCP"})] {
        ports().refused(
            "a",
            json!({"ports": [{"port": 80}, other]}),
            ".ports: duplicate entries for key [port=80,protocol=\"TCP\"]",
        );
    }
}

/// kubernetes#80914: the key changes, and the old item stays until its owner drops it.
#[test]
fn an_item_with_a_changed_key_is_another_item() {
    ports()
        .update(
            "b",
            json!({"ports": [{"port": 80, "protocol": "TCP", "name": "x"}]}),
        )
        .apply("a", json!({"ports": [{"port": 81, "name": "x"}]}))
        .is(json!({"ports": [
            {"port": 80, "protocol": "TCP", "name": "x"}, {"port": 81, "name": "x"},
        ]}))
        .apply("a", json!({"ports": [{"port": 82, "name": "x"}]}))
        .is(json!({"ports": [
            {"port": 80, "protocol": "TCP", "name": "x"}, {"port": 82, "name": "x"},
        ]}));
}

#[test]
fn a_whole_number_with_a_fraction_is_the_same_key() {
    ports()
        .apply("a", json!({"ports": [{"port": 80, "name": "x"}]}))
        .apply("b", json!({"ports": [{"port": 80.0}]}))
        .is(json!({"ports": [{"port": 80, "name": "x"}]}))
        .apply("a", json!({}))
        .is(json!({"ports": [{"port": 80}]}));
}

#[test]
pub(super) fn keys_have_defaults_at_each_depth() {
    let number = |default: f64| json!({"type": "number", "default": default});
    let seats = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["row", "place"],
        "items": {"type": "object", "properties": {
            "row": number(2.0), "place": {"type": "integer", "default": 3}, "guest": {"type": "string"},
        }},
    });
    let rooms = json!({"rooms": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["floor", "wing"],
        "items": {"type": "object", "properties": {
            "floor": {"type": "integer", "default": 1}, "wing": {"type": "string", "default": "A"}, "seats": seats,
        }},
    }});
    let room = ".rooms[floor=1,wing=\"A\"]";
    let seat = format!("{room}.seats[place=3,row=2]");
    let guest = format!("{seat}.guest");
    world(rooms)
        .apply("a", json!({"rooms": [{"seats": [{"guest": "g"}]}]}))
        .is(json!({"rooms": [{"seats": [{"guest": "g"}]}]}))
        .owners(&[("a+", &[room, &seat, &guest])])
        // A whole number is the same key as the fraction of the default.
        .apply(
            "a",
            json!({"rooms": [{"seats": [{"guest": "g", "row": 2}]}]}),
        )
        .is(json!({"rooms": [{"seats": [{"guest": "g", "row": 2}]}]}))
        .owners(&[("a+", &[room, &seat, &guest, &format!("{seat}.row")])]);
}
