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
pub(super) fn the_owner_of_a_part_owns_the_struct_when_it_becomes_one_value() {
    world(part(false))
        .apply("a", json!({"struct": {"numeric": 1}}))
        .with_fields(part(true))
        .conflict("b", json!({"struct": {"string": "x"}}), &["a.struct"])
        .force("b", json!({"struct": {"string": "x"}}))
        .is(json!({"struct": {"string": "x"}}))
        .owners(&[("b+", &[".struct"])]);
}

#[test]
pub(super) fn a_manager_without_a_part_does_not_own_the_struct_that_becomes_one_value() {
    world(part(false))
        .apply("a", json!({"struct": {"numeric": 1}}))
        .force("b", json!({"struct": {"numeric": 2}}))
        .with_fields(part(true))
        .conflict("c", json!({"struct": {"string": "x"}}), &["b.struct"])
        .force("b", json!({"struct": {"string": "x"}}))
        .owners(&[("b+", &[".struct"])]);
}

#[test]
pub(super) fn the_owner_of_a_struct_keeps_it_alone_when_it_gets_parts() {
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

/// Paths of items with the keys `port` and `protocol`, and of their fields.
fn owned(items: &[(&str, &[&str])]) -> Vec<String> {
    let paths = items.iter().flat_map(|(key, fields)| {
        let item = format!(".ports[{key}]");
        let of_fields = fields.iter().map(|field| format!(".ports[{key}].{field}"));
        std::iter::once(item).chain(of_fields).collect::<Vec<_>>()
    });
    paths.collect()
}

#[test]
pub(super) fn items_differ_by_a_field_that_becomes_a_key() {
    let (port, tcp, udp) = (80, "TCP", "UDP");
    let keys = |protocol: &str| format!("port=80,protocol=\"{protocol}\"");
    let all: &[&str] = &["port", "protocol", "name"];
    let cases = [
        (
            json!([{"port": port, "protocol": tcp, "name": "x"}]),
            json!([{"port": port, "protocol": tcp, "name": "y"}]),
            owned(&[(&keys(tcp), all)]),
        ),
        (
            json!([{"port": port, "protocol": tcp, "name": "x"}]),
            json!([{"port": port, "protocol": tcp, "name": "x"}, {"port": port, "protocol": udp, "name": "y"}]),
            owned(&[(&keys(tcp), all), (&keys(udp), all)]),
        ),
        (
            json!([{"port": port, "name": "x"}]),
            json!([{"port": port, "name": "x"}, {"port": port, "protocol": udp, "name": "y"}]),
            owned(&[("port=80", &["port", "name"]), (&keys(udp), all)]),
        ),
        (
            json!([{"port": port, "name": "x"}]),
            json!([{"port": port, "name": "y"}, {"port": port, "protocol": tcp, "name": "x"}]),
            owned(&[("port=80", &["port", "name"]), (&keys(tcp), all)]),
        ),
    ];
    for (before, after, owned) in cases {
        let owned: Vec<&str> = owned.iter().map(String::as_str).collect();
        world(ports(&["port"], None))
            .apply("a", json!({"ports": before}))
            .with_fields(ports(&["port", "protocol"], None))
            .apply("a", json!({"ports": after}))
            .is(json!({"ports": after}))
            .owners(&[("a+", &owned)]);
    }
}

#[test]
pub(super) fn an_applier_goes_on_with_a_new_key_with_a_default() {
    let item = |port: i64, name: &str| json!({"port": port, "name": name});
    let with = |port: i64, protocol: &str, name: &str| json!({"port": port, "protocol": protocol, "name": name});
    let after = json!([
        item(80, "y"),
        with(81, "TCP", "y"),
        item(82, "x"),
        with(82, "UDP", "y"),
        with(82, "SCTP", "z")
    ]);
    let (two, all): (&[&str], &[&str]) = (&["port", "name"], &["port", "protocol", "name"]);
    let owned = owned(&[
        ("port=80,protocol=\"TCP\"", two),
        ("port=81,protocol=\"TCP\"", all),
        ("port=82,protocol=\"TCP\"", two),
        ("port=82,protocol=\"UDP\"", all),
        ("port=82,protocol=\"SCTP\"", all),
    ]);
    let owned: Vec<&str> = owned.iter().map(String::as_str).collect();
    world(ports(&["port"], None))
        .apply(
            "a",
            json!({"ports": [item(80, "x"), item(81, "x"), item(82, "x")]}),
        )
        .with_fields(ports(&["port", "protocol"], Some("TCP")))
        .apply("a", json!({"ports": after}))
        .is(json!({"ports": after}))
        .owners(&[("a+", &owned)]);
}

#[test]
pub(super) fn an_applier_whose_version_is_gone_removes_nothing() {
    let fields = json!({"set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}});
    world(fields)
        .apply_in("g/v1", "a", json!({"set": ["w", "x", "y"]}))
        .with_versions(&["g/v2"])
        .apply_in("g/v2", "a", json!({"set": ["x"]}))
        .is(json!({"set": ["w", "x", "y"]}));
}

#[test]
pub(super) fn entries_of_a_version_that_is_gone_go_with_the_next_write() {
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
