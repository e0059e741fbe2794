//! The options of reading objects: [`Decoding`].

use std::sync::Arc;

use reeve_client::json::{self, SkipPath, Trimming};

use super::decode_cache::DecodeCache;
use super::form::Form;

/// The options of reading objects.
#[derive(Clone, Debug, Default)]
pub struct Decoding {
    pub(crate) trimming: Trimming,
    pub(crate) cache: Arc<DecodeCache>,
}

// === impl Decoding ===

impl Decoding {
    /// Adds these to an object without `apiVersion` and `kind`, as the items of a built-in kind's list are. Empty and
    /// null count as missing, as in Go.
    #[must_use]
    pub fn of(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            trimming: Trimming::of(api_version, kind),
            ..Self::default()
        }
    }

    /// Refuses objects that name another type (client-go: the type guard of `NewReflector`).
    pub(crate) fn guarded(mut self) -> Self {
        self.trimming = self.trimming.guarded();
        self
    }

    /// Leaves out `path` too.
    #[must_use]
    pub fn skip(mut self, path: &SkipPath) -> Self {
        self.trimming = self.trimming.skip(path);
        self
    }

    /// The fields that are left out of each object, and the type that is added to it.
    #[must_use]
    pub fn trimming(&self) -> &Trimming {
        &self.trimming
    }

    /// Reads one object from its JSON text, as an informer does: faster than serde_json, and with each `Vec` of exactly
    /// the needed size.
    ///
    /// # Errors
    /// [`json::read`]'s. It may quote the object, which may be a secret, if the type does.
    pub fn read<S: Form>(&self, document: &str) -> Result<S, serde_json::Error> {
        json::read(document, |reader| S::decode(reader, self))
    }
}
