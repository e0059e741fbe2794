//! Timers and tokens: changes that time brings.

use std::hash::Hash;

use tokio::time::Instant;

use super::{Effects, Now, State, Wait, instant, nanoseconds};
use crate::slots::{Flags, NEVER, NONE, SlotState};
use crate::timers::Step;

/// Maximum number of timers moved in one operation, so that the lock is held briefly.
const SLICE: usize = 256;

impl<T: Hash + Eq + Clone + 'static> State<T> {
    /// Whether the passing of time changes anything.
    pub(crate) fn is_timed(&self) -> bool {
        !self.timers.is_empty() || !self.token_queue.is_empty()
    }

    /// The time of the next timer or token, or an earlier time.
    pub(crate) fn next_event(&mut self) -> Option<u64> {
        let timer = self.timers.next();
        let token = (!self.token_queue.is_empty()).then_some(self.next_token_at);
        timer.into_iter().chain(token).min()
    }

    /// Applies timers and tokens up to `now`, in order. Returns whether more are due than one slice.
    pub(crate) fn advance(&mut self, now: u64, effects: &mut Effects<T>) -> bool {
        for _ in 0..SLICE {
            let token = if self.token_queue.is_empty() {
                NEVER
            } else {
                self.next_token_at
            };
            // A token comes before a timer of the same time.
            let up_to = now.min(token.saturating_sub(1));
            match self.timers.step(up_to) {
                Step::Due(index) => self.timer_fired(index, effects),
                Step::Moved => {}
                Step::MovedFirst => self.prefetch(),
                Step::Idle if token <= now => self.take_token(token, effects),
                Step::Idle => return false,
            }
        }
        true
    }

    /// Prefetches the memory that the next timers need.
    fn prefetch(&self) {
        let (slots, due) = self.timers.next_slots();
        for slot in slots {
            std::hint::black_box(if due { self.slots[slot].at } else { 0 });
        }
    }

    fn take_token(&mut self, at: u64, effects: &mut Effects<T>) {
        let Some(first) = self.token_queue.first() else {
            return;
        };
        match self.rules.limiter.release(self.instant(at)) {
            Ok(()) => {
                self.leave_wait(first);
                self.make_ready(first, &Now::at(self.rules.origin, at), effects);
            }
            Err(later) => {
                let later = nanoseconds(later.saturating_duration_since(self.rules.origin));
                self.next_token_at = later.max(at + 1);
            }
        }
    }

    fn timer_fired(&mut self, (index, at): (u32, u64), effects: &mut Effects<T>) {
        let mut wait = self.load_wait(index, at);
        self.slots[index].at = u64::from(NONE);
        if wait.ready_at <= at {
            self.leave_wait(index);
            self.make_ready(index, &Now::at(self.rules.origin, at), effects);
            return;
        }
        wait.join_at = NEVER;
        self.slots[index].state = SlotState::AwaitingToken;
        self.waiting -= 1;
        if self.token_queue.is_empty() {
            self.next_token_at = at;
        }
        self.token_queue.push_back(self.slots.slab(), index);
        self.store_wait(index, wait, at);
    }

    /// The times a slot waits for. `timer_at` is the time of its timer.
    fn load_wait(&self, index: u32, timer_at: u64) -> Wait {
        let slot = &self.slots[index];
        if slot.is(Flags::WAITS_LONG)
            && let Some(wait) = self.waits.get(index)
        {
            return *wait;
        }
        let mut wait = Wait::NOTHING;
        if slot.is(Flags::TO_TOKEN_QUEUE) {
            wait.join_at = timer_at;
        } else {
            wait.ready_at = timer_at;
        }
        wait
    }

    fn store_wait(&mut self, index: u32, wait: Wait, now: u64) {
        let slot = &mut self.slots[index];
        slot.set(Flags::TO_TOKEN_QUEUE, wait.join_at != NEVER);
        if !wait.is_simple() {
            slot.set(Flags::WAITS_LONG, true);
            self.waits.insert(index, wait);
        } else if slot.is(Flags::WAITS_LONG) {
            slot.set(Flags::WAITS_LONG, false);
            self.waits.remove(index);
        }
        let next = wait.next();
        let timer = self.timer(index);
        if let Some(timer) = timer {
            if self.timers.at(timer) == next {
                return;
            }
            self.timers.remove(timer);
        }
        let timer = if next == NEVER {
            NONE
        } else {
            self.timers.insert(index, next, now)
        };
        self.slots[index].at = u64::from(timer);
    }

    /// The timer of a waiting slot.
    fn timer(&self, index: u32) -> Option<u32> {
        let timer = u32::try_from(self.slots[index].at).unwrap_or(NONE);
        (timer != NONE).then_some(timer)
    }

    /// When the timer of a waiting slot is due.
    pub(crate) fn due(&self, index: u32) -> u64 {
        self.timer(index)
            .map_or(NEVER, |timer| self.timers.at(timer))
    }

    /// Makes a slot that is not pending wait.
    pub(super) fn begin_wait(
        &mut self,
        index: u32,
        wait: Wait,
        now: u64,
        effects: &mut Effects<T>,
    ) {
        self.waiting += 1;
        let slot = &mut self.slots[index];
        slot.state = SlotState::Waiting;
        slot.at = u64::from(NONE);
        self.store_wait(index, wait, now);
        if wait.join_at <= now {
            self.advance(now, effects);
        }
    }

    /// Makes a waiting slot wait for `more` too.
    pub(super) fn wait_too(&mut self, index: u32, more: Wait, now: u64, effects: &mut Effects<T>) {
        let mut wait = self.load_wait(index, self.due(index)).merge(more);
        if self.slots[index].state == SlotState::AwaitingToken {
            wait.join_at = NEVER;
        }
        self.store_wait(index, wait, now);
        if more.join_at <= now {
            self.advance(now, effects);
        }
    }

    /// Ends the wait of a slot.
    pub(super) fn leave_wait(&mut self, index: u32) {
        if let Some(timer) = self.timer(index) {
            self.timers.remove(timer);
        }
        if self.slots[index].state == SlotState::AwaitingToken {
            self.token_queue.remove(self.slots.slab(), index);
        } else {
            self.waiting -= 1;
        }
        let slot = &mut self.slots[index];
        slot.state = SlotState::NotPending;
        slot.set(Flags::TO_TOKEN_QUEUE, false);
        if slot.is(Flags::WAITS_LONG) {
            slot.set(Flags::WAITS_LONG, false);
            self.waits.remove(index);
        }
    }

    /// Drops everything that waits.
    pub(super) fn drop_waits(&mut self, now: &Now, effects: &mut Effects<T>) {
        let timed = self.timers.clear();
        for &index in &timed {
            self.slots[index].at = u64::from(NONE);
        }
        let queued: Vec<u32> = self.token_queue.iter(self.slots.as_slab()).collect();
        for index in timed.into_iter().chain(queued) {
            // Some are in the token queue and have a timer.
            if self.waits_now(index) {
                self.leave_wait(index);
                self.tidy(index, now, effects);
            }
        }
    }

    fn waits_now(&self, index: u32) -> bool {
        let slot = self.slots.as_slab().get(index);
        slot.is_some_and(|slot| matches!(slot.state, SlotState::Waiting | SlotState::AwaitingToken))
    }

    pub(super) fn instant(&self, at: u64) -> Instant {
        instant(self.rules.origin, at)
    }
}
