//! Equality with client-go on its own objects.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use reeve_wire::{Envelope, Message, encode, envelope, from_slice, to_vec};
use serde_json::Value;

/// What client-go wrote, what it read from that, and what it writes of that again, by `tools/protobuf`.
const CORPUS: &str = include_str!("../testdata/corpus.txt");

/// The table; its first lines name the kinds.
const TABLE: &str = include_str!("../../src/table.txt");

pub struct Sample {
    pub title: &'static str,
    pub body: Vec<u8>,
    pub json: &'static str,
    /// What client-go writes of the JSON.
    pub canonical: Vec<u8>,
}

pub fn corpus() -> &'static [Sample] {
    static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(samples);
    &SAMPLES
}

fn samples() -> Vec<Sample> {
    let lines: Vec<&str> = CORPUS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let sample = |record: &[&'static str]| {
        let body = BASE64.decode(record[1]).unwrap();
        let canonical = match record[3] {
            "=" => body.clone(),
            other => BASE64.decode(other).unwrap(),
        };
        Sample {
            title: record[0],
            body,
            json: record[2],
            canonical,
        }
    };
    lines.chunks(4).map(sample).collect()
}

/// Every kind of the table, as `apiVersion kind`.
fn kinds() -> Vec<&'static str> {
    let lines = TABLE.lines().filter_map(|line| line.strip_prefix("= "));
    lines.map(|line| line.rsplit_once(' ').unwrap().0).collect()
}

#[test]
fn objects_of_every_kind_are_read_as_client_go_reads_them() {
    for sample in corpus() {
        let expected: Value = serde_json::from_str(sample.json).unwrap();
        let read = from_slice(&sample.body);
        let read: Value = read.unwrap_or_else(|error| panic!("{}: {error}", sample.title));
        compare(sample.title, &read, &expected, "");
    }
}

#[test]
fn objects_of_every_kind_are_written_as_client_go_writes_them() {
    for sample in corpus() {
        let object: Value = serde_json::from_str(sample.json).unwrap();
        let written = to_vec(&object).unwrap_or_else(|error| panic!("{}: {error}", sample.title));
        if written != sample.canonical {
            // The first difference as JSON is easier to read; equal JSON differs in zeros.
            let one: Value = from_slice(&written).unwrap();
            compare(
                sample.title,
                &one,
                &from_slice(&sample.canonical).unwrap(),
                "",
            );
            panic!("{}:\n{written:?}\n{:?}", sample.title, sample.canonical);
        }
    }
}

#[test]
fn the_corpus_has_every_kind_of_the_table() {
    let corpus = corpus();
    for kind in kinds() {
        let (api_version, name) = kind.split_once(' ').unwrap();
        if name.ends_with("List")
            && Message::of(api_version, name.trim_end_matches("List")).is_some()
        {
            continue;
        }
        for filling in ["empty", "zeros", "full", "random"] {
            let title = format!("{kind} {filling}");
            assert!(corpus.iter().any(|sample| sample.title == title), "{title}");
        }
    }
}

#[test]
fn a_list_of_every_kind_has_metadata_and_items() {
    let corpus = corpus();
    let mut lists = 0;
    for kind in kinds() {
        let (api_version, name) = kind.split_once(' ').unwrap();
        let Some(item) = name.strip_suffix("List") else {
            continue;
        };
        lists += 1;
        let title = format!("{api_version} {item} random");
        let sample = corpus.iter().find(|sample| sample.title == title);
        let sample = sample.unwrap_or_else(|| panic!("{title}"));
        let parsed = Envelope::parse(&sample.canonical).unwrap();
        let metadata = serde_json::json!({"resourceVersion": "7"});
        let items = [parsed.object, parsed.object];
        let written = reeve_wire::encode_list(api_version, name, &metadata, &items).unwrap();
        let list: Value = from_slice(&written).unwrap();
        assert_eq!(list["metadata"], metadata, "{kind}");
        let mut expected: Value = from_slice(&sample.canonical).unwrap();
        for name in ["apiVersion", "kind"] {
            expected.as_object_mut().unwrap().remove(name);
        }
        compare(
            kind,
            &list["items"],
            &serde_json::json!([expected, expected]),
            "",
        );
        // The same as the list as a whole.
        assert_eq!(to_vec(&list).unwrap(), written, "{kind}");
    }
    assert!(lists > 50, "{lists}");
}

#[test]
fn an_envelope_around_a_message_is_the_body() {
    for sample in corpus() {
        let parsed = Envelope::parse(&sample.canonical).unwrap();
        let value: Value = serde_json::from_str(sample.json).unwrap();
        let message = encode(parsed.message().unwrap(), &value).unwrap();
        let body = envelope(&parsed.api_version, &parsed.kind, &message);
        assert_eq!(body, sample.canonical, "{}", sample.title);
    }
}

/// Names the first place that differs.
pub fn compare(title: &str, read: &Value, expected: &Value, path: &str) {
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
