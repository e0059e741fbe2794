//! Storage of keys: one slot a key, found by its hash, linked into at most one list.
//!
//! The hash is computed once, outside the lock; after that the index of the slot stands for the key. A slot
//! is kept while its key is pending or in flight, or has a record, and is freed afterwards. Rare data is
//! kept in side tables.

use std::hash::Hash;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::item_state::{ItemState, Place};
use crate::slab::{NONE, Slab};
use crate::slot::Slot;
use crate::sparse_map::SparseMap;

/// Tables with less capacity keep their memory.
const WORTH_KEEPING: usize = 4096 / TABLES;

#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Slab<Slot<T>>,
    /// Indexed by the upper bits of the hash. Each grows by itself, so that no operation moves all entries.
    tables: [HashTable<u32>; TABLES],
    /// The timers of bounded slots.
    bounded: SparseMap<u32>,
}

/// Number of tables, as a power of two.
const TABLE_BITS: u32 = 5;
const TABLES: usize = 1 << TABLE_BITS;

/// The table of a hash.
fn table_of(hash: u32) -> usize {
    (hash >> (u32::BITS - TABLE_BITS)) as usize
}

/// Spreads 32 bits over 64: a hash table uses both ends, and the upper bits are equal within one table.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << (32 + TABLE_BITS) | u64::from(hash)
}

/// Folds a hash into the 32 bits a slot keeps.
#[allow(clippy::cast_possible_truncation, reason = "folding is the point")]
pub(crate) fn fold(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

// === impl Slots ===

impl<T: Hash + Eq> Slots<T> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Slab::default(),
            tables: std::array::from_fn(|_| HashTable::new()),
            bounded: SparseMap::default(),
        }
    }

    pub(crate) fn find(&self, hash: u32, key: &T) -> Option<u32> {
        self.tables[table_of(hash)]
            .find(spread(hash), |&index| {
                let slot = &self.slots[index];
                slot.hash == hash && slot.key == *key
            })
            .copied()
    }

    /// The slot of `key`, and whether it is new; a new one is not pending. Returns the key if it was
    /// there already, so that it is dropped outside the lock.
    pub(crate) fn find_or_insert(&mut self, hash: u32, key: T) -> (u32, Option<T>) {
        let slots = &self.slots;
        let entry = self.tables[table_of(hash)].entry(
            spread(hash),
            |&index| {
                let slot = &slots[index];
                slot.hash == hash && slot.key == key
            },
            |&index| spread(slots[index].hash),
        );
        match entry {
            Entry::Occupied(entry) => (*entry.get(), Some(key)),
            Entry::Vacant(entry) => {
                let index = self.slots.insert(Slot::new(key, hash));
                entry.insert(index);
                (index, None)
            }
        }
    }

    /// Sets the state of the item. Its timer stays.
    #[inline(always)]
    pub(crate) fn set_state(&mut self, index: u32, state: ItemState) {
        let slot = &mut self.slots[index];
        if slot.is_bounded() == state.is_bounded() {
            slot.set_state(state);
        } else {
            self.set_bounded_state(index, state);
        }
    }

    /// As [`Slots::set_state`], where a timer that stays is kept elsewhere from now on.
    #[cold]
    fn set_bounded_state(&mut self, index: u32, state: ItemState) {
        let until = self.slots[index].state().timer_at();
        let stays = until.is_some() && until == state.timer_at();
        let timer = stays.then(|| self.take_timer(index)).flatten();
        self.slots[index].set_state(state);
        if let Some(timer) = timer {
            self.set_timer(index, timer);
        }
    }

    /// Sets the timer of an item whose state has one.
    pub(crate) fn set_timer(&mut self, index: u32, timer: u32) {
        let slot = &mut self.slots[index];
        if slot.is_bounded() {
            self.bounded.insert(index, timer);
        } else {
            slot.links.previous = timer;
        }
    }

    /// The timer of an item whose state has one, unless it was taken.
    #[inline]
    pub(crate) fn take_timer(&mut self, index: u32) -> Option<u32> {
        let slot = &mut self.slots[index];
        if slot.is_bounded() {
            return self.bounded.remove(index);
        }
        let timer = std::mem::replace(&mut slot.links.previous, NONE);
        (timer != NONE).then_some(timer)
    }

    /// Forgets the timer of an item, because it was due.
    pub(crate) fn timer_fired(&mut self, index: u32) {
        // In any other state a later timer overwrites it.
        let slot = &self.slots[index];
        if slot.is_bounded() && slot.state().place() == Place::TokenQueue {
            self.bounded.remove(index);
        }
    }

    /// Frees a slot and returns its key. The slot must not be in a list.
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let slot = self.slots.remove(index);
        let table = &mut self.tables[table_of(slot.hash)];
        if let Ok(entry) = table.find_entry(spread(slot.hash), |&other| other == index) {
            entry.remove();
            if table.capacity() > WORTH_KEEPING && table.len() < table.capacity() / 8 {
                let slots = &self.slots;
                table.shrink_to(table.len() * 2, |&index| spread(slots[index].hash));
            }
        }
        slot.key
    }

    /// Prefetches the memory that [`Slots::remove`] needs of the table.
    pub(crate) fn prefetch(&self, index: u32) {
        let hash = self.slots[index].hash;
        let table = &self.tables[table_of(hash)];
        std::hint::black_box(table.find(spread(hash), |&other| other == index));
    }

    /// Reserves memory for `more` keys.
    pub(crate) fn reserve(&mut self, more: usize) {
        let slots = &self.slots;
        for table in &mut self.tables {
            table.reserve(more.div_ceil(TABLES), |&index| spread(slots[index].hash));
        }
    }

    /// The slots, for linking.
    pub(crate) fn slab(&mut self) -> &mut Slab<Slot<T>> {
        &mut self.slots
    }

    pub(crate) fn as_slab(&self) -> &Slab<Slot<T>> {
        &self.slots
    }

    /// Number of timers in the side table.
    #[cfg(test)]
    pub(crate) fn bounded_timers(&self) -> usize {
        self.bounded.len()
    }

    /// Number of keys that fit into the allocated memory: of slots, of the tables, of the side table.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> [usize; 3] {
        let tables = self.tables.iter().map(HashTable::capacity);
        [self.slots.capacity(), tables.sum(), self.bounded.capacity()]
    }
}

impl<T> std::ops::Index<u32> for Slots<T> {
    type Output = Slot<T>;
    fn index(&self, index: u32) -> &Slot<T> {
        &self.slots[index]
    }
}

impl<T> std::ops::IndexMut<u32> for Slots<T> {
    fn index_mut(&mut self, index: u32) -> &mut Slot<T> {
        &mut self.slots[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_equal_hashes_have_slots_of_their_own() {
        let mut slots = Slots::new();
        let taken: Vec<u32> = (0..100)
            .map(|key: u32| slots.find_or_insert(key % 3, key).0)
            .collect();
        for key in 0..100 {
            assert_eq!(slots.find(key % 3, &key), Some(taken[key as usize]));
        }
        assert_eq!(slots.remove(taken[50]), 50);
        assert_eq!(slots.find(50 % 3, &50), None);
        assert_eq!(slots.find_or_insert(7, 200), (taken[50], None));
    }

    #[test]
    fn memory_is_given_back_though_a_few_keys_stay() {
        let mut slots = Slots::new();
        for key in 0..200_000_u32 {
            slots.find_or_insert(key.wrapping_mul(2_654_435_761), key);
        }
        for key in 10..200_000_u32 {
            let index = slots.find(key.wrapping_mul(2_654_435_761), &key).unwrap();
            slots.remove(index);
        }
        let [slab, table, _] = slots.capacity();
        assert!(slab <= 6 * 1024 && table <= 2 * 4096, "{slab} {table}");
        let known =
            (0..10).filter_map(|key: u32| slots.find(key.wrapping_mul(2_654_435_761), &key));
        assert_eq!(known.count(), 10);
    }
}
