//! The trait of both queues.

use tokio::sync::Notify;

use super::delta::{Batch, Delta};
use super::snapshot::Snapshot;
use crate::object::Stored;
use reeve_client::ResourceVersion;

/// A queue of changes with one consumer.
pub trait Fifo<S: Stored + ?Sized>: Send + Sync + 'static {
    /// Appends [`Delta::Added`], [`Delta::Updated`] or [`Delta::Deleted`].
    fn push(&self, delta: Delta<S>);

    /// Appends a list: `snapshot` is the whole state.
    fn replace(&self, snapshot: Snapshot<S>);

    /// Requests a resync: every object is delivered again.
    fn resync(&self);

    /// Appends a bookmark: nothing else happened up to `version`.
    fn bookmark(&self, version: ResourceVersion);

    /// Passes the next batch to `process`; false if there is none. An informer takes the batch out and applies it after
    /// this, before it calls it again. Other tasks may use the queue while `process` runs,
    /// but `process` itself may not.
    fn process(&self, process: &mut dyn FnMut(Batch<S>)) -> bool;

    /// True once everything of the first list was processed. It stays so.
    fn has_synced(&self) -> bool;

    /// The number of deltas that wait.
    fn len(&self) -> usize;

    /// True if none wait, nor a bookmark: [`Fifo::process`] has nothing to do.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// False when so many deltas wait that producers should wait.
    fn has_room(&self) -> bool;

    /// False when producers should wait before they read another list.
    fn has_room_for_list(&self) -> bool {
        self.has_room()
    }

    /// Notified when there may be something to process.
    fn readable(&self) -> &Notify;

    /// Notified when there may be room.
    fn writable(&self) -> &Notify;
}
