//! Storage of keys: one slot a key, found by its hash, linked into at most one list.
//!
//! The hash is computed once, outside the lock; after that the index of the slot stands for the key. A slot
//! is kept while its key is pending or in flight, or has a record, and is freed afterwards. Rare data is
//! kept in side tables.
//!
//! A slot has 48 bytes for a key of two words, the state of the item included. A state has at most two times and a
//! timer. The second time is rare, so its slot keeps it in place of the timer, which moves to a side table of [`Slots`].

use std::hash::{Hash, Hasher};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::item_state::ItemState::{self, Idle, InFlight, Pending, Recorded};
use crate::item_state::Pending::{AwaitingToken, Ready, Waiting};
use crate::item_state::Place;
use crate::item_state::Wait::{BackingOff, Delayed};
use crate::reason::ReasonBits;
use crate::slab::{Linked, Links, NONE, Slab};
use crate::sparse_map::SparseMap;

#[derive(Debug)]
pub(crate) struct Slot<T> {
    pub(crate) key: T,
    /// The time of the state: since when, until when, or when at most.
    at: u64,
    /// Of a slot that waits for a time, which is in no list: its timer (`previous`); if it is bounded, when at most.
    pub(crate) links: Links,
    pub(crate) hash: u32,
    pub(crate) priority: i32,
    pub(crate) reasons: ReasonBits,
    /// Failures in a row, up to 65,535.
    pub(crate) failures: u16,
    kind: Kind,
    flags: Flags,
}

/// The state without its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Idle,
    Recorded,
    Ready,
    Delayed,
    BackingOff,
    AwaitingToken,
    InFlight,
    ReadyAgain,
    DelayedAgain,
    BackingOffAgain,
    AwaitingTokenAgain,
}

/// Flags of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// Its state is [bounded](ItemState::is_bounded).
    pub(crate) const BOUNDED: Self = Self(1);
    /// The cause of its last failure is in a side table.
    pub(crate) const EXPLAINED: Self = Self(2);
    /// Among the slots to be freed, unless it is added again before.
    pub(crate) const LEAVING: Self = Self(4);
}

// === impl Slot ===

impl<T> Slot<T> {
    pub(crate) fn new(key: T, hash: u32) -> Self {
        Self {
            key,
            at: 0,
            links: Links::default(),
            hash,
            priority: 0,
            reasons: ReasonBits::default(),
            failures: 0,
            kind: Kind::Idle,
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

    /// The state of the item.
    #[inline(always)]
    pub(crate) fn state(&self) -> ItemState {
        let at = self.at;
        match self.kind {
            Kind::Idle => Idle,
            Kind::Recorded => Recorded { since: at },
            Kind::Ready => Pending(Ready { since: at }),
            Kind::Delayed => Pending(Waiting(Delayed { until: at })),
            Kind::BackingOff => Pending(Waiting(BackingOff {
                until: at,
                at_most: self.bound(),
            })),
            Kind::AwaitingToken => Pending(AwaitingToken(self.is_bounded().then_some(at))),
            Kind::InFlight => InFlight(None),
            Kind::ReadyAgain => InFlight(Some(Ready { since: at })),
            Kind::DelayedAgain => InFlight(Some(Waiting(Delayed { until: at }))),
            Kind::BackingOffAgain => InFlight(Some(Waiting(BackingOff {
                until: at,
                at_most: self.bound(),
            }))),
            Kind::AwaitingTokenAgain => {
                InFlight(Some(AwaitingToken(self.is_bounded().then_some(at))))
            }
        }
    }

    /// Sets the state of the item; [`Slots::set_state`] keeps its timer, too.
    #[inline(always)]
    pub(crate) fn set_state(&mut self, state: ItemState) {
        let (kind, at, bound) = match state {
            Idle => (Kind::Idle, 0, None),
            Recorded { since } => (Kind::Recorded, since, None),
            Pending(Ready { since }) => (Kind::Ready, since, None),
            Pending(Waiting(Delayed { until })) => (Kind::Delayed, until, None),
            Pending(Waiting(BackingOff { until, at_most })) => (Kind::BackingOff, until, at_most),
            Pending(AwaitingToken(at_most)) => (Kind::AwaitingToken, at_most.unwrap_or(0), None),
            InFlight(None) => (Kind::InFlight, 0, None),
            InFlight(Some(Ready { since })) => (Kind::ReadyAgain, since, None),
            InFlight(Some(Waiting(Delayed { until }))) => (Kind::DelayedAgain, until, None),
            InFlight(Some(Waiting(BackingOff { until, at_most }))) => {
                (Kind::BackingOffAgain, until, at_most)
            }
            InFlight(Some(AwaitingToken(at_most))) => {
                (Kind::AwaitingTokenAgain, at_most.unwrap_or(0), None)
            }
        };
        self.kind = kind;
        self.at = at;
        self.set(Flags::BOUNDED, state.is_bounded());
        if let Some(bound) = bound {
            self.set_bound(bound);
        }
    }

    #[inline(always)]
    pub(crate) fn is_bounded(&self) -> bool {
        self.is(Flags::BOUNDED)
    }

    /// The second time of a slot that backs off.
    #[inline(always)]
    fn bound(&self) -> Option<u64> {
        let Links { previous, next } = self.links;
        let bound = u64::from(previous) << 32 | u64::from(next);
        self.is_bounded().then_some(bound)
    }

    #[allow(clippy::cast_possible_truncation, reason = "both halves are kept")]
    fn set_bound(&mut self, bound: u64) {
        self.links = Links {
            previous: (bound >> 32) as u32,
            next: bound as u32,
        };
    }

    /// The time since when a ready item is ready.
    pub(crate) fn ready_since(&self) -> u64 {
        debug_assert_eq!(self.kind, Kind::Ready);
        self.at
    }

    /// Prefetches the slot.
    pub(crate) fn touch(&self) {
        std::hint::black_box(self.at);
    }
}

impl<T: Hash> Slot<T> {
    /// Prefetches the memory that the key refers to: hashing it reads the beginning of each of its texts.
    pub(crate) fn touch_key(&self) {
        let mut reader = FirstBytes(0);
        self.key.hash(&mut reader);
        std::hint::black_box(reader.0);
    }
}

/// A hasher that reads the first byte of all that is hashed.
struct FirstBytes(u8);

impl Hasher for FirstBytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= bytes.first().copied().unwrap_or_default();
    }

    fn finish(&self) -> u64 {
        u64::from(self.0)
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
    use std::sync::Arc;

    use super::*;
    use crate::item_state::samples::states;

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
    fn a_slot_returns_the_state_that_it_was_set_to() {
        let mut slot = Slot::new((), 0);
        slot.set(Flags::LEAVING, true);
        for before in states() {
            for state in states() {
                slot.set_state(before);
                slot.set_state(state);
                assert_eq!(slot.state(), state, "after {before:?}");
                assert!(slot.is(Flags::LEAVING) && !slot.is(Flags::EXPLAINED));
            }
        }
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
        let [slab, table, _] = slots.capacity();
        assert!(slab <= 6 * 1024 && table <= 2 * 4096, "{slab} {table}");
        let known =
            (0..10).filter_map(|key: u32| slots.find(key.wrapping_mul(2_654_435_761), &key));
        assert_eq!(known.count(), 10);
    }
}
