//! The content of a queue: changes, one by one ([`Delta`]) and in batches ([`Batch`]).

use std::sync::Arc;

use super::snapshot::Snapshot;
use crate::object::Stored;
use reeve_client::ResourceVersion;
use reeve_client::{KeyRef, ObjectKey};

/// One change (client-go: `Delta`). No other kinds will be added: a consumer can match them all.
#[derive(Debug)]
pub enum Delta<S: ?Sized> {
    /// The server reported a new object.
    Added(Arc<S>),
    /// The server reported a changed object.
    Updated(Arc<S>),
    /// An object is gone.
    Deleted(Deletion<S>),
    /// A list held this object ([`DeltaFifo`](super::DeltaFifo) only).
    Replaced(Arc<S>),
    /// The object is delivered again, for a resync ([`DeltaFifo`](super::DeltaFifo) only).
    Sync(Arc<S>),
    /// A list was read: this is the whole state.
    ReplacedAll(Snapshot<S>),
    /// Every object is delivered again, for a resync.
    SyncAll,
    /// Nothing changed up to this version.
    Bookmark(ResourceVersion),
}

/// The way in which a deletion was found.
#[derive(Debug)]
pub enum Deletion<S: ?Sized> {
    /// The server reported the deletion, with the final state.
    Seen(Arc<S>),
    /// The deletion was missed, and a list revealed it (client-go: `DeletedFinalStateUnknown`).
    FinalStateUnknown {
        /// The object's key.
        key: ObjectKey,
        /// A state that the object had; maybe not its last.
        last: Option<Arc<S>>,
    },
    /// The server reported the deletion, with a final state that cannot be read.
    Unreadable {
        /// The object's key.
        key: ObjectKey,
        /// The uid of the final state; empty if it cannot be read, or must not be compared.
        uid: String,
        /// The version of the final state; empty if it cannot be read.
        resource_version: String,
    },
}

/// Deltas that are applied to the store in one step, and whose events go to the handlers in order.
#[derive(Debug)]
pub struct Batch<S: ?Sized> {
    /// The deltas.
    pub deltas: Vec<Delta<S>>,
    /// They are part of the first list (client-go: `isInInitialList`).
    pub initial: bool,
    /// The server's version that the store equals once they are applied, if it is known.
    pub resource_version: Option<ResourceVersion>,
}

// === impl Delta ===

impl<S: Stored + ?Sized> Delta<S> {
    /// The key of the object, for deltas about one object.
    #[must_use]
    pub fn key_ref(&self) -> Option<KeyRef<'_>> {
        match self {
            Self::Added(object)
            | Self::Updated(object)
            | Self::Replaced(object)
            | Self::Sync(object) => Some(object.key_ref()),
            Self::Deleted(Deletion::Seen(object)) => Some(object.key_ref()),
            Self::Deleted(
                Deletion::FinalStateUnknown { key, .. } | Deletion::Unreadable { key, .. },
            ) => Some(key.as_ref()),
            Self::ReplacedAll(_) | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }

    /// The newest state of the object, for deltas about one object.
    #[must_use]
    pub fn object(&self) -> Option<&Arc<S>> {
        match self {
            Self::Added(object)
            | Self::Updated(object)
            | Self::Replaced(object)
            | Self::Sync(object) => Some(object),
            Self::Deleted(Deletion::Seen(object)) => Some(object),
            Self::Deleted(Deletion::FinalStateUnknown { last, .. }) => last.as_ref(),
            Self::Deleted(Deletion::Unreadable { .. }) => None,
            Self::ReplacedAll(_) | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }
}
