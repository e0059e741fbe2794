//! What is remembered of keys that nobody wants: their failures, bounded and not for ever, and when
//! they were last handed out.

use std::collections::VecDeque;
use std::hash::Hash;

use super::{Effects, Now, State};
use crate::cause::Cause;
use crate::reason::ReasonBits;
use crate::side::Side;
use crate::slots::{Flags, NEVER, Place};

/// How much is forgotten in one go, so that the lock is held shortly.
const SLICE: usize = 64;

/// So many slots of which nothing is left are given back together, while others are ready or in flight.
pub(super) const LEAVE_TOGETHER: usize = 64;

/// Until when keys that were handed out rest. Only for queues with a minimum interval.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    until: Side<u64>,
    /// Hand-outs in their order, to be forgotten when their time has come.
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

    /// The hand-out that began last does not count.
    pub(super) fn undo(&mut self, index: u32) {
        if let Some(until) = self.until.remove(index)
            && self.order.back() == Some(&(until, index))
        {
            self.order.pop_back();
        }
    }

    /// A slot that rests no more at `now`.
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

    /// How many keys there is memory for.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.until.capacity().max(self.order.capacity())
    }
}

// === impl State ===

impl<T: Hash + Eq + Clone + 'static> State<T> {
    /// Keeps an unwanted slot for what is to be remembered, or gives it back.
    pub(super) fn tidy(&mut self, index: u32, now: &Now, effects: &mut Effects<T>) {
        let slot = &mut self.slots[index];
        if slot.place != Place::Unwanted || slot.in_flight() || slot.is(Flags::DOUBLED) {
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

    /// Gives back the slots of which nothing is left.
    ///
    /// Together, because in a crowd each removal waits for memory of its own; read one after the other
    /// without anything between, these are waited for together.
    fn give_back(&mut self, effects: &mut Effects<T>) {
        let mut leaving = std::mem::take(&mut self.leaving);
        for &index in &leaving {
            self.slots.look_ahead(index);
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

    /// Nothing is left of the slot, though it has not been given back yet.
    pub(super) fn is_leaving(&self, index: u32) -> bool {
        let slot = &self.slots[index];
        slot.is(Flags::LEAVING)
            && slot.place == Place::Unwanted
            && !slot.in_flight()
            && slot.failures == 0
            && !slot.is(Flags::DOUBLED)
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

    /// Forgets the failures of a slot if they are too long ago.
    pub(super) fn expire(&mut self, index: u32, now: &Now) {
        if self.is_expired(index, now) {
            self.forget_slot(index);
        }
    }

    /// Forgets some of what is too long ago.
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

    /// Clears the failures of a slot. The limiter is told last: it may panic.
    pub(super) fn forget_slot(&mut self, index: u32) {
        let slot = &mut self.slots[index];
        if slot.failures == 0 {
            return;
        }
        slot.failures = 0;
        if slot.is(Flags::EXPLAINED) {
            slot.set(Flags::EXPLAINED, false);
            self.explained.remove(index);
        }
        self.rules.limiter.forget(&self.slots[index].key);
    }

    /// Counts a failure, and keeps why.
    pub(super) fn count_failure(&mut self, index: u32, cause: Option<Cause>) {
        let slot = &mut self.slots[index];
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
