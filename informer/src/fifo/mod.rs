//! Between the reflector and the store: changes in order, bounded.
//!
//! Two types behind one trait. [`RealFifo`] keeps the server's order across all objects and replaces the
//! whole state in one delta, so that the store equals one server version after each batch; it is what
//! informers use. [`DeltaFifo`] collects the changes of each object under its key, as older client-go did.
//!
//! Neither waits: whoever waits does it on [`Fifo::readable`] and [`Fifo::writable`]. A producer asks
//! [`Fifo::has_room`] before it reads more from the server, so a store that falls behind is felt by the
//! watch and not by memory.

mod delta;
mod real;
#[cfg(test)]
mod tests;

pub use delta::DeltaFifo;
pub use real::RealFifo;

use std::sync::Arc;

use tokio::sync::Notify;

use crate::entry::Stored;
pub use crate::indexer::Snapshot;
use crate::key::{KeyRef, ObjectKey};
use crate::version::ResourceVersion;

/// One change (client-go: `Delta`). There will be no other kinds: a consumer can match them all.
#[derive(Debug)]
pub enum Delta<S> {
    /// The server reported a new object.
    Added(Arc<S>),
    /// The server reported a changed object.
    Updated(Arc<S>),
    /// An object is gone.
    Deleted(Deletion<S>),
    /// A list held this object ([`DeltaFifo`] only).
    Replaced(Arc<S>),
    /// The object is to be shown again ([`DeltaFifo`] only).
    Sync(Arc<S>),
    /// A list was read: this is everything there is.
    ReplacedAll(Snapshot<S>),
    /// Every object is to be shown again.
    SyncAll,
    /// Nothing changed up to this version.
    Bookmark(ResourceVersion),
}

/// How an object is known to be gone.
#[derive(Debug)]
pub enum Deletion<S> {
    /// The server reported the deletion, with the final state.
    Seen(Arc<S>),
    /// It was missed, and found out by a list (client-go: `DeletedFinalStateUnknown`).
    FinalStateUnknown {
        /// The object's key.
        key: ObjectKey,
        /// A state it had; maybe not its last.
        last: Option<Arc<S>>,
    },
    /// The server reported the deletion, with a final state that cannot be read.
    Unreadable {
        /// The object's key.
        key: ObjectKey,
        /// The uid of the final state; empty if it cannot be read, or is not to be compared.
        uid: String,
        /// The version of the final state; empty if it cannot be read.
        resource_version: String,
    },
}

/// Deltas that are applied to the store in one step, and then shown to handlers in order.
#[derive(Debug)]
pub struct Batch<S> {
    /// The deltas.
    pub deltas: Vec<Delta<S>>,
    /// They are part of the first list (client-go: `isInInitialList`).
    pub initial: bool,
    /// The server's version that the store equals once they are applied, if that can be said.
    pub resource_version: Option<ResourceVersion>,
}

/// A queue of changes with one consumer.
pub trait Fifo<S: Stored>: Send + Sync + 'static {
    /// Appends [`Delta::Added`], [`Delta::Updated`] or [`Delta::Deleted`].
    fn push(&self, delta: Delta<S>);

    /// Says that `snapshot` is everything there is.
    fn replace(&self, snapshot: Snapshot<S>);

    /// Asks for every object to be shown again.
    fn resync(&self);

    /// Says that nothing else happened up to `version`.
    fn bookmark(&self, version: ResourceVersion);

    /// Hands the next batch to `process`; false if there is none. The queue may be used while `process`
    /// runs, but not from within it.
    fn process(&self, process: &mut dyn FnMut(Batch<S>)) -> bool;

    /// True once everything of the first list was processed. It stays so.
    fn has_synced(&self) -> bool;

    /// How many deltas wait.
    fn len(&self) -> usize;

    /// True if none wait.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// False when so many deltas wait that producers should wait.
    fn has_room(&self) -> bool;

    /// False when producers should wait before they read another list.
    fn has_room_for_list(&self) -> bool {
        self.has_room()
    }

    /// Told when there may be something to process.
    fn readable(&self) -> &Notify;

    /// Told when there may be room.
    fn writable(&self) -> &Notify;
}

/// What the consumer of a queue holds already (client-go: `KeyListerGetter`).
pub trait KnownObjects<S>: Send + Sync {
    /// The object with this key.
    fn known(&self, key: KeyRef<'_>) -> Option<Arc<S>>;
    /// All of them.
    fn known_objects(&self) -> Vec<Arc<S>>;
}

/// Nothing is known: deletions of what is not in the queue are dropped, and those that a list tells of are of what
/// is in the queue (client-go: `KnownObjects` is nil).
impl<S> KnownObjects<S> for () {
    fn known(&self, _: KeyRef<'_>) -> Option<Arc<S>> {
        None
    }

    fn known_objects(&self) -> Vec<Arc<S>> {
        Vec::new()
    }
}

// === impl Delta ===

impl<S: Stored> Delta<S> {
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
