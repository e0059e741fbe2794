//! The queue behind its handles: the state and the waiters under one lock.
//!
//! Every operation goes through [`Shared::update`]: lock, apply what time has brought, operate,
//! restore the rules of the waiters, unlock; then wake, count, and drop what is to be dropped.

use std::hash::{BuildHasher, Hash};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use tokio::time::Instant;

use crate::builder::OnDrop;
use crate::metrics::{Gauges, QueueMetrics, Readings};
use crate::slots::{Place, fold};
use crate::state::{Effects, Now, State};
use crate::sync::Mutex;
use crate::waiters::{Ticket, Waiters, Wakes};

pub(crate) struct Shared<T> {
    pub(crate) core: Mutex<Core<T>>,
    pub(crate) name: String,
    pub(crate) on_drop: OnDrop,
    pub(crate) metrics: Option<Box<dyn QueueMetrics>>,
    hasher: DefaultHashBuilder,
    pub(crate) origin: Instant,
}

pub(crate) struct Core<T> {
    pub(crate) state: State<T>,
    pub(crate) waiters: Waiters,
    /// Who waits for the end of a drain.
    drains: Vec<Waker>,
}

/// What a look into the queue found.
pub(crate) enum Look<R> {
    Taken(R),
    /// Shut down, and nothing left.
    Closed,
    /// Nothing yet. The driver of the timers sleeps until the time given.
    Wait(Option<u64>),
}

// === impl Shared ===

impl<T: Hash + Eq + Clone + 'static> Shared<T> {
    pub(crate) fn new(
        state: State<T>,
        origin: Instant,
        name: String,
        on_drop: OnDrop,
        metrics: Option<Box<dyn QueueMetrics>>,
    ) -> Self {
        Self {
            core: Mutex::new(Core {
                state,
                waiters: Waiters::new(),
                drains: Vec::new(),
            }),
            name,
            on_drop,
            metrics,
            hasher: DefaultHashBuilder::default(),
            origin,
        }
    }

    pub(crate) fn hash(&self, key: &T) -> u32 {
        fold(self.hasher.hash_one(key))
    }

    pub(crate) fn now(&self) -> Now {
        Now::new(self.origin)
    }

    /// Runs an operation. If it `needs_time`, the clock is read before the lock is taken.
    pub(crate) fn update<R>(
        &self,
        needs_time: bool,
        operation: impl FnOnce(&mut Core<T>, &Now, &mut Effects<T>) -> R,
    ) -> R {
        let mut effects = Effects::default();
        // Woken when it is dropped: after the lock is released, and though the operation may panic.
        let mut wakes = Wakes::default();
        let now = self.now();
        if needs_time {
            // Where nobody waits for it. So times may come a little out of order; nothing depends
            // on it.
            now.read();
        }
        let result = {
            let mut core = self.core.lock();
            let roused = Roused {
                core: &mut core,
                wakes: &mut wakes,
            };
            if roused.core.state.is_timed() {
                roused.core.state.advance(now.read(), &mut effects);
            }
            operation(roused.core, &now, &mut effects)
        };
        drop(wakes);
        if let Some(metrics) = &self.metrics {
            if effects.adds > 0 {
                metrics.added(effects.adds);
            }
            if effects.retries > 0 {
                metrics.retried(effects.retries);
            }
        }
        result
    }

    /// Applies what time has brought, in slices, so that the lock is held shortly.
    pub(crate) fn catch_up(&self) {
        while self.update(true, |core, now, effects| {
            core.state.is_timed() && core.state.advance(now.read(), effects)
        }) {}
    }

    /// Takes with `take`, or registers `waker` to be woken when there may be something.
    pub(crate) fn look<R>(
        &self,
        ticket: &mut Ticket,
        waker: &Waker,
        take: impl FnOnce(&mut State<T>, &Now, &mut Effects<T>) -> Option<R>,
    ) -> Look<R> {
        let (look, old_waker) = self.update(true, |core, now, effects| {
            core.waiters.looks(*ticket);
            if let Some(taken) = take(&mut core.state, now, effects) {
                return (Look::Taken(taken), core.waiters.leave(ticket));
            }
            if core.state.is_closed() {
                return (Look::Closed, core.waiters.leave(ticket));
            }
            let next = core.state.next_event();
            let until = core.waiters.park(ticket, waker, next, now.read());
            (Look::Wait(until), None)
        });
        drop(old_waker);
        look
    }

    /// A waiter goes away without an item.
    pub(crate) fn leave(&self, ticket: &mut Ticket) {
        if ticket.is_some() {
            let waker = self.update(false, |core, _, _| core.waiters.leave(ticket));
            drop(waker);
        }
    }

    /// Ready when a drain has ended.
    pub(crate) fn poll_drained(&self, cx: &mut Context<'_>) -> Poll<()> {
        let core = &mut *self.core.lock();
        if core.state.is_drained() {
            return Poll::Ready(());
        }
        if !core.drains.iter().any(|waker| waker.will_wake(cx.waker())) {
            core.drains.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// The queue while it is locked. Restores the rules of the waiters when it is dropped.
struct Roused<'a, T: Hash + Eq + Clone + 'static> {
    core: &'a mut Core<T>,
    wakes: &'a mut Wakes,
}

// === impl Roused ===

impl<T: Hash + Eq + Clone + 'static> Drop for Roused<'_, T> {
    fn drop(&mut self) {
        self.core.rouse(self.wakes);
    }
}

// === impl Core ===

impl<T: Hash + Eq + Clone + 'static> Core<T> {
    fn rouse(&mut self, wakes: &mut Wakes) {
        if self.waiters.waiting() > 0 {
            let next = self.state.next_event();
            self.waiters.rouse(self.state.ready.len(), next, wakes);
            if self.state.is_closed() {
                self.waiters.rouse_all(wakes);
            }
        }
        if !self.drains.is_empty() && self.state.is_drained() {
            for waker in self.drains.drain(..) {
                wakes.push(Some(waker));
            }
        }
    }
}

impl<T: Hash + Eq + Clone + Send + 'static> Gauges for Shared<T> {
    fn read(&self) -> Readings {
        self.catch_up();
        let core = self.core.lock();
        let now = self.now().read();
        let state = &core.state;
        let mut readings = Readings {
            depth: state.ready.depth().collect(),
            ..Readings::default()
        };
        for flight in state.flights.iter() {
            let took = Duration::from_nanos(now.saturating_sub(flight.started));
            readings.unfinished += took;
            readings.longest_running = readings.longest_running.max(took);
            // Wanted again while in flight: counted as waiting, as the peers do.
            let slot = &state.slots[flight.slot];
            if slot.place == Place::Dirty {
                readings.count(slot.priority);
            }
        }
        readings
    }
}
