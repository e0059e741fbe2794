//! The content of one index: [`Postings`].

use std::sync::Arc;

use indexmap::IndexMap;

use super::objects::{CHUNK, Names, Slot};
use super::ordered::Ordered;
use crate::turns::Turns;
use reeve_client::KeyRef;

/// The slots of each value, the values in the order of their first occurrence, so that the same history makes the same
/// lists; and the values of each slot. Nothing here depends on the type of the objects.
#[derive(Clone, Default)]
pub(super) struct Postings {
    slots: IndexMap<Arc<str>, Arc<Ordered>, foldhash::fast::RandomState>,
    values: Remembered,
}

/// Postings that are made for all objects at once.
#[derive(Default)]
pub(super) struct Building {
    slots: IndexMap<Arc<str>, Vec<Slot>, foldhash::fast::RandomState>,
    values: Remembered,
}

/// The values of one object. Objects with equal values share them.
pub(super) type Values = Arc<Vec<Arc<str>>>;

/// The values of each slot, so that the index function is called once an update, and not at all for a deletion. It takes
/// 8 bytes a slot; a clone shares all chunks.
#[derive(Clone, Default)]
struct Remembered(Vec<Arc<[Option<Values>; CHUNK]>>);

// === impl Remembered ===

impl Remembered {
    fn get(&self, slot: Slot) -> Option<&Values> {
        let slot = slot as usize;
        self.0.get(slot / CHUNK)?[slot % CHUNK].as_ref()
    }

    fn set(&mut self, slot: Slot, values: Option<Values>) {
        let slot = slot as usize;
        if self.0.len() <= slot / CHUNK {
            if values.is_none() {
                return;
            }
            self.0
                .resize_with(slot / CHUNK + 1, || Arc::new([const { None }; CHUNK]));
        }
        Arc::make_mut(&mut self.0[slot / CHUNK])[slot % CHUNK] = values;
    }

    /// `values`, shared with the object in `slot` if it has the same; `None` if there are none.
    fn shared(&self, slot: Option<Slot>, values: Vec<Arc<str>>) -> Option<Values> {
        if values.is_empty() {
            return None;
        }
        let known = slot.and_then(|slot| self.get(slot));
        let same = known.filter(|known| ***known == values);
        Some(same.map_or_else(|| Arc::new(values), Arc::clone))
    }
}

// === impl Postings ===

impl Postings {
    /// The slots with this value.
    pub(super) fn value(&self, value: &str) -> Option<&Ordered> {
        self.slots.get(value).map(Arc::as_ref)
    }

    /// All values.
    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<str>> {
        self.slots.keys()
    }

    /// The values of the object in `slot`.
    pub(super) fn of(&self, slot: Slot) -> &[Arc<str>] {
        self.values
            .get(slot)
            .map(|values| &***values)
            .unwrap_or_default()
    }

    /// The values of the object in `slot`, to be shared with other postings.
    pub(super) fn remembered(&self, slot: Slot) -> Option<Values> {
        self.values.get(slot).cloned()
    }

    /// The bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        // Each value has its text, its hash and pointers, its part of the table, its slots, and one list of values.
        let list = 2 * size_of::<usize>() + size_of::<Vec<Arc<str>>>() + size_of::<Arc<str>>();
        let each = |(value, slots): (&Arc<str>, &Arc<Ordered>)| {
            value.len() + 16 + size_of::<Ordered>() + 16 + slots.bytes() + list
        };
        self.slots.capacity() * (8 + 16 + 8 + 10)
            + self.slots.iter().map(each).sum::<usize>()
            + self.values.0.len() * size_of::<[Option<Values>; CHUNK]>()
    }

    /// Records that the object in `slot`, whose key is `key`, has the values `after`.
    pub(super) fn change(
        &mut self,
        names: &Names,
        slot: Slot,
        key: KeyRef<'_>,
        after: Vec<Arc<str>>,
    ) {
        let before = self.values.get(slot).cloned();
        let before = before.as_deref().map(Vec::as_slice).unwrap_or_default();
        for value in before.iter().filter(|value| !after.contains(value)) {
            if let Some(slots) = self.slots.get_mut(value) {
                let slots = Arc::make_mut(slots);
                names.remove_from(slots, key);
                // An empty set left behind would grow without end (kubernetes#84959).
                if slots.len() == 0 {
                    self.slots.swap_remove(value);
                }
            }
        }
        let first = after.first().and_then(|first| self.slots.get(first));
        let peer = first.and_then(|slots| slots.iter().next());
        for value in after.iter().filter(|value| !before.contains(value)) {
            let slots = self.slots.entry(Arc::clone(value)).or_default();
            names.add_to(Arc::make_mut(slots), slot, key);
        }
        let after = self.values.shared(peer, after);
        self.values.set(slot, after);
    }

    /// Frees them in turns.
    pub(super) async fn free(self, turns: &mut Turns) {
        for value in self.slots {
            drop(value);
            turns.spend(1).await;
        }
        for chunk in self.values.0 {
            // A chunk that another state shares costs nothing.
            let objects = Arc::into_inner(chunk).map_or(1, |_| CHUNK);
            turns.spend(objects).await;
        }
    }
}

// === impl Building ===

impl Building {
    /// Adds an object. Objects come in the order of their keys.
    pub(super) fn add(&mut self, slot: Slot, values: Vec<Arc<str>>) {
        let first = values.first().and_then(|first| self.slots.get(first));
        let peer = first.and_then(|slots| slots.last().copied());
        let values = self.values.shared(peer, values);
        self.keep(slot, values);
    }

    /// The same, with values that other postings share, if there are any.
    pub(super) fn keep(&mut self, slot: Slot, values: Option<Values>) {
        for value in values.iter().flat_map(|values| values.iter()) {
            let of_value = self.slots.entry(Arc::clone(value)).or_default();
            if of_value.last() != Some(&slot) {
                of_value.push(slot);
            }
        }
        self.values.set(slot, values);
    }

    pub(super) async fn finish(self, turns: &mut Turns) -> Postings {
        let mut postings = Postings {
            slots: IndexMap::with_capacity_and_hasher(self.slots.len(), Default::default()),
            values: self.values,
        };
        for (value, slots) in self.slots {
            turns.spend(1).await;
            postings
                .slots
                .insert(value, Arc::new(Ordered::from_sorted(&slots)));
        }
        postings
    }
}
