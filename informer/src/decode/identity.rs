//! The identity of an object and its version, read from a document no further than needed.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::MapAccess;

use reeve_client::KeyRef;
use reeve_client::json::{Fields, Reader};

/// The fields that identify an object and its version.
#[derive(Debug, Default)]
pub(crate) struct Identity<'a> {
    pub(super) namespace: Option<Cow<'a, str>>,
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) uid: Option<Cow<'a, str>>,
    pub(super) resource_version: Option<Cow<'a, str>>,
}

// === impl Identity ===

impl Identity<'_> {
    /// The key, if the object has a name.
    pub(crate) fn key(&self) -> Option<KeyRef<'_>> {
        Some(KeyRef {
            namespace: self.namespace.as_deref().filter(|text| !text.is_empty()),
            name: self.name.as_deref().filter(|text| !text.is_empty())?,
        })
    }

    /// Empty if there is none.
    pub(crate) fn uid(&self) -> &str {
        self.uid.as_deref().unwrap_or_default()
    }

    /// Empty if there is none.
    pub(crate) fn resource_version(&self) -> &str {
        self.resource_version.as_deref().unwrap_or_default()
    }

    fn is_complete(&self) -> bool {
        let parts = [
            &self.namespace,
            &self.name,
            &self.uid,
            &self.resource_version,
        ];
        parts.iter().all(|part| part.is_some())
    }
}

/// The identity of an object, or as much of it as can be read; `None` if there is no `metadata`.
pub(crate) fn identity(document: &str) -> Option<Identity<'_>> {
    let mut identity = None;
    // An error ends the reading early, and what was read before counts.
    let _ = read_object(&mut Reader::new(document), &mut identity);
    identity
}

/// Reads an object until its identity is known, or its metadata ends.
pub(super) fn read_object<'de>(
    reader: &mut Reader<'de>,
    identity: &mut Option<Identity<'de>>,
) -> Result<(), serde_json::Error> {
    reader.enter(b'{')?;
    let mut fields = Fields::new(reader);
    while let Some(field) = fields.next_key::<ObjectField>()? {
        match field {
            ObjectField::Metadata => {
                let identity = identity.insert(Identity::default());
                return fields.value_by(|reader| read_metadata(reader, identity));
            }
            ObjectField::Other => fields.value_by(Reader::skip)?,
        }
    }
    Ok(())
}

/// Reads metadata until the identity is complete.
fn read_metadata<'de>(
    reader: &mut Reader<'de>,
    identity: &mut Identity<'de>,
) -> Result<(), serde_json::Error> {
    reader.enter(b'{')?;
    let mut fields = Fields::new(reader);
    while !identity.is_complete()
        && let Some(field) = fields.next_key::<MetadataField>()?
    {
        let part = match field {
            MetadataField::Namespace => &mut identity.namespace,
            MetadataField::Name => &mut identity.name,
            MetadataField::Uid => &mut identity.uid,
            MetadataField::ResourceVersion => &mut identity.resource_version,
            MetadataField::Other => {
                fields.value_by(Reader::skip)?;
                continue;
            }
        };
        *part = fields.next_value::<Option<Text<'de>>>()?.map(|text| text.0);
    }
    Ok(())
}

/// A text, borrowed if it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum ObjectField {
    Metadata,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum MetadataField {
    Namespace,
    Name,
    Uid,
    ResourceVersion,
    #[serde(other)]
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(document: &str) -> Option<(String, String, String)> {
        let identity = identity(document)?;
        let key = identity
            .key()
            .map_or_else(String::new, |key| key.to_string());
        Some((
            key,
            identity.uid().to_owned(),
            identity.resource_version().to_owned(),
        ))
    }

    #[test]
    fn it_is_found_in_any_order_and_nothing_after_it_is_read() {
        let found = |key: &str, uid: &str, version: &str| {
            Some((key.to_owned(), uid.to_owned(), version.to_owned()))
        };
        for (document, expected) in [
            (
                r#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7",!!"#,
                found("n/a", "u", "7"),
            ),
            (
                r#"{"kind":"K","spec":{"metadata":{"name":"x"}},"metadata":{"labels":{"name":"x"},"resourceVersion":"7","uid":"u","name":"a"},!!"#,
                found("a", "u", "7"),
            ),
            (
                r#"{"metadata":{"name":"\u0061","namespace":"","uid":null}}"#,
                found("a", "", ""),
            ),
            (r#"{"metadata":{"name":7}}"#, found("", "", "")),
            (r#"{"metadata":null}"#, found("", "", "")),
            ("{}", None),
            ("[", None),
        ] {
            assert_eq!(parts(document), expected, "{document}");
        }
    }
}
