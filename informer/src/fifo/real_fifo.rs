//! The ordered stream (client-go: `RealFIFO`, with atomic events).

use std::cmp::Ordering;
use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::delta::{Batch, Delta};
use super::queue::Fifo;
use super::snapshot::Snapshot;
use crate::object::Stored;
use crate::turns::PIECE;
use reeve_client::{ResourceVersion, compare};

/// The number of deltas that wait before producers have to (client-go's number).
const CAPACITY: usize = 2000;

/// One ordered stream of deltas across all objects: nothing is merged or reordered, and a list is one delta.
///
/// A batch ends at 256 deltas (client-go: 1,000), so that one is applied within a turn of a task, and before and after a delta that concerns the whole store. A key may occur twice in a
/// batch: deltas are applied in order under one lock.
#[derive(Debug)]
pub struct RealFifo<S: ?Sized> {
    inner: Mutex<Inner<S>>,
    capacity: usize,
    readable: Notify,
    writable: Notify,
}

#[derive(Debug)]
struct Inner<S: ?Sized> {
    deltas: VecDeque<Delta<S>>,
    /// The number of lists among `deltas`.
    lists: usize,
    sync: Sync,
}

/// The progress of the first list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    /// Not in the queue yet.
    Waiting,
    /// It is in the queue as one delta.
    Queued,
    /// It was processed.
    Done,
}

// === impl RealFifo ===

impl<S: Stored + ?Sized> RealFifo<S> {
    /// A queue in which up to `capacity` deltas wait before producers have to wait (client-go: 2,000). While one list
    /// is in the queue, the next one has to wait, whatever its size.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                deltas: VecDeque::new(),
                lists: 0,
                sync: Sync::Waiting,
            }),
            capacity: capacity.max(1),
            readable: Notify::new(),
            writable: Notify::new(),
        }
    }

    fn append(&self, delta: Delta<S>) {
        let mut inner = self.inner.lock();
        if inner.sync == Sync::Waiting {
            // client-go: a queue that is added to before any list counts as synced.
            inner.sync = match &delta {
                Delta::ReplacedAll(_) => Sync::Queued,
                Delta::Bookmark(_) | Delta::SyncAll => Sync::Waiting,
                _ => Sync::Done,
            };
        }
        // Only the last of consecutive bookmarks counts.
        if let (Delta::Bookmark(version), Some(Delta::Bookmark(last))) =
            (&delta, inner.deltas.back_mut())
        {
            last.clone_from(version);
        } else {
            inner.lists += usize::from(matches!(delta, Delta::ReplacedAll(_)));
            inner.deltas.push_back(delta);
        }
        drop(inner);
        self.readable.notify_one();
    }
}

impl<S: Stored + ?Sized> Default for RealFifo<S> {
    fn default() -> Self {
        Self::new(CAPACITY)
    }
}

impl<S: Stored + ?Sized> Fifo<S> for RealFifo<S> {
    fn push(&self, delta: Delta<S>) {
        self.append(delta);
    }

    fn replace(&self, snapshot: Snapshot<S>) {
        self.append(Delta::ReplacedAll(snapshot));
    }

    fn resync(&self) {
        self.append(Delta::SyncAll);
    }

    fn bookmark(&self, version: ResourceVersion) {
        self.append(Delta::Bookmark(version));
    }

    fn process(&self, process: &mut dyn FnMut(Batch<S>)) -> bool {
        let batch = {
            let mut inner = self.inner.lock();
            let Some(first) = inner.deltas.pop_front() else {
                return false;
            };
            // Only deltas up to the first list are initial.
            let initial = inner.sync != Sync::Done;
            let alone = first.key_ref().is_none();
            inner.lists -= usize::from(matches!(first, Delta::ReplacedAll(_)));
            let mut deltas = vec![first];
            while !alone
                && deltas.len() < PIECE
                && inner
                    .deltas
                    .front()
                    .is_some_and(|next| next.key_ref().is_some())
            {
                deltas.extend(inner.deltas.pop_front());
            }
            // Not the version of the last delta: a deletion may come late, or twice, with an old version.
            let versions = deltas.iter().filter_map(Delta::object);
            let resource_version = versions
                .map(|object| object.resource_version())
                .reduce(|newest, next| {
                    if compare(next, newest) == Some(Ordering::Less) {
                        newest
                    } else {
                        next
                    }
                })
                .map(ResourceVersion::from);
            Batch {
                deltas,
                initial,
                resource_version,
            }
        };
        let was_list = matches!(batch.deltas[..], [Delta::ReplacedAll(_)]);
        process(batch);
        let mut inner = self.inner.lock();
        if was_list {
            inner.sync = Sync::Done;
        }
        drop(inner);
        self.writable.notify_one();
        true
    }

    fn has_synced(&self) -> bool {
        self.inner.lock().sync == Sync::Done
    }

    fn len(&self) -> usize {
        self.inner.lock().deltas.len()
    }

    fn has_room(&self) -> bool {
        self.len() < self.capacity
    }

    fn has_room_for_list(&self) -> bool {
        let inner = self.inner.lock();
        inner.lists == 0 && inner.deltas.len() < self.capacity
    }

    fn readable(&self) -> &Notify {
        &self.readable
    }

    fn writable(&self) -> &Notify {
        &self.writable
    }
}
