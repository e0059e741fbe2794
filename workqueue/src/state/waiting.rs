//! Timers and tokens: changes that time brings.

use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Effects, State};
use crate::item_state::Event;
use crate::now::{NEVER, Now, nanoseconds};
use crate::slab::NONE;
use crate::timers::{PREFETCHED, Step};

/// Maximum number of timers moved in one operation, so that the lock is held briefly.
const SLICE: usize = 256;

/// Nanoseconds after which a limiter that panicked is asked for a token again.
const RELEASE_AGAIN: u64 = 1_000_000_000;

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
                Step::Due((index, at)) => {
                    self.slots.timer_fired(index);
                    let now = Now::at(self.rules.origin, at);
                    self.apply(index, Event::TimerFired, &now, effects);
                }
                Step::Moved => {}
                Step::MovedFirst => self.prefetch(),
                Step::Idle if token <= now => self.take_token(token, effects),
                Step::Idle => return false,
            }
        }
        true
    }

    /// Prefetches the memory that the next timers need, and that the hand-out of their items needs: all timers, then all slots,
    /// then all keys. Each of them is a cache miss in a large queue, and misses of one kind overlap.
    fn prefetch(&self) {
        let (next, due) = self.timers.next_slots();
        let mut slots = [NONE; PREFETCHED];
        let mut count = 0;
        for (place, slot) in slots.iter_mut().zip(next) {
            *place = slot;
            count += 1;
        }
        if !due {
            return;
        }
        let slots = &slots[..count];
        for &slot in slots {
            self.slots[slot].touch();
        }
        // A key's own code may panic, and no operation depends on this.
        let touch = AssertUnwindSafe(|| {
            for &slot in slots {
                self.slots[slot].touch_key();
            }
        });
        let _ = catch_unwind(touch);
    }

    fn take_token(&mut self, at: u64, effects: &mut Effects<T>) {
        let Some(first) = self.token_queue.first() else {
            return;
        };
        // It is called by whatever operation comes next, which is not the limiter's.
        let release = AssertUnwindSafe(|| self.rules.limiter.release(self.instant(at)));
        let released =
            catch_unwind(release).unwrap_or_else(|_| Err(self.instant(at + RELEASE_AGAIN)));
        match released {
            Ok(()) => {
                let now = Now::at(self.rules.origin, at);
                self.apply(first, Event::TokenGranted, &now, effects);
            }
            Err(later) => {
                let later = nanoseconds(later.saturating_duration_since(self.rules.origin));
                self.next_token_at = later.max(at + 1);
            }
        }
    }

    pub(super) fn join_token_queue(&mut self, index: u32, now: &Now) {
        if self.token_queue.is_empty() {
            self.next_token_at = now.read();
        }
        self.token_queue.push_back(self.slots.slab(), index);
    }

    /// Drops everything that waits for a time or a token.
    pub(super) fn drop_waits(&mut self, now: &Now, effects: &mut Effects<T>) {
        let for_token: Vec<u32> = self.token_queue.iter(self.slots.as_slab()).collect();
        for index in for_token {
            self.apply(index, Event::Cancelled, now, effects);
        }
        for index in self.timers.clear() {
            self.slots.take_timer(index);
            self.apply(index, Event::Cancelled, now, effects);
        }
    }
}
