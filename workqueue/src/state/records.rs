//! Failure records: kept in the slot of their key, bounded for keys that nobody wants any more.

use std::hash::Hash;

use super::{Effects, State};
use crate::reason::ReasonBits;
use crate::slots::Place;

impl<T: Hash + Eq + Clone + 'static> State<T> {
    /// Keeps an unwanted slot for its failures, or gives it back.
    pub(super) fn tidy(&mut self, index: u32, effects: &mut Effects<T>) {
        let slot = &mut self.slots[index];
        if slot.place != Place::Unwanted || slot.in_flight {
            return;
        }
        slot.reasons = ReasonBits::default();
        match (slot.failures > 0, slot.recorded) {
            (true, true) => {}
            (true, false) => {
                slot.recorded = true;
                self.records.push_back(&mut self.slots, index);
                if self.records.len() > self.record_limit
                    && let Some(oldest) = self.records.first()
                {
                    self.remove_record(oldest, effects);
                }
            }
            (false, true) => self.remove_record(index, effects),
            (false, false) => self.remove_slot(index, effects),
        }
    }

    pub(super) fn remove_record(&mut self, index: u32, effects: &mut Effects<T>) {
        self.records.remove(&mut self.slots, index);
        self.slots[index].recorded = false;
        self.remove_slot(index, effects);
    }

    pub(super) fn remove_slot(&mut self, index: u32, effects: &mut Effects<T>) {
        effects.drop_later(self.slots.remove(index));
        if let Some(memory) = self.slots.give_back() {
            self.timers.forget_all();
            effects.give_back_later(memory);
        }
    }

    pub(super) fn forget_slot(&mut self, index: u32) {
        let slot = &mut self.slots[index];
        if slot.failures > 0 {
            slot.failures = 0;
            if let Some(key) = &slot.key {
                self.limiter.forget(key);
            }
        }
    }

    /// Clears the failure record of `key`.
    pub(crate) fn forget(&mut self, hash: u32, key: &T, effects: &mut Effects<T>) {
        if let Some(index) = self.slots.find(hash, key) {
            self.forget_slot(index);
            self.tidy(index, effects);
        }
    }

    pub(crate) fn failures(&self, hash: u32, key: &T) -> u32 {
        let known = self.slots.find(hash, key);
        known.map_or(0, |index| self.slots[index].failures)
    }
}
