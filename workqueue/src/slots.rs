//! Where a key lives: one slot a key, found by its hash, linked into at most one list.
//!
//! The hash is computed once, outside the lock; after that a key is its slot's index. A slot is
//! kept while its key is wanted, in flight, or has a failure record, and is given back after.

use std::hash::Hash;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::reason::ReasonBits;

/// No slot, no neighbour.
pub(crate) const NONE: u32 = u32::MAX;
/// A time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// Where a key stands. `in_flight` is kept beside it: a key in flight may be wanted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The slot holds no key.
    Vacant,
    /// Not wanted. Either in flight, or kept for its failure record (then in the list of records).
    Unwanted,
    /// To be handed out: in the list of its priority.
    Ready,
    /// To be handed out once its current run has ended.
    Dirty,
    /// Becomes ready, or joins the line, later: in the heap of timers.
    Waiting,
    /// Its own back-off has passed; stands in line for a token.
    InLine,
}

#[derive(Debug)]
pub(crate) struct Slot<T> {
    pub(crate) key: Option<T>,
    /// Ready or dirty: since when (nanoseconds of the queue; zero if nobody asked for it).
    /// Waiting or in line: when it becomes ready without a token, or [`NEVER`].
    pub(crate) at: u64,
    /// Waiting: when it joins the line for a token, or [`NEVER`].
    pub(crate) join_at: u64,
    pub(crate) reasons: ReasonBits,
    hash: u32,
    /// The timer that counts for this slot; another one found in the heap is stale. Zero: none.
    pub(crate) ticket: u32,
    previous: u32,
    next: u32,
    pub(crate) priority: i32,
    /// Failures in a row.
    pub(crate) failures: u32,
    pub(crate) place: Place,
    pub(crate) in_flight: bool,
    /// In the list of failure records.
    pub(crate) recorded: bool,
}

#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    table: HashTable<u32>,
    /// Head of the vacant slots, linked by `next`.
    vacant: u32,
}

/// A doubly linked list of slots: first in, first out, and out of the middle in O(1).
#[derive(Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: usize,
}

/// Spreads 32 bits over the 64 that the table looks at (it takes both ends).
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
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
            slots: Vec::new(),
            table: HashTable::new(),
            vacant: NONE,
        }
    }

    /// How many keys have a slot.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn find(&self, hash: u32, key: &T) -> Option<u32> {
        self.table
            .find(spread(hash), |&slot| self.holds(slot, hash, key))
            .copied()
    }

    fn holds(&self, slot: u32, hash: u32, key: &T) -> bool {
        let slot = &self.slots[slot as usize];
        slot.hash == hash && slot.key.as_ref() == Some(key)
    }

    /// The slot of `key`. A new one is unwanted. Gives the key back when it was there already, so
    /// that it is dropped outside the lock.
    pub(crate) fn find_or_insert(&mut self, hash: u32, key: T) -> (u32, Option<T>) {
        let slots = &self.slots;
        let entry = self.table.entry(
            spread(hash),
            |&slot| {
                let slot = &slots[slot as usize];
                slot.hash == hash && slot.key.as_ref() == Some(&key)
            },
            |&slot| spread(slots[slot as usize].hash),
        );
        match entry {
            Entry::Occupied(entry) => (*entry.get(), Some(key)),
            Entry::Vacant(entry) => {
                let fresh = Slot {
                    key: Some(key),
                    at: 0,
                    join_at: NEVER,
                    reasons: ReasonBits::default(),
                    hash,
                    ticket: 0,
                    previous: NONE,
                    next: NONE,
                    priority: 0,
                    failures: 0,
                    place: Place::Unwanted,
                    in_flight: false,
                    recorded: false,
                };
                let index = if self.vacant == NONE {
                    let index = u32::try_from(self.slots.len())
                        .ok()
                        .filter(|&index| index != NONE)
                        .expect("fewer than 2^32 - 1 keys");
                    self.slots.push(fresh);
                    index
                } else {
                    let index = self.vacant;
                    self.vacant = self.slots[index as usize].next;
                    self.slots[index as usize] = fresh;
                    index
                };
                entry.insert(index);
                (index, None)
            }
        }
    }

    /// Vacates a slot and gives back its key. The slot is in no list.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let slot = &mut self.slots[index as usize];
        let hash = slot.hash;
        slot.place = Place::Vacant;
        slot.next = self.vacant;
        let key = slot.key.take();
        self.vacant = index;
        if let Ok(entry) = self.table.find_entry(spread(hash), |&other| other == index) {
            entry.remove();
        }
        key
    }

    /// Forgets the memory of an emptied crowd. Only when no slot is taken.
    pub(crate) fn give_back(&mut self) -> Option<Self> {
        const WORTH_KEEPING: usize = 4096;
        (self.table.is_empty() && self.slots.capacity() > WORTH_KEEPING)
            .then(|| std::mem::replace(self, Self::new()))
    }
}

impl<T> std::ops::Index<u32> for Slots<T> {
    type Output = Slot<T>;
    fn index(&self, index: u32) -> &Slot<T> {
        &self.slots[index as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slots<T> {
    fn index_mut(&mut self, index: u32) -> &mut Slot<T> {
        &mut self.slots[index as usize]
    }
}

// === impl List ===

impl Default for List {
    fn default() -> Self {
        Self {
            head: NONE,
            tail: NONE,
            len: 0,
        }
    }
}

impl List {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    pub(crate) fn push_back<T>(&mut self, slots: &mut Slots<T>, index: u32) {
        let tail = self.tail;
        let slot = &mut slots[index];
        slot.previous = tail;
        slot.next = NONE;
        if tail == NONE {
            self.head = index;
        } else {
            slots[tail].next = index;
        }
        self.tail = index;
        self.len += 1;
    }

    pub(crate) fn remove<T>(&mut self, slots: &mut Slots<T>, index: u32) {
        let (previous, next) = (slots[index].previous, slots[index].next);
        if previous == NONE {
            self.head = next;
        } else {
            slots[previous].next = next;
        }
        if next == NONE {
            self.tail = previous;
        } else {
            slots[next].previous = previous;
        }
        self.len -= 1;
    }

    /// The slots of the list, first to last.
    pub(crate) fn iter<'a, T>(
        &self,
        slots: &'a Slots<T>,
    ) -> impl Iterator<Item = u32> + use<'a, T> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let index = (at != NONE).then_some(at)?;
            at = slots[index].next;
            Some(index)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(slots: &mut Slots<u32>, key: u32) -> u32 {
        slots.find_or_insert(key % 3, key).0
    }

    #[test]
    fn keys_with_equal_hashes_have_slots_of_their_own() {
        let mut slots = Slots::new();
        let taken: Vec<u32> = (0..100).map(|key| insert(&mut slots, key)).collect();
        for key in 0..100 {
            assert_eq!(slots.find(key % 3, &key), Some(taken[key as usize]));
        }
        assert_eq!(slots.remove(taken[50]), Some(50));
        assert_eq!(slots.find(50 % 3, &50), None);
        assert_eq!(slots.len(), 99);
        assert_eq!(
            insert(&mut slots, 200),
            taken[50],
            "a vacated slot is used again"
        );
    }

    #[test]
    fn a_list_gives_up_its_middle_and_keeps_its_order() {
        let mut slots = Slots::new();
        let mut list = List::default();
        for key in 0..5 {
            let slot = insert(&mut slots, key);
            list.push_back(&mut slots, slot);
        }
        for gone in [2, 0, 4] {
            list.remove(&mut slots, gone);
        }
        assert_eq!(list.iter(&slots).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(list.len(), 2);
        list.push_back(&mut slots, 0);
        assert_eq!(list.iter(&slots).collect::<Vec<_>>(), [1, 3, 0]);
    }
}
