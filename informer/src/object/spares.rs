//! Entries that a store has no longer, to be read over: [`Spares`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The most spares: as many changes as are on their way from the connection to the handlers.
const MOST: usize = 128;

/// The most bytes of the messages that took the places of the spares.
const BYTES: usize = 512 * 1024;

/// Messages of fewer bytes are not read over a spare. The memory of one is in the cache of another processor, or in none, which
/// costs more than a dozen allocations: with spares, a ConfigMap of 1 KB takes 4 microseconds in place of 3.
const LARGE: usize = 2 * 1024;

/// Entries that a store had and nothing uses any more, each to be read over.
///
/// Most of a changed object is as it was: its texts and lists have the sizes of those of the object that it takes the place
/// of, or of another one of the same template. An entry that is read over one of these takes no memory from the allocator
/// and gives none back, which is most of the cost of a change of a Pod.
///
/// Each message that takes the place of an entry lets the store give one. That of a small message is dropped, as is what no
/// message was read for: a list, or a change in JSON. Several threads read at once, so the sizes of message and entry are paired
/// by their order, roughly.
#[derive(Debug)]
pub(crate) struct Spares<S: ?Sized> {
    pool: Mutex<Pool<S>>,
    /// A large message was read: before that, nothing is counted.
    used: AtomicBool,
}

#[derive(Debug)]
struct Pool<S: ?Sized> {
    /// With the size of the message that took the place of each.
    entries: VecDeque<(Arc<S>, usize)>,
    /// The sum of the sizes.
    bytes: usize,
    /// The sizes of the messages whose entries have not been given yet; 0 of small ones.
    expected: VecDeque<usize>,
}

// === impl Spares ===

impl<S: ?Sized> Spares<S> {
    /// An entry to read a message of `bytes` over; nothing else refers to it. `None` for a small one, too. `replaces`: the
    /// message takes the place of an entry of the store.
    pub(crate) fn take(&self, bytes: usize, replaces: bool) -> Option<Arc<S>> {
        let large = bytes >= LARGE;
        if !large && !self.used.load(Ordering::Relaxed) {
            return None;
        }
        let mut pool = self.pool.lock();
        self.used.store(true, Ordering::Relaxed);
        if replaces {
            if pool.expected.len() == MOST {
                pool.expected.pop_front();
            }
            pool.expected.push_back(if large { bytes } else { 0 });
        }
        if !large {
            return None;
        }
        let (mut entry, size) = pool.entries.pop_front()?;
        if Arc::get_mut(&mut entry).is_none() {
            // A handler has it, or a user keeps it.
            pool.entries.push_back((entry, size));
            return None;
        }
        pool.bytes -= size;
        Some(entry)
    }

    /// Keeps entries that the store has no longer, the oldest first. Returns those to drop.
    pub(crate) fn give(&self, mut gone: Vec<Arc<S>>) -> Vec<Arc<S>> {
        if gone.is_empty() || !self.used.load(Ordering::Relaxed) {
            return gone;
        }
        let mut dropped = Vec::new();
        let mut pool = self.pool.lock();
        for entry in gone.drain(..) {
            let size = pool.expected.pop_front().unwrap_or_default();
            // One with weak references would stay alive for those.
            if size == 0 || Arc::weak_count(&entry) > 0 {
                dropped.push(entry);
                continue;
            }
            pool.bytes += size;
            pool.entries.push_back((entry, size));
            while pool.entries.len() > MOST || pool.bytes > BYTES {
                let Some((entry, size)) = pool.entries.pop_front() else {
                    break;
                };
                pool.bytes -= size;
                dropped.push(entry);
            }
        }
        dropped
    }
}

impl<S: ?Sized> Default for Spares<S> {
    fn default() -> Self {
        let pool = Pool {
            entries: VecDeque::new(),
            bytes: 0,
            expected: VecDeque::new(),
        };
        Self {
            pool: Mutex::new(pool),
            used: AtomicBool::new(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives entries, and returns the numbers of those to drop.
    fn give(spares: &Spares<u32>, numbers: impl IntoIterator<Item = u32>) -> Vec<u32> {
        let dropped = spares.give(numbers.into_iter().map(Arc::new).collect());
        dropped.into_iter().map(|number| *number).collect()
    }

    fn take(spares: &Spares<u32>, bytes: usize) -> Option<u32> {
        spares.take(bytes, true).map(|number| *number)
    }

    #[test]
    fn an_entry_is_kept_for_each_message_that_took_the_place_of_one() {
        let spares = Spares::default();
        assert_eq!(give(&spares, 0..3), [0, 1, 2]);
        assert_eq!((take(&spares, LARGE), take(&spares, LARGE)), (None, None));
        // An addition takes no entry's place.
        assert_eq!(spares.take(LARGE, false), None);
        assert_eq!(give(&spares, 3..6), [5]);
        let taken = [(); 3].map(|()| take(&spares, LARGE));
        assert_eq!(taken, [Some(3), Some(4), None]);
    }

    #[test]
    fn the_entries_of_small_messages_are_dropped() {
        let spares = Spares::default();
        // Nothing is counted before the first large one.
        assert_eq!(take(&spares, LARGE - 1), None);
        let sizes = [LARGE, LARGE - 1, LARGE];
        assert_eq!(sizes.map(|bytes| take(&spares, bytes)), [None; 3]);
        assert_eq!(give(&spares, 1..4), [2]);
        assert_eq!(take(&spares, LARGE - 1), None);
        assert_eq!(take(&spares, LARGE), Some(1));
    }

    #[test]
    fn an_entry_in_use_is_no_spare_until_it_is_free() {
        let spares = Spares::default();
        assert_eq!((take(&spares, LARGE), take(&spares, LARGE)), (None, None));
        let all = [Arc::new(1), Arc::new(2)];
        let kept = Arc::clone(&all[0]);
        assert!(spares.give(all.into()).is_empty());
        assert_eq!(spares.take(LARGE, false), None);
        assert_eq!(spares.take(LARGE, false), Some(Arc::new(2)));
        drop(kept);
        assert_eq!(spares.take(LARGE, false), Some(Arc::new(1)));
    }

    #[test]
    fn an_entry_with_weak_references_is_dropped() {
        let spares = Spares::default();
        assert_eq!(take(&spares, LARGE), None);
        let entry = Arc::new(1);
        let weak = Arc::downgrade(&entry);
        drop(spares.give(vec![entry]));
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn spares_are_bounded_in_number_and_by_the_sizes_of_messages() {
        let spares = Spares::default();
        for _ in 0..10 * MOST {
            spares.take(LARGE, true);
        }
        assert_eq!(spares.pool.lock().expected.len(), MOST);
        give(&spares, 0..1000);
        assert_eq!(spares.pool.lock().entries.len(), MOST);
        // The oldest leave for a large one.
        for bytes in [BYTES / 2, 4 * BYTES] {
            spares.pool.lock().expected.push_back(bytes);
            give(&spares, [7]);
            let pool = spares.pool.lock();
            let sum: usize = pool.entries.iter().map(|(_, size)| size).sum();
            assert_eq!(pool.bytes, sum);
            assert!(sum <= BYTES, "{sum}");
        }
        assert!(spares.pool.into_inner().entries.is_empty());
    }
}
