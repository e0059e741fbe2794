//! Objects that are read directly, beside those that serde reads.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::{apps, batch, coordination, core, discovery};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;
use proptest::sample::Index;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Object;
use super::described::LEFT_TO_SERDE;
use crate::decode::Deserializer;
use crate::envelope::Envelope;
use crate::fields::{Fields, Wire, put_varint};
use crate::limits::Limits;
use crate::table::{Message, Shape, Table, Type};
use crate::trim::{Step, Trim};

/// An object of the corpus, of a kind that is read directly.
struct Sample {
    title: &'static str,
    /// What client-go wrote.
    body: Vec<u8>,
    /// As an encoder writes it, without the fields that are left to serde, and without times that Rust's types do not have.
    usual: Vec<u8>,
    /// [`read_both`] of its type.
    read: ReadBoth,
}

static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(|| {
    let text = include_str!("../../tests/testdata/corpus.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let lines: Vec<&str> = lines.collect();
    let sample = |record: &[&'static str]| {
        let title = record[0];
        let kind = title.rsplit_once(' ').unwrap().0;
        let (_, read) = KINDS.iter().find(|(known, _)| *known == kind)?;
        let body = BASE64.decode(record[1]).unwrap();
        let value: Value = crate::from_slice(&body).unwrap();
        let text = value.to_string().replace("\"9999-12-31T", "\"2026-12-31T");
        let mut value = serde_json::from_str(&text).unwrap();
        without_the_rest(title, &mut value);
        let usual = crate::to_vec(&value).unwrap();
        Some(Sample {
            title,
            body,
            usual,
            read: *read,
        })
    };
    lines.chunks(4).filter_map(sample).collect()
});

type ReadBoth = fn(&[u8], Option<&Trim>) -> bool;

thread_local! {
    /// The objects that were read last, one of each type, to be read over.
    static LAST: RefCell<HashMap<TypeId, Box<dyn Any>>> = RefCell::default();
}

/// Reads a body in both ways, and over the object of this type before it; returns whether it was read directly.
///
/// # Panics
/// If the results differ.
fn read_both<T>(body: &[u8], trim: Option<&Trim>) -> bool
where
    T: DeserializeOwned + PartialEq + Debug + 'static,
{
    let Ok(envelope) = Envelope::parse(body) else {
        return false;
    };
    let Ok(message) = envelope.message() else {
        return false;
    };
    let kind = (&*envelope.api_version, &*envelope.kind);
    let object = Object {
        message,
        bytes: envelope.object,
        limits: Limits::default(),
        kind: Some(kind),
        rule: trim.and_then(Trim::rule),
    };
    let directly: Option<T> = object.read();
    let mut deserializer = Deserializer::new(message, envelope.object)
        .with_type(envelope.api_version.clone(), envelope.kind.clone());
    if let Some(trim) = trim {
        deserializer = deserializer.with_trim(trim);
    }
    let by_serde = T::deserialize(&mut deserializer);
    if let Some(directly) = &directly {
        assert_eq!(by_serde.as_ref().unwrap(), directly);
    }
    let last = LAST.with_borrow_mut(|last| last.remove(&TypeId::of::<T>()));
    if let Some(mut place) = last.and_then(|last| last.downcast::<T>().ok()) {
        let over = object.read_over(&mut *place);
        assert_eq!(over.is_some(), directly.is_some());
        if over.is_some() {
            assert_eq!(Some(&*place), directly.as_ref());
        }
        let read = deserializer.read_over(&mut *place).map(|()| &*place);
        let text = |error: crate::Error| error.to_string();
        let expected = by_serde.as_ref().map_err(ToString::to_string);
        assert_eq!(read.map_err(text), expected);
    }
    let read = deserializer.read::<T>();
    if let Ok(read) = Deserializer::new(message, envelope.object).read::<T>() {
        // Without `trim`: it has more than what the next one leaves.
        LAST.with_borrow_mut(|last| last.insert(TypeId::of::<T>(), Box::new(read)));
    }
    assert_eq!(
        read.map_err(|error| error.to_string()),
        by_serde.map_err(|error| error.to_string())
    );
    directly.is_some()
}

/// [`read_both`] of each type.
const KINDS: &[(&str, ReadBoth)] = &[
    ("v1 Pod", read_both::<core::v1::Pod>),
    ("v1 Node", read_both::<core::v1::Node>),
    ("v1 Event", read_both::<core::v1::Event>),
    ("v1 Service", read_both::<core::v1::Service>),
    ("v1 Endpoints", read_both::<core::v1::Endpoints>),
    ("v1 ConfigMap", read_both::<core::v1::ConfigMap>),
    ("v1 Secret", read_both::<core::v1::Secret>),
    ("v1 Namespace", read_both::<core::v1::Namespace>),
    ("v1 ServiceAccount", read_both::<core::v1::ServiceAccount>),
    (
        "v1 PersistentVolume",
        read_both::<core::v1::PersistentVolume>,
    ),
    (
        "v1 PersistentVolumeClaim",
        read_both::<core::v1::PersistentVolumeClaim>,
    ),
    ("apps/v1 Deployment", read_both::<apps::v1::Deployment>),
    ("apps/v1 ReplicaSet", read_both::<apps::v1::ReplicaSet>),
    ("apps/v1 StatefulSet", read_both::<apps::v1::StatefulSet>),
    ("apps/v1 DaemonSet", read_both::<apps::v1::DaemonSet>),
    ("batch/v1 Job", read_both::<batch::v1::Job>),
    ("batch/v1 CronJob", read_both::<batch::v1::CronJob>),
    (
        "coordination.k8s.io/v1 Lease",
        read_both::<coordination::v1::Lease>,
    ),
    (
        "discovery.k8s.io/v1 EndpointSlice",
        read_both::<discovery::v1::EndpointSlice>,
    ),
];

/// Removes the fields that are left to serde.
fn without_the_rest(kind: &str, value: &mut Value) {
    if kind.starts_with("v1 Service ") {
        value["status"]
            .as_object_mut()
            .unwrap()
            .remove("conditions");
    }
    match value {
        Value::Object(members) => {
            for path in LEFT_TO_SERDE
                .iter()
                .filter(|path| !path.ends_with(".conditions"))
            {
                members.remove(path.rsplit('.').next().unwrap());
            }
            members
                .values_mut()
                .for_each(|value| without_the_rest("", value));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| without_the_rest("", item)),
        _ => {}
    }
}

#[test]
fn objects_that_encoders_write_are_read_directly_and_as_serde_reads_them() {
    let mut kinds = BTreeSet::new();
    for sample in &*SAMPLES {
        (sample.read)(&sample.body, None);
        assert!((sample.read)(&sample.usual, None), "{}", sample.title);
        kinds.insert(sample.title.rsplit_once(' ').unwrap().0);
    }
    assert_eq!(kinds.len(), KINDS.len());
}

/// A path to each part of a value: the names of members, and `[]` for the items of a list.
fn paths(value: &Value, before: &str, found: &mut Vec<String>) {
    let mut add = |name: &str, value: &Value| {
        let path = format!("{before}\0{name}");
        paths(value, &path, found);
        found.push(path);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| add(name, value)),
        Value::Array(items) => items.iter().take(1).for_each(|item| add("[]", item)),
        _ => {}
    }
}

#[test]
fn parts_are_left_out_as_serde_leaves_them_out() {
    let mut read_directly = 0;
    let mut read_of_copies = 0;
    let samples = SAMPLES.iter();
    for sample in samples.filter(|sample| sample.title.ends_with("random")) {
        let body = &sample.usual;
        let value: Value = crate::from_slice(body).unwrap();
        let mut found = Vec::new();
        paths(&value, "", &mut found);
        let message = Envelope::parse(body).unwrap().message().unwrap();
        for path in found {
            let mut trim = Trim::new(message);
            let steps = path.split('\0').skip(1);
            let step = |name| {
                if name == "[]" {
                    Step::Each
                } else {
                    Step::Field(name)
                }
            };
            if trim.skip(steps.map(step)) {
                assert!(
                    (sample.read)(body, Some(&trim)),
                    "{} {path:?}",
                    sample.title
                );
                read_directly += 1;
                let envelope = Envelope::parse(body).unwrap();
                let copy = trim.copy(envelope.object).unwrap();
                let copy = crate::envelope(&envelope.api_version, &envelope.kind, &copy);
                let is_read = (sample.read)(&copy, Some(&trim));
                read_of_copies += usize::from(is_read);
                // A list or a map without its parts stands behind other fields: such a copy is left to serde.
                let is_outermost = path.matches('\0').count() == 1;
                assert!(is_read || !is_outermost, "{} {path:?}", sample.title);
            }
        }
    }
    assert!(read_directly > 1000, "{read_directly}");
    assert!(
        read_of_copies * 10 > read_directly * 9,
        "{read_of_copies} of {read_directly}"
    );
}

/// What [`rewritten`] comes to in a message.
enum At {
    /// A field: its number and all its bytes.
    Field(u32, Vec<u8>),
    End,
}

/// A message and the messages in it, each of the parts that `edit` makes of its fields.
fn rewritten(
    message: &Message,
    bytes: &[u8],
    edit: &mut impl FnMut(&mut Vec<Vec<u8>>, At),
) -> Vec<u8> {
    let mut fields = Fields::new(bytes, message.name);
    let mut parts: Vec<Vec<u8>> = Vec::new();
    loop {
        let before = fields.rest();
        let Some((number, value)) = fields.next().unwrap() else {
            edit(&mut parts, At::End);
            return parts.concat();
        };
        let mut part = before[..before.len() - fields.rest().len()].to_vec();
        let field = message.field(number).map(|index| &message.fields[index]);
        if let (Wire::Bytes(inner), Some(field)) = (value, field)
            && let (Type::Message(index), true) = (field.of, field.shape != Shape::Map)
        {
            let inner = rewritten(Table::get().message(index), inner, edit);
            part.clear();
            put_varint(&mut part, u64::from(number) << 3 | 2);
            put_varint(&mut part, inner.len() as u64);
            part.extend(inner);
        }
        edit(&mut parts, At::Field(number, part));
    }
}

/// Reads a sample rewritten, in both ways; returns whether it was read directly.
fn read_rewritten(sample: &Sample, edit: &mut impl FnMut(&mut Vec<Vec<u8>>, At)) -> bool {
    let envelope = Envelope::parse(&sample.usual).unwrap();
    let object = rewritten(envelope.message().unwrap(), envelope.object, edit);
    let body = crate::envelope(&envelope.api_version, &envelope.kind, &object);
    (sample.read)(&body, None)
}

/// Reads a sample with its fields each at the place that `place` returns for the number of those before it; none for a
/// field that is removed.
fn read_reordered(sample: &Sample, place: &mut impl FnMut(usize) -> Option<usize>) {
    read_rewritten(sample, &mut |parts, at| {
        if let At::Field(_, part) = at
            && let Some(at) = place(parts.len())
        {
            parts.insert(at, part);
        }
    });
}

/// A field with zero as its value.
fn zero(number: u32, as_text: bool) -> Vec<u8> {
    let mut field = Vec::new();
    put_varint(
        &mut field,
        u64::from(number) << 3 | if as_text { 2 } else { 0 },
    );
    field.push(0);
    field
}

proptest! {
    #[test]
    fn fields_in_any_order_are_read_as_serde_reads_them(
        of in any::<Index>(),
        order in proptest::collection::vec(any::<usize>(), 1..50),
    ) {
        let mut order = order.into_iter().cycle();
        read_reordered(of.get(&SAMPLES), &mut |before| Some(order.next()? % (before + 1)));
    }

    #[test]
    fn objects_without_some_fields_are_read_as_serde_reads_them(
        of in any::<Index>(),
        removed in proptest::collection::vec(proptest::bool::weighted(0.1), 1..100),
    ) {
        let mut removed = removed.into_iter().cycle();
        let mut place = |before| (!removed.next()?).then_some(before);
        read_reordered(of.get(&SAMPLES), &mut place);
    }

    #[test]
    fn empty_values_of_another_wire_type_are_read_as_serde_reads_them(
        of in any::<Index>(),
        emptied in proptest::collection::vec((proptest::bool::weighted(0.2), any::<bool>()), 1..100),
    ) {
        let mut emptied = emptied.into_iter().cycle();
        read_rewritten(of.get(&SAMPLES), &mut |parts, at| {
            if let At::Field(number, part) = at {
                let (is_emptied, as_text) = emptied.next().unwrap();
                parts.push(if is_emptied { zero(number, as_text) } else { part });
            }
        });
    }

    #[test]
    fn fields_that_the_table_does_not_have_are_skipped(
        of in any::<Index>(),
        number in 1000_u32..2000,
        as_text in any::<bool>(),
    ) {
        let is_read = read_rewritten(of.get(&SAMPLES), &mut |parts, at| {
            parts.push(match at {
                At::Field(_, part) => part,
                At::End => zero(number, as_text),
            });
        });
        prop_assert!(is_read);
    }

    #[test]
    fn objects_with_some_bytes_changed_are_read_as_serde_reads_them(
        of in any::<Index>(),
        changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..5),
    ) {
        let sample = of.get(&SAMPLES);
        let mut body = sample.usual.clone();
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        (sample.read)(&body, None);
    }
}

#[test]
fn metadata_alone_is_read_directly() {
    for sample in &*SAMPLES {
        let envelope = Envelope::parse(&sample.usual).unwrap();
        let mut fields = Fields::new(envelope.object, "Object");
        let Some((1, Wire::Bytes(bytes))) = fields.next().unwrap() else {
            panic!("{}", sample.title);
        };
        let message = Table::get().find("meta.v1.ObjectMeta").unwrap();
        let object = Object {
            message,
            bytes,
            limits: Limits::default(),
            kind: None,
            rule: None,
        };
        let by_serde = ObjectMeta::deserialize(&mut Deserializer::new(message, bytes)).unwrap();
        assert_eq!(
            object.read::<ObjectMeta>(),
            Some(by_serde),
            "{}",
            sample.title
        );
        assert_eq!(object.read::<core::v1::Pod>(), None);
    }
}

#[test]
fn an_object_of_another_kind_or_beyond_a_limit_is_left_to_serde() {
    let message = Message::of("v1", "ConfigMap").unwrap();
    let object = Object {
        message,
        bytes: b"\x0a\x00",
        limits: Limits::default(),
        kind: Some(("v1", "ConfigMap")),
        rule: None,
    };
    let is_read = |object: Object<'_>| object.read::<core::v1::ConfigMap>().is_some();
    assert!(is_read(object));
    let of_another_kind = Object {
        kind: Some(("v1", "Secret")),
        ..object
    };
    let of_another_message = Object {
        message: Message::of("v1", "Secret").unwrap(),
        ..object
    };
    let with_few_values = Object {
        limits: Limits::default().values(1000),
        ..object
    };
    let with_little_depth = Object {
        limits: Limits::default().depth(10),
        ..object
    };
    for other in [
        of_another_kind,
        of_another_message,
        with_few_values,
        with_little_depth,
    ] {
        assert!(!is_read(other), "{:?} {:?}", other.kind, other.limits);
    }
}

#[test]
fn a_pod_that_is_read_over_its_former_state_keeps_its_memory() {
    let body = crate::to_vec(&serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "annotations": {"team": "shop"}},
        "spec": {"containers": [{"name": "web", "image": "nginx"}]},
    }));
    let body = body.unwrap();
    let envelope = Envelope::parse(&body).unwrap();
    let mut deserializer = Deserializer::new(envelope.message().unwrap(), envelope.object);
    let mut pod: core::v1::Pod = deserializer.read().unwrap();
    let places = |pod: &core::v1::Pod| {
        let spec = pod.spec.as_ref().unwrap();
        let annotations = pod.metadata.annotations.as_ref().unwrap();
        let (key, value) = annotations.first_key_value().unwrap();
        let texts = [
            spec.containers[0].name.as_ptr(),
            key.as_ptr(),
            value.as_ptr(),
        ];
        (spec.containers.as_ptr(), texts)
    };
    let (before, object) = (places(&pod), pod.clone());
    deserializer.read_over(&mut pod).unwrap();
    assert_eq!(places(&pod), before);
    assert_eq!(pod, object);
}
