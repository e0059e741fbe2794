//! The versions of a kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::super::schema::Schema;
use super::super::set::Set;

/// The versions of a kind, by apiVersion.
#[derive(Clone, Default)]
pub(crate) struct Kind {
    versions: BTreeMap<String, Version>,
    converter: Option<Converter>,
}

/// Converts an object, which has its apiVersion, to another one. The error is the reason why it cannot.
pub(crate) type Converter = Arc<dyn Fn(&Value, &str) -> Result<Value, String> + Send + Sync>;

/// One version of a kind.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// The types of its objects.
    pub(crate) schema: Arc<Schema>,
    /// The fields that a write through the resource or subresource at hand cannot change. A write does not come to own them.
    pub(crate) ignored: Set,
}

// === impl Kind ===

impl Kind {
    /// Adds a version.
    #[must_use]
    pub(crate) fn with(mut self, api_version: impl Into<String>, version: Version) -> Self {
        self.versions.insert(api_version.into(), version);
        self
    }

    /// The same with versions that differ in more than their name.
    #[must_use]
    pub(crate) fn converted_by(mut self, converter: Converter) -> Self {
        self.converter = Some(converter);
        self
    }

    /// The version, if the kind has it.
    pub(crate) fn version(&self, api_version: &str) -> Option<&Version> {
        self.versions.get(api_version)
    }

    /// The object in another version.
    ///
    /// # Errors
    /// The reason why it cannot be converted.
    pub(super) fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        let mut object = match &self.converter {
            Some(convert) => convert(object, api_version)?,
            None => object.clone(),
        };
        if let Some(object) = object.as_object_mut() {
            object.insert("apiVersion".to_owned(), api_version.into());
        }
        Ok(object)
    }
}

// === impl Version ===

impl Version {
    /// A version in which writes can change all fields.
    pub(crate) fn new(schema: Arc<Schema>) -> Self {
        Self {
            schema,
            ignored: Set::default(),
        }
    }

    /// The same with fields that a write cannot change.
    #[must_use]
    pub(crate) fn ignoring(mut self, ignored: Set) -> Self {
        self.ignored = ignored;
        self
    }
}
