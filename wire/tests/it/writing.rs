//! What the generated code of Kubernetes writes, rule by rule.

use reeve_wire::{List, Message, encode, encode_list, to_vec};
use serde_json::{Value, json};

use crate::bytes::{field, number};

fn written(api_version: &str, kind: &str, object: &Value) -> Vec<u8> {
    encode(Message::of(api_version, kind).unwrap(), object).unwrap()
}

/// `metadata` without any member: texts and numbers that are not pointers are written, and so is the zero time.
fn metadata() -> Vec<u8> {
    let texts = |numbers: &[u8]| -> Vec<u8> {
        numbers
            .iter()
            .flat_map(|number| field(*number, b""))
            .collect()
    };
    [texts(&[1, 2, 3, 4, 5, 6]), number(7, 0), texts(&[8])].concat()
}

#[test]
fn zeros_are_written_of_fields_that_are_not_pointers() {
    let map = written("v1", "ConfigMap", &json!({}));
    assert_eq!(map, field(1, &metadata()));
    let map = written(
        "v1",
        "ConfigMap",
        &json!({"immutable": false, "data": {}, "binaryData": null}),
    );
    assert_eq!(map, [field(1, &metadata()), number(4, 0)].concat());
}

#[test]
fn entries_are_in_the_order_of_their_keys() {
    let entry = |key: &[u8], value: &[u8]| [field(1, key), field(2, value)].concat();
    let map = written(
        "v1",
        "ConfigMap",
        &json!({"data": {"b": "2", "a": "", "B": "3"}}),
    );
    let entries = [entry(b"B", b"3"), entry(b"a", b""), entry(b"b", b"2")];
    let entries: Vec<u8> = entries.iter().flat_map(|entry| field(2, entry)).collect();
    assert_eq!(map, [field(1, &metadata()), entries].concat());
}

#[test]
fn null_bytes_of_an_entry_are_not_written_and_empty_ones_are() {
    let map = written(
        "v1",
        "ConfigMap",
        &json!({"binaryData": {"a": null, "b": "", "c": "AAE="}}),
    );
    let entries = [
        field(1, b"a"),
        [field(1, b"b"), field(2, b"")].concat(),
        [field(1, b"c"), field(2, &[0, 1])].concat(),
    ];
    let entries: Vec<u8> = entries.iter().flat_map(|entry| field(3, entry)).collect();
    assert_eq!(map, [field(1, &metadata()), entries].concat());
}

#[test]
fn times_have_seconds_and_micro_times_microseconds() {
    let of = |spec: Value| written("coordination.k8s.io/v1", "Lease", &json!({"spec": spec}));
    let lease = of(json!({"acquireTime": "1970-01-01T00:00:07.123456789Z"}));
    let time = field(3, &[number(1, 7), number(2, 123_456_000)].concat());
    assert_eq!(lease, [field(1, &metadata()), field(2, &time)].concat());
    let deleted = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:07.5Z"}});
    let time = field(9, &[number(1, 7), number(2, 0)].concat());
    let map = written("v1", "ConfigMap", &deleted);
    assert_eq!(map, field(1, &[metadata(), time].concat()));
}

#[test]
fn a_union_is_written_as_the_field_that_it_is_in_json() {
    let of = |schema: Value| {
        let version = json!({"name": "v1", "schema": {"openAPIV3Schema": schema}});
        let object = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {"versions": [version]},
        });
        let body = to_vec(&object).unwrap();
        let read: Value = reeve_wire::from_slice(&body).unwrap();
        read["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    };
    for schema in [
        json!({"additionalProperties": true}),
        json!({"additionalProperties": false}),
        json!({"additionalProperties": {"type": "string"}}),
        json!({"items": {"type": "string"}}),
        json!({"items": [{"type": "string"}, {"type": "integer"}]}),
        json!({"dependencies": {"a": ["b", "c"], "d": {"type": "object"}}}),
        json!({"default": {"a": [1, null]}, "enum": ["x", 1, null]}),
    ] {
        assert_eq!(of(schema.clone()), schema);
    }
}

#[test]
fn a_list_has_the_numbers_of_its_version() {
    let items = [b"".as_slice(), b""];
    let meta = json!({"resourceVersion": "7", "continue": "c", "remainingItemCount": 2});
    let meta_of = [field(1, b""), field(2, b"7"), field(3, b"c"), number(4, 2)].concat();
    let of = |version: &str| {
        let kind = "PartialObjectMetadataList";
        let body = encode_list(version, kind, &meta, &items).unwrap();
        let parsed = reeve_wire::Envelope::parse(&body).unwrap();
        assert_eq!((&*parsed.api_version, &*parsed.kind), (version, kind));
        parsed.object.to_vec()
    };
    let items = [field(2, b""), field(2, b"")].concat();
    assert_eq!(of("meta.k8s.io/v1"), [field(1, &meta_of), items].concat());
    let items = [field(1, b""), field(1, b"")].concat();
    assert_eq!(
        of("meta.k8s.io/v1beta1"),
        [items, field(2, &meta_of)].concat()
    );
}

#[test]
fn a_list_in_parts_is_the_list_as_one_object() {
    let metadata = json!({"resourceVersion": "7"});
    let object =
        |length: usize| json!({"metadata": {"name": "a"}, "data": {"b": "x".repeat(length)}});
    let objects: Vec<Value> = [0, 70, 100, 127, 128, 16_300, 16_383, 16_384, 100_000]
        .map(object)
        .into();
    let whole = json!({
        "apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": objects,
    });
    let items: Vec<Vec<u8>> = objects
        .iter()
        .map(|object| written("v1", "ConfigMap", object))
        .collect();
    let list = encode_list("v1", "ConfigMapList", &metadata, &items).unwrap();
    assert_eq!(list, to_vec(&whole).unwrap());
    let lengths = items.iter().map(Vec::len);
    let parts = List::new("v1", "ConfigMapList", &metadata, lengths).unwrap();
    assert_eq!(parts.len(), list.len());
}

#[test]
fn fields_of_a_manager_may_be_their_text() {
    let of = |fields: Value| {
        let entry = json!({"manager": "m", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let object = json!({"metadata": {"managedFields": [entry]}});
        written("v1", "ConfigMap", &object)
    };
    let fields = json!({"f:data": {".": {}, "f:a": {}}});
    let text = fields.to_string();
    assert_eq!(of(text.into()), of(fields));
}

#[test]
fn members_that_are_not_fields_are_left_out() {
    let map = written(
        "v1",
        "ConfigMap",
        &json!({"odd": 1, "apiVersion": "v1", "kind": "ConfigMap"}),
    );
    assert_eq!(map, field(1, &metadata()));
}

#[test]
fn managed_fields_are_the_bytes_of_their_json() {
    let owned = json!({"f:data": {".": {}, "f:key": {}}});
    let object = json!({"metadata": {"managedFields": [{"manager": "m", "fieldsV1": owned}]}});
    let entry = [
        field(1, b"m"),
        field(2, b""),
        field(3, b""),
        field(6, b""),
        field(7, &field(1, owned.to_string().as_bytes())),
        field(8, b""),
    ];
    let fields = [
        vec![0x8a, 1],
        vec![entry.concat().len() as u8],
        entry.concat(),
    ]
    .concat();
    let map = written("v1", "ConfigMap", &object);
    assert_eq!(map, field(1, &[metadata(), fields].concat()));
}
