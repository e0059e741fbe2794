//! The slots of each value of an index: [`Postings`]. Nothing here depends on the type of the objects.

use std::sync::Arc;

use indexmap::IndexMap;
use reeve_client::KeyRef;

use super::names::Names;
use super::ordered::Ordered;
use super::slot::Slot;

/// The slots of each value, the values in the order of their first occurrence, so that the same history makes the same
/// lists.
#[derive(Clone, Default)]
pub(super) struct Postings(IndexMap<Arc<str>, Arc<Ordered>, foldhash::fast::RandomState>);

/// Postings that are made for all objects at once.
#[derive(Default)]
pub(super) struct Building(IndexMap<Arc<str>, Vec<Slot>, foldhash::fast::RandomState>);

// === impl Postings ===

impl Postings {
    pub(super) fn value(&self, value: &str) -> Option<&Ordered> {
        self.0.get(value).map(Arc::as_ref)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    /// The bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        // Each value has its text, its hash and pointers, its part of the table, and its slots.
        let each = |(value, slots): (&Arc<str>, &Arc<Ordered>)| {
            value.len() + 16 + size_of::<Ordered>() + 16 + slots.bytes()
        };
        self.0.capacity() * (8 + 16 + 8 + 10) + self.0.iter().map(each).sum::<usize>()
    }

    /// Records that the object in `slot`, whose key is `key`, has the values `after` instead of `before`.
    pub(super) fn change(
        &mut self,
        names: &Names,
        slot: Slot,
        key: KeyRef<'_>,
        before: &[Arc<str>],
        after: Vec<Arc<str>>,
    ) {
        for value in before.iter().filter(|value| !after.contains(value)) {
            if let Some(slots) = self.0.get_mut(value) {
                let slots = Arc::make_mut(slots);
                names.remove_from(slots, key);
                // An empty set left behind would grow without end (kubernetes#84959).
                if slots.len() == 0 {
                    self.0.swap_remove(value);
                }
            }
        }
        for value in after {
            let slots = self.0.entry(value).or_default();
            names.add_to(Arc::make_mut(slots), slot, key);
        }
    }
}

// === impl Building ===

impl Building {
    /// Adds an object. Objects come in the order of their keys.
    pub(super) fn add(&mut self, slot: Slot, values: Vec<Arc<str>>) {
        for value in values {
            let of_value = self.0.entry(value).or_default();
            if of_value.last() != Some(&slot) {
                of_value.push(slot);
            }
        }
    }

    pub(super) fn finish(self) -> Postings {
        let values = self.0.into_iter();
        Postings(
            values
                .map(|(value, slots)| (value, Arc::new(Ordered::from_sorted(&slots))))
                .collect(),
        )
    }
}
