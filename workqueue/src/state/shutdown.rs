//! The end of a queue: what is still handed out, and when a drain has ended.

use std::hash::Hash;

use super::{Effects, Now, State};
use crate::slots::Place;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shutdown {
    Running,
    /// What is ready is handed out, what waits once it is due, what becomes ready by the end of a
    /// run too, nothing else.
    DrainingDelayed,
    /// As that, but what waits was dropped.
    Draining,
    /// What is ready is handed out; nobody is waited for.
    Immediate,
}

// === impl State ===

impl<T: Hash + Eq + Clone + 'static> State<T> {
    /// Nothing is left to hand out, and nothing will come.
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

    /// A drain has ended: nothing is left, and nobody works.
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

    /// How many items wait, for a time or for a token.
    pub(crate) fn later(&self) -> usize {
        self.waiting + self.line.len()
    }

    /// How many items are to be handed out, now or after their current run.
    pub(crate) fn queued(&self) -> usize {
        self.ready.len() + self.dirty
    }

    /// Refuses adds from now on; drops what waits unless that is drained too. Returns how many were
    /// dropped.
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

    /// Hands out nothing any more.
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

    /// Up to `limit` keys that wait, in line first, then those that are due soonest.
    pub(crate) fn some_that_wait(&self, limit: usize) -> Vec<T> {
        let (mut timed, _) = self.timers.some(limit);
        timed.retain(|&index| self.slots[index].place == Place::Waiting);
        timed.sort_by_key(|&index| self.due(index));
        let in_line = self.line.iter(self.slots.as_slab());
        self.keys(in_line.chain(timed), limit)
    }

    fn keys(&self, slots: impl Iterator<Item = u32>, limit: usize) -> Vec<T> {
        slots
            .take(limit)
            .map(|index| self.slots[index].key.clone())
            .collect()
    }
}
