//! The queue behind its handles: the state and the waiters under one lock.
//!
//! Every operation goes through [`Shared::update`]: lock, apply due timers and buffered operations, operate,
//! restore the invariants of the waiters, unlock; then wake, count, and drop keys. The end of a run without anything
//! pending has the same result before due timers and after, so it leaves them to the next operation and reads no clock.
//!
//! # Flat combining
//! Operations without a result are buffered while the lock is held and applied by its holder. Waiting for a lock that
//! moves between processors makes it move more. So adds, and runs that end without a requeue, never wait: if the lock
//! is taken, the operation goes into the buffer.
//!
//! The producer tries the lock again after it buffered an operation, and the holder checks the buffer
//! again after it released the lock, each with a fence between the two steps. So one of them sees the
//! other, and no operation stays buffered while the queue is unlocked. Every operation first applies the
//! buffer: the operations of one thread stay in their order.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use tokio::time::Instant;

use crate::metrics::{Gauges, QueueMetrics, Readings};
use crate::now::Now;
use crate::options::OnDrop;
use crate::reason::ReasonBits;
use crate::slots::fold;
use crate::state::{AddRequest, Effects, Outcome, State};
use crate::sync::{Apart, AtomicBool, Mutex, MutexGuard, fence};
use crate::waiters::{Ticket, Waiters, Wakes};

/// Capacity of the buffer. A producer that finds it full waits for the lock.
const CAPACITY: usize = if cfg!(shuttle) { 2 } else { 128 };

pub(crate) struct Shared<T> {
    core: Apart<Mutex<Core<T>>>,
    op_buffer: Apart<OpBuffer<T>>,
    /// Whether an add can be deferred: it calls no user code but the key's own, so any thread may run it.
    pub(crate) can_defer: bool,
    pub(crate) name: String,
    pub(crate) on_drop: OnDrop,
    pub(crate) metrics: Option<Box<dyn QueueMetrics>>,
    hasher: DefaultHashBuilder,
    pub(crate) origin: Instant,
}

pub(crate) struct Core<T> {
    /// Operations that were taken out of the buffer, to be applied.
    ops: VecDeque<DeferredOp<T>>,
    pub(crate) state: State<T>,
    pub(crate) waiters: Waiters,
    /// Wakers of drains.
    drains: Vec<Waker>,
}

/// Result of a poll of the queue.
pub(crate) enum TakeResult<R> {
    Taken(R),
    /// Shut down, and nothing left.
    Closed,
    /// Nothing is ready. The driver of the timers sleeps until the given time.
    Wait(Option<u64>),
}

/// An operation without a result.
#[derive(Debug)]
pub(crate) enum DeferredOp<T> {
    /// An add without a delay.
    Add {
        key: T,
        hash: u32,
        priority: i32,
        reasons: ReasonBits,
    },
    /// The end of a run without a requeue.
    Settle { place: (u32, u32), forget: bool },
}

/// What is applied before an operation.
#[derive(Clone, Copy, Debug)]
struct Before {
    /// Due timers and buffered operations; otherwise only if operations are buffered.
    always: bool,
    /// Closes the buffer.
    close: bool,
}

/// Operations for the lock's holder to apply.
#[derive(Debug)]
struct OpBuffer<T> {
    inside: Mutex<Buffered<T>>,
    /// Whether there are operations, or the buffer is closed.
    filled: AtomicBool,
}

#[derive(Debug)]
struct Buffered<T> {
    ops: VecDeque<DeferredOp<T>>,
    /// Refuses operations until it is opened again.
    closed: bool,
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
        let can_defer = !state.is_fair();
        Self {
            can_defer,
            core: Apart(Mutex::new(Core {
                ops: VecDeque::new(),
                state,
                waiters: Waiters::new(),
                drains: Vec::new(),
            })),
            op_buffer: Apart(OpBuffer::new()),
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

    /// Runs an operation. With `needs_time`, the clock is read before the lock is taken.
    pub(crate) fn update<R>(
        &self,
        needs_time: bool,
        operation: impl FnOnce(&mut Core<T>, &Now, &mut Effects<T>) -> R,
    ) -> R {
        let now = self.now();
        if needs_time {
            // Without the lock. So times may be slightly out of order, which is harmless.
            now.read();
        }
        let _flush = FlushOnDrop(self);
        self.operate(self.core.lock(), &now, Before::ALL, operation)
    }

    /// Applies `op` at once if the queue is unlocked; otherwise the lock's holder applies it.
    pub(crate) fn submit(&self, op: DeferredOp<T>) {
        let _flush = FlushOnDrop(self);
        let (guard, op) = match self.core.try_lock() {
            Some(guard) => (guard, op),
            None => match self.op_buffer.push(op) {
                Ok(()) => return,
                Err(op) => (self.core.lock(), op),
            },
        };
        let before = match &op {
            DeferredOp::Settle { place, forget } if guard.state.ends_untimed(*place, *forget) => {
                Before::BUFFERED
            }
            _ => Before::ALL,
        };
        self.operate(guard, &self.now(), before, |core, now, effects| {
            core.apply(op, now, effects);
        });
    }

    /// Applies operations that were buffered while the lock was held.
    ///
    /// Producers may buffer more as fast as they are applied. After a few rounds the buffer is closed, so that
    /// this thread gets back to its own work.
    fn flush(&self) {
        const ROUNDS: usize = if cfg!(shuttle) { 2 } else { 8 };
        for round in 1..=ROUNDS {
            if !self.op_buffer.has_ops() {
                return;
            }
            let Some(guard) = self.core.try_lock() else {
                return;
            };
            let close = round == ROUNDS;
            let before = Before {
                close,
                ..Before::ALL
            };
            self.operate(guard, &self.now(), before, |_, _, _| {});
        }
    }

    /// Runs all steps under the lock, `operation` last, then those after it.
    fn operate<R>(
        &self,
        guard: MutexGuard<'_, Core<T>>,
        now: &Now,
        before: Before,
        operation: impl FnOnce(&mut Core<T>, &Now, &mut Effects<T>) -> R,
    ) -> R {
        let mut effects = Effects::default();
        // Dropped after the lock is released, also if the operation panics.
        let mut wakes = Wakes::default();
        let result = {
            let mut core = guard;
            let locked = WakeOnDrop {
                core: &mut core,
                wakes: &mut wakes,
            };
            if before.always || self.op_buffer.filled.load(Relaxed) {
                if locked.core.state.is_timed() {
                    locked.core.state.advance(now.read(), &mut effects);
                }
                self.op_buffer.swap(&mut locked.core.ops, before.close);
                locked.core.apply_deferred(now, &mut effects);
            }
            operation(locked.core, now, &mut effects)
        };
        drop(wakes);
        if let Some(metrics) = &self.metrics {
            effects.counts.report(&**metrics);
        }
        result
    }

    /// Applies due timers in slices, so that the lock is held briefly.
    pub(crate) fn catch_up(&self) {
        while self.update(true, |core, now, effects| {
            core.state.is_timed() && core.state.advance(now.read(), effects)
        }) {}
    }

    /// Takes with `take`, or registers `waker`.
    pub(crate) fn poll_take<R>(
        &self,
        ticket: &mut Ticket,
        waker: &Waker,
        take: impl FnOnce(&mut State<T>, &Now, &mut Effects<T>) -> Option<R>,
    ) -> TakeResult<R> {
        let (result, old_waker) = self.update(true, |core, now, effects| {
            core.waiters.polled(*ticket);
            if let Some(taken) = take(&mut core.state, now, effects) {
                return (TakeResult::Taken(taken), core.waiters.leave(ticket));
            }
            if core.state.is_closed() {
                return (TakeResult::Closed, core.waiters.leave(ticket));
            }
            let next = core.state.next_event();
            let (until, replaced) = core.waiters.park(ticket, waker, next, now.read());
            (TakeResult::Wait(until), replaced)
        });
        drop(old_waker);
        result
    }

    /// Removes a waiter that got no item.
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

/// Applies buffered operations when dropped, which is after the lock was released, also if the operation
/// panicked: their producers found the lock taken and have returned.
struct FlushOnDrop<'a, T: Hash + Eq + Clone + 'static>(&'a Shared<T>);

// === impl FlushOnDrop ===

impl<T: Hash + Eq + Clone + 'static> Drop for FlushOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// The locked queue. Restores the invariants of the waiters when dropped.
struct WakeOnDrop<'a, T: Hash + Eq + Clone + 'static> {
    core: &'a mut Core<T>,
    wakes: &'a mut Wakes,
}

// === impl WakeOnDrop ===

impl<T: Hash + Eq + Clone + 'static> Drop for WakeOnDrop<'_, T> {
    fn drop(&mut self) {
        self.core.wake_waiters(self.wakes);
    }
}

// === impl Core ===

impl<T: Hash + Eq + Clone + 'static> Core<T> {
    /// Applies buffered operations. A panic of a key's own code, or of a limiter, affects only that
    /// operation.
    fn apply_deferred(&mut self, now: &Now, effects: &mut Effects<T>) {
        while let Some(op) = self.ops.pop_front() {
            let ends = match op {
                DeferredOp::Add { .. } => None,
                DeferredOp::Settle { place, .. } => Some(place),
            };
            let apply = AssertUnwindSafe(|| self.apply(op, now, effects));
            if catch_unwind(apply).is_err()
                && let Some(place) = ends
            {
                // The limiter panicked while it cleared the failures. The run has ended nevertheless.
                self.state.settle(place, Outcome::Done, now, effects);
            }
        }
    }

    fn apply(&mut self, op: DeferredOp<T>, now: &Now, effects: &mut Effects<T>) {
        match op {
            DeferredOp::Add {
                key,
                hash,
                priority,
                reasons,
            } => {
                let request = AddRequest {
                    priority,
                    reasons,
                    ..AddRequest::default()
                };
                self.state.add(hash, key, &request, now, effects);
            }
            DeferredOp::Settle { place, forget } => {
                let outcome = if forget {
                    Outcome::Forget
                } else {
                    Outcome::Done
                };
                self.state.settle(place, outcome, now, effects);
            }
        }
    }

    fn wake_waiters(&mut self, wakes: &mut Wakes) {
        if self.waiters.waiting() > 0 {
            let next = self.state.next_event();
            self.waiters
                .wake_waiters(self.state.ready.len(), next, wakes);
            if self.state.is_closed() {
                self.waiters.wake_all(wakes);
            }
        }
        if !self.drains.is_empty() && self.state.is_drained() {
            for waker in self.drains.drain(..) {
                wakes.push(Some(waker));
            }
        }
    }
}

// === impl Before ===

impl Before {
    const ALL: Self = Self {
        always: true,
        close: false,
    };
    /// For an operation that has the same result before the due timers and after them. It reads no clock.
    const BUFFERED: Self = Self {
        always: false,
        close: false,
    };
}

// === impl OpBuffer ===

impl<T> OpBuffer<T> {
    fn new() -> Self {
        Self {
            inside: Mutex::new(Buffered {
                ops: VecDeque::new(),
                closed: false,
            }),
            filled: AtomicBool::new(false),
        }
    }

    /// Buffers an operation; returns it if the buffer is full or closed.
    fn push(&self, op: DeferredOp<T>) -> Result<(), DeferredOp<T>> {
        let mut inside = self.inside.lock();
        if inside.closed || inside.ops.len() >= CAPACITY {
            return Err(op);
        }
        inside.ops.push_back(op);
        self.filled.store(true, Relaxed);
        Ok(())
    }

    /// Swaps the operations for an empty deque, and closes or opens the buffer. Called with the queue locked.
    fn swap(&self, ops: &mut VecDeque<DeferredOp<T>>, close: bool) {
        if close || self.filled.load(Relaxed) {
            let mut inside = self.inside.lock();
            std::mem::swap(&mut inside.ops, ops);
            inside.closed = close;
            // A closed buffer must be opened again.
            self.filled.store(close, Relaxed);
        }
    }

    /// Whether there may be unapplied operations. Called after the lock was released.
    fn has_ops(&self) -> bool {
        fence(SeqCst);
        self.filled.load(Relaxed)
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
                // An item in flight that was added again counts as queued, as in client-go and controller-runtime.
                if state.slots[flight.slot].state().is_ready_again() {
                    readings.count(state.slots[flight.slot].priority);
                }
            }
            readings
        })
    }
}
