//! Shutdown of a queue: the items that are still handed out, and the end of a drain.

use std::hash::Hash;

use super::{Effects, Shutdown, State};
use crate::now::Now;

// === impl State ===

impl<T: Hash + Eq + Clone + 'static> State<T> {
    /// Whether nothing is left to hand out, now or later.
    pub(crate) fn is_closed(&self) -> bool {
        if self.stopped {
            return true;
        }
        match self.shutdown {
            Shutdown::Running => false,
            Shutdown::DrainingDelayed | Shutdown::Draining => {
                self.ready.is_empty() && self.dirty == 0 && self.later() == 0
            }
            Shutdown::Immediate => self.ready.is_empty(),
        }
    }

    /// Whether a drain has ended: nothing is left, and nothing is in flight.
    pub(crate) fn is_drained(&self) -> bool {
        match self.shutdown {
            Shutdown::Running => false,
            Shutdown::DrainingDelayed | Shutdown::Draining => {
                self.is_closed() && self.flights.len() == 0
            }
            // An immediate shutdown ends a drain in progress.
            Shutdown::Immediate => true,
        }
    }

    /// Number of items that wait for a time or a token.
    pub(crate) fn later(&self) -> usize {
        self.waiting + self.token_queue.len()
    }

    /// Number of items to hand out, now or after their current run.
    pub(crate) fn queued(&self) -> usize {
        self.ready.len() + self.dirty
    }

    /// Refuses adds from now on; drops waiting items unless those are drained too. Returns the number of
    /// dropped items.
    pub(crate) fn shut_down(
        &mut self,
        how: Shutdown,
        now: &Now,
        effects: &mut Effects<T>,
    ) -> usize {
        self.shutdown = how;
        if how == Shutdown::DrainingDelayed {
            return 0;
        }
        let dropped = self.later();
        self.drop_waits(now, effects);
        dropped
    }

    /// Stops handing out items.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Up to `limit` keys that are in flight, ready or waiting.
    pub(crate) fn some_keys(&self, limit: usize) -> Vec<T> {
        let in_flight = self.flights.iter().map(|flight| flight.slot);
        let ready = self.ready.iter(self.slots.as_slab());
        let mut keys = self.keys(in_flight.chain(ready), limit);
        for key in self.some_that_wait(limit) {
            if keys.len() < limit && !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    /// Up to `limit` keys that wait: first those that wait for a token, then those that are due soonest.
    pub(crate) fn some_that_wait(&self, limit: usize) -> Vec<T> {
        let timed = self.some_waiting(limit).into_iter().map(|(_, index)| index);
        let for_token = self.token_queue.iter(self.slots.as_slab());
        self.keys(for_token.chain(timed), limit)
    }

    /// Up to `limit` of the items that wait for a time, with that time, soonest first.
    pub(crate) fn some_waiting(&self, limit: usize) -> Vec<(u64, u32)> {
        let (timed, _) = self.timers.some(limit);
        let mut waiting: Vec<_> = timed
            .into_iter()
            .filter_map(|index| {
                let state = self.slots[index].state();
                state
                    .timer_at()
                    .filter(|_| state.is_waiting())
                    .map(|at| (at, index))
            })
            .collect();
        waiting.sort_by_key(|&(at, _)| at);
        waiting
    }

    fn keys(&self, slots: impl Iterator<Item = u32>, limit: usize) -> Vec<T> {
        slots
            .take(limit)
            .map(|index| self.slots[index].key.clone())
            .collect()
    }
}
