//! The envelope: four bytes, then a message with the kind and the bytes of the object.

use serde_json::Value;

use super::Error;
use super::message::Reader;
use super::table::Table;
use super::wire::{Fields, Wire};

/// The prefix of every body.
const PREFIX: &[u8] = b"k8s\0";

/// The content of the envelope.
#[derive(Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    object: &'a [u8],
}

/// Decodes a body to the equivalent JSON object, with `apiVersion` and `kind`; a missing one in the envelope is the
/// `expected` one.
///
/// # Errors
/// For a body that is not such an object, and for a kind that is not in the table.
pub(crate) fn decode(body: &[u8], expected: (&str, &str)) -> Result<Value, Error> {
    if body.is_empty() {
        return Err(Error::Empty);
    }
    let message = body.strip_prefix(PREFIX).ok_or(Error::Prefix)?;
    if message.is_empty() {
        return Err(Error::EmptyBody);
    }
    let envelope = Envelope::read(message)?;
    let or = |found: String, expected: &str| {
        if found.is_empty() {
            expected.to_owned()
        } else {
            found
        }
    };
    let api_version = or(envelope.api_version, expected.0);
    let kind = or(envelope.kind, expected.1);
    let Some(message) = Table::get().root(&api_version, &kind) else {
        return Err(Error::UnknownKind { api_version, kind });
    };
    let read = Reader::new(Table::get()).object(message, envelope.object);
    let mut object = match read {
        Ok(object) => object,
        Err(error) => {
            return Err(Error::Object {
                api_version,
                kind,
                error: Box::new(error),
            });
        }
    };
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

// === impl Envelope ===

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut envelope = Self::default();
        let mut fields = Fields::new(bytes, "Unknown");
        while let Some((number, value)) = fields.next()? {
            let name = match (number, value) {
                (1, Wire::Bytes(bytes)) => {
                    envelope.read_type(bytes)?;
                    continue;
                }
                (2, Wire::Bytes(bytes)) => {
                    envelope.object = bytes;
                    continue;
                }
                (1, _) => "TypeMeta",
                (2, _) => "Raw",
                // contentEncoding and contentType have no meaning in requests.
                _ => continue,
            };
            return Err(Error::WrongType {
                found: value.number(),
                field: name.to_owned(),
            });
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut fields = Fields::new(bytes, "TypeMeta");
        while let Some((number, value)) = fields.next()? {
            let (field, name) = match number {
                1 => (&mut self.api_version, "APIVersion"),
                2 => (&mut self.kind, "Kind"),
                _ => continue,
            };
            let Wire::Bytes(text) = value else {
                return Err(Error::WrongType {
                    found: value.number(),
                    field: name.to_owned(),
                });
            };
            *field = String::from_utf8_lossy(text).into_owned();
        }
        Ok(())
    }
}
