//! An object that was sent and could not be read.

use super::identity::{Identity, identity};
use super::outline;
use crate::object::Stored;
use reeve_client::{KeyRef, ObjectKey};

/// An object that was sent and could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undecodable {
    /// Its key, if that much could be read.
    pub key: Option<ObjectKey>,
    /// Its uid, if that much could be read.
    pub uid: Option<Box<str>>,
    /// Its version, if that much could be read.
    pub resource_version: Option<String>,
    /// The error, without any of the object's content.
    pub error: String,
    /// Its outline, without any of its content.
    pub outline: String,
}

// === impl Undecodable ===

impl Undecodable {
    /// Describes an object that could be read and has no name: it is something else, such as a Table or a Status.
    pub(super) fn nameless<S: Stored + ?Sized>(object: &S) -> Self {
        Self {
            key: None,
            uid: None,
            resource_version: Some(object.resource_version().to_owned()),
            error: "it has no metadata.name".to_owned(),
            outline: String::new(),
        }
    }

    /// Describes an object that cannot be read because of `error`, with as much of its identity as can be read.
    pub(super) fn probe(document: &str, error: String) -> Self {
        let outline = outline::outline(document);
        Self::identified(&identity(document).unwrap_or_default(), error, outline)
    }

    /// Its version; empty if it could not be read.
    pub(crate) fn version(&self) -> &str {
        self.resource_version.as_deref().unwrap_or_default()
    }

    /// Describes an object of this identity.
    pub(super) fn identified(identity: &Identity<'_>, error: String, outline: String) -> Self {
        let (uid, version) = (identity.uid(), identity.resource_version());
        Self {
            key: identity.key().map(KeyRef::to_key),
            uid: (!uid.is_empty()).then(|| uid.into()),
            resource_version: (!version.is_empty()).then(|| version.to_owned()),
            error,
            outline,
        }
    }
}
