//! The stream of a watch: frames of a length and an event.
//!
//! A frame is four bytes of length, highest first, and a `WatchEvent` without an envelope: its type, and the whole body of
//! an object, in its envelope.

use std::borrow::Cow;

use crate::encode;
use crate::error::Cause;
use crate::fields::{Fields, Wire, lossy};

/// The number of bytes in front of an event.
const HEAD: usize = 4;

/// An event of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub kind: Cow<'a, str>,
    /// The body of the object, with its envelope.
    pub object: &'a [u8],
}

// === impl Event ===

impl<'a> Event<'a> {
    /// Reads an event, which [`split`] returned.
    ///
    /// # Errors
    /// For bytes that are not such a message.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Cause> {
        let mut event = Self::default();
        let mut fields = Fields::new(bytes, "WatchEvent");
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, Wire::Bytes(text)) => event.kind = lossy(text),
                (2, Wire::Bytes(object)) => event.object = raw(object)?,
                (1 | 2, other) => {
                    return Err(Cause::WrongType {
                        found: other.number(),
                        field: if number == 1 { "Type" } else { "Object" }.to_owned(),
                    });
                }
                _ => {}
            }
        }
        Ok(event)
    }
}

/// The content of a `RawExtension`.
fn raw(bytes: &[u8]) -> Result<&[u8], Cause> {
    let mut raw: &[u8] = b"";
    let mut fields = Fields::new(bytes, "RawExtension");
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Wire::Bytes(bytes)) => raw = bytes,
            (1, other) => {
                return Err(Cause::WrongType {
                    found: other.number(),
                    field: "Raw".to_owned(),
                });
            }
            _ => {}
        }
    }
    Ok(raw)
}

/// Takes the first frame off `stream`, and returns the bytes of its event. `None`: the frame is not whole yet.
///
/// # Errors
/// For a frame of more than `limit` bytes.
pub fn split<'a>(stream: &mut &'a [u8], limit: usize) -> Result<Option<&'a [u8]>, Cause> {
    let Some((head, rest)) = stream.split_first_chunk::<HEAD>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
    if length > limit {
        return Err(Cause::Frame { length, limit });
    }
    let Some((event, rest)) = rest.split_at_checked(length) else {
        return Ok(None);
    };
    *stream = rest;
    Ok(Some(event))
}

/// Writes the frame of an event: its type, and the message of its object, which gets an envelope.
#[must_use]
pub fn frame(event: &str, api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    encode::frame(event, api_version, kind, object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Envelope;

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let frames = [
            frame("ADDED", "v1", "Pod", b"one"),
            frame("BOOKMARK", "apps/v1", "Deployment", &[0; 300]),
        ];
        let stream = frames.concat();
        let mut rest = stream.as_slice();
        let event = Event::parse(split(&mut rest, 1000).unwrap().unwrap()).unwrap();
        let object = Envelope::parse(event.object).unwrap();
        assert_eq!(
            (&*event.kind, &*object.kind, object.object),
            ("ADDED", "Pod", &b"one"[..])
        );
        let event = Event::parse(split(&mut rest, 1000).unwrap().unwrap()).unwrap();
        assert!(rest.is_empty());
        let object = Envelope::parse(event.object).unwrap();
        assert_eq!(
            (&*event.kind, &*object.api_version),
            ("BOOKMARK", "apps/v1")
        );
        assert_eq!(object.object, [0; 300]);
    }

    #[test]
    fn a_frame_that_is_not_whole_waits_for_the_rest() {
        let whole = frame("ADDED", "v1", "Pod", b"one");
        for length in 0..whole.len() {
            assert_eq!(split(&mut &whole[..length], 1000), Ok(None));
        }
        let limit = whole.len() - HEAD - 1;
        let length = limit + 1;
        let cause = split(&mut whole.as_slice(), limit).unwrap_err();
        assert_eq!(cause, Cause::Frame { length, limit });
    }

    #[test]
    fn an_event_of_other_types_is_refused() {
        assert!(Event::parse(&[1 << 3, 1]).is_err());
        assert!(Event::parse(&[2 << 3, 1]).is_err());
        assert!(Event::parse(&[2 << 3 | 2, 2, 1 << 3, 1]).is_err());
        assert_eq!(Event::parse(b""), Ok(Event::default()));
    }
}
