//! Runs of items: the hand-out and the outcome.

use std::hash::Hash;
use std::time::Duration;

use super::{AddRequest, Effects, Flight, Shutdown, State};
use crate::cause::Cause;
use crate::item_state::{Event, ItemState};
use crate::now::Now;
use crate::reason::{Reason, ReasonBits};

/// Outcome of a run.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Done,
    Forget,
    Retry {
        priority: i32,
        cause: Option<Cause>,
    },
    After {
        delay: Duration,
        priority: i32,
    },
    /// It was not processed.
    Back {
        delay: Duration,
        priority: i32,
        reasons: ReasonBits,
    },
}

/// An item to hand out.
#[derive(Debug)]
pub(crate) struct Taken<T> {
    pub(crate) key: T,
    pub(crate) slot: u32,
    pub(crate) flight: u32,
    pub(crate) priority: i32,
    pub(crate) failures: u32,
    pub(crate) reasons: ReasonBits,
    pub(crate) waited: Duration,
    pub(crate) started: u64,
}

// === impl State ===

impl<T: Hash + Eq + Clone + 'static> State<T> {
    /// Hands out the next item.
    pub(crate) fn take(&mut self, now: &Now, effects: &mut Effects<T>) -> Option<Taken<T>> {
        if self.stopped || self.ready.is_empty() {
            return None;
        }
        self.sweep(now, effects);
        let at = now.read();
        let next = self.ready.next(self.slots.as_slab(), at)?;
        let index = next.index;
        // Before any change: a key's clone may panic.
        let key = self.slots[index].key.clone();
        // Leaves its list by `Ready::take`, which counts the turn of its tenant.
        self.ready.take(self.slots.slab(), next);
        let flight = self.flights.start(Flight {
            slot: index,
            started: at,
        });
        if self.rules.min_interval > 0 {
            let until = at.saturating_add(self.rules.min_interval);
            self.resting.begin(index, until);
        }
        let waited = at.saturating_sub(self.slots[index].ready_since());
        let state = self.slots[index].state();
        if let Some(transition) = self.transition(index, state, Event::HandedOut, now) {
            self.slots.set_state(index, transition.to);
        }
        let slot = &mut self.slots[index];
        Some(Taken {
            key,
            slot: index,
            flight,
            priority: slot.priority,
            failures: u32::from(slot.failures),
            reasons: std::mem::take(&mut slot.reasons),
            waited: Duration::from_nanos(waited),
            started: at,
        })
    }

    /// Hands out the next item, which may have become due right now. If there is none, it returns whether more is due than
    /// one operation applies.
    pub(crate) fn take_due(
        &mut self,
        now: &Now,
        effects: &mut Effects<T>,
    ) -> (Option<Taken<T>>, bool) {
        if let Some(taken) = self.take(now, effects) {
            return (Some(taken), false);
        }
        let more_is_due = self.advance(now.read(), effects);
        (self.take(now, effects), more_is_due)
    }

    /// Whether the end of a run without a requeue depends on no time: nothing is pending, and no record is made.
    pub(crate) fn ends_untimed(&self, (index, _): (u32, u32), forget: bool) -> bool {
        let slot = &self.slots[index];
        slot.state() == ItemState::InFlight(None) && (forget || slot.failures == 0)
    }

    /// Ends a run. Returns the back-off of an item to retry.
    pub(crate) fn settle(
        &mut self,
        (index, flight): (u32, u32),
        outcome: Outcome,
        now: &Now,
        effects: &mut Effects<T>,
    ) -> Duration {
        let running = self.shutdown == Shutdown::Running;
        // The limiter, which may panic, is called before any change.
        let slot = &self.slots[index];
        let delay = match &outcome {
            Outcome::Retry { cause, .. } => {
                Some(self.back_off(&slot.key, slot.failures, cause.as_ref()))
            }
            _ => None,
        };
        if matches!(outcome, Outcome::Forget | Outcome::After { .. }) {
            self.forget_slot(index);
        }
        if self.rules.min_interval > 0 && matches!(outcome, Outcome::Back { .. }) {
            // The rest of the previous hand-out had ended before this one.
            self.resting.undo(index);
        }
        let request = match outcome {
            Outcome::Done | Outcome::Forget => None,
            Outcome::Retry { priority, cause } => {
                self.count_failure(index, cause);
                Some(AddRequest {
                    rate_limited: true,
                    priority,
                    reasons: self.custom_reasons.encode(Reason::Retry),
                    ..AddRequest::default()
                })
            }
            Outcome::After { delay, priority } => Some(AddRequest {
                after: Some(delay),
                priority,
                reasons: self.custom_reasons.encode(Reason::Timer),
                ..AddRequest::default()
            }),
            Outcome::Back {
                delay,
                priority,
                reasons,
            } => Some(AddRequest {
                after: Some(delay),
                priority,
                reasons,
                ..AddRequest::default()
            }),
        };
        match request {
            Some(request) if running => {
                let state = self.slots[index].state();
                self.merge_counted(index, state, &request, delay, now, effects);
            }
            Some(_) => self.refused += 1,
            None => {}
        }
        // A token may have been taken until here, which calls the limiter: if it panics, the item is still in flight.
        self.flights.end(flight);
        self.apply(index, Event::Settled, now, effects);
        delay.map_or(Duration::ZERO, |delay| delay.back_off)
    }
}
