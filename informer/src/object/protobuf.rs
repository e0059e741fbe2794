//! Objects in protobuf: [`ProtobufObject`], which a form reads, and the kind of the objects of one store.

use std::borrow::Cow;
use std::sync::Arc;

use reeve_client::json::Trimming;
use reeve_client::transport::Endpoint;
use reeve_wire::{Deserializer, Error, Fields, Message, Trim, Wire};
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;

use super::body::{Header, Span};
use super::decode_cache::DecodeCache;

/// The bytes of an object in protobuf, of a built-in kind.
#[derive(Clone, Copy, Debug)]
pub struct ProtobufObject<'de> {
    pub(super) bytes: &'de [u8],
    pub(super) origin: &'de Arc<Origin>,
    kind: &'de ProtobufKind,
}

/// The common parts of the objects that one watch reads in one encoding.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    pub(crate) cache: Arc<DecodeCache>,
    /// Of objects in protobuf.
    pub(super) protobuf: Option<ProtobufKind>,
}

/// The kind of objects in protobuf, and the parts of them that are not kept.
#[derive(Debug)]
pub(crate) struct ProtobufKind {
    api_version: Box<str>,
    kind: Box<str>,
    trim: Trim,
    /// The parts of `metadata` alone.
    metadata: Trim,
    /// Objects of another type are refused.
    guarded: bool,
}

/// The group version and the kind of metadata without the rest.
const METADATA_ONLY: (&str, &str) = ("meta.k8s.io/v1", "PartialObjectMetadata");

// === impl ProtobufObject ===

impl<'de> ProtobufObject<'de> {
    /// A serde deserializer of the object, with `apiVersion` and `kind`, and without the fields that the store does not
    /// keep.
    #[must_use]
    pub fn deserializer(&self) -> Deserializer<'de> {
        self.kind.deserializer(self.bytes)
    }

    /// The message of the object, without an envelope, with the fields that the store does not keep.
    #[must_use]
    pub fn bytes(&self) -> &'de [u8] {
        self.bytes
    }

    /// The message without the fields that the store does not keep.
    pub(super) fn trimmed(&self) -> Result<Vec<u8>, Error> {
        Ok(self.kind.trim.copy(self.bytes)?)
    }
}

// === impl Origin ===

impl Origin {
    /// Of objects in JSON.
    pub(crate) fn json(cache: Arc<DecodeCache>) -> Self {
        Self {
            cache,
            protobuf: None,
        }
    }

    /// Of objects in protobuf, if `endpoint` has a built-in kind, and protobuf describes every part that is not kept.
    pub(crate) fn protobuf(
        cache: Arc<DecodeCache>,
        endpoint: &Endpoint,
        trimming: &Trimming,
    ) -> Option<Self> {
        // It is one of the table, too.
        Message::of(&endpoint.api_version(), endpoint.kind())?;
        let (api_version, kind, guarded) = if endpoint.is_metadata_only() {
            (METADATA_ONLY.0.to_owned(), METADATA_ONLY.1, false)
        } else {
            (endpoint.api_version(), endpoint.kind(), true)
        };
        let mut origin = Self::of_kind(cache, &api_version, kind, trimming)?;
        if let Some(kind) = &mut origin.protobuf {
            kind.guarded = guarded;
        }
        Some(origin)
    }

    /// Of objects in protobuf of any kind of the table.
    pub(super) fn of_kind(
        cache: Arc<DecodeCache>,
        api_version: &str,
        kind: &str,
        trimming: &Trimming,
    ) -> Option<Self> {
        let trim = trimming.of_protobuf(Message::of(api_version, kind)?)?;
        let protobuf = ProtobufKind {
            metadata: trim.metadata()?,
            api_version: api_version.into(),
            kind: kind.into(),
            trim,
            guarded: false,
        };
        Some(Self {
            cache,
            protobuf: Some(protobuf),
        })
    }

    /// An object in protobuf of this kind.
    pub(crate) fn object<'de>(
        self: &'de Arc<Self>,
        bytes: &'de [u8],
    ) -> Option<ProtobufObject<'de>> {
        let kind = self.protobuf.as_ref()?;
        Some(ProtobufObject {
            bytes,
            origin: self,
            kind,
        })
    }

    /// Whether objects of this type are read by the kind.
    pub(crate) fn is_of(&self, api_version: &str, kind: &str) -> bool {
        let own = self.protobuf.as_ref();
        own.is_some_and(|own| *own.api_version == *api_version && *own.kind == *kind)
    }

    /// Whether objects of another type are refused.
    pub(crate) fn is_guarded(&self) -> bool {
        self.protobuf.as_ref().is_none_or(|kind| kind.guarded)
    }

    /// The JSON text of an object.
    pub(crate) fn text(&self, bytes: &[u8]) -> Option<String> {
        self.protobuf.as_ref()?.text(bytes)
    }
}

// === impl ProtobufKind ===

impl ProtobufKind {
    pub(super) fn deserializer<'a>(&'a self, bytes: &'a [u8]) -> Deserializer<'a> {
        Deserializer::new(self.trim.message(), bytes)
            .with_trim(&self.trim)
            .with_type(&*self.api_version, &*self.kind)
    }

    /// A deserializer of the bytes of `metadata`, or of some of its fields.
    pub(super) fn metadata<'a>(&'a self, bytes: &'a [u8]) -> Deserializer<'a> {
        Deserializer::new(self.metadata.message(), bytes).with_trim(&self.metadata)
    }

    /// The object as JSON text; `None` if its bytes are not a message of the kind.
    pub(super) fn text(&self, bytes: &[u8]) -> Option<String> {
        text(self.deserializer(bytes))
    }
}

/// An object as JSON text; `None` if it cannot be read.
pub(crate) fn text(mut object: Deserializer<'_>) -> Option<String> {
    let value = Value::deserialize(&mut object).ok()?;
    Some(value.to_string())
}

/// The numbers of fields of `ObjectMeta`, and of `metadata` in every object.
const METADATA: u32 = 1;
const NAME: u32 = 1;
const NAMESPACE: u32 = 3;
const UID: u32 = 5;
const RESOURCE_VERSION: u32 = 6;
const LABELS: u32 = 11;
const OWNER_REFERENCES: u32 = 13;

/// Finds the fields of the header in a message that begins with its `metadata`.
pub(super) fn header(whole: &[u8]) -> Result<Header, Error> {
    let mut header = Header::default();
    let mut fields = Fields::new(whole, "Object");
    let Some((METADATA, Wire::Bytes(metadata))) = fields.next()? else {
        return Ok(header);
    };
    let end = whole.len() - fields.rest().len();
    header.metadata = Span::between(end - metadata.len(), end);
    let mut fields = Fields::new(metadata, "ObjectMeta");
    loop {
        let begin = end - fields.rest().len();
        let Some((number, value)) = fields.next()? else {
            return Ok(header);
        };
        let after = end - fields.rest().len();
        let (place, is_text) = match number {
            NAME => (&mut header.name, true),
            NAMESPACE => (&mut header.namespace, true),
            UID => (&mut header.uid, true),
            RESOURCE_VERSION => (&mut header.resource_version, true),
            LABELS => (&mut header.labels, false),
            OWNER_REFERENCES => (&mut header.owner_references, false),
            _ => continue,
        };
        let Wire::Bytes(bytes) = value else {
            return Err(Error::custom("a field of metadata has another type"));
        };
        if is_text {
            if str::from_utf8(bytes).is_err() {
                return Err(Error::custom("a name in metadata is not text"));
            }
            *place = Span::between(after - bytes.len(), after);
        } else {
            if number == LABELS && !is_text_label(bytes) {
                return Err(Error::custom("a label is not text"));
            }
            // All of them, with their tags, and with what may be between them.
            let from = if *place == Span::default() {
                begin
            } else {
                place.from as usize
            };
            *place = Span::between(from, after);
        }
    }
}

/// The labels among some fields of `metadata`, without those that cannot be read.
pub(super) fn labels(fields: &[u8]) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
    let mut labels = Vec::new();
    each_label(fields, |name, value| {
        labels.push((
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(value),
        ));
    });
    labels
}

/// The value of a label; the last one counts.
pub(super) fn label<'a>(fields: &'a [u8], name: &str) -> Option<&'a str> {
    let mut found = None;
    each_label(fields, |known, value| {
        if known == name.as_bytes() {
            found = Some(value);
        }
    });
    str::from_utf8(found?).ok()
}

fn each_label<'a>(fields: &'a [u8], mut visit: impl FnMut(&'a [u8], &'a [u8])) {
    let mut fields = Fields::new(fields, "ObjectMeta");
    while let Ok(Some((number, value))) = fields.next() {
        let (LABELS, Wire::Bytes(entry)) = (number, value) else {
            continue;
        };
        let (name, value) = parts(entry);
        visit(name, value);
    }
}

fn is_text_label(entry: &[u8]) -> bool {
    let (name, value) = parts(entry);
    str::from_utf8(name).is_ok() && str::from_utf8(value).is_ok()
}

/// The key and the value of an entry.
fn parts(entry: &[u8]) -> (&[u8], &[u8]) {
    let (mut name, mut value): (&[u8], &[u8]) = (b"", b"");
    let mut fields = Fields::new(entry, "Entry");
    while let Ok(Some((number, part))) = fields.next() {
        match (number, part) {
            (1, Wire::Bytes(bytes)) => name = bytes,
            (2, Wire::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    (name, value)
}
