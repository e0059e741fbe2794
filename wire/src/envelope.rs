//! The envelope: four bytes, then a message with the kind and the bytes of the object (`runtime.Unknown`).

use std::borrow::Cow;

use serde::Deserialize;

use crate::decode::Deserializer;
use crate::error::{Cause, Error};
use crate::fields::{Fields, Wire, lossy};
use crate::limits::Limits;
use crate::table::Message;

/// The prefix of every body.
pub const PREFIX: &[u8] = b"k8s\0";

/// A body: the kind, and the bytes of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Group and version, such as `apps/v1`; empty if the body has none.
    pub api_version: Cow<'a, str>,
    /// The kind; empty if the body has none.
    pub kind: Cow<'a, str>,
    /// The message of the object.
    pub object: &'a [u8],
}

// === impl Envelope ===

impl<'a> Envelope<'a> {
    /// Reads the envelope of a body.
    ///
    /// # Errors
    /// For a body without the prefix, and for one that is not such a message.
    pub fn parse(body: &'a [u8]) -> Result<Self, Cause> {
        if body.is_empty() {
            return Err(Cause::Empty);
        }
        let message = body.strip_prefix(PREFIX).ok_or(Cause::Prefix)?;
        if message.is_empty() {
            return Err(Cause::EmptyBody);
        }
        Self::read(message)
    }

    /// Sets an empty group version, and an empty kind.
    pub fn set_missing(&mut self, api_version: &'a str, kind: &'a str) {
        if self.api_version.is_empty() {
            self.api_version = Cow::Borrowed(api_version);
        }
        if self.kind.is_empty() {
            self.kind = Cow::Borrowed(kind);
        }
    }

    /// The description of the kind.
    ///
    /// # Errors
    /// For a kind that is not in the table.
    pub fn message(&self) -> Result<&'static Message, Cause> {
        Message::of(&self.api_version, &self.kind).ok_or_else(|| Cause::UnknownKind {
            api_version: self.api_version.clone().into_owned(),
            kind: self.kind.clone().into_owned(),
        })
    }

    /// Decodes the object, with `apiVersion` and `kind`.
    ///
    /// # Errors
    /// For a kind that is not in the table, for an invalid object, and for one beyond the limits.
    pub fn decode<T: Deserialize<'a>>(&self, limits: Limits) -> Result<T, Error> {
        let mut deserializer = Deserializer::new(self.message()?, self.object)
            .with_limits(limits)
            .with_type(self.api_version.clone(), self.kind.clone());
        T::deserialize(&mut deserializer)
    }

    fn read(bytes: &'a [u8]) -> Result<Self, Cause> {
        let mut envelope = Self::default();
        let mut fields = Fields::new(bytes, "Unknown");
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, Wire::Bytes(bytes)) => envelope.read_type(bytes)?,
                (2, Wire::Bytes(bytes)) => envelope.object = bytes,
                (1, _) => return Err(wrong_type(value, "TypeMeta")),
                (2, _) => return Err(wrong_type(value, "Raw")),
                // contentEncoding and contentType are empty for objects.
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &'a [u8]) -> Result<(), Cause> {
        let mut fields = Fields::new(bytes, "TypeMeta");
        while let Some((number, value)) = fields.next()? {
            let (field, name) = match number {
                1 => (&mut self.api_version, "APIVersion"),
                2 => (&mut self.kind, "Kind"),
                _ => continue,
            };
            let Wire::Bytes(text) = value else {
                return Err(wrong_type(value, name));
            };
            *field = lossy(text);
        }
        Ok(())
    }
}

fn wrong_type(found: Wire<'_>, field: &str) -> Cause {
    Cause::WrongType {
        found: found.number(),
        field: field.to_owned(),
    }
}

/// Decodes a body, with the default [`Limits`].
///
/// # Errors
/// For a body that is not such an object, and for a kind that is not in the table.
pub fn from_slice<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Error> {
    Envelope::parse(body)?.decode(Limits::default())
}
