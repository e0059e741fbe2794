//! Ready items: the highest priority first; within it by turns of the tenants if there are any, else first
//! come first served.
//!
//! *Ageing*: an item that has been ready for longer than a limit is overdue. While the next item of a
//! lower priority is overdue, every second hand-out goes to the one that has been ready longest.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::fairness::Tenant;
use crate::lanes::Lanes;
use crate::slab::{List, Slab};
use crate::slots::Slot;
use crate::sparse_map::SparseMap;

/// Number of empty priorities that stay in the map, so that it does not churn.
const KEPT_EMPTY: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Ready {
    classes: BTreeMap<Reverse<i32>, Class>,
    len: usize,
    /// Age at which an item is overdue.
    ageing: Option<u64>,
    /// No item of a lower priority is overdue before this time. Zero: unknown.
    overdue_from: u64,
    /// The last hand-out was by priority, past an overdue item.
    owed: bool,
    /// The tenant of each slot, if tenants take turns.
    tenants: Option<SparseMap<Tenant>>,
}

/// The items of one priority.
#[derive(Debug, Default)]
struct Class {
    len: usize,
    /// The items, without tenants.
    items: List,
    lanes: Option<Box<Lanes>>,
}

// === impl Class ===

impl Class {
    fn first(&self) -> Option<u32> {
        match &self.lanes {
            None => self.items.first(),
            Some(lanes) => lanes.first(),
        }
    }

    fn iter<'a, T>(&'a self, slots: &'a Slab<Slot<T>>) -> impl Iterator<Item = u32> + 'a {
        let lanes = self.lanes.iter();
        self.items
            .iter(slots)
            .chain(lanes.flat_map(|lanes| lanes.iter(slots)))
    }
}

// === impl Ready ===

impl Ready {
    pub(crate) fn new(ageing: Option<u64>, fair: bool) -> Self {
        Self {
            ageing,
            tenants: fair.then(SparseMap::default),
            ..Self::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets the tenant of the slot, until [`Ready::leave`].
    pub(crate) fn enter(&mut self, index: u32, tenant: Tenant) {
        if let Some(tenants) = &mut self.tenants {
            tenants.insert(index, tenant);
        }
    }

    /// The slot is freed.
    pub(crate) fn leave(&mut self, index: u32) {
        if let Some(tenants) = &mut self.tenants {
            tenants.remove(index);
        }
    }

    /// Appends the slot to the items of its own priority.
    pub(crate) fn push<T>(&mut self, slots: &mut Slab<Slot<T>>, index: u32) {
        let priority = Reverse(slots[index].priority);
        let class = self.classes.entry(priority).or_default();
        let tenants = self.tenants.as_ref();
        match tenants.and_then(|tenants| tenants.get(index)) {
            None => class.items.push_back(slots, index),
            Some(&tenant) => {
                let lanes = class.lanes.get_or_insert_default();
                lanes.push(slots, index, tenant);
            }
        }
        class.len += 1;
        if class.len == 1 {
            self.overdue_from = 0;
        }
        self.len += 1;
    }

    /// Takes the slot out of the items of its own priority.
    pub(crate) fn remove<T>(&mut self, slots: &mut Slab<Slot<T>>, index: u32) {
        // An item behind it may have been ready for longer.
        self.overdue_from = 0;
        self.take_out(slots, index, false);
    }

    fn take_out<T>(&mut self, slots: &mut Slab<Slot<T>>, index: u32, turn: bool) {
        let priority = Reverse(slots[index].priority);
        let Some(class) = self.classes.get_mut(&priority) else {
            return;
        };
        let tenants = self.tenants.as_ref();
        match (
            &mut class.lanes,
            tenants.and_then(|tenants| tenants.get(index)),
        ) {
            (Some(lanes), Some(&tenant)) => lanes.remove(slots, index, tenant, turn),
            _ => class.items.remove(slots, index),
        }
        class.len -= 1;
        self.len -= 1;
        if class.len == 0 && self.classes.len() > KEPT_EMPTY {
            self.classes.remove(&priority);
        }
    }

    /// The next item at `now`, for [`Ready::take`].
    pub(crate) fn next<T>(&mut self, slots: &Slab<Slot<T>>, now: u64) -> Option<Next> {
        let mut classes = self.classes.values().filter(|class| class.len > 0);
        let index = classes.next()?.first()?;
        let mut next = Next {
            index,
            overdue: false,
            owes: false,
        };
        if let Some(ageing) = self.ageing
            && self.overdue_from <= now
        {
            let longest = classes
                .filter_map(Class::first)
                .min_by_key(|&index| slots[index].ready_since());
            self.overdue_from = longest.map_or(u64::MAX, |index| {
                slots[index].ready_since().saturating_add(ageing)
            });
            if let Some(index) = longest
                && self.overdue_from <= now
            {
                if self.owed {
                    next.index = index;
                    next.overdue = true;
                } else {
                    next.owes = true;
                }
            }
        }
        Some(next)
    }

    pub(crate) fn take<T>(&mut self, slots: &mut Slab<Slot<T>>, next: Next) {
        self.owed = next.owes;
        if next.overdue {
            self.overdue_from = 0;
        }
        self.take_out(slots, next.index, true);
    }

    /// The slots in the order of hand-out, without ageing, and with all items of a tenant together.
    pub(crate) fn iter<'a, T>(
        &'a self,
        slots: &'a Slab<Slot<T>>,
    ) -> impl Iterator<Item = u32> + 'a {
        self.classes.values().flat_map(|class| class.iter(slots))
    }

    /// Number of items of each priority, highest first.
    pub(crate) fn depth(&self) -> impl Iterator<Item = (i32, usize)> + '_ {
        self.classes
            .iter()
            .map(|(priority, class)| (priority.0, class.len))
    }

    /// Number of tenants that fit into the allocated memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        let lanes = self
            .classes
            .values()
            .filter_map(|class| class.lanes.as_ref());
        let lanes = lanes.map(|lanes| lanes.capacity()).sum::<usize>();
        lanes + self.tenants.as_ref().map_or(0, SparseMap::capacity)
    }
}

/// The next item to hand out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    pub(crate) index: u32,
    /// Chosen because it is overdue, past a higher priority.
    overdue: bool,
    /// Chosen by priority, past an overdue item.
    owes: bool,
}
