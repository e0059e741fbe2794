//! Records of keys that are not pending: their failures, bounded in number and age.

use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::data::LEAVE_TOGETHER;
use super::{Effects, State};
use crate::cause::Cause;
use crate::item_state::{Event, ItemState};
use crate::now::{NEVER, Now};
use crate::reason::ReasonBits;
use crate::slots::Flags;

/// Maximum number of expired records per operation, so that the lock is held briefly.
const SLICE: usize = 64;

// === impl State ===

impl<T: Hash + Eq + Clone + 'static> State<T> {
    /// Frees the slot of an idle item, together with others.
    pub(super) fn release(&mut self, index: u32, effects: &mut Effects<T>) {
        let slot = &mut self.slots[index];
        slot.reasons = ReasonBits::default();
        if !slot.is(Flags::LEAVING) {
            slot.set(Flags::LEAVING, true);
            self.leaving.push(index);
        }
        if self.leaving.len() >= LEAVE_TOGETHER || self.ready.is_empty() && self.flights.len() == 0
        {
            self.give_back(effects);
        }
    }

    /// Frees empty slots.
    ///
    /// In one go, because in a large queue each removal waits for memory. Prefetching for all of them first
    /// overlaps these waits.
    fn give_back(&mut self, effects: &mut Effects<T>) {
        let mut leaving = std::mem::take(&mut self.leaving);
        for &index in &leaving {
            self.slots.prefetch(index);
        }
        for index in leaving.drain(..) {
            let goes = self.is_leaving(index);
            self.slots[index].set(Flags::LEAVING, false);
            if !goes {
                continue;
            }
            self.ready.leave(index);
            effects.drop_later(Some(self.slots.remove(index)));
        }
        self.leaving = leaving;
    }

    /// Whether the slot is empty, but not freed yet.
    pub(super) fn is_leaving(&self, index: u32) -> bool {
        self.slots[index].is(Flags::LEAVING)
            && self.slots[index].state() == ItemState::Idle
            && self.resting.until(index).is_none()
    }

    /// Adds an item to the failure records, and removes the oldest one if there are too many.
    pub(super) fn record(&mut self, index: u32, now: &Now, effects: &mut Effects<T>) {
        self.slots[index].reasons = ReasonBits::default();
        if self.records.is_empty() {
            self.records_due = now.read().saturating_add(self.rules.record_expiry);
        }
        self.records.push_back(self.slots.slab(), index);
        if self.records.len() > self.rules.record_limit
            && let Some(oldest) = self.records.first()
        {
            self.evict(oldest, now, effects);
        }
    }

    /// Drops a record. A panic of the limiter ends here: its key is not the key of the operation, part of which is
    /// done.
    fn evict(&mut self, index: u32, now: &Now, effects: &mut Effects<T>) {
        let forget = AssertUnwindSafe(|| self.forget_slot(index));
        // The failures are cleared before the limiter is called; the hook has printed the panic.
        let _ = catch_unwind(forget);
        self.apply(index, Event::Forgotten, now, effects);
    }

    /// The time at which the record of an item in `state` expires, if it is kept for its record.
    fn expiry(&self, state: ItemState) -> Option<u64> {
        match state {
            ItemState::Recorded { since } => Some(since.saturating_add(self.rules.record_expiry)),
            _ => None,
        }
    }

    fn is_expired(&self, state: ItemState, now: &Now) -> bool {
        let expiry = self.expiry(state);
        expiry.is_some_and(|expiry| expiry <= now.read())
    }

    /// Clears the failures of a slot in `state` if they have expired.
    #[inline]
    pub(super) fn expire(&mut self, index: u32, state: ItemState, now: &Now) {
        if self.is_expired(state, now) {
            self.forget_slot(index);
        }
    }

    /// Removes some expired records.
    pub(super) fn sweep(&mut self, now: &Now, effects: &mut Effects<T>) {
        let at = now.read();
        for _ in 0..SLICE {
            match self.resting.take_rested(at) {
                Some(index) if self.slots[index].state() == ItemState::Idle => {
                    self.release(index, effects);
                }
                Some(_) => {}
                None => break,
            }
        }
        if at < self.records_due {
            return;
        }
        for _ in 0..SLICE {
            let Some(oldest) = self.records.first() else {
                self.records_due = NEVER;
                return;
            };
            self.records_due = self.expiry(self.slots[oldest].state()).unwrap_or(NEVER);
            if self.records_due > at {
                return;
            }
            self.evict(oldest, now, effects);
        }
    }

    /// Clears the failures of a slot, without an event. The limiter is called last: it may panic.
    pub(super) fn forget_slot(&mut self, index: u32) {
        let slot = &mut self.slots[index];
        if slot.failures == 0 {
            return;
        }
        slot.failures = 0;
        self.failing -= 1;
        if slot.is(Flags::EXPLAINED) {
            slot.set(Flags::EXPLAINED, false);
            self.explained.remove(index);
        }
        self.rules.limiter.forget(&self.slots[index].key);
    }

    /// Counts a failure, and keeps its cause.
    pub(super) fn count_failure(&mut self, index: u32, cause: Option<Cause>) {
        let slot = &mut self.slots[index];
        self.failing += usize::from(slot.failures == 0);
        slot.failures = slot.failures.saturating_add(1);
        if let Some(cause) = cause {
            slot.set(Flags::EXPLAINED, true);
            self.explained.insert(index, cause);
        }
    }

    /// Clears the failure record of `key`.
    pub(crate) fn forget(&mut self, hash: u32, key: &T, now: &Now, effects: &mut Effects<T>) {
        if let Some(index) = self.slots.find(hash, key) {
            self.forget_item(index, now, effects);
        }
    }

    /// Clears the failures of an item, and removes its record.
    fn forget_item(&mut self, index: u32, now: &Now, effects: &mut Effects<T>) {
        self.forget_slot(index);
        self.apply(index, Event::Forgotten, now, effects);
    }

    pub(crate) fn failures(&self, hash: u32, key: &T, now: &Now) -> u32 {
        match self.slots.find(hash, key) {
            Some(index) => {
                let slot = &self.slots[index];
                let expired = self.is_expired(slot.state(), now);
                u32::from(if expired { 0 } else { slot.failures })
            }
            None => 0,
        }
    }
}
