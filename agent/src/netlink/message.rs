//! Messages and attributes as bytes.
//!
//! A message is a header of 16 bytes (length, type, flags, sequence, port) and a body; an attribute is a header of 4
//! bytes (length, type) and a value. Both begin at multiples of four. Headers are in the order of the machine, values of
//! nf_tables in network order.

use super::Error;

/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;
/// Without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const TYPE_MASK: u16 = 0x3fff;
const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;

/// Writes messages one after the other.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    /// Where the last message begins.
    last: usize,
}

/// A message that was received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
}

/// The attributes of a message or of a nested attribute. What does not fit ends the iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a>(&'a [u8]);

// === impl Writer ===

impl Writer {
    /// Writes one message; `body` writes its body.
    pub(crate) fn message(
        &mut self,
        kind: u16,
        flags: u16,
        sequence: u32,
        body: impl FnOnce(&mut Self),
    ) {
        let start = self.bytes.len();
        self.last = start;
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        body(self);
        self.align();
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// Sets `flags` in the last message too.
    pub(crate) fn flag_last(&mut self, flags: u16) {
        if let Some(place) = self.bytes.get_mut(self.last + 6..self.last + 8) {
            let old = u16::from_ne_bytes([place[0], place[1]]);
            place.copy_from_slice(&(old | flags).to_ne_bytes());
        }
    }

    /// Appends bytes that are no attribute: the fixed part of a body.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes an attribute.
    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.align();
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.align();
    }

    /// Writes a text with the zero at its end.
    pub(crate) fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes);
    }

    /// Writes a number of 32 bits in network order.
    pub(crate) fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_be_bytes());
    }

    /// Writes a nested attribute; `inner` writes what it holds, at most 65,531 bytes.
    pub(crate) fn nested(&mut self, kind: u16, inner: impl FnOnce(&mut Self)) {
        self.align();
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&(kind | NESTED).to_ne_bytes());
        inner(self);
        self.align();
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

// === impl Message ===

impl<'a> Message<'a> {
    /// The messages of one received datagram.
    ///
    /// # Errors
    /// [`Error::Malformed`] where a length does not fit.
    pub(crate) fn all(mut bytes: &'a [u8]) -> Result<Vec<Self>, Error> {
        let mut messages = Vec::new();
        while !bytes.is_empty() {
            let (message, rest) = Self::first(bytes).ok_or(Error::Malformed("a header"))?;
            messages.push(message);
            bytes = rest;
        }
        Ok(messages)
    }

    fn first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let length = usize::try_from(u32::from_ne_bytes(array(bytes, 0)?)).ok()?;
        let message = Self {
            kind: u16::from_ne_bytes(array(bytes, 4)?),
            flags: u16::from_ne_bytes(array(bytes, 6)?),
            sequence: u32::from_ne_bytes(array(bytes, 8)?),
            body: bytes.get(HEADER..length)?,
        };
        let next = length.next_multiple_of(4).min(bytes.len());
        Some((message, &bytes[next..]))
    }

    /// The attributes behind the `fixed` bytes of the body.
    pub(crate) fn attributes(&self, fixed: usize) -> Attributes<'a> {
        Attributes(self.body.get(fixed..).unwrap_or_default())
    }
}

// === impl Attributes ===

impl<'a> Attributes<'a> {
    /// The attributes in the value of a nested attribute.
    pub(crate) fn of(value: &'a [u8]) -> Self {
        Self(value)
    }

    /// The value of the first attribute of `kind`.
    pub(crate) fn get(mut self, kind: u16) -> Option<&'a [u8]> {
        self.find(|(found, _)| *found == kind)
            .map(|(_, value)| value)
    }

    /// The attributes in the first attribute of `kind`; none where it is missing.
    pub(crate) fn inside(self, kind: u16) -> Self {
        Self(self.get(kind).unwrap_or_default())
    }

    /// A text without the zero at its end.
    pub(crate) fn text(self, kind: u16) -> Option<&'a str> {
        self.get(kind).and_then(text)
    }

    /// A number of 32 bits in network order.
    pub(crate) fn number(self, kind: u16) -> Option<u32> {
        array(self.get(kind)?, 0).map(u32::from_be_bytes)
    }

    /// A number of 64 bits in network order.
    pub(crate) fn long(self, kind: u16) -> Option<u64> {
        array(self.get(kind)?, 0).map(u64::from_be_bytes)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16::from_ne_bytes(array(self.0, 0)?));
        let kind = u16::from_ne_bytes(array(self.0, 2)?) & TYPE_MASK;
        let value = self.0.get(ATTRIBUTE_HEADER..length)?;
        self.0 = &self.0[length.next_multiple_of(4).min(self.0.len())..];
        Some((kind, value))
    }
}

/// A text up to its first zero.
pub(crate) fn text(value: &[u8]) -> Option<&str> {
    let end = value
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(value.len());
    std::str::from_utf8(&value[..end]).ok()
}

fn array<const LENGTH: usize>(bytes: &[u8], at: usize) -> Option<[u8; LENGTH]> {
    bytes.get(at..at + LENGTH)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut writer = Writer::default();
        writer.message(7, 1, 40, |body| {
            body.raw(&[1, 0, 0, 0]);
            body.text(1, "ipblock");
            body.nested(2, |inner| {
                inner.number(1, 77);
                inner.attribute(2, &9_u64.to_be_bytes());
            });
        });
        writer.message(8, 1, 41, |body| body.raw(&[0; 4]));
        writer.flag_last(4);

        let messages = Message::all(writer.bytes()).unwrap();
        assert_eq!(messages.len(), 2);
        let (first, second) = (messages[0], messages[1]);
        assert_eq!((first.kind, first.flags, first.sequence), (7, 1, 40));
        assert_eq!(first.attributes(4).text(1), Some("ipblock"));
        let inside = first.attributes(4).inside(2);
        assert_eq!((inside.number(1), inside.long(2)), (Some(77), Some(9)));
        assert_eq!((second.kind, second.flags, second.sequence), (8, 5, 41));
    }

    proptest! {
        #[test]
        fn damaged_bytes_are_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(messages) = Message::all(&bytes) {
                for message in messages {
                    for (_, value) in message.attributes(4) {
                        let _ = (text(value), Attributes::of(value).count());
                    }
                    let _ = (message.attributes(0).number(1), message.attributes(0).long(1));
                }
            }
        }
    }
}
