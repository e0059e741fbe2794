//! What is to be handed out: the highest priority first, and first come first served within it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::slots::{List, Slots};

/// Priorities that have no item now, but stay in the map so that it does not churn.
const KEPT_EMPTY: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Ready {
    classes: BTreeMap<Reverse<i32>, List>,
    len: usize,
}

// === impl Ready ===

impl Ready {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends the slot to the items of its own priority.
    pub(crate) fn push<T>(&mut self, slots: &mut Slots<T>, index: u32) {
        let class = self
            .classes
            .entry(Reverse(slots[index].priority))
            .or_default();
        class.push_back(slots, index);
        self.len += 1;
    }

    /// Takes the slot out of the items of its own priority.
    pub(crate) fn remove<T>(&mut self, slots: &mut Slots<T>, index: u32) {
        let priority = Reverse(slots[index].priority);
        if let Some(class) = self.classes.get_mut(&priority) {
            class.remove(slots, index);
            self.len -= 1;
            if class.is_empty() && self.classes.len() > KEPT_EMPTY {
                self.classes.remove(&priority);
            }
        }
    }

    /// Who is next.
    pub(crate) fn first(&self) -> Option<u32> {
        self.classes.values().find_map(List::first)
    }

    /// The slots in the order of handing out.
    pub(crate) fn iter<'a, T>(&'a self, slots: &'a Slots<T>) -> impl Iterator<Item = u32> + 'a {
        self.classes.values().flat_map(|class| class.iter(slots))
    }

    /// How many items there are of each priority, highest first.
    pub(crate) fn depth(&self) -> impl Iterator<Item = (i32, usize)> + '_ {
        self.classes
            .iter()
            .map(|(priority, class)| (priority.0, class.len()))
    }
}
