//! Entries that a store has no longer, to be read over: [`Spares`].

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// The most spares: as many changes as are on their way from the connection to the handlers.
const MOST: usize = 128;

/// The messages of the spares have about this many bytes at most.
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
/// There are no more spares than changes are on their way: the store gives each entry that it has no longer, and what is not
/// expected is dropped, as is all of a store that reads JSON.
#[derive(Debug)]
pub(crate) struct Spares<S: ?Sized>(Mutex<Pool<S>>);

#[derive(Debug)]
struct Pool<S: ?Sized> {
    entries: VecDeque<Arc<S>>,
    /// The number of entries that were read, less that of those that were given.
    expected: usize,
    /// The number of entries that there is room for, by the size of the last message.
    room: usize,
}

// === impl Spares ===

impl<S: ?Sized> Spares<S> {
    /// An entry to read a message of `bytes` over; nothing else refers to it. `None` for a small one, too.
    pub(crate) fn take(&self, bytes: usize) -> Option<Arc<S>> {
        if bytes < LARGE {
            return None;
        }
        let mut pool = self.0.lock();
        pool.room = (BYTES / bytes).clamp(1, MOST);
        pool.expected = (pool.expected + 1).min(MOST);
        let mut entry = pool.entries.pop_front()?;
        if Arc::get_mut(&mut entry).is_none() {
            // A handler has it, or a user keeps it.
            pool.entries.push_back(entry);
            return None;
        }
        Some(entry)
    }

    /// Takes entries that the store has no longer, the oldest first.
    pub(crate) fn give(&self, freed: Vec<Arc<S>>) {
        let mut dropped = Vec::new();
        let mut pool = self.0.lock();
        for entry in freed {
            if pool.expected == 0 {
                dropped.push(entry);
                continue;
            }
            pool.expected -= 1;
            pool.entries.push_back(entry);
            if pool.entries.len() > pool.room {
                dropped.extend(pool.entries.pop_front());
            }
        }
        drop(pool);
    }
}

impl<S: ?Sized> Default for Spares<S> {
    fn default() -> Self {
        Self(Mutex::new(Pool {
            entries: VecDeque::new(),
            expected: 0,
            room: MOST,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(numbers: impl IntoIterator<Item = u32>) -> Vec<Arc<u32>> {
        numbers.into_iter().map(Arc::new).collect()
    }

    #[test]
    fn there_are_no_more_spares_than_were_read() {
        let spares = Spares::default();
        spares.give(entries(0..3));
        assert_eq!(spares.take(LARGE), None);
        assert_eq!(spares.take(LARGE), None);
        spares.give(entries(3..6));
        let taken: Vec<_> = (0..3).map(|_| spares.take(LARGE)).collect();
        assert_eq!(taken, [Some(Arc::new(3)), Some(Arc::new(4)), None]);
    }

    #[test]
    fn an_entry_in_use_is_no_spare_until_it_is_free() {
        let spares = Spares::default();
        assert_eq!((spares.take(LARGE), spares.take(LARGE)), (None, None));
        let all = entries([1, 2]);
        let kept = Arc::clone(&all[0]);
        spares.give(all);
        assert_eq!(spares.take(LARGE), None);
        assert_eq!(spares.take(LARGE), Some(Arc::new(2)));
        drop(kept);
        assert_eq!(spares.take(LARGE), Some(Arc::new(1)));
    }

    #[test]
    fn spares_are_bounded_in_number_and_by_the_size_of_messages() {
        let count = |bytes| {
            let spares = Spares::default();
            (0..1000).for_each(|_| assert_eq!(spares.take(bytes), None));
            spares.give(entries(0..1000));
            spares.0.into_inner().entries.len()
        };
        assert_eq!(count(LARGE - 1), 0);
        assert_eq!(count(LARGE), MOST);
        assert_eq!(count(BYTES / 4), 4);
        assert_eq!(count(10 * BYTES), 1);
    }
}
