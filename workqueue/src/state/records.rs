//! Records of keys that are not pending: their failures, bounded in number and age, and their last
//! hand-outs.

use std::collections::VecDeque;
use std::hash::Hash;

use super::{Effects, Now, State};
use crate::cause::Cause;
use crate::reason::ReasonBits;
use crate::slots::{Flags, NEVER, SlotState};
use crate::sparse_map::SparseMap;

/// Maximum number of expired records per operation, so that the lock is held briefly.
const SLICE: usize = 64;

/// Number of empty slots that are freed together while others are ready or in flight.
pub(super) const LEAVE_TOGETHER: usize = 64;

/// The ends of the rests of keys. Only for queues with a minimum interval.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    until: SparseMap<u64>,
    /// Hand-outs in order, to be removed when their rest ends.
    order: VecDeque<(u64, u32)>,
}

// === impl Resting ===

impl Resting {
    pub(super) fn until(&self, index: u32) -> Option<u64> {
        self.until.get(index).copied()
    }

    pub(super) fn begin(&mut self, index: u32, until: u64) {
        self.until.insert(index, until);
        self.order.push_back((until, index));
    }

    /// Revokes the rest of the last hand-out.
    pub(super) fn undo(&mut self, index: u32) {
        if let Some(until) = self.until.remove(index)
            && self.order.back() == Some(&(until, index))
        {
            self.order.pop_back();
        }
    }

    /// A slot whose rest has ended at `now`.
    fn take_rested(&mut self, now: u64) -> Option<u32> {
        const WORTH_KEEPING: usize = 4096;
        while let Some(&(until, index)) = self.order.front()
            && until <= now
        {
            self.order.pop_front();
            if self.order.capacity() > WORTH_KEEPING && self.order.len() < self.order.capacity() / 8
            {
                self.order.shrink_to(self.order.len() * 2);
            }
            // It may have been handed out again since.
            if self.until.get(index) == Some(&until) {
                self.until.remove(index);
                return Some(index);
            }
        }
        None
    }

    /// Number of keys that fit into the allocated memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.until.capacity().max(self.order.capacity())
    }
}

// === impl State ===

impl<T: Hash + Eq + Clone + 'static> State<T> {
    /// Keeps the slot of a key that is not pending for its record, or frees it.
    pub(super) fn tidy(&mut self, index: u32, now: &Now, effects: &mut Effects<T>) {
        let slot = &mut self.slots[index];
        if slot.state != SlotState::NotPending || slot.in_flight() {
            return;
        }
        slot.reasons = ReasonBits::default();
        match (slot.failures > 0, slot.is(Flags::RECORDED)) {
            (true, true) => return,
            (true, false) => {
                self.record(index, now, effects);
                return;
            }
            (false, true) => {
                slot.set(Flags::RECORDED, false);
                self.records.remove(self.slots.slab(), index);
            }
            (false, false) => {}
        }
        let slot = &mut self.slots[index];
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
        let slot = &self.slots[index];
        slot.is(Flags::LEAVING)
            && slot.state == SlotState::NotPending
            && !slot.in_flight()
            && slot.failures == 0
            && self.resting.until(index).is_none()
    }

    fn record(&mut self, index: u32, now: &Now, effects: &mut Effects<T>) {
        let at = now.read();
        let slot = &mut self.slots[index];
        slot.set(Flags::RECORDED, true);
        slot.at = at;
        if self.records.is_empty() {
            self.records_due = at.saturating_add(self.rules.record_expiry);
        }
        self.records.push_back(self.slots.slab(), index);
        if self.records.len() > self.rules.record_limit
            && let Some(oldest) = self.records.first()
        {
            self.remove_record(oldest, now, effects);
        }
    }

    fn remove_record(&mut self, index: u32, now: &Now, effects: &mut Effects<T>) {
        self.slots[index].set(Flags::RECORDED, false);
        self.records.remove(self.slots.slab(), index);
        self.forget_slot(index);
        self.tidy(index, now, effects);
    }

    fn is_expired(&self, index: u32, now: &Now) -> bool {
        let slot = &self.slots[index];
        slot.is(Flags::RECORDED) && slot.at.saturating_add(self.rules.record_expiry) <= now.read()
    }

    /// Clears the failures of a slot if they have expired.
    pub(super) fn expire(&mut self, index: u32, now: &Now) {
        if self.is_expired(index, now) {
            self.forget_slot(index);
        }
    }

    /// Removes some expired records.
    pub(super) fn sweep(&mut self, now: &Now, effects: &mut Effects<T>) {
        let at = now.read();
        for _ in 0..SLICE {
            match self.resting.take_rested(at) {
                Some(index) => self.tidy(index, now, effects),
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
            self.records_due = self.slots[oldest]
                .at
                .saturating_add(self.rules.record_expiry);
            if self.records_due > at {
                return;
            }
            self.remove_record(oldest, now, effects);
        }
    }

    /// Clears the failures of a slot. The limiter is called last: it may panic.
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
            self.forget_slot(index);
            self.tidy(index, now, effects);
        }
    }

    pub(crate) fn failures(&self, hash: u32, key: &T, now: &Now) -> u32 {
        match self.slots.find(hash, key) {
            Some(index) if !self.is_expired(index, now) => u32::from(self.slots[index].failures),
            _ => 0,
        }
    }
}
