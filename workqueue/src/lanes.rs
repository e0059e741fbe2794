//! Turns of tenants: one lane for each tenant with items, in rotation.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::fairness::Tenant;
use crate::slab::{Linked, Links, List, Slab};
use crate::slots::Slot;

#[derive(Debug, Default)]
pub(crate) struct Lanes {
    by_tenant: HashMap<u64, u32>,
    lanes: Slab<Lane>,
    /// The lane whose turn it is comes first.
    rotation: List,
}

#[derive(Debug)]
struct Lane {
    links: Links,
    items: List,
    weight: u32,
    /// Items left in the current turn.
    credit: u32,
}

impl Linked for Lane {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

// === impl Lanes ===

impl Lanes {
    pub(crate) fn push<T>(&mut self, slots: &mut Slab<Slot<T>>, index: u32, tenant: Tenant) {
        let weight = tenant.weight.get();
        let number = match self.by_tenant.entry(tenant.id) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let number = self.lanes.insert(Lane {
                    links: Links::default(),
                    items: List::default(),
                    weight,
                    credit: weight,
                });
                self.rotation.push_back(&mut self.lanes, number);
                *entry.insert(number)
            }
        };
        let lane = &mut self.lanes[number];
        lane.weight = weight;
        lane.items.push_back(slots, index);
    }

    /// Removes an item; `turn` charges it to the turn of its tenant, because it was handed out.
    pub(crate) fn remove<T>(
        &mut self,
        slots: &mut Slab<Slot<T>>,
        index: u32,
        tenant: Tenant,
        turn: bool,
    ) {
        let Some(&number) = self.by_tenant.get(&tenant.id) else {
            return;
        };
        let lane = &mut self.lanes[number];
        lane.items.remove(slots, index);
        if lane.items.is_empty() {
            self.rotation.remove(&mut self.lanes, number);
            self.lanes.remove(number);
            self.by_tenant.remove(&tenant.id);
            self.give_back();
        } else if turn {
            lane.credit = lane.credit.saturating_sub(1);
            if lane.credit == 0 {
                lane.credit = lane.weight;
                self.rotation.remove(&mut self.lanes, number);
                self.rotation.push_back(&mut self.lanes, number);
            }
        }
    }

    pub(crate) fn first(&self) -> Option<u32> {
        self.lanes[self.rotation.first()?].items.first()
    }

    /// The items, by tenant.
    pub(crate) fn iter<'a, T>(
        &'a self,
        slots: &'a Slab<Slot<T>>,
    ) -> impl Iterator<Item = u32> + 'a {
        self.rotation
            .iter(&self.lanes)
            .flat_map(|number| self.lanes[number].items.iter(slots))
    }

    fn give_back(&mut self) {
        const WORTH_KEEPING: usize = 4096;
        if self.by_tenant.capacity() > WORTH_KEEPING
            && self.by_tenant.len() < self.by_tenant.capacity() / 8
        {
            self.by_tenant.shrink_to(self.by_tenant.len() * 2);
        }
    }

    /// Number of tenants that fit into the allocated memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.lanes.capacity().max(self.by_tenant.capacity())
    }
}
