//! The data of a queue: settings, items, lists and counters, and the transitions of items: [the table](transition)
//! decides, lists and timers follow.

use std::hash::Hash;
use std::sync::Arc;

use reeve_clock::Clock;
use tokio::time::Instant;

use super::{Effects, Resting};
use crate::cause::Cause;
use crate::fairness::FairBy;
use crate::item_state::{Event, Facts, ItemState, Place, Transition, transition};
use crate::limiter::RateLimiter;
use crate::now::{NEVER, Now, instant};
use crate::ready::Ready;
use crate::reason::CustomReasons;
use crate::slab::{List, NONE};
use crate::slots::Slots;
use crate::sparse_map::SparseMap;
use crate::timers::Timers;

/// Number of empty slots that are freed together while others are ready or in flight.
pub(super) const LEAVE_TOGETHER: usize = 64;

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
    pub(super) rules: Rules<T>,
    pub(crate) slots: Slots<T>,
    pub(crate) ready: Ready,
    pub(crate) timers: Timers,
    /// Items whose own back-off has passed, waiting for a token.
    pub(crate) token_queue: List,
    /// Time of the next try to take a token for the first item.
    pub(super) next_token_at: u64,
    /// Failure records of keys that are neither pending nor in flight, oldest first.
    pub(crate) records: List,
    /// When the oldest record expires, or an earlier time.
    pub(super) records_due: u64,
    /// Number of keys that have failed and not succeeded since, recorded or not.
    pub(crate) failing: usize,
    /// Causes of the last failures.
    pub(crate) explained: SparseMap<Cause>,
    pub(super) resting: Resting,
    /// Slots to be freed together.
    pub(super) leaving: Vec<u32>,
    pub(crate) flights: Flights,
    pub(crate) custom_reasons: CustomReasons,
    /// Number of items that wait for a time.
    pub(crate) waiting: usize,
    /// Number of items in flight that are ready again.
    pub(super) dirty: usize,
    pub(crate) shutdown: Shutdown,
    /// Nothing is handed out any more.
    pub(super) stopped: bool,
    /// Number of adds after shutdown.
    pub(crate) refused: u64,
}

/// How far the queue is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shutdown {
    Running,
    /// Hands out ready items, waiting items once they are due, and items that become ready by the end of a
    /// run. Nothing else.
    DrainingDelayed,
    /// As above, but waiting items were dropped.
    Draining,
    /// Hands out ready items; waits for none.
    Immediate,
}

/// Items in flight. There are few, so metrics can visit all.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    flights: Vec<Flight>,
    vacant: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    /// [`NONE`]: vacant.
    pub(crate) slot: u32,
    pub(crate) started: u64,
}

// === impl State ===

impl<T: Hash + Eq + Clone + 'static> State<T> {
    pub(crate) fn new(rules: Rules<T>) -> Self {
        Self {
            slots: Slots::new(),
            ready: Ready::new(rules.ageing, rules.fair_by.is_some()),
            timers: Timers::default(),
            token_queue: List::default(),
            next_token_at: 0,
            records: List::default(),
            records_due: NEVER,
            failing: 0,
            explained: SparseMap::default(),
            resting: Resting::default(),
            leaving: Vec::with_capacity(LEAVE_TOGETHER),
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

    /// Whether an add calls user code for the tenant of its key.
    pub(crate) fn is_fair(&self) -> bool {
        self.rules.fair_by.is_some()
    }

    pub(super) fn instant(&self, at: u64) -> Instant {
        instant(self.rules.origin, at)
    }

    /// The transition of an item.
    #[inline(always)]
    pub(super) fn transition(
        &self,
        index: u32,
        state: ItemState,
        event: Event,
        now: &Now,
    ) -> Option<Transition> {
        let facts = Facts {
            now,
            stamped: self.rules.stamped,
            failed: self.slots[index].failures > 0,
        };
        let transition = transition(state, event, facts);
        debug_assert!(transition.is_ok(), "{state:?}, {event:?}: {transition:?}");
        transition.ok().flatten()
    }

    /// Applies an event to an item.
    #[inline(always)]
    pub(super) fn apply(&mut self, index: u32, event: Event, now: &Now, effects: &mut Effects<T>) {
        self.apply_in(self.slots[index].state(), index, event, now, effects);
    }

    /// Applies an event to an item in `state`.
    #[inline(always)]
    pub(super) fn apply_in(
        &mut self,
        state: ItemState,
        index: u32,
        event: Event,
        now: &Now,
        effects: &mut Effects<T>,
    ) {
        let Some(transition) = self.transition(index, state, event, now) else {
            return;
        };
        if let Some((left, _)) = transition.moves {
            match left {
                Place::Records => self.records.remove(self.slots.slab(), index),
                Place::Ready => self.ready.remove(self.slots.slab(), index),
                Place::Waiting => self.waiting -= 1,
                Place::TokenQueue => self.token_queue.remove(self.slots.slab(), index),
                Place::WorkerAgain => self.dirty -= 1,
                Place::Leaving | Place::Worker => {}
            }
        }
        if transition.stops_timer
            && let Some(timer) = self.slots.take_timer(index)
        {
            self.timers.remove(timer);
        }
        self.slots.set_state(index, transition.to);
        if let Some(at) = transition.starts_timer {
            let timer = self.timers.insert(index, at, now.read());
            self.slots.set_timer(index, timer);
        }
        effects.counts.adds += u64::from(transition.becomes_ready);
        if let Some((_, entered)) = transition.moves {
            match entered {
                Place::Ready => self.ready.push(self.slots.slab(), index),
                Place::Waiting => self.waiting += 1,
                Place::TokenQueue => self.join_token_queue(index, now),
                Place::WorkerAgain => self.dirty += 1,
                Place::Worker => {}
                Place::Records => self.record(index, now, effects),
                Place::Leaving => self.release(index, effects),
            }
        }
    }
}

// === impl Flights ===

impl Flights {
    pub(super) fn start(&mut self, flight: Flight) -> u32 {
        if let Some(index) = self.vacant.pop() {
            self.flights[index as usize] = flight;
            return index;
        }
        self.flights.push(flight);
        u32::try_from(self.flights.len() - 1).expect("fewer than 2^32 workers")
    }

    pub(super) fn end(&mut self, index: u32) {
        self.vacant.push(index);
        self.flights[index as usize].slot = NONE;
    }

    pub(crate) fn len(&self) -> usize {
        self.flights.len() - self.vacant.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter().filter(|flight| flight.slot != NONE)
    }
}
