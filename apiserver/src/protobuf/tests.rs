//! Equality with client-go on its own objects, the traps of the format one by one, and arbitrary bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::message::{MAX_DEPTH, MAX_VALUES};
use super::table::Table;
use super::{Error, decode};

/// What client-go wrote and what it read from that, by `tools/protobuf`.
const CORPUS: &str = include_str!("testdata/corpus.txt");

struct Sample {
    title: &'static str,
    body: Vec<u8>,
    json: &'static str,
}

fn corpus() -> Vec<Sample> {
    let lines: Vec<&str> = CORPUS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let sample = |record: &[&'static str]| Sample {
        title: record[0],
        body: BASE64.decode(record[1]).unwrap(),
        json: record[2],
    };
    lines.chunks(3).map(sample).collect()
}

#[test]
fn objects_of_every_kind_are_read_as_client_go_reads_them() {
    let corpus = corpus();
    for sample in &corpus {
        let expected: Value = serde_json::from_str(sample.json).unwrap();
        let read = decode(&sample.body, ("", ""));
        let read = read.unwrap_or_else(|error| panic!("{}: {error}", sample.title));
        compare(sample.title, &read, &expected, "");
    }
    for info in crate::kinds::builtin() {
        // The others cannot be sent in protobuf yet.
        if Table::get().root(&info.api_version(), &info.kind).is_none() {
            continue;
        }
        let of = format!("{} {} ", info.api_version(), info.kind);
        for filling in ["empty", "zeros", "full", "random-1"] {
            let title = format!("{of}{filling}");
            assert!(corpus.iter().any(|sample| sample.title == title), "{title}");
        }
    }
}

/// Names the first place that differs.
fn compare(title: &str, read: &Value, expected: &Value, path: &str) {
    match (read, expected) {
        (Value::Object(one), Value::Object(other)) => {
            let keys =
                |map: &serde_json::Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
            assert_eq!(keys(one), keys(other), "{title}: fields of {path:?}");
            for (key, value) in one {
                compare(title, value, &other[key], &format!("{path}.{key}"));
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                compare(title, one, other, &format!("{path}[{index}]"));
            }
        }
        _ => assert_eq!(read, expected, "{title}: {path}"),
    }
}

#[test]
fn every_kind_that_can_be_sent_is_in_the_table() {
    let table = Table::get();
    for (api_version, kind) in [
        ("autoscaling/v1", "Scale"),
        ("authentication.k8s.io/v1", "TokenRequest"),
        ("v1", "DeleteOptions"),
        ("apps/v1", "DeleteOptions"),
    ] {
        assert!(
            table.root(api_version, kind).is_some(),
            "{api_version} {kind}"
        );
    }
    assert!(table.root("v1", "Nonsense").is_none());
}

#[test]
fn a_table_that_is_not_whole_is_refused() {
    for line in [
        "m 1:a",
        "m x:a:s",
        "m 1:a:other",
        "m @odd 1:a:s",
        "m 2:a:s 1:b:s",
        "m 1:-:s",
        "= v1 Kind",
        "= v1 Kind m",
    ] {
        assert!(Table::parse(line).is_err(), "{line}");
    }
}

// === bytes by hand ===

/// A field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut written = vec![number << 3 | 2];
    written.extend(varint(bytes.len() as u64));
    written.extend(bytes);
    written
}

/// A field of a number.
fn number(number: u8, value: u64) -> Vec<u8> {
    [vec![number << 3], varint(value)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut written = Vec::new();
    while value >= 0x80 {
        written.push(value as u8 | 0x80);
        value >>= 7;
    }
    written.push(value as u8);
    written
}

fn body(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let of = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &of), field(2, object)].concat()
}

fn read(api_version: &str, kind: &str, object: &[u8]) -> Result<Value, Error> {
    decode(&body(api_version, kind, object), ("", "")).map_err(|error| match error {
        Error::Object { error, .. } => *error,
        error => panic!("the envelope is whole: {error}"),
    })
}

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
    let read = super::decode(
        &body("apps/v1", "Deployment", &field(2, &written)),
        ("", ""),
    )
    .unwrap();
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
    let read = decode(&body, ("v1", "ConfigMap")).unwrap();
    assert_eq!(
        read,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}})
    );
    let unknown = super::tests::body("v1", "Odd", b"");
    let expected = Error::UnknownKind {
        api_version: "v1".to_owned(),
        kind: "Odd".to_owned(),
    };
    assert_eq!(decode(&unknown, ("v1", "ConfigMap")), Err(expected));
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
    let of = |body: &[u8]| decode(body, ("v1", "ConfigMap")).unwrap_err().to_string();
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
    assert_eq!(lease(number(1, 1 << 60)).unwrap_err(), Error::Time(1 << 60));
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
    assert_eq!(service.unwrap_err(), Error::IntOrString);
    let schema = |schema: &[u8]| {
        let version = field(7, &field(4, &field(1, schema)));
        read(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            &field(2, &version),
        )
    };
    let maximum = [vec![9 << 3 | 1], f64::NAN.to_le_bytes().to_vec()].concat();
    assert_eq!(schema(&maximum).unwrap_err(), Error::Number("NaN"));
    assert!(matches!(
        schema(&field(8, &field(1, b"{"))),
        Err(Error::Json(_))
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
    let fits = MAX_DEPTH - 5;
    // `required`, a list of texts, is the deepest that a schema has.
    let required = [varint(23 << 3 | 2), vec![1, b'x']].concat();
    let value = of(nested(fits, required)).unwrap();
    assert!(crate::json_text::parse(value.to_string().as_bytes()).is_ok());
    assert_eq!(of(nested(fits + 1, Vec::new())).unwrap_err(), Error::Depth);
    assert_eq!(of(nested(100_000, Vec::new())).unwrap_err(), Error::Depth);
    let raw = |depth: usize| {
        let text = "[".repeat(depth) + &"]".repeat(depth);
        of(nested(60, field(8, &field(1, text.as_bytes()))))
    };
    let deepest = (1..100).take_while(|depth| raw(*depth).is_ok()).count();
    assert!(deepest > 10, "{deepest}");
    let value = raw(deepest).unwrap();
    assert!(crate::json_text::parse(value.to_string().as_bytes()).is_ok());
    assert_eq!(raw(deepest + 1).unwrap_err(), Error::Depth);
}

#[test]
fn a_small_body_does_not_become_a_huge_object() {
    // Containers without a single field: two bytes each, three values each.
    let containers = field(2, b"").repeat(MAX_VALUES / 2);
    let error = read("v1", "Pod", &field(2, &containers)).unwrap_err();
    assert_eq!(error, Error::TooMany(MAX_VALUES));
    let texts = field(1, b"").repeat(MAX_VALUES + 1);
    let extra = field(5, &[field(1, b"k"), field(2, &texts)].concat());
    let review = read(
        "authorization.k8s.io/v1",
        "SubjectAccessReview",
        &field(2, &extra),
    );
    assert_eq!(review.unwrap_err(), Error::TooMany(MAX_VALUES));
    let packed = field(4, &vec![0; MAX_VALUES + 1]);
    let pod = read("v1", "Pod", &field(2, &field(14, &packed)));
    assert_eq!(pod.unwrap_err(), Error::TooMany(MAX_VALUES));
}

#[test]
fn a_body_that_is_cut_off_is_refused_or_whole_as_far_as_it_goes() {
    for sample in corpus().iter().filter(|sample| sample.body.len() < 2000) {
        for length in 0..sample.body.len() {
            // The envelope has one length around the object.
            let cut = decode(&sample.body[..length], ("", ""));
            assert!(cut.is_err() || length > 4, "{} {length}", sample.title);
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        of in any::<Index>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let corpus = corpus();
        let title = of.get(&corpus).title;
        let words: Vec<&str> = title.split(' ').collect();
        let read = read(words[0], words[1], &bytes);
        if let Ok(value) = read {
            prop_assert!(crate::json_text::parse(value.to_string().as_bytes()).is_ok());
        }
        let _ = decode(&bytes, ("v1", "Pod"));
    }

    #[test]
    fn objects_with_some_bytes_changed_never_panic(
        of in any::<Index>(),
        changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let corpus = corpus();
        let sample = of.get(&corpus);
        let mut bytes = sample.body.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(value) = decode(&bytes, ("v1", "Pod")) {
            let text = value.to_string();
            prop_assert!(crate::json_text::parse(text.as_bytes()).is_ok());
        }
    }
}
