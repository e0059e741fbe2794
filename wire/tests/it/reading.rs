//! The traps of the format, one by one.

use reeve_wire::{Cause, Envelope};
use serde_json::{Value, json};

use crate::bytes::{MAX_VALUES, body, decode, field, limits, number, read, varint};

fn map(object: &[&[u8]]) -> Value {
    read("v1", "ConfigMap", &object.concat()).unwrap()
}

#[test]
fn a_message_written_twice_is_one_with_the_fields_of_both() {
    let read = map(&[
        &field(1, &[field(1, b"first"), field(3, b"ns")].concat()),
        &field(1, &field(1, b"last")),
    ]);
    assert_eq!(read["metadata"], json!({"name": "last", "namespace": "ns"}));
}

#[test]
fn lists_and_maps_may_come_in_pieces() {
    let entry = |key: &[u8], value: &[u8]| field(2, &[field(1, key), field(2, value)].concat());
    let read = map(&[
        &entry(b"a", b"1"),
        &field(
            1,
            &[field(14, b"x"), field(1, b"n"), field(14, b"y")].concat(),
        ),
        &entry(b"b", b"2"),
        &entry(b"a", b"3"),
    ]);
    assert_eq!(read["data"], json!({"a": "3", "b": "2"}));
    assert_eq!(read["metadata"]["finalizers"], json!(["x", "y"]));
}

#[test]
fn an_entry_without_a_key_or_a_value_has_an_empty_one() {
    let read = map(&[&field(2, &field(2, b"v")), &field(3, &field(1, b"k"))]);
    assert_eq!(read["data"], json!({"": "v"}));
    assert_eq!(read["binaryData"], json!({"k": ""}));
}

#[test]
fn zeros_are_kept_of_pointers_and_left_out_elsewhere() {
    let spec = [number(1, 0), number(5, 0), number(6, 0)].concat();
    let read = read("apps/v1", "Deployment", &field(2, &spec)).unwrap();
    assert_eq!(read["spec"]["replicas"], json!(0));
    // Neither minReadySeconds nor paused is a pointer, and revisionHistoryLimit is.
    assert_eq!(read["spec"]["revisionHistoryLimit"], json!(0));
    assert!(read["spec"].get("minReadySeconds").is_none());
    let written = [number(5, 3), number(5, 0)].concat();
    let read = decode(&body("apps/v1", "Deployment", &field(2, &written))).unwrap();
    assert!(
        read["spec"].get("minReadySeconds").is_none(),
        "the later of two counts"
    );
}

#[test]
fn numbers_may_be_packed() {
    let security = field(4, &[varint(7), varint(8)].concat());
    let loose = [number(4, 7), number(4, 8)].concat();
    let pod = |security: &[u8]| read("v1", "Pod", &field(2, &field(14, security))).unwrap();
    let groups = json!([7, 8]);
    assert_eq!(
        pod(&security)["spec"]["securityContext"]["supplementalGroups"],
        groups
    );
    assert_eq!(pod(&security), pod(&loose));
    assert_eq!(pod(&field(4, b""))["spec"]["securityContext"], json!({}));
}

#[test]
fn numbers_have_the_size_and_the_sign_of_their_type() {
    let minus = u64::MAX;
    let deployment = |replicas: u64| {
        read("apps/v1", "Deployment", &field(2, &number(1, replicas))).unwrap()["spec"]["replicas"]
            .clone()
    };
    assert_eq!(deployment(minus), json!(-1));
    assert_eq!(deployment(1 << 32 | 5), json!(5));
    let options = read("v1", "DeleteOptions", &number(1, minus)).unwrap();
    assert_eq!(options["gracePeriodSeconds"], json!(-1));
}

#[test]
fn fields_without_a_name_are_passed_over_whatever_their_type() {
    let group = [
        vec![15 << 3 | 3, 1 << 3 | 3],
        number(1, 5),
        vec![1 << 3 | 4, 15 << 3 | 4],
    ]
    .concat();
    let read = map(&[
        &number(15, 1 << 40),
        &[vec![15 << 3 | 1], vec![0; 8]].concat(),
        &[vec![15 << 3 | 5], vec![0; 4]].concat(),
        &field(15, b"later"),
        &group,
        &field(1, &field(1, b"n")),
    ]);
    assert_eq!(read["metadata"], json!({"name": "n"}));
}

#[test]
fn an_envelope_without_a_kind_has_the_expected_one() {
    let body = [b"k8s\0".to_vec(), field(2, &field(1, &field(1, b"n")))].concat();
    let mut envelope = Envelope::parse(&body).unwrap();
    envelope.set_missing("v1", "ConfigMap");
    assert_eq!(
        envelope.decode::<Value>(limits()).unwrap(),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}})
    );
    let unknown = crate::bytes::body("v1", "Odd", b"");
    let mut envelope = Envelope::parse(&unknown).unwrap();
    envelope.set_missing("v1", "ConfigMap");
    let expected = Cause::UnknownKind {
        api_version: "v1".to_owned(),
        kind: "Odd".to_owned(),
    };
    assert_eq!(envelope.message().unwrap_err(), expected);
}

#[test]
fn what_is_wrong_is_said_in_the_words_of_kubernetes() {
    let object = |bytes: &[u8]| read("v1", "ConfigMap", bytes).unwrap_err().to_string();
    let cases: &[(&[u8], &str)] = &[
        (&[0x0a], "unexpected EOF"),
        (&[0x0a, 5, 0], "unexpected EOF"),
        (&[0x80; 11], "proto: integer overflow"),
        (&field(15, b"")[..1], "unexpected EOF"),
        (
            &[vec![0x0a], vec![0xff; 9], vec![1]].concat(),
            "proto: negative length found during unmarshaling",
        ),
        (
            &number(1, 0),
            "proto: wrong wireType = 0 for field ObjectMeta",
        ),
        (&[0x02, 0], "proto: ConfigMap: illegal tag 0 (wire type 2)"),
        (
            &[0x0c],
            "proto: ConfigMap: wiretype end group for non-group",
        ),
        (&[0x0f], "proto: illegal wireType 7"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(object(bytes), *expected, "{bytes:?}");
    }
    let of = |body: &[u8]| decode(body).unwrap_err().to_string();
    assert_eq!(of(b""), "empty data");
    assert_eq!(of(b"k8s\0"), "empty body");
    assert_eq!(
        of(b"{}"),
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    );
}

#[test]
fn values_that_json_cannot_show_are_refused() {
    let lease = |time: Vec<u8>| {
        read(
            "coordination.k8s.io/v1",
            "Lease",
            &field(2, &field(3, &time)),
        )
    };
    assert_eq!(lease(number(1, 1 << 60)).unwrap_err(), Cause::Time(1 << 60));
    let late = lease([number(1, 253_402_300_799), number(2, 999_999_999)].concat()).unwrap();
    assert_eq!(
        late["spec"]["acquireTime"],
        json!("9999-12-31T23:59:59.999999Z")
    );
    let service = read(
        "v1",
        "Service",
        &field(2, &field(1, &field(4, &number(1, 2)))),
    );
    assert_eq!(service.unwrap_err(), Cause::IntOrString);
    let schema = |schema: &[u8]| {
        let version = field(7, &field(4, &field(1, schema)));
        read(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            &field(2, &version),
        )
    };
    let maximum = [vec![9 << 3 | 1], f64::NAN.to_le_bytes().to_vec()].concat();
    assert_eq!(schema(&maximum).unwrap_err(), Cause::Number("NaN"));
    assert!(matches!(
        schema(&field(8, &field(1, b"{"))),
        Err(Cause::Json(_))
    ));
}

// === bounds ===

/// Schemas that hold schemas: `not` is field 28.
fn nested(levels: usize, inner: Vec<u8>) -> Vec<u8> {
    let mut schema = inner;
    for _ in 0..levels {
        let mut outer = varint(28 << 3 | 2);
        outer.extend(varint(schema.len() as u64));
        outer.extend(schema);
        schema = outer;
    }
    field(2, &field(7, &field(4, &field(1, &schema))))
}

#[test]
fn what_nests_too_deep_is_refused_as_in_json() {
    let of = |object: Vec<u8>| {
        read(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            &object,
        )
    };
    // spec, versions, its item, schema and openAPIV3Schema are around the schemas.
    let fits = 124 - 5;
    // `required`, a list of texts, is the deepest that a schema has.
    let required = [varint(23 << 3 | 2), vec![1, b'x']].concat();
    let value = of(nested(fits, required)).unwrap();
    assert!(serde_json::from_str::<Value>(&value.to_string()).is_ok());
    assert_eq!(of(nested(fits + 1, Vec::new())).unwrap_err(), Cause::Depth);
    assert_eq!(of(nested(100_000, Vec::new())).unwrap_err(), Cause::Depth);
    let raw = |depth: usize| {
        let text = "[".repeat(depth) + &"]".repeat(depth);
        of(nested(60, field(8, &field(1, text.as_bytes()))))
    };
    let deepest = (1..100).take_while(|depth| raw(*depth).is_ok()).count();
    assert!(deepest > 10, "{deepest}");
    let value = raw(deepest).unwrap();
    assert!(serde_json::from_str::<Value>(&value.to_string()).is_ok());
    assert_eq!(raw(deepest + 1).unwrap_err(), Cause::Depth);
}

#[test]
fn a_small_body_does_not_become_a_huge_object() {
    // Containers without a single field: two bytes each, three values each.
    let containers = field(2, b"").repeat(MAX_VALUES / 2);
    let error = read("v1", "Pod", &field(2, &containers)).unwrap_err();
    assert_eq!(error, Cause::TooMany(MAX_VALUES));
    let texts = field(1, b"").repeat(MAX_VALUES + 1);
    let extra = field(5, &[field(1, b"k"), field(2, &texts)].concat());
    let review = read(
        "authorization.k8s.io/v1",
        "SubjectAccessReview",
        &field(2, &extra),
    );
    assert_eq!(review.unwrap_err(), Cause::TooMany(MAX_VALUES));
    let packed = field(4, &vec![0; MAX_VALUES + 1]);
    let pod = read("v1", "Pod", &field(2, &field(14, &packed)));
    assert_eq!(pod.unwrap_err(), Cause::TooMany(MAX_VALUES));
}
