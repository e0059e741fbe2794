//! Getting items: waiting for them in a task or in a plain thread, one by one or several at once.

use std::future::poll_fn;
use std::hash::Hash;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::blocking::Parker;
use crate::item::Item;
use crate::queue::Queue;
use crate::shared::{Look, Shared};
use crate::state::{Effects, Now, State, Taken, instant};
use crate::waiters::Ticket;

// === impl Queue ===

impl<T: Hash + Eq + Clone + Send + Sync + 'static> Queue<T> {
    /// The next item, when there is one; `None` when the queue is shut down and nothing is left.
    ///
    /// Cancel-safe: dropping the future loses neither an item nor somebody else's wake-up. Whoever
    /// waits here drives the queue's timers, so a future that is kept but not polled may hold up
    /// delayed items for as long as every other worker waits too; drop it instead.
    ///
    /// # Panics
    /// If it has to wait for a time outside a tokio runtime with time enabled
    /// ([`Queue::get_blocking`] needs none).
    pub async fn get(&self) -> Option<Item<T>> {
        let taken = self.wait(State::take).await?;
        Some(Item::new(&self.0, taken))
    }

    /// Up to `at_most` items (1 at least): waits for the first, and takes with it what is ready then,
    /// under one lock. Empty when the queue is shut down and nothing is left.
    ///
    /// For workers that handle items together. Cancel-safe as [`Queue::get`] is.
    ///
    /// # Panics
    /// As [`Queue::get`].
    pub async fn get_batch(&self, at_most: usize) -> Vec<Item<T>> {
        let mut batch = Batch::new(&self.0, at_most);
        self.wait(|state, now, effects| batch.fill(state, now, effects))
            .await;
        batch.into_items()
    }

    /// The next item if there is one now.
    #[must_use]
    pub fn try_get(&self) -> Option<Item<T>> {
        loop {
            let (taken, more_is_due) = self.0.update(true, |core, now, effects| {
                let taken = core.state.take(now, effects);
                // What is due counts, however much came due at once.
                let more = taken.is_none() && core.state.advance(now.read(), effects);
                (taken, more)
            });
            if let Some(taken) = taken {
                return Some(Item::new(&self.0, taken));
            }
            if !more_is_due {
                return None;
            }
        }
    }

    /// As [`Queue::get`], for plain threads: blocks the thread until there is an item.
    #[must_use]
    pub fn get_blocking(&self) -> Option<Item<T>> {
        let taken = self.wait_blocking(State::take)?;
        Some(Item::new(&self.0, taken))
    }

    /// As [`Queue::get_batch`], for plain threads: blocks the thread until there is an item.
    #[must_use]
    pub fn get_batch_blocking(&self, at_most: usize) -> Vec<Item<T>> {
        let mut batch = Batch::new(&self.0, at_most);
        self.wait_blocking(|state, now, effects| batch.fill(state, now, effects));
        batch.into_items()
    }

    async fn wait<R>(
        &self,
        mut take: impl FnMut(&mut State<T>, &Now, &mut Effects<T>) -> Option<R>,
    ) -> Option<R> {
        // A queue that is never empty must not keep its worker from yielding.
        tokio::task::coop::consume_budget().await;
        let mut waiter = Waiter {
            shared: &self.0,
            ticket: None,
        };
        let mut sleep = pin!(None);
        poll_fn(|cx| waiter.poll(cx, sleep.as_mut(), &mut take)).await
    }

    fn wait_blocking<R>(
        &self,
        mut take: impl FnMut(&mut State<T>, &Now, &mut Effects<T>) -> Option<R>,
    ) -> Option<R> {
        let mut waiter = Waiter {
            shared: &self.0,
            ticket: None,
        };
        Parker::with(|parker| {
            loop {
                match self.0.look(&mut waiter.ticket, parker.waker(), &mut take) {
                    Look::Taken(taken) => return Some(taken),
                    Look::Closed => return None,
                    Look::Wait(until) => parker.park(until.map(|until| {
                        let now = self.0.now().read();
                        Duration::from_nanos(until.saturating_sub(now))
                    })),
                }
            }
        })
    }
}

/// Items that were taken together. Should taking one of them panic, those before it are not lost.
struct Batch<'a, T: Hash + Eq + Clone + 'static> {
    shared: &'a std::sync::Arc<Shared<T>>,
    at_most: usize,
    taken: Vec<Taken<T>>,
}

// === impl Batch ===

impl<'a, T: Hash + Eq + Clone + 'static> Batch<'a, T> {
    fn new(shared: &'a std::sync::Arc<Shared<T>>, at_most: usize) -> Self {
        /// Memory for so many is taken before the lock is.
        const USUAL: usize = 256;
        let at_most = at_most.max(1);
        Self {
            shared,
            at_most,
            taken: Vec::with_capacity(at_most.min(USUAL)),
        }
    }

    fn fill(&mut self, state: &mut State<T>, now: &Now, effects: &mut Effects<T>) -> Option<()> {
        while self.taken.len() < self.at_most
            && let Some(taken) = state.take(now, effects)
        {
            self.taken.push(taken);
        }
        (!self.taken.is_empty()).then_some(())
    }

    fn into_items(mut self) -> Vec<Item<T>> {
        let shared = self.shared;
        let taken = std::mem::take(&mut self.taken);
        taken
            .into_iter()
            .map(|taken| Item::new(shared, taken))
            .collect()
    }
}

impl<T: Hash + Eq + Clone + 'static> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        for taken in self.taken.drain(..) {
            drop(Item::new(self.shared, taken));
        }
    }
}

/// Somebody who waits. Leaves the waiters when dropped.
struct Waiter<'a, T: Hash + Eq + Clone + 'static> {
    shared: &'a Shared<T>,
    ticket: Ticket,
}

// === impl Waiter ===

impl<T: Hash + Eq + Clone + 'static> Waiter<'_, T> {
    fn poll<R>(
        &mut self,
        cx: &mut Context<'_>,
        mut sleep: Pin<&mut Option<Sleep>>,
        take: &mut impl FnMut(&mut State<T>, &Now, &mut Effects<T>) -> Option<R>,
    ) -> Poll<Option<R>> {
        /// After so many looks in a row others get to run.
        const LOOKS: usize = 16;
        let mut looks = 0;
        loop {
            match self.shared.look(&mut self.ticket, cx.waker(), &mut *take) {
                Look::Taken(taken) => return Poll::Ready(Some(taken)),
                Look::Closed => return Poll::Ready(None),
                Look::Wait(None) => {
                    sleep.set(None);
                    return Poll::Pending;
                }
                // More is due than was moved in one go. The runtime's timers are no help: they round up to a
                // millisecond.
                Look::Wait(Some(until)) if until <= self.shared.now().read() => {
                    looks += 1;
                    if looks == LOOKS {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Look::Wait(Some(until)) => {
                    let until = within_reach(instant(self.shared.origin, until));
                    if sleep
                        .as_ref()
                        .as_pin_ref()
                        .is_none_or(|s| s.deadline() != until)
                    {
                        sleep.set(Some(tokio::time::sleep_until(until)));
                    }
                    if let Some(sleeping) = sleep.as_mut().as_pin_mut()
                        && sleeping.poll(cx).is_pending()
                    {
                        return Poll::Pending;
                    }
                    sleep.set(None);
                }
            }
        }
    }
}

impl<T: Hash + Eq + Clone + 'static> Drop for Waiter<'_, T> {
    fn drop(&mut self) {
        self.shared.leave(&mut self.ticket);
    }
}

/// The moment up to which to sleep in one go: tokio's timers reach about two years.
fn within_reach(until: Instant) -> Instant {
    const REACH: Duration = Duration::from_secs(86_400 * 365);
    if until <= Instant::now() + REACH {
        until
    } else {
        Instant::now() + REACH
    }
}
