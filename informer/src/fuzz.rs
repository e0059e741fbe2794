//! Bodies of fuzz targets: properties of any bytes that a server, or a proxy before it, may send.
//!
//! Each takes bytes and panics if a property does not hold. `fuzz/` runs them under cargo-fuzz; the tests here run
//! them on random bytes, and on damaged documents.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use k8s_openapi::api::core::v1::Secret;
use kube_core::DynamicObject;
use kube_core::metadata::PartialObjectMeta;

use crate::decode::{Frame, Undecodable, decode_frame, decode_list};
use crate::object::Compact;
use crate::object::Decoding;
use crate::object::{EntryReader, Form};
use reeve_client::compare;
use reeve_client::transport::{Encoding, Endpoint, Error, Splitter, from_answer};

/// The longest outline of an object that cannot be read, with its ellipsis.
const LONGEST_OUTLINE: usize = 515;

fn secrets() -> Decoding {
    Decoding::of("v1", "Secret")
}

/// Reads objects of either encoding.
fn reader<S: Form>() -> EntryReader<S> {
    let entries: EntryReader<S> = secrets().guarded().into();
    entries.accepts_protobuf(&Endpoint::of::<Secret>());
    entries
}

/// The lines of a body, and whether one was too long. Checks that no more is held than the longest line, and a length.
fn read(
    encoding: Encoding,
    frames: impl IntoIterator<Item = Bytes>,
    limit: usize,
) -> (Vec<Bytes>, bool) {
    let mut splitter = Splitter::new(encoding, limit);
    let mut found = Vec::new();
    for frame in frames {
        splitter.push(frame);
        loop {
            match splitter.next_line() {
                Ok(Some(line)) => found.push(line),
                Ok(None) => break,
                Err(_) => {
                    assert_eq!(splitter.held(), 0);
                    return (found, true);
                }
            }
        }
        assert!(splitter.held() <= limit + 4);
    }
    (found, false)
}

/// Frame splitting: a body has the same lines however it is cut, and at most one line is held. The first bytes set the
/// cuts and the longest line.
pub fn lines(input: &[u8]) {
    for line in cut(Encoding::Json, input) {
        assert!(!line.contains(&b'\n'));
    }
    cut(Encoding::Protobuf, input);
}

/// The lines of a body, the same for all cuts.
fn cut(encoding: Encoding, input: &[u8]) -> Vec<Bytes> {
    let Some((&[limit, cuts], rest)) = input.split_first_chunk() else {
        return Vec::new();
    };
    let (cuts, body) = rest.split_at(usize::from(cuts % 16).min(rest.len()));
    let limit = 8 + usize::from(limit);
    let whole = read(encoding, [Bytes::copy_from_slice(body)], limit);
    let mut frames = Vec::new();
    let mut left = body;
    for cut in cuts {
        let (frame, rest) = left.split_at(usize::from(*cut).min(left.len()));
        frames.push(Bytes::copy_from_slice(frame));
        left = rest;
    }
    frames.push(Bytes::copy_from_slice(left));
    assert_eq!(read(encoding, frames, limit), whole);
    let single = body.iter().map(|byte| Bytes::copy_from_slice(&[*byte]));
    assert_eq!(read(encoding, single, limit), whole);
    for line in &whole.0 {
        assert!(line.len() <= limit);
    }
    whole.0
}

fn check(object: &Undecodable) {
    assert!(object.outline.len() <= LONGEST_OUTLINE);
    assert!(!object.error.is_empty());
}

fn check_entry<S: Form>(entry: &Arc<S>) -> String {
    assert!(!entry.name().is_empty(), "an object has a name");
    assert_eq!(entry.key().name.as_ref(), entry.name());
    let text = format!("{} {}", entry.key(), entry.resource_version());
    // A view may fail, and never panics.
    let _ = (entry.typed().is_ok(), entry.metadata().is_ok());
    text
}

/// The content of a line of a watch: its type and its object.
fn summary<S: Form>(line: &[u8]) -> Option<(&'static str, String)> {
    summary_in::<S>(Encoding::Json, line, &secrets().into())
}

fn summary_in<S: Form>(
    encoding: Encoding,
    line: &[u8],
    entries: &EntryReader<S>,
) -> Option<(&'static str, String)> {
    let entry = |word, entry: Arc<S>| (word, check_entry(&entry));
    Some(match decode_frame::<S>(encoding, line, entries).ok()? {
        Frame::Added(object) => entry("added", object),
        Frame::Modified(object) => entry("modified", object),
        Frame::Deleted(object) => entry("deleted", object),
        Frame::Bookmark {
            resource_version,
            initial_events_end,
        } => (
            "bookmark",
            format!("{resource_version} {initial_events_end}"),
        ),
        Frame::Error(status) => {
            let error = Error::from_status(status);
            let _ = (
                error.to_string(),
                error.is_expired(),
                error.is_too_large_version(),
            );
            ("error", format!("{:?}", error.code()))
        }
        Frame::Undecodable { object, .. } => {
            check(&object);
            return None;
        }
        Frame::Unknown => ("unknown", String::new()),
    })
}

/// A line of a watch, bookmarks and errors among them: it is read or refused, and all types that can read it read the
/// same.
pub fn frame(line: &[u8]) {
    let all = [
        summary::<Secret>(line),
        summary::<Compact<Secret>>(line),
        summary::<DynamicObject>(line),
        summary::<PartialObjectMeta<Secret>>(line),
    ];
    let mut read = all.iter().flatten();
    if let Some(first) = read.next() {
        assert!(read.all(|other| other == first), "{all:?}");
    }
}

/// An event of protobuf: it is read or refused, all types that can read it read the same, and an object that is read
/// equals the one that is read from its JSON text.
pub fn protobuf(event: &[u8]) {
    let binary = Encoding::Protobuf;
    let all = [
        summary_in(binary, event, &reader::<Secret>()),
        summary_in(binary, event, &reader::<Compact<Secret>>()),
        summary_in(binary, event, &reader::<PartialObjectMeta<Secret>>()),
    ];
    let mut read = all.iter().flatten();
    if let Some(first) = read.next() {
        assert!(read.all(|other| other == first), "{all:?}");
    }
    let _ = decode_list::<Secret>(binary, event, &reader()).map(|page| {
        page.undecodable.iter().for_each(check);
    });
    let read = decode_frame::<Secret>(binary, event, &reader());
    let Ok(Frame::Added(object) | Frame::Modified(object) | Frame::Deleted(object)) = read else {
        return;
    };
    let event = reeve_wire::watch::Event::parse(event).expect("it was read");
    let object_of = reeve_wire::Envelope::parse(event.object).expect("it was read");
    let entries = reader::<Secret>();
    // Without managedFields, which may be damaged.
    let text = entries
        .protobuf()
        .and_then(|origin| origin.text(object_of.object));
    let text = text.expect("it was read");
    let line = format!(r#"{{"type":"ADDED","object":{text}}}"#);
    match decode_frame::<Secret>(Encoding::Json, line.as_bytes(), &reader()) {
        Ok(Frame::Added(same)) => assert_eq!(same, object),
        other => panic!("{other:?} of {line}"),
    }
}

/// The number of items of a list, readable or not, with its version and token; `None` if it is refused.
fn counted<S: Form>(body: &[u8]) -> Option<(usize, String, Option<String>)> {
    let page = decode_list::<S>(Encoding::Json, body, &secrets().into()).ok()?;
    let items = page.items.len() + page.undecodable.len();
    page.undecodable.iter().for_each(check);
    for item in &page.items {
        check_entry(item);
    }
    Some((items, page.resource_version, page.continue_token))
}

/// List splitting: a page is refused as a whole, or each of its items counts once, readable or not.
pub fn list(body: &[u8]) {
    let typed = counted::<Secret>(body);
    assert_eq!(typed, counted::<Compact<Secret>>(body));
    assert_eq!(typed, counted::<DynamicObject>(body));
    assert_eq!(typed, counted::<PartialObjectMeta<Secret>>(body));
}

/// Any document, as all kinds of types: the reader of informers reads it as serde_json does. The tests of
/// reeve-client run the same on random documents.
#[cfg(fuzzing)]
pub fn json(document: &[u8]) {
    if let Ok(document) = std::str::from_utf8(document) {
        reeve_client::json::agree::all(document);
    }
}

/// A refusal: the code is kept, and a body that is not a Status is not quoted. The first bytes are the code.
pub fn status(input: &[u8]) {
    let Some((code, body)) = input.split_first_chunk() else {
        return;
    };
    let Ok(code) = StatusCode::from_u16(400 + u16::from_be_bytes(*code) % 200) else {
        return;
    };
    let error = from_answer(code, None, body);
    assert!(error.code().is_some_and(|code| code != 0));
    assert!(!error.class().is_empty());
    let _ = (error.is_too_large_version(), error.retry_after());
    if serde_json::from_slice::<serde_json::Value>(body).is_err() {
        assert_eq!(error.code(), Some(code.as_u16()));
        let text = String::from_utf8_lossy(body);
        assert!(text.len() < 24 || !error.to_string().contains(&*text));
    }
}

/// Versions: the order is consistent where there is one. Three texts, separated by a zero byte.
pub fn versions(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut texts = text.split('\0');
    let [a, b, c] = [(); 3].map(|()| texts.next().unwrap_or_default());
    assert_eq!(compare(a, b), compare(b, a).map(Ordering::reverse));
    assert_eq!(compare(a, a), Some(Ordering::Equal));
    if let (Some(one), Some(two)) = (compare(a, b), compare(b, c))
        && (one == two || two == Ordering::Equal)
    {
        assert_eq!(compare(a, c), Some(one));
    }
}

/// A valid object is read unchanged, alone and in a list. Texts, separated by a zero byte, are its fields.
pub fn round_trip(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut texts = text.split('\0');
    let mut next = || texts.next().unwrap_or_default().to_owned();
    let mut secret = Secret::default();
    secret.metadata.name = Some(format!("n{}", next()));
    secret.metadata.namespace = Some(format!("n{}", next()));
    secret.metadata.resource_version = Some(next());
    secret.metadata.uid = Some(next());
    secret.metadata.labels = Some([(next(), next())].into());
    secret.string_data = Some([(next(), next())].into());
    let Ok(document) = serde_json::to_value(&secret) else {
        panic!("every Secret is JSON");
    };
    let line = serde_json::json!({"type": "MODIFIED", "object": document}).to_string();
    match decode_frame::<Secret>(Encoding::Json, line.as_bytes(), &secrets().into()) {
        Ok(Frame::Modified(read)) => assert_eq!(*read, secret),
        other => panic!("{other:?}"),
    }
    let list = serde_json::json!({
        "kind": "SecretList", "metadata": {"resourceVersion": "1"}, "items": [document, document],
    });
    let list = list.to_string();
    match decode_list::<Secret>(Encoding::Json, list.as_bytes(), &secrets().into()) {
        Ok(page) => assert_eq!(page.items, [secret.clone(), secret].map(Arc::new)),
        Err(error) => panic!("{error}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::cases;

    /// The first inputs of the targets, also under cargo-fuzz: `testdata/seeds`.
    const SEEDS: [&str; 8] = [
        include_str!("../testdata/seeds/added.json"),
        include_str!("../testdata/seeds/bookmark.json"),
        include_str!("../testdata/seeds/compacted.json"),
        include_str!("../testdata/seeds/error.json"),
        include_str!("../testdata/seeds/initial-events-end.json"),
        include_str!("../testdata/seeds/list.json"),
        include_str!("../testdata/seeds/table.json"),
        include_str!("../testdata/seeds/too-large.json"),
    ];

    fn all(input: &[u8]) {
        for target in [lines, frame, list, status, versions, round_trip, protobuf] {
            target(input);
        }
    }

    /// Whole events of protobuf.
    fn events() -> Vec<Vec<u8>> {
        let secret = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
            "name": "s", "namespace": "n", "uid": "u", "resourceVersion": "5",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b", "c": "d"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "o"}],
            "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}}],
        }, "data": {"k": "dg=="}, "immutable": true, "type": "Opaque"});
        let bookmark = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
            "resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"},
        }});
        let events = [("ADDED", &secret), ("BOOKMARK", &bookmark)].map(|(kind, object)| {
            let body = reeve_wire::to_vec(object).unwrap();
            let object = reeve_wire::Envelope::parse(&body).unwrap().object;
            reeve_wire::watch::frame(kind, "v1", "Secret", object)[4..].to_vec()
        });
        let body = reeve_wire::to_vec(&secret).unwrap();
        let items = [reeve_wire::Envelope::parse(&body).unwrap().object];
        let metadata = serde_json::json!({"resourceVersion": "7", "continue": "abc"});
        let list = reeve_wire::encode_list("v1", "SecretList", &metadata, &items).unwrap();
        events.into_iter().chain([list]).collect()
    }

    #[test]
    fn the_seeds_match_their_names() {
        assert!(matches!(
            summary::<Secret>(SEEDS[0].as_bytes()),
            Some(("added", _))
        ));
        assert!(
            matches!(summary::<Secret>(SEEDS[1].as_bytes()), Some(("bookmark", text)) if text == "9 false")
        );
        assert!(from_answer(StatusCode::GONE, None, SEEDS[2].as_bytes()).is_expired());
        assert!(
            matches!(summary::<Secret>(SEEDS[3].as_bytes()), Some(("error", text)) if text == "Some(410)")
        );
        assert!(
            matches!(summary::<Secret>(SEEDS[4].as_bytes()), Some(("bookmark", text)) if text == "9 true")
        );
        assert!(matches!(
            counted::<Secret>(SEEDS[5].as_bytes()),
            Some((3, _, Some(_)))
        ));
        assert_eq!(counted::<Secret>(SEEDS[6].as_bytes()), None);
        let [secret, bookmark, list] = &events()[..] else {
            panic!("three");
        };
        let read = |event| summary_in::<Secret>(Encoding::Protobuf, event, &reader());
        assert!(matches!(read(secret), Some(("added", _))));
        assert!(matches!(read(bookmark), Some(("bookmark", text)) if text == "9 true"));
        let page = decode_list::<Secret>(Encoding::Protobuf, list, &reader()).unwrap();
        assert_eq!(page.items.len(), 1);
        assert!(
            from_answer(StatusCode::GATEWAY_TIMEOUT, None, SEEDS[7].as_bytes())
                .is_too_large_version()
        );
    }

    proptest! {
        #![proptest_config(cases(1000))]

        #[test]
        fn any_bytes_hold(input in proptest::collection::vec(any::<u8>(), 0..200)) {
            all(&input);
        }

        #[test]
        fn lines_of_few_letters_hold(input in "[a\n ]{0,80}", head in any::<[u8; 10]>()) {
            let mut input = input.into_bytes();
            input.splice(0..0, head);
            lines(&input);
        }

        /// Events of protobuf with some bytes changed.
        #[test]
        fn damaged_events_of_protobuf_hold(
            of in 0..3_usize,
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 0..4),
        ) {
            let mut input = events()[of].clone();
            for (place, byte, how) in damage {
                let place = place.index(input.len());
                match how {
                    0 => input[place] = byte,
                    1 => input.insert(place, byte),
                    _ => {
                        input.remove(place);
                    }
                }
            }
            protobuf(&input);
        }

        #[test]
        fn versions_hold(input in "[0-9a]{0,22}\0[0-9a]{0,22}\0[0-9a]{0,22}") {
            versions(input.as_bytes());
        }

        /// Damaged documents, and documents of pieces of others.
        #[test]
        fn damaged_documents_hold(
            (one, two) in (0..SEEDS.len(), 0..SEEDS.len()),
            (end, begin) in any::<(prop::sample::Index, prop::sample::Index)>(),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 0..5),
        ) {
            let (one, two) = (SEEDS[one].as_bytes(), SEEDS[two].as_bytes());
            let mut input = one.to_vec();
            if damage.len() > 3 {
                input.truncate(end.index(one.len()));
                input.extend_from_slice(&two[begin.index(two.len())..]);
            }
            for (place, byte, how) in damage {
                let place = place.index(input.len().max(1)).min(input.len().saturating_sub(1));
                match how {
                    0 if !input.is_empty() => input[place] = byte,
                    1 => input.insert(place, byte),
                    2 if !input.is_empty() => {
                        input.remove(place);
                    }
                    _ => {
                        let text = br#""metadata":{"name":7},"#;
                        input.splice(place..place, text.iter().copied());
                    }
                }
            }
            all(&input);
        }
    }
}
