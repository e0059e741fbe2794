//! The rules of the queue, without lock or wakers: pending, ready, waiting and in-flight items.
//!
//! | an add finds the key | it becomes |
//! |---|---|
//! | unknown, or recorded only | ready, or waiting if the add has a delay |
//! | ready | ready still; moved to the end of the higher priority if the add's is higher |
//! | waiting, or in the token queue | ready if the add has no delay (its timer is removed); else the earlier time and the higher priority count |
//! | in flight | as above, but held back until the run ends ("dirty") |
//!
//! Times are nanoseconds since the queue was built. [`State::advance`] applies all timers and tokens up to
//! `now`, in order, before an operation, so the outcome does not depend on when operations happen.

mod effects;
mod flights;
mod now;
mod records;
mod request;
mod shutdown;
#[cfg(test)]
mod tests;
mod waiting;

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use reeve_clock::Clock;
use tokio::time::Instant;

use crate::cause::Cause;
use crate::fairness::FairBy;
use crate::limiter::{Delay, Failure, RateLimiter};
use crate::list::List;
use crate::ready::Ready;
use crate::reason::{CustomReasons, Reason, ReasonBits};
use crate::slots::{Flags, NEVER, SlotState, Slots};
use crate::sparse_map::SparseMap;
use crate::timers::Timers;

pub(crate) use effects::Effects;
pub(crate) use flights::{Flight, Flights};
pub(crate) use now::{Now, instant, nanoseconds};
pub(crate) use records::Resting;
pub(crate) use request::{AddRequest, Wait};
pub(crate) use shutdown::Shutdown;

/// Settings, constant while the queue lives.
pub(crate) struct Rules<T> {
    pub(crate) limiter: Arc<dyn RateLimiter<T>>,
    pub(crate) clock: Clock,
    pub(crate) origin: Instant,
    pub(crate) record_limit: usize,
    pub(crate) record_expiry: u64,
    pub(crate) ageing: Option<u64>,
    pub(crate) fair_by: Option<Arc<FairBy<T>>>,
    pub(crate) min_interval: u64,
    /// Whether an option needs the times at which items became ready.
    pub(crate) stamped: bool,
}

pub(crate) struct State<T> {
    rules: Rules<T>,
    pub(crate) slots: Slots<T>,
    pub(crate) ready: Ready,
    pub(crate) timers: Timers,
    /// The times of items that wait for more than one.
    waits: SparseMap<Wait>,
    /// Items whose own back-off has passed, waiting for a token.
    pub(crate) token_queue: List,
    /// Time of the next try to take a token for the first item.
    next_token_at: u64,
    /// Failure records of keys that are neither pending nor in flight, oldest first.
    pub(crate) records: List,
    /// When the oldest record expires, or an earlier time.
    records_due: u64,
    /// Number of keys that have failed and not succeeded since, recorded or not.
    pub(crate) failing: usize,
    /// Causes of the last failures.
    pub(crate) explained: SparseMap<Cause>,
    resting: Resting,
    /// Slots to be freed together.
    leaving: Vec<u32>,
    pub(crate) flights: Flights,
    pub(crate) custom_reasons: CustomReasons,
    /// Number of items that wait for a time.
    pub(crate) waiting: usize,
    /// Number of items in flight that are ready again.
    dirty: usize,
    pub(crate) shutdown: Shutdown,
    /// Nothing is handed out any more.
    stopped: bool,
    /// Number of adds after shutdown.
    pub(crate) refused: u64,
}

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
    pub(crate) fn new(rules: Rules<T>) -> Self {
        Self {
            slots: Slots::new(),
            ready: Ready::new(rules.ageing, rules.fair_by.is_some()),
            timers: Timers::default(),
            waits: SparseMap::default(),
            token_queue: List::default(),
            next_token_at: 0,
            records: List::default(),
            records_due: NEVER,
            failing: 0,
            explained: SparseMap::default(),
            resting: Resting::default(),
            leaving: Vec::with_capacity(records::LEAVE_TOGETHER),
            flights: Flights::default(),
            custom_reasons: CustomReasons::default(),
            waiting: 0,
            dirty: 0,
            shutdown: Shutdown::Running,
            stopped: false,
            refused: 0,
            rules,
        }
    }

    /// Adds `key`, or merges the request with its slot.
    pub(crate) fn add(
        &mut self,
        hash: u32,
        key: T,
        request: &AddRequest,
        now: &Now,
        effects: &mut Effects<T>,
    ) {
        if self.shutdown != Shutdown::Running {
            self.refused += 1;
            effects.drop_later(Some(key));
            return;
        }
        // All calls that may panic come before any change: the limiter, the tenant.
        let mut delay = None;
        let mut tenant = None;
        if request.rate_limited || self.rules.fair_by.is_some() {
            let known = self.slots.find(hash, &key);
            if request.rate_limited {
                if let Some(index) = known {
                    self.expire(index, now);
                }
                let failures = known.map_or(0, |index| self.slots[index].failures);
                delay = Some(self.back_off(&key, failures, None));
            }
            if known.is_none_or(|index| self.is_leaving(index)) {
                tenant = self.rules.fair_by.as_ref().map(|fair_by| fair_by(&key));
            }
        }
        let (index, spare) = self.slots.find_or_insert(hash, key);
        effects.drop_later(spare);
        if let Some(tenant) = tenant {
            self.ready.enter(index, tenant);
        }
        self.expire(index, now);
        if request.rate_limited {
            self.count_failure(index, None);
        }
        self.merge_request(index, request, delay, now, effects);
    }

    /// Whether an add calls user code for the tenant of its key.
    pub(crate) fn is_fair(&self) -> bool {
        self.rules.fair_by.is_some()
    }

    fn back_off(&self, key: &T, failures: u16, cause: Option<&Cause>) -> Delay {
        let delay = self.rules.limiter.when(&Failure {
            item: key,
            failures: u32::from(failures),
            cause,
            random: self.rules.clock.random(),
        });
        match cause.and_then(Cause::wait_at_least) {
            Some(least) => delay.at_least(least),
            None => delay,
        }
    }

    /// Merges a request into a slot: the higher priority, the earlier time.
    fn merge_request(
        &mut self,
        index: u32,
        request: &AddRequest,
        delay: Option<Delay>,
        now: &Now,
        effects: &mut Effects<T>,
    ) {
        if request.is_delayed() {
            effects.retries += 1;
        }
        let mut wait = request.wait(delay, now);
        if self.rules.min_interval > 0
            && let Some(until) = self.resting.until(index)
            && until > now.read()
        {
            wait = Some(wait.map_or(Wait::until(until), |wait| wait.not_before(until)));
        }
        let slot = &mut self.slots[index];
        slot.reasons.merge(request.reasons);
        let priority = request.priority.max(slot.priority);
        match (slot.state, wait) {
            (SlotState::Ready, _) if priority > slot.priority => {
                self.ready.remove(self.slots.slab(), index);
                self.slots[index].priority = priority;
                self.ready.push(self.slots.slab(), index);
            }
            (SlotState::Ready, _) => {}
            (SlotState::Dirty, _) => slot.priority = priority,
            (SlotState::Waiting | SlotState::AwaitingToken, None) => {
                slot.priority = priority;
                self.leave_wait(index);
                self.make_ready(index, now, effects);
            }
            (SlotState::Waiting | SlotState::AwaitingToken, Some(wait)) => {
                slot.priority = priority;
                self.wait_too(index, wait, now.read(), effects);
            }
            (SlotState::NotPending, wait) => {
                slot.priority = request.priority;
                if slot.is(Flags::RECORDED) {
                    slot.set(Flags::RECORDED, false);
                    self.records.remove(self.slots.slab(), index);
                }
                match wait {
                    None => self.make_ready(index, now, effects),
                    Some(wait) => self.begin_wait(index, wait, now.read(), effects),
                }
            }
        }
    }

    fn make_ready(&mut self, index: u32, now: &Now, effects: &mut Effects<T>) {
        let slot = &mut self.slots[index];
        effects.adds += 1;
        slot.at = if self.rules.stamped { now.read() } else { 0 };
        if slot.in_flight() {
            slot.state = SlotState::Dirty;
            self.dirty += 1;
        } else {
            slot.state = SlotState::Ready;
            self.ready.push(self.slots.slab(), index);
        }
    }

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
        self.ready.take(self.slots.slab(), next);
        let flight = self.flights.start(Flight {
            slot: index,
            started: at,
        });
        if self.rules.min_interval > 0 {
            let until = at.saturating_add(self.rules.min_interval);
            self.resting.begin(index, until);
        }
        let slot = &mut self.slots[index];
        slot.state = SlotState::NotPending;
        slot.set(Flags::IN_FLIGHT, true);
        Some(Taken {
            key,
            slot: index,
            flight,
            priority: slot.priority,
            failures: u32::from(slot.failures),
            reasons: std::mem::take(&mut slot.reasons),
            waited: Duration::from_nanos(at.saturating_sub(slot.at)),
            started: at,
        })
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
        self.flights.end(flight);
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
                self.merge_request(index, &request, delay, now, effects);
            }
            Some(_) => self.refused += 1,
            None => {}
        }
        let slot = &mut self.slots[index];
        slot.set(Flags::IN_FLIGHT, false);
        if slot.state == SlotState::Dirty {
            self.dirty -= 1;
            slot.state = SlotState::Ready;
            self.ready.push(self.slots.slab(), index);
        }
        self.tidy(index, now, effects);
        delay.map_or(Duration::ZERO, |delay| delay.back_off)
    }

    /// Revokes every add of `key` that was not handed out. Returns whether there was one.
    pub(crate) fn cancel(
        &mut self,
        hash: u32,
        key: &T,
        now: &Now,
        effects: &mut Effects<T>,
    ) -> bool {
        let Some(index) = self.slots.find(hash, key) else {
            return false;
        };
        match self.slots[index].state {
            SlotState::NotPending => return false,
            SlotState::Ready => {
                self.ready.remove(self.slots.slab(), index);
                self.slots[index].state = SlotState::NotPending;
            }
            SlotState::Dirty => {
                self.dirty -= 1;
                self.slots[index].state = SlotState::NotPending;
            }
            SlotState::Waiting | SlotState::AwaitingToken => self.leave_wait(index),
        }
        self.slots[index].reasons = ReasonBits::default();
        self.tidy(index, now, effects);
        true
    }
}
