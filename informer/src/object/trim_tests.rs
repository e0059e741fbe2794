//! Objects of every form without the fields that are left out, and with the type that they lack.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_core::DynamicObject;
use kube_core::metadata::PartialObjectMeta;

use proptest::prelude::*;
use serde::Deserialize as _;
use serde_json::Value;

use reeve_client::json::{self, Trimming};

use super::{Compact, Decoding, Form, Stored};
use crate::sample::{any_path, any_value, cases};

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"n","uid":"u",
    "resourceVersion":"5","labels":{"managedFields":"kept"},"managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}],
    "annotations":{"a":"b"}},"spec":{"containers":[{"name":"c","env":[{"name":"managedFields"}]}]}}"#;

fn read<S: Form>(document: &str, decoding: &Decoding) -> S {
    decoding.read(document).unwrap()
}

#[test]
fn managed_fields_are_left_out_and_nothing_else() {
    let pod: Pod = read(POD, &Decoding::default());
    let mut whole: Pod = serde_json::from_str(POD).unwrap();
    assert!(whole.metadata.managed_fields.is_some());
    assert_ne!(pod, whole);
    whole.metadata.managed_fields = None;
    assert_eq!(pod, whole);
}

#[test]
fn untyped_and_metadata_only_objects_are_trimmed_too() {
    let object: DynamicObject = read(POD, &Decoding::default());
    assert!(object.metadata.managed_fields.is_none());
    assert_eq!(
        object.data["spec"]["containers"][0]["env"][0]["name"],
        "managedFields"
    );
    let partial: PartialObjectMeta<Pod> = read(POD, &Decoding::default());
    assert!(partial.metadata.managed_fields.is_none());
    assert_eq!(partial.metadata.name.as_deref(), Some("p"));
}

#[test]
fn a_missing_type_is_put_in_and_a_given_one_kept() {
    let decoding = Decoding::of("v1", "ConfigMap");
    let object: DynamicObject = read(r#"{"metadata":{"name":"c"}}"#, &decoding);
    let types = object.types.unwrap();
    assert_eq!(
        (types.api_version.as_str(), types.kind.as_str()),
        ("v1", "ConfigMap")
    );
    let typed: ConfigMap = read(r#"{"metadata":{"name":"c"},"data":{"a":"b"}}"#, &decoding);
    assert_eq!(typed.data.unwrap()["a"], "b");
    let object: DynamicObject = read(POD, &decoding);
    assert_eq!(object.types.unwrap().kind, "Pod");
}

#[test]
fn an_object_that_says_it_is_another_is_refused_where_that_is_asked_for() {
    for (version, kind, reads) in [
        ("v1", "Pod", true),
        ("v1", "ConfigMap", false),
        ("v2", "Pod", false),
    ] {
        let decoding = Decoding::of(version, kind).guarded();
        let dynamic = decoding.read::<DynamicObject>(POD).map(|_| ());
        let compact = decoding.read::<Compact<Pod>>(POD).map(|_| ());
        for read in [dynamic, compact] {
            let error = read.map_err(|error| json::redacted(&error));
            assert_eq!(error.is_ok(), reads, "{version} {kind}: {error:?}");
            let expected = if version == "v1" { kind } else { version };
            assert!(error.err().is_none_or(|error| {
                error.starts_with(&format!("invalid type, expected {expected} at line"))
            }));
        }
        let typeless = r#"{"metadata":{"name":"p"}}"#;
        assert!(decoding.read::<DynamicObject>(typeless).is_ok());
        assert!(decoding.read::<Compact<Pod>>(typeless).is_ok());
    }
}

#[test]
fn an_empty_type_and_null_are_as_a_missing_one() {
    let types = |object: &DynamicObject| {
        let types = object.types.clone().unwrap();
        format!("{} {}", types.api_version, types.kind)
    };
    let decoding = Decoding::of("v1", "ConfigMap");
    for decoding in [decoding.clone(), decoding.guarded()] {
        for (version, kind) in [("null", "null"), (r#""""#, r#""""#), (r#""v1""#, "null")] {
            let document = format!(
                r#"{{"apiVersion":{version},"kind":{kind},"metadata":{{"name":"c"}},"data":{{"a":"b"}}}}"#
            );
            let typed: ConfigMap = read(&document, &decoding);
            assert_eq!(typed.data.unwrap()["a"], "b");
            let dynamic: DynamicObject = read(&document, &decoding);
            assert_eq!(types(&dynamic), "v1 ConfigMap", "{document}");
            let compact: Compact<ConfigMap> = read(&document, &decoding);
            let text = compact.json();
            assert_eq!(types(&compact.dynamic().unwrap()), "v1 ConfigMap", "{text}");
            assert_eq!(text.matches("kind").count(), 1, "{text}");
        }
    }
}

#[test]
fn a_type_may_be_read_as_any_type_that_a_text_is_read_as() {
    #[derive(serde::Deserialize, Debug, PartialEq)]
    enum Kind {
        Pod,
    }
    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Version(String);
    #[derive(serde::Deserialize, Debug, PartialEq)]
    #[serde(rename_all = "camelCase")]
    struct Types {
        api_version: Option<Version>,
        kind: Kind,
    }
    let types = Types {
        api_version: Some(Version("v1".to_owned())),
        kind: Kind::Pod,
    };
    let decoding = Decoding::of("v1", "Pod");
    for decoding in [decoding.clone(), decoding.guarded()] {
        for document in [POD, "{}"] {
            let read = json::read(document, |reader| {
                Types::deserialize(reader.trimming(decoding.trimming()))
            });
            assert_eq!(read.unwrap(), types);
        }
    }
}

proptest! {
    #![proptest_config(cases(2000))]

    /// A document read without some paths is the document from which they are removed.
    #[test]
    fn what_is_skipped_and_nothing_else_is_missing(
        document in any_value(),
        paths in proptest::collection::vec(any_path(), 0..4),
    ) {
        let trimming = paths
            .iter()
            .fold(Trimming::default(), |trimming, path| trimming.skip(&path.skip()));
        let text = document.to_string();
        let read = json::read(&text, |reader| Value::deserialize(reader.trimming(&trimming)));
        let read = read.unwrap();
        let mut wanted = document;
        for path in &paths {
            path.leave_out(&mut wanted);
        }
        prop_assert_eq!(read, wanted);
    }
}

#[test]
fn paths_are_skipped_in_every_typed_form() {
    let decoding = [".spec.containers[*].env", ".metadata.annotations"]
        .iter()
        .fold(Decoding::default(), |decoding, path| {
            decoding.skip(&path.parse().unwrap())
        });
    let pod: Pod = read(POD, &decoding);
    let container = &pod.spec.as_ref().unwrap().containers[0];
    assert_eq!((container.name.as_str(), &container.env), ("c", &None));
    assert!(pod.metadata.annotations.is_none() && pod.metadata.labels.is_some());
    let object: DynamicObject = read(POD, &decoding);
    assert_eq!(
        object.data["spec"]["containers"][0],
        serde_json::json!({"name": "c"})
    );
    let partial: PartialObjectMeta<Pod> = read(POD, &decoding);
    assert!(partial.metadata.annotations.is_none());
}

#[test]
fn names_of_a_trimmed_object_are_read_as_what_the_type_takes_them_for() {
    #[derive(serde::Deserialize, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[serde(rename_all = "camelCase")]
    enum Word {
        One,
        Two,
    }
    fn agree<K: serde::de::DeserializeOwned + std::fmt::Debug + Ord>(document: &str) {
        // Both the object and its part are trimmed.
        let trimming = Trimming::default().skip(&".part.gone".parse().unwrap());
        type Maps<K> = std::collections::BTreeMap<String, std::collections::BTreeMap<K, u8>>;
        let whole = format!(r#"{{"part": {document}}}"#);
        let read = json::read(&whole, |reader| {
            Maps::<K>::deserialize(reader.trimming(&trimming))
        });
        match (read, serde_json::from_str::<Maps<K>>(&whole)) {
            (Ok(read), Ok(wanted)) => assert_eq!(read, wanted),
            (Err(_), Err(_)) => {}
            other => panic!("{document}: {other:?}"),
        }
    }
    for document in [
        r#"{"1": 1, "-2": 2}"#,
        r#"{"1": 1, "x": 2}"#,
        r#"{"true": 1, "false": 0}"#,
        r#"{"one": 1, "t\u0077o": 2}"#,
        r#"{"a": 1, "\u0062": 2, "": 3}"#,
        "{}",
    ] {
        agree::<String>(document);
        agree::<Box<str>>(document);
        agree::<i32>(document);
        agree::<bool>(document);
        agree::<Option<char>>(document);
        agree::<Word>(document);
    }
}

#[test]
fn null_metadata_and_escaped_keys_are_read() {
    let map: ConfigMap = read(
        r#"{"metadata":null,"\u0064ata":{"k":"v"}}"#,
        &Decoding::default(),
    );
    assert_eq!(map.data.unwrap()["k"], "v");
}

#[test]
fn a_type_that_refuses_a_field_that_was_added_leaves_the_document_where_it_was() {
    /// Refuses the fields that every object has.
    #[derive(serde::Deserialize, Debug, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Closed {
        a: u8,
    }
    /// Reads what does not fit as nothing.
    #[derive(Debug, PartialEq)]
    struct Lenient(Option<Closed>);
    impl<'de> serde::Deserialize<'de> for Lenient {
        fn deserialize<D: serde::Deserializer<'de>>(document: D) -> Result<Self, D::Error> {
            Ok(Self(Closed::deserialize(document).ok()))
        }
    }
    let trimming = Trimming::of("v1", "Closed");
    let error = json::read("\n{\"a\": 1} ", |reader| {
        Closed::deserialize(reader.trimming(&trimming))
    });
    assert_eq!(
        error.unwrap_err().to_string(),
        "unknown field `apiVersion`, expected `a` at line 2 column 8"
    );
    let lenient = |document: &str| {
        json::read(document, |reader| {
            Lenient::deserialize(reader.trimming(&trimming))
        })
    };
    assert_eq!(lenient("{\"a\": 1} ").unwrap(), Lenient(None));
    assert!(lenient("{\"a\": 1} }").is_err(), "the rest is read");
}
