//! The rules of the queue, without lock or wakers: what is wanted, ready, waiting, in flight.
//!
//! | an add finds the key | it becomes |
//! |---|---|
//! | unknown, or remembered only | ready, or waiting if the add has a delay |
//! | ready | ready still; moved to the end of the higher priority if the add's is higher |
//! | waiting, or in line for a token | ready if the add has no delay (its timer is gone); else the earlier time wins, and the higher priority |
//! | in flight | as above, but held back until the run ends ("dirty") |
//!
//! In a queue that keeps timers, what waits is a *double* of the key's slot, so an add with a delay
//! never meets one without; when its time comes it is as if the key were added then.
//!
//! Times are nanoseconds since the queue was built. Everything that happened by itself up to `now`
//! (timers, tokens) is applied in its order by [`State::advance`] before an operation takes place,
//! so the outcome does not depend on when somebody looked.

mod effects;
mod flights;
mod now;
mod records;
mod shutdown;
#[cfg(test)]
mod tests;
mod waiting;
mod wish;

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
use crate::side::Side;
use crate::slots::{Flags, NEVER, Place, Slots};
use crate::timers::Timers;

pub(crate) use effects::Effects;
pub(crate) use flights::{Flight, Flights};
pub(crate) use now::{Now, instant, nanoseconds};
pub(crate) use records::Resting;
pub(crate) use shutdown::Shutdown;
pub(crate) use wish::{Wait, Wish};

/// What does not change while the queue lives.
pub(crate) struct Rules<T> {
    pub(crate) limiter: Arc<dyn RateLimiter<T>>,
    pub(crate) clock: Clock,
    pub(crate) origin: Instant,
    pub(crate) record_limit: usize,
    pub(crate) record_expiry: u64,
    pub(crate) ageing: Option<u64>,
    pub(crate) fair_by: Option<Arc<FairBy<T>>>,
    pub(crate) keep_timers: bool,
    pub(crate) min_interval: u64,
    /// Somebody wants to know since when items have been ready.
    pub(crate) stamped: bool,
}

pub(crate) struct State<T> {
    rules: Rules<T>,
    pub(crate) slots: Slots<T>,
    pub(crate) ready: Ready,
    pub(crate) timers: Timers,
    /// What items wait for that wait for more than one time.
    waits: Side<Wait>,
    /// The doubles of slots, in a queue that keeps timers.
    doubles: Side<u32>,
    /// Items whose own back-off has passed, waiting for a token.
    pub(crate) line: List,
    /// When the first in line may ask for its token.
    line_next: u64,
    /// Failure records of keys that are neither wanted nor in flight, oldest first.
    pub(crate) records: List,
    /// When the oldest record expires, or a moment before that.
    records_due: u64,
    /// Why items failed last.
    pub(crate) explained: Side<Cause>,
    resting: Resting,
    /// Slots to be given back together.
    leaving: Vec<u32>,
    pub(crate) flights: Flights,
    pub(crate) custom_reasons: CustomReasons,
    /// How many items wait for a time.
    pub(crate) waiting: usize,
    /// Items in flight that are wanted again at once.
    dirty: usize,
    pub(crate) shutdown: Shutdown,
    /// Nothing is handed out any more.
    stopped: bool,
    /// Adds that came after shutdown.
    pub(crate) refused: u64,
}

/// What came of a run.
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
            waits: Side::default(),
            doubles: Side::default(),
            line: List::default(),
            line_next: 0,
            records: List::default(),
            records_due: NEVER,
            explained: Side::default(),
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

    /// Adds `key`, or merges the wish with what is known of it.
    pub(crate) fn add(
        &mut self,
        hash: u32,
        key: T,
        wish: &Wish,
        now: &Now,
        effects: &mut Effects<T>,
    ) {
        if self.shutdown != Shutdown::Running {
            self.refused += 1;
            effects.drop_later(Some(key));
            return;
        }
        // What may panic comes before anything is changed: the limiter, the tenant, the clone.
        let mut delay = None;
        let mut tenant = None;
        if wish.rate_limited || self.rules.fair_by.is_some() {
            let known = self.slots.find(hash, &key);
            if wish.rate_limited {
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
        let double = self.rules.keep_timers.then(|| key.clone());
        let (index, spare) = self.slots.find_or_insert(hash, key);
        effects.drop_later(spare);
        if let Some(tenant) = tenant {
            self.ready.enter(index, tenant);
        }
        self.expire(index, now);
        if wish.rate_limited {
            self.count_failure(index, None);
        }
        self.want(index, wish, delay, double, now, effects);
    }

    /// An add asks the user's own code for the tenant of its key.
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

    /// Merges a wish into a slot: the higher priority, the earlier time. `double` is a clone of the
    /// key, in a queue that keeps timers.
    fn want(
        &mut self,
        index: u32,
        wish: &Wish,
        delay: Option<Delay>,
        double: Option<T>,
        now: &Now,
        effects: &mut Effects<T>,
    ) {
        if wish.is_delayed() {
            effects.retries += 1;
        }
        let mut wait = wish.wait(delay, now);
        if self.rules.min_interval > 0
            && let Some(until) = self.resting.until(index)
            && until > now.read()
        {
            wait = Some(wait.map_or(Wait::until(until), |wait| wait.not_before(until)));
        }
        let index = match double {
            Some(key) if wait.is_some() => self.double(index, key, effects),
            spare => {
                effects.drop_later(spare);
                index
            }
        };
        let slot = &mut self.slots[index];
        slot.reasons.merge(wish.reasons);
        let priority = wish.priority.max(slot.priority);
        match (slot.place, wait) {
            (Place::Ready, _) if priority > slot.priority => {
                self.ready.remove(self.slots.slab(), index);
                self.slots[index].priority = priority;
                self.ready.push(self.slots.slab(), index);
            }
            (Place::Ready, _) => {}
            (Place::Dirty, _) => slot.priority = priority,
            (Place::Waiting | Place::InLine, None) => {
                slot.priority = priority;
                self.leave_wait(index);
                self.make_ready(index, now, effects);
            }
            (Place::Waiting | Place::InLine, Some(wait)) => {
                slot.priority = priority;
                self.wait_too(index, wait, now.read(), effects);
            }
            (Place::Unwanted, wait) => {
                slot.priority = wish.priority;
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
        if slot.is(Flags::DOUBLE) {
            self.end_double(index, now, effects);
            return;
        }
        effects.adds += 1;
        slot.at = if self.rules.stamped { now.read() } else { 0 };
        if slot.in_flight() {
            slot.place = Place::Dirty;
            self.dirty += 1;
        } else {
            slot.place = Place::Ready;
            self.ready.push(self.slots.slab(), index);
        }
    }

    /// Hands out who is next.
    pub(crate) fn take(&mut self, now: &Now, effects: &mut Effects<T>) -> Option<Taken<T>> {
        if self.stopped || self.ready.is_empty() {
            return None;
        }
        self.sweep(now, effects);
        let at = now.read();
        let next = self.ready.next(self.slots.as_slab(), at)?;
        let index = next.index;
        // Before anything is changed: a key's clone may panic.
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
        slot.place = Place::Unwanted;
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

    /// Ends a run. Returns how long the item waits if it was to be retried.
    pub(crate) fn settle(
        &mut self,
        (index, flight): (u32, u32),
        outcome: Outcome,
        now: &Now,
        effects: &mut Effects<T>,
    ) -> Duration {
        let running = self.shutdown == Shutdown::Running;
        // What may panic comes before anything is changed: the limiter, the clone.
        let slot = &self.slots[index];
        let delay = match &outcome {
            Outcome::Retry { cause, .. } => {
                Some(self.back_off(&slot.key, slot.failures, cause.as_ref()))
            }
            _ => None,
        };
        let again = !matches!(outcome, Outcome::Done | Outcome::Forget);
        let double = (again && running && self.rules.keep_timers).then(|| slot.key.clone());
        if matches!(outcome, Outcome::Forget | Outcome::After { .. }) {
            self.forget_slot(index);
        }
        self.flights.end(flight);
        if self.rules.min_interval > 0 && matches!(outcome, Outcome::Back { .. }) {
            // The rest after the hand-out before was over when this one came.
            self.resting.undo(index);
        }
        let wish = match outcome {
            Outcome::Done | Outcome::Forget => None,
            Outcome::Retry { priority, cause } => {
                self.count_failure(index, cause);
                Some(Wish {
                    rate_limited: true,
                    priority,
                    reasons: self.custom_reasons.encode(Reason::Retry),
                    ..Wish::default()
                })
            }
            Outcome::After { delay, priority } => Some(Wish {
                after: Some(delay),
                priority,
                reasons: self.custom_reasons.encode(Reason::Timer),
                ..Wish::default()
            }),
            Outcome::Back {
                delay,
                priority,
                reasons,
            } => Some(Wish {
                after: Some(delay),
                priority,
                reasons,
                ..Wish::default()
            }),
        };
        match wish {
            Some(wish) if running => self.want(index, &wish, delay, double, now, effects),
            Some(_) => self.refused += 1,
            None => {}
        }
        let slot = &mut self.slots[index];
        slot.set(Flags::IN_FLIGHT, false);
        if slot.place == Place::Dirty {
            self.dirty -= 1;
            slot.place = Place::Ready;
            self.ready.push(self.slots.slab(), index);
        }
        self.tidy(index, now, effects);
        delay.map_or(Duration::ZERO, |delay| delay.back_off)
    }

    /// Takes back every add of `key` that was not handed out. Returns whether there was one.
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
        let doubled = self.doubles.get(index).copied();
        if let Some(double) = doubled {
            self.leave_wait(double);
            self.remove_double(index, effects);
        }
        match self.slots[index].place {
            Place::Unwanted => {
                if doubled.is_none() {
                    return false;
                }
            }
            Place::Ready => {
                self.ready.remove(self.slots.slab(), index);
                self.slots[index].place = Place::Unwanted;
            }
            Place::Dirty => {
                self.dirty -= 1;
                self.slots[index].place = Place::Unwanted;
            }
            Place::Waiting | Place::InLine => self.leave_wait(index),
        }
        self.slots[index].reasons = ReasonBits::default();
        self.tidy(index, now, effects);
        true
    }
}
