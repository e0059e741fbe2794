//! Objects and lists in their envelopes.

use serde::Serialize;
use serde_json::Value;

use super::backward::Backward;
use super::message::Encoder;
use crate::envelope::PREFIX;
use crate::error::{Cause, Error};
use crate::fields::put_varint;
use crate::table::{Message, Shape};

/// The initial size of the buffer of one object; most objects fit.
const TYPICAL: usize = 2048;

/// Writes the message of an object, without an envelope. `apiVersion` and `kind` are not in it.
///
/// Members that are not in the description are left out. A `fieldsV1` that is a string and starts with `{` is taken as the
/// JSON of the fields, so that a writer of many objects need not parse it.
///
/// # Errors
/// For a value that is not an object, and for a member of another type than its field.
pub fn encode(message: &Message, object: &Value) -> Result<Vec<u8>, Error> {
    let mut buffer = Backward::with_capacity(TYPICAL);
    put(&mut buffer, message, object)?;
    Ok(buffer.into_vec())
}

fn put(buffer: &mut Backward, message: &Message, object: &Value) -> Result<(), Error> {
    let Some(members) = object.as_object() else {
        return Err(Cause::Custom("only an object has a message".to_owned()).into());
    };
    Encoder::new(buffer).members(message, Some(members))
}

/// Writes an object of any type in its envelope; the type must serialize with `apiVersion` and `kind`.
///
/// # Errors
/// For a type that is not serialized to a JSON object, for a kind that is not in the table, and for a member of another type
/// than its field.
pub fn to_vec<T: Serialize>(object: &T) -> Result<Vec<u8>, Error> {
    let object = serde_json::to_value(object).map_err(|error| Cause::Json(error.to_string()))?;
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let message = known(api_version, kind)?;
    Ok(envelope(api_version, kind, &encode(message, &object)?))
}

/// Writes a list in its envelope: its metadata as JSON, and the messages of its items.
///
/// # Errors
/// For a kind that is not in the table or is not a list, and for metadata of another type.
pub fn encode_list<I: AsRef<[u8]>>(
    api_version: &str,
    kind: &str,
    metadata: &Value,
    items: &[I],
) -> Result<Vec<u8>, Error> {
    let lengths = items.iter().map(|item| item.as_ref().len());
    let list = List::new(api_version, kind, metadata, lengths)?;
    let mut bytes = Vec::with_capacity(list.len());
    bytes.extend_from_slice(list.head());
    for item in items {
        bytes.extend_from_slice(&list.before_item(item.as_ref().len()));
        bytes.extend_from_slice(item.as_ref());
    }
    bytes.extend_from_slice(list.tail());
    Ok(bytes)
}

/// A list in its envelope without the messages of its items, for a writer that does not hold the whole list: the head; then each
/// item, after what stands [before it](List::before_item); then the tail.
#[derive(Clone, Debug)]
pub struct List {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// The number of the field of the items.
    number: u32,
    len: usize,
}

// === impl List ===

impl List {
    /// A list of items with these lengths, in bytes.
    ///
    /// # Errors
    /// For a kind that is not in the table or is not a list, and for metadata of another type.
    pub fn new(
        api_version: &str,
        kind: &str,
        metadata: &Value,
        lengths: impl Iterator<Item = usize>,
    ) -> Result<Self, Error> {
        let message = known(api_version, kind)?;
        let items_of = message.named("items");
        let Some(items_of) = items_of.filter(|field| field.shape == Shape::Repeated) else {
            return Err(Cause::Custom(format!("the kind {kind} is not a list")).into());
        };
        let number = items_of.number;
        let tag = varint_length(u64::from(number) << 3 | 2);
        let items: usize = lengths
            .map(|length| tag + varint_length(length as u64) + length)
            .sum();
        let (mut begin, mut end) = (Backward::with_capacity(256), Backward::with_capacity(8));
        tail(&mut end);
        let after_list = end.len();
        if let Some(field) = message.named("metadata") {
            // One kind has its metadata after its items.
            let buffer = match field.number < number {
                true => &mut begin,
                false => &mut end,
            };
            Encoder::new(buffer).field(field, Some(metadata))?;
        }
        let length = begin.len() + items + end.len() - after_list;
        // The list is the second field of the envelope.
        begin.varint(length as u64);
        begin.tag(2, 2);
        head(&mut begin, api_version, kind);
        let (head, tail) = (begin.into_vec(), end.into_vec());
        Ok(Self {
            len: head.len() + items + tail.len(),
            head,
            tail,
            number,
        })
    }

    /// The length of the whole list in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "an envelope is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The bytes before the first item.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The bytes before an item of this length.
    #[must_use]
    pub fn before_item(&self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8);
        put_varint(&mut bytes, u64::from(self.number) << 3 | 2);
        put_varint(&mut bytes, length as u64);
        bytes
    }

    /// The bytes after the last item.
    #[must_use]
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }
}

/// The bytes of a number in groups of seven bits.
fn varint_length(number: u64) -> usize {
    let bits = u64::BITS - (number | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Puts a message into its envelope.
#[must_use]
pub fn envelope(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let room = api_version.len() + kind.len() + 32;
    let mut buffer = Backward::with_capacity(object.len() + room);
    put_envelope(&mut buffer, api_version, kind, object);
    buffer.into_vec()
}

fn put_envelope(buffer: &mut Backward, api_version: &str, kind: &str, object: &[u8]) {
    tail(buffer);
    buffer.field(2, object);
    head(buffer, api_version, kind);
}

/// `contentEncoding` and `contentType`, both empty.
fn tail(buffer: &mut Backward) {
    buffer.field(4, b"");
    buffer.field(3, b"");
}

fn head(buffer: &mut Backward, api_version: &str, kind: &str) {
    let before = buffer.len();
    buffer.field(2, kind.as_bytes());
    buffer.field(1, api_version.as_bytes());
    buffer.close(1, before);
    buffer.put(PREFIX);
}

fn known(api_version: &str, kind: &str) -> Result<&'static Message, Error> {
    Message::of(api_version, kind).ok_or_else(|| {
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        Cause::UnknownKind { api_version, kind }.into()
    })
}

/// Puts an event of a watch into its frame: its type, and the message of its object in an envelope.
pub(crate) fn frame(kind_of_event: &str, api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let room = kind_of_event.len() + api_version.len() + kind.len() + 64;
    let mut buffer = Backward::with_capacity(object.len() + room);
    put_envelope(&mut buffer, api_version, kind, object);
    // The object is the field of a RawExtension.
    buffer.close(1, 0);
    buffer.close(2, 0);
    buffer.field(1, kind_of_event.as_bytes());
    let length = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
    buffer.put(&length.to_be_bytes());
    buffer.into_vec()
}
