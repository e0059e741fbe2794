//! Storage of keys: one slot a key, found by its hash, linked into at most one list.
//!
//! The hash is computed once, outside the lock; after that the index of the slot stands for the key. A slot
//! is kept while its key is pending or in flight, or has a record, and is freed afterwards. It is 48 bytes
//! for a key of two words; rare data is kept in side tables.

use std::hash::Hash;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::list::{Linked, Links};
use crate::reason::ReasonBits;
use crate::slab::Slab;

pub(crate) use crate::slab::NONE;

/// A time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// Tables with less capacity keep their memory.
const WORTH_KEEPING: usize = 4096 / TABLES;

/// State of a slot. `IN_FLIGHT` is a flag of its own: a key in flight may be pending again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// Either in flight, or kept for its record.
    NotPending,
    /// To be handed out: in the list of its priority.
    Ready,
    /// To be handed out when its current run has ended.
    Dirty,
    /// Ready, or in the token queue, later: it has a timer.
    Waiting,
    /// Its own back-off has passed; it is in the token queue.
    AwaitingToken,
}

/// Flags of a slot besides its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    pub(crate) const IN_FLIGHT: Self = Self(1);
    /// In the list of failure records.
    pub(crate) const RECORDED: Self = Self(2);
    /// Its timer moves it to the token queue, instead of making it ready.
    pub(crate) const TO_TOKEN_QUEUE: Self = Self(4);
    /// It waits for more than one time: they are in a side table.
    pub(crate) const WAITS_LONG: Self = Self(8);
    /// The cause of its last failure is in a side table.
    pub(crate) const EXPLAINED: Self = Self(16);
    /// Nothing is left of it: about to be freed, unless it is added again before.
    pub(crate) const LEAVING: Self = Self(32);
}

#[derive(Debug)]
pub(crate) struct Slot<T> {
    pub(crate) key: T,
    /// Ready or dirty: since when (nanoseconds of the queue; zero if no option needs it).
    /// Waiting or in the token queue: its timer, or [`NONE`]. Recorded: since when.
    pub(crate) at: u64,
    links: Links,
    pub(crate) hash: u32,
    pub(crate) priority: i32,
    pub(crate) reasons: ReasonBits,
    /// Failures in a row, up to 65,535.
    pub(crate) failures: u16,
    pub(crate) state: SlotState,
    flags: Flags,
}

#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Slab<Slot<T>>,
    /// Indexed by the upper bits of the hash. Each grows by itself, so that no operation moves all entries.
    tables: [HashTable<u32>; TABLES],
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

// === impl Slot ===

impl<T> Slot<T> {
    fn new(key: T, hash: u32) -> Self {
        Self {
            key,
            at: 0,
            links: Links::default(),
            hash,
            priority: 0,
            reasons: ReasonBits::default(),
            failures: 0,
            state: SlotState::NotPending,
            flags: Flags::default(),
        }
    }

    pub(crate) fn is(&self, flag: Flags) -> bool {
        self.flags.0 & flag.0 != 0
    }

    pub(crate) fn set(&mut self, flag: Flags, on: bool) {
        if on {
            self.flags.0 |= flag.0;
        } else {
            self.flags.0 &= !flag.0;
        }
    }

    pub(crate) fn in_flight(&self) -> bool {
        self.is(Flags::IN_FLIGHT)
    }
}

impl<T> Linked for Slot<T> {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

// === impl Slots ===

impl<T: Hash + Eq> Slots<T> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Slab::default(),
            tables: std::array::from_fn(|_| HashTable::new()),
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

    /// Number of keys that fit into the allocated memory: of slots, of the tables.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> (usize, usize) {
        let tables = self.tables.iter().map(HashTable::capacity);
        (self.slots.capacity(), tables.sum())
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
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_slot_is_48_bytes_for_a_shared_text() {
        assert_eq!(size_of::<Slot<Arc<str>>>(), 48);
        assert_eq!(
            Slab::<Slot<Arc<str>>>::bytes_each(),
            48,
            "vacancy costs nothing"
        );
    }

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
        let (slab, table) = slots.capacity();
        assert!(slab <= 6 * 1024 && table <= 2 * 4096, "{slab} {table}");
        let known =
            (0..10).filter_map(|key: u32| slots.find(key.wrapping_mul(2_654_435_761), &key));
        assert_eq!(known.count(), 10);
    }
}
