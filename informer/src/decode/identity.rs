//! The identity of an object and its version, read from a document no further than needed.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use reeve_client::KeyRef;
use reeve_client::json::Reader;

/// The fields that identify an object and its version.
#[derive(Debug, Default)]
pub(crate) struct Identity<'a> {
    namespace: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    uid: Option<Cow<'a, str>>,
    resource_version: Option<Cow<'a, str>>,
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
    // Reading ends with an error where it stops early.
    let _ = ObjectSeed(&mut identity).deserialize(&mut Reader::new(document));
    identity
}

/// Reads an object until its identity is known, or its metadata ends. The rest is not read, which is an error.
pub(super) struct ObjectSeed<'a, 'de>(pub(super) &'a mut Option<Identity<'de>>);

/// Reads metadata until the identity is complete.
struct MetadataSeed<'a, 'de>(&'a mut Identity<'de>);

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

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<(), D::Error> {
        document.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectSeed<'_, 'de> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key::<ObjectField>()? {
            match field {
                ObjectField::Metadata => {
                    let identity = self.0.insert(Identity::default());
                    map.next_value_seed(MetadataSeed(identity))?;
                    // Nothing else is needed.
                    return Err(A::Error::custom("read"));
                }
                ObjectField::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for MetadataSeed<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<(), D::Error> {
        document.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MetadataSeed<'_, 'de> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let identity = self.0;
        while let Some(field) = map.next_key::<MetadataField>()? {
            let place = match field {
                MetadataField::Namespace => &mut identity.namespace,
                MetadataField::Name => &mut identity.name,
                MetadataField::Uid => &mut identity.uid,
                MetadataField::ResourceVersion => &mut identity.resource_version,
                MetadataField::Other => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *place = map.next_value::<Option<Text<'de>>>()?.map(|text| text.0);
            if identity.is_complete() {
                return Err(A::Error::custom("read"));
            }
        }
        Ok(())
    }
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
