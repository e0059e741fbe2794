//! The queue behind its handles: the state and the waiters under one lock.
//!
//! Every operation goes through [`Shared::update`]: lock, apply what time has brought and what others
//! have left, operate, restore the rules of the waiters, unlock; then wake, count, and drop what is to be
//! dropped. Adds and ends of runs, which need no answer, do not wait for the lock: see [`crate::mailbox`].

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use tokio::time::Instant;

use crate::builder::OnDrop;
use crate::mailbox::{Letter, Mailbox};
use crate::metrics::{Gauges, QueueMetrics, Readings};
use crate::slots::{Place, fold};
use crate::state::{Effects, Now, Outcome, State, Wish};
use crate::sync::{Mutex, MutexGuard};
use crate::waiters::{Ticket, Waiters, Wakes};

pub(crate) struct Shared<T> {
    core: Mutex<Core<T>>,
    /// What was left for whoever holds the lock.
    mailbox: Mailbox<T>,
    /// An add calls no code of the user's but the key's own, so whoever holds the lock may do it.
    pub(crate) leaves_letters: bool,
    pub(crate) name: String,
    pub(crate) on_drop: OnDrop,
    pub(crate) metrics: Option<Box<dyn QueueMetrics>>,
    hasher: DefaultHashBuilder,
    pub(crate) origin: Instant,
}

pub(crate) struct Core<T> {
    /// Letters that were taken out of the mailbox, to be applied.
    letters: VecDeque<Letter<T>>,
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
        let leaves_letters = !state.is_fair();
        Self {
            leaves_letters,
            core: Mutex::new(Core {
                letters: VecDeque::new(),
                state,
                waiters: Waiters::new(),
                drains: Vec::new(),
            }),
            mailbox: Mailbox::new(),
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
        let now = self.now();
        if needs_time {
            // Where nobody waits for it. So times may come a little out of order; nothing depends
            // on it.
            now.read();
        }
        let _emptied = Emptied(self);
        self.operate(self.core.lock(), &now, false, operation)
    }

    /// Has `letter` applied: at once if nobody holds the lock, and else by whoever does.
    pub(crate) fn leave_or_apply(&self, letter: Letter<T>) {
        let _emptied = Emptied(self);
        let (guard, letter) = match self.core.try_lock() {
            Some(guard) => (guard, letter),
            None => match self.mailbox.leave(letter) {
                Ok(()) => return,
                Err(letter) => (self.core.lock(), letter),
            },
        };
        self.operate(guard, &self.now(), false, |core, now, effects| {
            core.apply(letter, now, effects);
        });
    }

    /// Applies what was left while the lock was held.
    ///
    /// Others may leave more as fast as it is applied. After a few rounds they are to wait for the lock,
    /// lest whoever is here never gets to its own work.
    fn empty_mailbox(&self) {
        const ROUNDS: usize = if cfg!(shuttle) { 2 } else { 8 };
        for round in 1..=ROUNDS {
            if !self.mailbox.has_letters() {
                return;
            }
            let Some(guard) = self.core.try_lock() else {
                return;
            };
            let close = round == ROUNDS;
            self.operate(guard, &self.now(), close, |_, _, _| {});
        }
    }

    /// Does what is to be done while the lock is held, `operation` last, and what is to be done after.
    fn operate<R>(
        &self,
        guard: MutexGuard<'_, Core<T>>,
        now: &Now,
        close: bool,
        operation: impl FnOnce(&mut Core<T>, &Now, &mut Effects<T>) -> R,
    ) -> R {
        let mut effects = Effects::default();
        // Woken when it is dropped: after the lock is released, and though the operation may panic.
        let mut wakes = Wakes::default();
        let result = {
            let mut core = guard;
            let roused = Roused {
                core: &mut core,
                wakes: &mut wakes,
            };
            if roused.core.state.is_timed() {
                roused.core.state.advance(now.read(), &mut effects);
            }
            self.mailbox.empty(&mut roused.core.letters, close);
            roused.core.apply_letters(now, &mut effects);
            operation(roused.core, now, &mut effects)
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
            let (until, replaced) = core.waiters.park(ticket, waker, next, now.read());
            (Look::Wait(until), replaced)
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
        self.update(false, |core, _, _| {
            if core.state.is_drained() {
                return Poll::Ready(());
            }
            if !core.drains.iter().any(|waker| waker.will_wake(cx.waker())) {
                core.drains.push(cx.waker().clone());
            }
            Poll::Pending
        })
    }
}

/// Looks for letters when it is dropped, which is after the lock was released, though the operation may
/// have panicked: whoever left something found the lock taken, and does not see to it.
struct Emptied<'a, T: Hash + Eq + Clone + 'static>(&'a Shared<T>);

// === impl Emptied ===

impl<T: Hash + Eq + Clone + 'static> Drop for Emptied<'_, T> {
    fn drop(&mut self) {
        self.0.empty_mailbox();
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
    /// Applies what others left. Should a key's own code panic, or a limiter's, it costs that add or that
    /// call, and not whoever is here.
    fn apply_letters(&mut self, now: &Now, effects: &mut Effects<T>) {
        while let Some(letter) = self.letters.pop_front() {
            let ends = match letter {
                Letter::Add { .. } => None,
                Letter::Settle { place, .. } => Some(place),
            };
            let apply = AssertUnwindSafe(|| self.apply(letter, now, effects));
            if catch_unwind(apply).is_err()
                && let Some(place) = ends
            {
                // Its limiter panicked when it was to forget the failures. The run has ended all the same.
                self.state.settle(place, Outcome::Done, now, effects);
            }
        }
    }

    fn apply(&mut self, letter: Letter<T>, now: &Now, effects: &mut Effects<T>) {
        match letter {
            Letter::Add {
                key,
                hash,
                priority,
                reasons,
            } => {
                let wish = Wish {
                    priority,
                    reasons,
                    ..Wish::default()
                };
                self.state.add(hash, key, &wish, now, effects);
            }
            Letter::Settle { place, forget } => {
                let outcome = if forget {
                    Outcome::Forget
                } else {
                    Outcome::Done
                };
                self.state.settle(place, outcome, now, effects);
            }
        }
    }

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
        self.update(true, |core, now, _| {
            let (now, state) = (now.read(), &core.state);
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
        })
    }
}
