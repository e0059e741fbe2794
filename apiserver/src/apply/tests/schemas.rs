//! Objects whose types change between writes, and versions that go.

use serde_json::{Value, json};

use super::world::{World, world};

fn part(atomic: bool) -> Value {
    let mut part = json!({"type": "object", "properties": {"numeric": {"type": "integer"}, "string": {"type": "string"}}});
    if atomic {
        part["x-kubernetes-map-type"] = "atomic".into();
    }
    json!({"struct": part})
}

#[test]
fn the_owner_of_a_part_owns_the_struct_when_it_becomes_one_value() {
    world(part(false))
        .apply("a", json!({"struct": {"numeric": 1}}))
        .with_fields(part(true))
        .conflict("b", json!({"struct": {"string": "x"}}), &["a.struct"])
        .force("b", json!({"struct": {"string": "x"}}))
        .is(json!({"struct": {"string": "x"}}))
        .owners(&[("b+", &[".struct"])]);
}

#[test]
fn a_manager_without_a_part_does_not_own_the_struct_that_becomes_one_value() {
    world(part(false))
        .apply("a", json!({"struct": {"numeric": 1}}))
        .force("b", json!({"struct": {"numeric": 2}}))
        .with_fields(part(true))
        .conflict("c", json!({"struct": {"string": "x"}}), &["b.struct"])
        .force("b", json!({"struct": {"string": "x"}}))
        .owners(&[("b+", &[".struct"])]);
}

#[test]
fn the_owner_of_a_struct_keeps_it_alone_when_it_gets_parts() {
    world(part(true))
        .apply("a", json!({"struct": {"numeric": 1, "string": "a"}}))
        .conflict("b", json!({"struct": {"string": "b"}}), &["a.struct"])
        .with_fields(part(false))
        .apply("b", json!({"struct": {"string": "b"}}))
        .is(json!({"struct": {"numeric": 1, "string": "b"}}))
        .owners(&[("a+", &[".struct"]), ("b+", &[".struct.string"])]);
}

fn ports(keys: &[&str], default: Option<&str>) -> Value {
    let mut protocol = json!({"type": "string"});
    if let Some(default) = default {
        protocol["default"] = default.into();
    }
    json!({"ports": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
        "items": {"type": "object", "properties": {
            "port": {"type": "integer"}, "name": {"type": "string"}, "protocol": protocol,
        }},
    }})
}

fn old_ports() -> World {
    world(ports(&["port"], None)).apply("a", json!({"ports": [{"port": 80, "name": "x"}]}))
}

#[test]
fn items_are_the_same_under_a_new_key_with_a_default() {
    old_ports()
        .with_fields(ports(&["port", "protocol"], Some("TCP")))
        .apply(
            "b",
            json!({"ports": [{"port": 80, "name": "x", "protocol": "TCP"}]}),
        )
        .is(json!({"ports": [{"port": 80, "name": "x", "protocol": "TCP"}]}));
}

#[test]
fn items_without_a_new_optional_key_stay_apart() {
    old_ports()
        .with_fields(ports(&["port", "protocol"], None))
        .apply("b", json!({"ports": [{"port": 80, "protocol": "UDP"}]}))
        .is(json!({"ports": [{"port": 80, "name": "x"}, {"port": 80, "protocol": "UDP"}]}));
}

#[test]
fn entries_of_a_version_that_is_gone_go_with_the_next_write() {
    let leaf = || json!({"string": {"type": "string"}, "numeric": {"type": "integer"}});
    let old = world(leaf()).apply_in("g/v4", "a", json!({"string": "x"}));
    let world = old.with_versions(&["g/v1"]);
    world
        .clone()
        .apply("b", json!({"string": "y"}))
        .is(json!({"string": "y"}))
        .owners(&[("b+", &[".string"])]);
    world
        .update("u", json!({"string": "x", "numeric": 1}))
        .owners(&[("u", &[".numeric"])]);
}
