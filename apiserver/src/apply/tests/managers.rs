//! The entries of managers: times, order, bounds, resets, and the change from client-side apply.

use serde_json::{Value, json};

use super::super::manage::Operation;
use super::world::{World, version, world};

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn things() -> World {
    world(json!({
        "spec": {"type": "object", "properties": {
            "a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "string"},
        }},
        "data": {"type": "object", "additionalProperties": {"type": "string"}},
    }))
}

fn entries(world: &World) -> Vec<Value> {
    let entries = world.live["metadata"]["managedFields"].as_array();
    entries.cloned().unwrap_or_default()
}

fn times(world: &World) -> Vec<(String, String)> {
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    entries(world)
        .iter()
        .map(|entry| (text(entry, "manager"), text(entry, "time")))
        .collect()
}

fn named(names: &[(&str, &str)]) -> Vec<(String, String)> {
    names
        .iter()
        .map(|(name, time)| ((*name).to_owned(), (*time).to_owned()))
        .collect()
}

#[test]
fn an_entry_has_a_manager_an_operation_a_version_and_a_time() {
    let world = things().update("m", json!({"spec": {"a": "x"}}));
    assert_eq!(
        entries(&world),
        [json!({
            "manager": "m", "operation": "Update", "apiVersion": "g/v1", "time": "2026-01-01T00:00:01Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {".": {}, "f:a": {}}},
        })]
    );
}

#[test]
fn appliers_come_first_then_older_entries() {
    let world = things()
        .update("z", json!({"spec": {"a": "1"}}))
        .update("b", json!({"spec": {"a": "1", "b": "1"}}))
        .apply("y", json!({"data": {"k": "v"}}));
    assert_eq!(
        times(&world),
        named(&[
            ("y", "2026-01-01T00:00:03Z"),
            ("z", "2026-01-01T00:00:01Z"),
            ("b", "2026-01-01T00:00:02Z"),
        ])
    );
}

#[test]
fn a_write_that_changes_nothing_keeps_the_time() {
    let world = things()
        .update("u", json!({"spec": {"a": "1"}}))
        .update("u", json!({"spec": {"a": "1"}}))
        .apply("a", json!({"data": {"k": "v"}}))
        .apply("a", json!({"data": {"k": "v"}}));
    assert_eq!(
        times(&world),
        named(&[("a", "2026-01-01T00:00:03Z"), ("u", "2026-01-01T00:00:01Z")])
    );
}

#[test]
fn an_apply_of_what_is_there_makes_an_entry_without_a_time() {
    let world = things()
        .update("u", json!({"data": {"k": "v"}}))
        .apply("a", json!({"data": {"k": "v"}}));
    assert_eq!(
        times(&world),
        named(&[("a", ""), ("u", "2026-01-01T00:00:01Z")])
    );
}

#[test]
fn updates_of_one_manager_are_one_entry() {
    let world = things()
        .update("u", json!({"spec": {"a": "1"}}))
        .update("u", json!({"spec": {"a": "1", "b": "2"}}))
        .owners(&[("u", &[".spec", ".spec.a", ".spec.b"])]);
    assert_eq!(times(&world), named(&[("u", "2026-01-01T00:00:02Z")]));
    let world = world.update_in("g/v2", "u", json!({"spec": {"a": "1", "b": "2", "c": "3"}}));
    assert_eq!(entries(&world).len(), 2);
}

#[test]
fn names_and_what_the_server_sets_have_no_owner() {
    things()
        .update(
            "u",
            json!({"metadata": {"name": "x", "labels": {"l": "v"}, "finalizers": ["f"]}}),
        )
        .owners(&[(
            "u",
            &[
                ".metadata.labels",
                ".metadata.labels.l",
                ".metadata.finalizers",
                ".metadata.finalizers[=\"f\"]",
            ],
        )]);
    things()
        .apply(
            "a",
            json!({"metadata": {"name": "x", "labels": {"l": "v"}}}),
        )
        .owners(&[("a+", &[".metadata.labels.l"])]);
}

#[test]
fn a_writer_without_a_name_is_unknown() {
    things()
        .update("", json!({"data": {"k": "v"}}))
        .owners(&[("unknown", &[".data", ".data.k"])]);
}

#[test]
fn the_oldest_updaters_of_a_version_merge() {
    let mut fields = serde_json::Map::new();
    let mut world = things();
    for at in 0..13 {
        fields.insert(format!("k{at:02}"), json!("v"));
        world = world.update(&format!("m{at:02}"), json!({"data": fields}));
    }
    let world = world.apply("a", json!({"spec": {"a": "x"}}));
    let owned = world.owned();
    assert_eq!(owned.len(), 11);
    assert_eq!(
        owned["ancient-changes"],
        [".data", ".data.k00", ".data.k01", ".data.k02", ".data.k03"]
    );
    assert!(owned.contains_key("m04") && owned.contains_key("m12"));
    let ancient = entries(&world)
        .into_iter()
        .find(|entry| entry["manager"] == "ancient-changes")
        .unwrap();
    assert_eq!(ancient["time"], "2026-01-01T00:00:04Z");
}

#[test]
fn each_version_keeps_an_entry_of_its_old_updaters() {
    let mut world = things();
    let mut fields = serde_json::Map::new();
    for at in 0..12 {
        fields.insert(format!("k{at:02}"), json!("v"));
        let version = ["g/v1", "g/v2", "g/v3", "g/v4"][at % 4];
        world = world.update_in(version, &format!("m{at:02}"), json!({"data": fields}));
    }
    let versions: Vec<Value> = entries(&world)
        .iter()
        .filter(|entry| entry["manager"] == "ancient-changes")
        .map(|entry| entry["apiVersion"].clone())
        .collect();
    assert_eq!(versions, ["g/v1", "g/v2"]);
    assert_eq!(entries(&world).len(), 10);
}

fn cleared(sent: Value) -> World {
    let world = things().update("u", json!({"data": {"k": "v"}}));
    world.update(
        "v",
        json!({"metadata": {"managedFields": sent}, "data": {"k": "v", "l": "w"}}),
    )
}

#[test]
fn an_empty_entry_clears_the_entries_until_the_next_apply() {
    cleared(json!([{}]))
        .owners(&[])
        .update("u", json!({"data": {"k": "x", "l": "w"}}))
        .owners(&[])
        .apply("a", json!({"spec": {"a": "1"}}))
        .owners(&[
            ("a+", &[".spec.a"]),
            ("before-first-apply", &[".data", ".data.k", ".data.l"]),
        ]);
}

#[test]
fn entries_that_are_not_sent_or_cannot_be_read_stay() {
    let strange = [
        Value::Null,
        json!([]),
        json!([{"manager": "x", "operation": "Delete", "apiVersion": "g/v1", "fieldsType": "FieldsV1"}]),
        json!([{"manager": "x", "operation": "Update", "apiVersion": "g/v1"}]),
        json!([{"manager": "x", "operation": "Update", "apiVersion": "", "fieldsType": "FieldsV1"}]),
        json!([{"manager": "x", "operation": "Update", "apiVersion": "g/v1", "fieldsType": "FieldsV1", "fieldsV1": {"v:{": {}}}]),
    ];
    for sent in strange {
        cleared(sent).owners(&[("u", &[".data", ".data.k"]), ("v", &[".data.l"])]);
    }
}

#[test]
fn entries_that_are_sent_replace_those_that_are_there() {
    let sent = json!([{
        "manager": "other", "operation": "Update", "apiVersion": "g/v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:k": {}}},
    }]);
    cleared(sent).owners(&[("other", &[".data.k"]), ("v", &[".data.l"])]);
}

#[test]
fn an_apply_with_entries_that_cannot_be_read_fails() {
    let mut world = things().update("u", json!({"data": {"k": "v"}}));
    world.live["metadata"]["managedFields"][0]
        .as_object_mut()
        .unwrap()
        .remove("fieldsType");
    world.refused(
        "a",
        json!({"data": {"k": "v"}}),
        "failed to decode managed fields: missing fieldsType in managed fields entry 0",
    );
}

#[test]
fn an_applied_object_has_no_entries_and_the_type_of_the_request() {
    let mut world = things();
    let cases = [
        (
            json!({"metadata": {"managedFields": []}}),
            "g/v1",
            "metadata.managedFields must be nil",
        ),
        (json!({}), "g/v2", "invalid object type: g/v2, Kind=Thing"),
    ];
    let kind =
        super::super::manage::Kind::default().with("g/v1", version(&json!({"type": "object"})));
    for (mut applied, api_version, text) in cases {
        applied["apiVersion"] = api_version.into();
        applied["kind"] = "Thing".into();
        let empty = json!({"apiVersion": "g/v1", "kind": "Thing"});
        let operation = Operation {
            of: &kind,
            api_version: "g/v1",
            kind: "Thing",
            subresource: "",
            manager: "a",
            now: "",
            empty: &empty,
        };
        let error = operation.apply(&empty, &applied, false).unwrap_err();
        assert_eq!(error.to_string(), text);
    }
    world.try_apply("g/v1", "a", &json!({}), false).unwrap();
}

#[test]
fn an_object_without_entries_had_a_manager_before_its_first_apply() {
    let mut world = things().update("u", json!({"data": {"k": "v"}}));
    world.live["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    world
        .conflict(
            "a",
            json!({"data": {"k": "w"}}),
            &["before-first-apply.data.k"],
        )
        .apply("a", json!({"data": {"k": "v", "l": "w"}}))
        .owners(&[
            ("a+", &[".data.k", ".data.l"]),
            ("before-first-apply", &[".data", ".data.k"]),
        ]);
}

#[test]
fn a_subresource_has_entries_of_its_own() {
    let mut world = things().update("u", json!({"spec": {"a": "1"}}));
    world.subresource = "status";
    let sent = json!([{}]);
    let world = world.update(
        "u",
        json!({"metadata": {"managedFields": sent}, "spec": {"a": "2", "b": "1"}}),
    );
    let subresources: Vec<&Value> = world.live["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["subresource"])
        .collect();
    assert_eq!(subresources, [&Value::Null, &json!("status")]);
}

#[test]
fn conflicts_name_managers_versions_and_subresources() {
    let text = |world: World| {
        let mut world = world;
        let applied = json!({"spec": {"a": "x", "b": "x"}});
        let error = world.try_apply("g/v1", "me", &applied, false).unwrap_err();
        error.to_string()
    };
    assert_eq!(
        text(things().update("u\"1", json!({"spec": {"a": "1"}}))),
        r#"Apply failed with 1 conflict: conflict with "u\"1" using g/v1: .spec.a"#
    );
    assert_eq!(
        text(things().apply("a", json!({"spec": {"a": "1"}}))),
        r#"Apply failed with 1 conflict: conflict with "a": .spec.a"#
    );
    let mut status = things().apply("z", json!({"spec": {"a": "1"}}));
    status.subresource = "status";
    let mut status = status.update("s", json!({"spec": {"a": "1", "b": "1"}}));
    status.subresource = "";
    assert_eq!(
        text(status),
        "Apply failed with 2 conflicts: conflicts with \"s\" with subresource \"status\" using g/v1:\n- .spec.b\nconflicts with \"z\":\n- .spec.a"
    );
}

fn client_side(last: Value) -> World {
    let mut last = last;
    last["apiVersion"] = "g/v1".into();
    last["kind"] = "Thing".into();
    things().update(
        "kubectl-client-side-apply",
        json!({"metadata": {"annotations": {ANNOTATION: last.to_string()}}, "spec": {"a": "1", "b": "1"}}),
    )
}

#[test]
fn kubectl_takes_over_what_it_applied_on_the_clients_side() {
    let world = client_side(json!({"spec": {"a": "1", "b": "1"}}))
        .apply("kubectl", json!({"spec": {"a": "2", "b": "1"}}))
        .is(json!({"spec": {"a": "2", "b": "1"}}));
    assert_eq!(world.owned()["kubectl+"], [".spec.a", ".spec.b"]);
    let annotation = world.live["metadata"]["annotations"][ANNOTATION].as_str();
    assert_eq!(
        annotation,
        Some("{\"apiVersion\":\"g/v1\",\"kind\":\"Thing\",\"spec\":{\"a\":\"2\",\"b\":\"1\"}}\n")
    );
}

#[test]
fn kubectl_does_not_take_what_differs_from_the_annotation() {
    let mut world = client_side(json!({"spec": {"a": "0", "b": "1"}}));
    world = world.conflict(
        "kubectl",
        json!({"spec": {"a": "2", "b": "2"}}),
        &["kubectl-client-side-apply.spec.a"],
    );
    world.conflict(
        "other",
        json!({"spec": {"a": "2", "b": "2"}}),
        &[
            "kubectl-client-side-apply.spec.a",
            "kubectl-client-side-apply.spec.b",
        ],
    );
}

#[test]
fn an_annotation_of_another_version_allows_nothing() {
    let last = json!({"apiVersion": "g/v2", "kind": "Thing", "spec": {"a": "1"}});
    things()
        .update(
            "kubectl-client-side-apply",
            json!({"metadata": {"annotations": {ANNOTATION: last.to_string()}}, "spec": {"a": "1"}}),
        )
        .conflict(
            "kubectl",
            json!({"spec": {"a": "2"}}),
            &["kubectl-client-side-apply.spec.a"],
        );
}
