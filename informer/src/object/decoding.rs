//! How an informer reads objects.

use std::sync::Arc;

use super::decode_cache::DecodeCache;
use super::skip::{Skip, SkipPath};
use super::stored::Stored;
use crate::json;

/// How objects are read.
#[derive(Clone, Debug, Default)]
pub struct Decoding {
    pub(crate) api_version: Option<String>,
    pub(crate) kind: Option<String>,
    /// Refuses an object that names another type than these.
    pub(crate) guarded: bool,
    pub(crate) skip: Skip,
    pub(crate) cache: Arc<DecodeCache>,
}

// === impl Decoding ===

impl Decoding {
    /// Adds these to an object without `apiVersion` and `kind`, as the items of a built-in kind's list are. Empty and
    /// null count as missing, as in Go.
    #[must_use]
    pub fn of(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            api_version: Some(api_version.into()),
            kind: Some(kind.into()),
            ..Self::default()
        }
    }

    /// Refuses objects that name another type (client-go: the type guard of `NewReflector`).
    pub(crate) fn guarded(mut self) -> Self {
        self.guarded = true;
        self
    }

    /// The value of the field `name` for an object that has none.
    pub(crate) fn given(&self, name: &str) -> Option<&str> {
        match name {
            "apiVersion" => self.api_version.as_deref(),
            "kind" => self.kind.as_deref(),
            _ => None,
        }
    }

    /// Leaves out `path` too.
    #[must_use]
    pub fn skip(mut self, path: &SkipPath) -> Self {
        self.skip.add(path);
        self
    }

    /// Reads one object from its JSON text, as an informer does: faster than [`Stored::decode`] with serde_json's
    /// deserializer, and with each `Vec` of exactly the needed size.
    ///
    /// # Errors
    /// serde_json's. It may quote the object, which may be a secret.
    pub fn read<S: Stored>(&self, document: &str) -> Result<S, serde_json::Error> {
        json::read(document, |reader| S::decode(reader, self)).or_else(|_| {
            let mut reader = json::by_serde_json(document);
            let object = S::decode(&mut reader, self)?;
            reader.end()?;
            Ok(object)
        })
    }
}
