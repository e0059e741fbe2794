//! The first events of a handler that is added late: [`Replay`].

use std::collections::VecDeque;
use std::sync::Arc;

use crate::indexer::StoreSnapshot;
use crate::object::Stored;
use crate::turns::PIECE;
use reeve_client::ObjectKey;

/// The objects that the store held when the handler was added. They are delivered before any event.
///
/// They are copied from a snapshot in pieces, before the first is delivered: while a snapshot is held, the store copies
/// what it changes, and nothing of the snapshot is freed.
pub(super) struct Replay<S: ?Sized> {
    /// Where the rest is copied from, and the last key that was copied.
    source: Option<(StoreSnapshot<S>, Option<ObjectKey>)>,
    objects: VecDeque<Arc<S>>,
    /// The number of objects that are not copied yet.
    left: usize,
}

// === impl Replay ===

impl<S: Stored + ?Sized> Replay<S> {
    pub(super) fn none() -> Self {
        Self {
            source: None,
            objects: VecDeque::new(),
            left: 0,
        }
    }

    pub(super) fn of(snapshot: StoreSnapshot<S>) -> Self {
        let left = snapshot.len();
        let mut replay = Self {
            source: Some((snapshot, None)),
            objects: VecDeque::with_capacity(left),
            left,
        };
        if left <= PIECE {
            replay.copy();
        }
        replay
    }

    /// The number of objects that are still to be delivered.
    pub(super) fn len(&self) -> usize {
        self.objects.len() + self.left
    }

    /// Copies the next [`PIECE`]; false if all are copied.
    pub(super) fn copy(&mut self) -> bool {
        let Some((snapshot, after)) = &mut self.source else {
            if self.objects.is_empty() {
                // The handler may live as long as the process.
                self.objects = VecDeque::new();
            }
            return false;
        };
        let rest = snapshot.range(None, after.as_ref().map(ObjectKey::as_ref));
        let copied = self.objects.len();
        self.objects.extend(rest.take(PIECE).cloned());
        self.left -= self.objects.len() - copied;
        *after = self.objects.back().map(|last| last.key());
        if self.left == 0
            && let Some((snapshot, _)) = self.source.take()
        {
            snapshot.free();
        }
        true
    }

    /// Takes up to `most` objects.
    pub(super) fn take(&mut self, most: usize) -> impl Iterator<Item = Arc<S>> {
        self.objects.drain(..most.min(self.objects.len()))
    }

    /// The objects that are copied, in order to free them.
    pub(super) fn into_objects(self) -> VecDeque<Arc<S>> {
        if let Some((snapshot, _)) = self.source {
            snapshot.free();
        }
        self.objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fifo::Delta;
    use crate::indexer::Indexer;
    use crate::sample::map;

    #[test]
    fn what_was_delivered_takes_no_memory() {
        let indexer = Indexer::new();
        indexer.change(|change| change.apply(Delta::Added(map("a@1")), false));
        let mut replay = Replay::of(indexer.snapshot());
        assert_eq!(replay.take(8).count(), 1);
        assert!(!replay.copy());
        assert_eq!((replay.len(), replay.objects.capacity()), (0, 0));
    }
}
