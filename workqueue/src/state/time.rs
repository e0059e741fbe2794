//! What happens by itself: timers come due, tokens come.

use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use super::{Effects, State};
use crate::slots::{NEVER, Place};

/// How many due items are moved in one go, so that the lock is held shortly.
const SLICE: usize = 256;

impl<T: Hash + Eq + Clone + 'static> State<T> {
    /// Does the passing of time change anything?
    pub(crate) fn is_timed(&self) -> bool {
        !self.timers.is_empty() || !self.line.is_empty()
    }

    /// When something happens by itself next.
    pub(crate) fn next_event(&mut self) -> Option<u64> {
        let timer = self.timers.next(&self.slots);
        let token = (!self.line.is_empty()).then_some(self.line_next);
        timer.into_iter().chain(token).min()
    }

    /// Applies what happened by itself up to `now`, in its order. Returns whether more is left,
    /// because it was too much for one go.
    pub(crate) fn advance(&mut self, now: u64, effects: &mut Effects<T>) -> bool {
        for _ in 0..SLICE {
            let timer = self.timers.next(&self.slots).unwrap_or(NEVER);
            let token = if self.line.is_empty() {
                NEVER
            } else {
                self.line_next
            };
            let at = timer.min(token);
            if at > now || at == NEVER {
                return false;
            }
            if token <= timer {
                self.ask_for_token(at, effects);
            } else if let Some(index) = self.timers.pop(&mut self.slots) {
                self.timer_fired(index, at, effects);
            }
        }
        true
    }

    pub(super) fn ask_for_token(&mut self, at: u64, effects: &mut Effects<T>) {
        let Some(first) = self.line.first() else {
            return;
        };
        match self.limiter.release(self.instant(at)) {
            Ok(()) => {
                self.leave_wait(first);
                self.make_ready(first, at, effects);
            }
            Err(later) => {
                let later = nanoseconds(later.saturating_duration_since(self.origin));
                self.line_next = later.max(at + 1);
            }
        }
    }

    pub(super) fn timer_fired(&mut self, index: u32, at: u64, effects: &mut Effects<T>) {
        let slot = &mut self.slots[index];
        if slot.at <= at {
            self.leave_wait(index);
            self.make_ready(index, at, effects);
            return;
        }
        let goes_anyway = slot.at;
        slot.join_at = NEVER;
        slot.place = Place::InLine;
        self.waiting -= 1;
        if self.line.is_empty() {
            self.line_next = at;
        }
        self.line.push_back(&mut self.slots, index);
        if goes_anyway != NEVER {
            self.timers.set(&mut self.slots, index, goes_anyway);
        }
    }

    /// Lets a slot that waits wait for the earlier of what it waits for and `at`, `join_at`.
    pub(super) fn wait(
        &mut self,
        index: u32,
        at: u64,
        join_at: u64,
        now: u64,
        effects: &mut Effects<T>,
    ) {
        let slot = &mut self.slots[index];
        let next = slot.at.min(slot.join_at);
        slot.at = slot.at.min(at);
        if slot.place == Place::Waiting {
            slot.join_at = slot.join_at.min(join_at);
        }
        let earlier = slot.at.min(slot.join_at);
        if earlier < next {
            self.timers.set(&mut self.slots, index, earlier);
        }
        if join_at <= now {
            self.advance(now, effects);
        }
    }

    /// The slot, which waits or stands in line, does so no more.
    pub(super) fn leave_wait(&mut self, index: u32) {
        self.timers.unset(&mut self.slots, index);
        if self.slots[index].place == Place::InLine {
            self.line.remove(&mut self.slots, index);
        } else {
            self.waiting -= 1;
        }
        let slot = &mut self.slots[index];
        slot.place = Place::Unwanted;
        slot.join_at = NEVER;
    }

    pub(crate) fn instant(&self, at: u64) -> Instant {
        instant(self.origin, at)
    }
}

/// As nanoseconds; 584 years at most.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The moment `at` of a queue built at `origin`; far ones are brought within reach.
pub(crate) fn instant(origin: Instant, at: u64) -> Instant {
    const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);
    origin
        .checked_add(Duration::from_nanos(at))
        .unwrap_or_else(|| origin + FAR)
}
