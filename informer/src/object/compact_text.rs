//! The JSON text of a compact entry: the document without the skipped fields, and the places of its header.

use std::borrow::Cow;
use std::fmt;

use reeve_client::json::{Plain, Reader, Skip, another};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::body::{Header, Span};
use super::form::Decoding;

/// The result of reading an object on arrival.
#[derive(Debug, Default)]
struct Text {
    json: String,
    header: Header,
    /// A field of the header has a form that no API server writes.
    odd: Option<&'static str>,
}

/// Reads an object: its text, and the places of fields in it.
///
/// # Errors
/// For a document that is not an object, and for a header with a form that no API server writes.
pub(super) fn read<'de>(
    document: &mut Reader<'de>,
    decoding: &'de Decoding,
) -> Result<(String, Header), serde_json::Error> {
    let mut text = Text::default();
    document.deserialize_map(ObjectVisitor {
        text: &mut text,
        decoding,
    })?;
    match text.odd {
        Some(odd) => Err(serde_json::Error::custom(odd)),
        None => Ok((text.json, text.header)),
    }
}

// === impl Text ===

impl Text {
    /// Begins a field of the written object.
    fn key(&mut self, Plain(key): &Plain<'_>, first: &mut bool) {
        self.json
            .push(if std::mem::take(first) { '{' } else { ',' });
        match key {
            // A borrowed key had no escapes, so it needs none.
            Cow::Borrowed(key) => {
                self.json.push('"');
                self.json.push_str(key);
                self.json.push('"');
            }
            Cow::Owned(key) => self
                .json
                .push_str(&serde_json::Value::from(key.as_str()).to_string()),
        }
        self.json.push(':');
    }

    fn end(&mut self, first: bool) {
        self.json.push_str(if first { "{}" } else { "}" });
    }

    /// The end of the text so far.
    fn position(&self) -> u32 {
        // A text that is too long is refused once it is complete.
        u32::try_from(self.json.len()).unwrap_or(u32::MAX)
    }

    /// The text of a value without the fields that `skip` names.
    fn part(&mut self, value: &RawValue, skip: Option<&Skip>) -> Result<(), serde_json::Error> {
        let Some(skip) = skip else {
            self.value(value);
            return Ok(());
        };
        let mut document = Reader::new(value.get());
        match value.get().as_bytes().first() {
            Some(b'{') => document.deserialize_map(PartVisitor { text: self, skip }),
            Some(b'[') => document.deserialize_seq(PartVisitor { text: self, skip }),
            _ => {
                self.value(value);
                Ok(())
            }
        }
    }

    fn value(&mut self, value: &RawValue) -> Span {
        let from = self.position();
        self.json.push_str(value.get());
        Span {
            from,
            to: self.position(),
        }
    }

    /// A text of the header, without its quotes. Empty for null.
    fn name(&mut self, value: &RawValue, odd: &'static str) -> Span {
        let span = self.value(value);
        let raw = value.get();
        if raw == "null" {
            return Span::default();
        }
        if !raw.starts_with('"') || raw.contains('\\') {
            self.odd = Some(odd);
            return Span::default();
        }
        Span {
            from: span.from + 1,
            to: span.to - 1,
        }
    }
}

/// Reads the object.
struct ObjectVisitor<'a> {
    text: &'a mut Text,
    decoding: &'a Decoding,
}

/// Reads the object's `metadata`, or null.
struct MetadataSeed<'a> {
    text: &'a mut Text,
    skip: Option<&'a Skip>,
}

/// Reads an object or an array with fields to skip.
struct PartVisitor<'a> {
    text: &'a mut Text,
    skip: &'a Skip,
}

// === impl ObjectVisitor ===

impl<'de> Visitor<'de> for ObjectVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let text = self.text;
        let mut first = true;
        let trimming = self.decoding.trimming();
        let (mut version, mut kind) = (trimming.api_version(), trimming.kind());
        while let Some(key) = map.next_key::<Plain<'_>>()? {
            let skip = trimming.skipped().field(&key.0);
            if skip.is_some_and(|skip| skip.whole) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if key.0 == "metadata" {
                text.key(&key, &mut first);
                map.next_value_seed(MetadataSeed {
                    text: &mut *text,
                    skip,
                })?;
                continue;
            }
            let value: &RawValue = map.next_value()?;
            if let Some((given, guarded)) = trimming.required(&key.0) {
                let said = value.get();
                if said == "null" || said == r#""""# {
                    continue;
                }
                if guarded && said.trim_matches('"') != given {
                    return Err(another(given));
                }
            }
            match key.0.as_ref() {
                "apiVersion" => version = None,
                "kind" => kind = None,
                _ => {}
            }
            text.key(&key, &mut first);
            text.part(value, skip).map_err(unwritable)?;
        }
        for (key, value) in [("apiVersion", version), ("kind", kind)] {
            if let Some(value) = value {
                text.key(&Plain(Cow::Borrowed(key)), &mut first);
                text.json
                    .push_str(&serde_json::Value::from(value).to_string());
            }
        }
        text.end(first);
        Ok(())
    }
}

// === impl MetadataSeed ===

impl<'de> DeserializeSeed<'de> for MetadataSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<(), D::Error> {
        document.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MetadataSeed<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("metadata")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.text.json.push_str("null");
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let text = self.text;
        let from = text.position();
        let mut first = true;
        let mut header = Header::default();
        while let Some(key) = map.next_key::<Plain<'_>>()? {
            let skip = self.skip.and_then(|skip| skip.field(&key.0));
            if skip.is_some_and(|skip| skip.whole) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            text.key(&key, &mut first);
            let value: &RawValue = map.next_value()?;
            match key.0.as_ref() {
                "name" => header.name = text.name(value, "metadata.name is not a name"),
                "namespace" => {
                    header.namespace = text.name(value, "metadata.namespace is not a name");
                }
                "uid" => header.uid = text.name(value, "metadata.uid is not a uid"),
                "resourceVersion" => {
                    header.resource_version =
                        text.name(value, "metadata.resourceVersion is not a version");
                }
                "labels" => {
                    header.labels = text.value(value);
                    if value.get().contains('\\') {
                        text.odd = Some("metadata.labels has a character that labels cannot have");
                    }
                }
                "ownerReferences" => header.owner_references = text.value(value),
                _ => text.part(value, skip).map_err(unwritable)?,
            }
        }
        text.end(first);
        header.metadata = Span {
            from,
            to: text.position(),
        };
        text.header = header;
        Ok(())
    }
}

/// The error of a part of valid JSON that cannot be read: a key with escapes that are not text.
fn unwritable<E: Error>(_: serde_json::Error) -> E {
    E::custom("a part of it is not valid JSON")
}

// === impl PartVisitor ===

impl<'de> Visitor<'de> for PartVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut first = true;
        while let Some(key) = map.next_key::<Plain<'_>>()? {
            let skip = self.skip.field(&key.0);
            if skip.is_some_and(|skip| skip.whole) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            self.text.key(&key, &mut first);
            self.text
                .part(map.next_value()?, skip)
                .map_err(unwritable)?;
        }
        self.text.end(first);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let skip = self.skip.each();
        let mut first = true;
        self.text.json.push('[');
        while let Some(value) = seq.next_element::<&RawValue>()? {
            if skip.is_some_and(|skip| skip.whole) {
                continue;
            }
            if !std::mem::take(&mut first) {
                self.text.json.push(',');
            }
            self.text.part(value, skip).map_err(unwritable)?;
        }
        self.text.json.push(']');
        Ok(())
    }
}
