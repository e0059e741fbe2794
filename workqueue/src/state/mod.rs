//! The rules of the queue, without lock, wakers or clock: what is wanted, ready, waiting, in flight.
//!
//! | an add finds the key | it becomes |
//! |---|---|
//! | unknown, or known for its failures only | ready, or waiting if the add has a delay |
//! | ready | ready still; moved to the end of the higher priority if the add's is higher |
//! | waiting, or in line for a token | ready if the add has no delay (its timer is gone); else the earlier time wins, and the higher priority |
//! | in flight | as above, but held back until the run ends ("dirty") |
//!
//! Times are nanoseconds since the queue was built. Everything that happened by itself up to `now`
//! (timers, tokens) is applied in its order by [`State::advance`] before an operation takes place,
//! so the outcome does not depend on when somebody looked.

mod effects;
mod flights;
mod records;
mod time;

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use reeve_clock::Clock;
use tokio::time::Instant;

use crate::limiter::{Delay, Failure, RateLimiter};
use crate::ready::Ready;
use crate::reason::{CustomReasons, Reason, ReasonBits};
use crate::slots::{List, NEVER, Place, Slots};
use crate::timers::Timers;

pub(crate) use effects::Effects;
pub(crate) use flights::{Flight, Flights};
pub(crate) use time::{instant, nanoseconds};

pub(crate) struct State<T> {
    pub(crate) slots: Slots<T>,
    pub(crate) ready: Ready,
    pub(crate) timers: Timers,
    /// Items whose own back-off has passed, waiting for a token.
    pub(crate) line: List,
    /// When the first in line may ask for its token.
    line_next: u64,
    /// Failure records of keys that are neither wanted nor in flight, oldest first.
    pub(crate) records: List,
    record_limit: usize,
    pub(crate) flights: Flights,
    pub(crate) custom_reasons: CustomReasons,
    limiter: Arc<dyn RateLimiter<T>>,
    clock: Clock,
    origin: Instant,
    /// How many items wait for a time.
    pub(crate) waiting: usize,
    /// Items in flight that are wanted again at once.
    dirty: usize,
    pub(crate) shutdown: Shutdown,
    /// Adds that came after shutdown.
    pub(crate) refused: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shutdown {
    Running,
    /// What is ready is handed out, what becomes ready by the end of a run too, nothing else.
    Draining,
    /// What is ready is handed out.
    Immediate,
}

/// What an add asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish {
    pub(crate) after: Option<Duration>,
    pub(crate) rate_limited: bool,
    pub(crate) priority: i32,
    pub(crate) reason: Option<Reason>,
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Done,
    Forget,
    Retry { priority: i32 },
    After { delay: Duration, priority: i32 },
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
}

// === impl State ===

impl<T: Hash + Eq + Clone + 'static> State<T> {
    pub(crate) fn new(
        limiter: Arc<dyn RateLimiter<T>>,
        clock: Clock,
        origin: Instant,
        record_limit: usize,
    ) -> Self {
        Self {
            slots: Slots::new(),
            ready: Ready::default(),
            timers: Timers::default(),
            line: List::default(),
            line_next: 0,
            records: List::default(),
            record_limit,
            flights: Flights::default(),
            custom_reasons: CustomReasons::default(),
            limiter,
            clock,
            origin,
            waiting: 0,
            dirty: 0,
            shutdown: Shutdown::Running,
            refused: 0,
        }
    }

    /// Nothing is left to hand out, and nothing will come.
    pub(crate) fn is_closed(&self) -> bool {
        match self.shutdown {
            Shutdown::Running => false,
            Shutdown::Draining => self.ready.is_empty() && self.dirty == 0,
            Shutdown::Immediate => self.ready.is_empty(),
        }
    }

    /// A drain has ended: nothing is left, and nobody works.
    pub(crate) fn is_drained(&self) -> bool {
        match self.shutdown {
            Shutdown::Running => false,
            Shutdown::Draining => self.ready.is_empty() && self.flights.len() == 0,
            // An immediate shutdown ends a drain in progress.
            Shutdown::Immediate => true,
        }
    }

    /// Adds `key`, or merges the wish with what is known of it.
    pub(crate) fn add(
        &mut self,
        hash: u32,
        key: T,
        wish: Wish,
        now: u64,
        effects: &mut Effects<T>,
    ) {
        if self.shutdown != Shutdown::Running {
            self.refused += 1;
            effects.drop_later(Some(key));
            return;
        }
        let delay = if wish.rate_limited {
            let known = self.slots.find(hash, &key);
            let failures = known.map_or(0, |index| self.slots[index].failures);
            Some(self.back_off(&key, failures))
        } else {
            None
        };
        let (index, spare) = self.slots.find_or_insert(hash, key);
        effects.drop_later(spare);
        if wish.rate_limited {
            self.count_failure(index);
        }
        self.want(index, wish, delay, now, effects);
    }

    fn back_off(&self, key: &T, failures: u32) -> Delay {
        self.limiter.when(&Failure {
            item: key,
            failures,
            random: self.clock.random(),
        })
    }

    fn count_failure(&mut self, index: u32) {
        let failures = &mut self.slots[index].failures;
        *failures = failures.saturating_add(1);
    }

    /// Merges a wish into a slot: the higher priority, the earlier time.
    fn want(
        &mut self,
        index: u32,
        wish: Wish,
        delay: Option<Delay>,
        now: u64,
        effects: &mut Effects<T>,
    ) {
        let (at, join_at) = wish.times(delay, now);
        if wish.rate_limited || wish.after.is_some_and(|after| !after.is_zero()) {
            effects.retries += 1;
        }
        if let Some(reason) = wish.reason {
            let bits = self.custom_reasons.encode(reason);
            self.slots[index].reasons.merge(bits);
        }
        let slot = &mut self.slots[index];
        let priority = wish.priority.max(slot.priority);
        match slot.place {
            Place::Ready if priority > slot.priority => {
                self.ready.remove(&mut self.slots, index);
                self.slots[index].priority = priority;
                self.ready.push(&mut self.slots, index);
            }
            Place::Ready => {}
            Place::Dirty => slot.priority = priority,
            Place::Waiting | Place::InLine => {
                slot.priority = priority;
                if at <= now {
                    self.leave_wait(index);
                    self.make_ready(index, now, effects);
                } else {
                    self.wait(index, at, join_at, now, effects);
                }
            }
            Place::Unwanted | Place::Vacant => {
                slot.priority = wish.priority;
                if slot.recorded {
                    slot.recorded = false;
                    self.records.remove(&mut self.slots, index);
                }
                if at <= now {
                    self.make_ready(index, now, effects);
                } else {
                    let slot = &mut self.slots[index];
                    self.waiting += 1;
                    slot.place = Place::Waiting;
                    slot.at = NEVER;
                    slot.join_at = NEVER;
                    self.wait(index, at, join_at, now, effects);
                }
            }
        }
    }

    fn make_ready(&mut self, index: u32, at: u64, effects: &mut Effects<T>) {
        effects.adds += 1;
        let slot = &mut self.slots[index];
        slot.at = at;
        if slot.in_flight {
            slot.place = Place::Dirty;
            self.dirty += 1;
        } else {
            slot.place = Place::Ready;
            self.ready.push(&mut self.slots, index);
        }
    }

    /// Hands out who is next.
    pub(crate) fn take(&mut self, now: u64) -> Option<Taken<T>> {
        let index = self.ready.first()?;
        // Before anything is changed: a key's clone may panic.
        let key = self.slots[index].key.clone()?;
        self.ready.remove(&mut self.slots, index);
        let flight = self.flights.start(Flight {
            slot: index,
            started: now,
        });
        let slot = &mut self.slots[index];
        slot.place = Place::Unwanted;
        slot.in_flight = true;
        Some(Taken {
            key,
            slot: index,
            flight,
            priority: slot.priority,
            failures: slot.failures,
            reasons: std::mem::take(&mut slot.reasons),
            waited: Duration::from_nanos(now.saturating_sub(slot.at)),
        })
    }

    /// Ends a run. Returns how long it took, and how long the item waits if it was to be retried.
    pub(crate) fn settle(
        &mut self,
        (index, flight): (u32, u32),
        outcome: Outcome,
        now: u64,
        effects: &mut Effects<T>,
    ) -> (Duration, Duration) {
        let running = self.shutdown == Shutdown::Running;
        // Before anything is changed: a limiter may panic.
        let delay = match (&self.slots[index].key, outcome) {
            (Some(key), Outcome::Retry { .. }) => {
                Some(self.back_off(key, self.slots[index].failures))
            }
            _ => None,
        };
        let ended = self.flights.end(flight);
        match outcome {
            Outcome::Done => {}
            Outcome::Forget | Outcome::After { .. } => self.forget_slot(index),
            Outcome::Retry { .. } => self.count_failure(index),
        }
        let again = match outcome {
            Outcome::Done | Outcome::Forget => None,
            Outcome::Retry { priority } => Some(Wish {
                rate_limited: true,
                priority,
                reason: Some(Reason::Retry),
                after: None,
            }),
            Outcome::After { delay, priority } => Some(Wish {
                after: Some(delay),
                priority,
                reason: Some(Reason::Timer),
                rate_limited: false,
            }),
        };
        match again {
            Some(wish) if running => self.want(index, wish, delay, now, effects),
            Some(_) => self.refused += 1,
            None => {}
        }
        let slot = &mut self.slots[index];
        slot.in_flight = false;
        if slot.place == Place::Dirty {
            self.dirty -= 1;
            slot.place = Place::Ready;
            self.ready.push(&mut self.slots, index);
        }
        self.tidy(index, effects);
        let worked = Duration::from_nanos(now.saturating_sub(ended.started));
        (worked, delay.map_or(Duration::ZERO, |delay| delay.back_off))
    }

    /// Takes back every add of `key` that was not handed out. Returns whether there was one.
    pub(crate) fn cancel(&mut self, hash: u32, key: &T, effects: &mut Effects<T>) -> bool {
        let Some(index) = self.slots.find(hash, key) else {
            return false;
        };
        match self.slots[index].place {
            Place::Vacant | Place::Unwanted => return false,
            Place::Ready => {
                self.ready.remove(&mut self.slots, index);
                self.slots[index].place = Place::Unwanted;
            }
            Place::Dirty => {
                self.dirty -= 1;
                self.slots[index].place = Place::Unwanted;
            }
            Place::Waiting | Place::InLine => self.leave_wait(index),
        }
        self.slots[index].reasons = ReasonBits::default();
        self.tidy(index, effects);
        true
    }

    /// Refuses adds from now on, and drops what waits.
    pub(crate) fn shut_down(&mut self, how: Shutdown, effects: &mut Effects<T>) {
        self.shutdown = how;
        for index in self.timers.clear(&mut self.slots) {
            self.leave_wait(index);
            self.tidy(index, effects);
        }
        while let Some(index) = self.line.first() {
            self.leave_wait(index);
            self.tidy(index, effects);
        }
    }
}

impl Wish {
    /// When the item becomes ready without a token, and when it joins the line for one.
    fn times(&self, delay: Option<Delay>, now: u64) -> (u64, u64) {
        let later = |delay: Duration| now.saturating_add(nanoseconds(delay)).min(NEVER - 1);
        let asked = self.after.map(later);
        let Some(delay) = delay else {
            return (asked.unwrap_or(now), NEVER);
        };
        let at_most = delay.at_most.map(later);
        let at = asked.into_iter().chain(at_most).min().unwrap_or(NEVER);
        let join_at = later(delay.back_off);
        // Not worth a place in line if it goes by then anyway.
        (at, if join_at < at { join_at } else { NEVER })
    }
}
