//! Parts of objects that are left out.

use reeve_wire::{Deserializer, Envelope, Step, Trim};
use serde::Deserialize;
use serde_json::Value;

use crate::corpus::{compare, corpus};

/// One step of a path.
#[derive(Clone, Debug)]
enum Part {
    Field(String),
    Each,
}

/// Every path of a value, and one step beyond.
fn paths(value: &Value, before: &[Part], found: &mut Vec<Vec<Part>>) {
    let mut add = |part: Part, value: &Value| {
        let path = [before, &[part]].concat();
        found.push(path.clone());
        paths(value, &path, found);
    };
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                add(Part::Field(name.clone()), value);
            }
        }
        Value::Array(items) => {
            if let Some(item) = items.first() {
                add(Part::Each, item);
            }
        }
        _ => found.push([before, &[Part::Field("missing".to_owned())]].concat()),
    }
}

/// Leaves a part of a value out, as a reader of JSON does.
fn remove(value: &mut Value, path: &[Part]) {
    let Some((step, rest)) = path.split_first() else {
        return;
    };
    match (step, value) {
        (Part::Field(name), Value::Object(members)) if rest.is_empty() => {
            members.remove(name);
        }
        (Part::Field(name), Value::Object(members)) => {
            if let Some(member) = members.get_mut(name) {
                remove(member, rest);
            }
        }
        (Part::Each, Value::Array(items)) if rest.is_empty() => items.clear(),
        (Part::Each, Value::Array(items)) => items.iter_mut().for_each(|item| remove(item, rest)),
        _ => {}
    }
}

fn steps(path: &[Part]) -> impl Iterator<Item = Step<'_>> {
    path.iter().map(|part| match part {
        Part::Field(name) => Step::Field(name),
        Part::Each => Step::Each,
    })
}

fn read(envelope: &Envelope<'_>, bytes: &[u8], trim: &Trim) -> Value {
    let mut deserializer = Deserializer::new(envelope.message().unwrap(), bytes)
        .with_trim(trim)
        .with_type(&*envelope.api_version, &*envelope.kind);
    Value::deserialize(&mut deserializer).unwrap()
}

#[test]
fn every_part_of_every_object_can_be_left_out_as_from_json() {
    let (mut tried, mut opaque) = (0, 0);
    for sample in corpus() {
        let envelope = Envelope::parse(&sample.body).unwrap();
        let message = envelope.message().unwrap();
        let whole: Value = reeve_wire::from_slice(&sample.body).unwrap();
        let mut all = Vec::new();
        for name in ["metadata", "spec", "status", "data", "webhooks", "template"] {
            paths(&whole[name], &[Part::Field(name.to_owned())], &mut all);
            all.push(vec![Part::Field(name.to_owned())]);
        }
        // Each object has another selection, and long schemas have thousands.
        let every = all.len() / 15 + 1;
        let first = sample.title.len() % every;
        for path in all.iter().skip(first).step_by(every) {
            let mut trim = Trim::new(message);
            if !trim.skip(steps(path)) {
                opaque += 1;
                continue;
            }
            let mut expected = whole.clone();
            remove(&mut expected, path);
            let title = format!("{} without {path:?}", sample.title);
            compare(
                &title,
                &read(&envelope, envelope.object, &trim),
                &expected,
                "",
            );
            let copy = trim.copy(envelope.object).unwrap();
            compare(&title, &read(&envelope, &copy, &trim), &expected, "");
            tried += 1;
        }
    }
    assert!(tried > 2000 && opaque > 10, "{tried} {opaque}");
}

#[test]
fn a_copy_has_no_bytes_of_what_was_left_out() {
    let object = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": "a", "annotations": {"secret.example.org": "hidden", "other": "shown"},
        "managedFields": [{"manager": "hidden"}],
    }, "spec": {"containers": [{"name": "c", "image": "shown", "env": [{"name": "hidden", "value": "hidden"}]}]}});
    let body = reeve_wire::to_vec(&object).unwrap();
    let envelope = Envelope::parse(&body).unwrap();
    let mut trim = Trim::new(envelope.message().unwrap());
    use Step::{Each, Field};
    for path in [
        &[Field("metadata"), Field("managedFields")][..],
        &[
            Field("metadata"),
            Field("annotations"),
            Field("secret.example.org"),
        ],
        &[Field("spec"), Field("containers"), Each, Field("env")],
    ] {
        assert!(trim.skip(path.iter().copied()));
    }
    let copy = trim.copy(envelope.object).unwrap();
    let has = |text: &[u8]| copy.windows(text.len()).any(|window| window == text);
    assert!(has(b"shown") && has(b"other") && !has(b"hidden"));
    let Value::Object(read) = read(&envelope, &copy, &trim) else {
        panic!("not an object");
    };
    assert_eq!(
        read["metadata"]["annotations"],
        serde_json::json!({"other": "shown"})
    );
}

#[test]
fn metadata_in_pieces_is_copied_in_one_piece() {
    let message = reeve_wire::Message::of("v1", "ConfigMap").unwrap();
    let trim = Trim::new(message);
    // A name, an entry of data, and a uid.
    let bytes = b"\x0a\x03\x0a\x01n\x12\x04\x0a\x02ab\x0a\x03\x2a\x01u";
    let copy = trim.copy(bytes).unwrap();
    assert_eq!(copy, b"\x0a\x06\x0a\x01n\x2a\x01u\x12\x04\x0a\x02ab");
}
