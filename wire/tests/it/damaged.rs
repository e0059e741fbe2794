//! Bytes that are cut off, changed or arbitrary.

use proptest::prelude::*;
use proptest::sample::Index;
use reeve_wire::{Envelope, to_vec, watch};
use serde_json::Value;

use crate::bytes::{decode, read};
use crate::corpus::corpus;

#[test]
fn a_body_that_is_cut_off_is_refused_or_whole_as_far_as_it_goes() {
    for sample in corpus().iter().filter(|sample| sample.body.len() < 500) {
        for length in 0..sample.body.len() {
            // The envelope has one length around the object.
            let cut = decode(&sample.body[..length]);
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
        let title = of.get(corpus).title;
        let words: Vec<&str> = title.split(' ').collect();
        let read = read(words[0], words[1], &bytes);
        if let Ok(value) = read {
            prop_assert!(serde_json::from_str::<Value>(&value.to_string()).is_ok());
        }
        let _ = decode(&bytes);
    }

    #[test]
    fn objects_with_some_bytes_changed_never_panic(
        of in any::<Index>(),
        changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let corpus = corpus();
        let sample = of.get(corpus);
        let mut bytes = sample.body.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(value) = decode(&bytes) {
            prop_assert!(serde_json::from_str::<Value>(&value.to_string()).is_ok());
        }
    }
    #[test]
    fn what_is_read_of_changed_bytes_is_written_so_that_it_reads_the_same(
        of in any::<Index>(),
        changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = of.get(corpus()).canonical.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(value) = decode(&bytes) {
            let written = to_vec(&value).unwrap();
            let again = decode(&written).unwrap();
            prop_assert_eq!(without_nulls(again), without_nulls(value));
        }
    }

    #[test]
    fn arbitrary_streams_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let mut rest = bytes.as_slice();
        if let Ok(Some(event)) = watch::split(&mut rest, 1000) {
            prop_assert_eq!(event.len() + rest.len() + 4, bytes.len());
            let _ = watch::Event::parse(event);
        }
        let _ = watch::Event::parse(&bytes);
        let _ = Envelope::parse(&bytes);
    }
}

/// A null member is a pointer to nothing: it is not written.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                kept.map(|(name, value)| (name, without_nulls(value)))
                    .collect(),
            )
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}
