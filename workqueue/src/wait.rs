//! Getting items, in a task or in a plain thread, one by one or in batches.

use std::future::poll_fn;
use std::hash::Hash;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::blocking::Parker;
use crate::item::Item;
use crate::now::{Now, instant};
use crate::queue::Queue;
use crate::shared::{Shared, TakeResult};
use crate::state::{Effects, State, Taken};
use crate::waiters::Ticket;

// === impl Queue ===

impl<T: Hash + Eq + Clone + Send + Sync + 'static> Queue<T> {
    /// The next item, when there is one; `None` when the queue is shut down and empty.
    ///
    /// Cancel-safe: dropping the future loses neither an item nor a wake-up of another. The waiting future
    /// drives the queue's timers, so a future that is kept but not polled may delay items for as long as every
    /// other worker waits too; drop it instead.
    ///
    /// # Panics
    /// If it has to wait for a time outside a tokio runtime with time enabled
    /// ([`Queue::get_blocking`] needs none).
    pub async fn get(&self) -> Option<Item<T>> {
        let taken = self.wait(State::take).await?;
        Some(Item::new(&self.0, taken))
    }

    /// Up to `at_most` items (1 at least): waits for the first, and takes those that are ready then under the
    /// same lock. Empty when the queue is shut down and empty.
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

    /// The next item, if one is ready now.
    #[must_use]
    pub fn try_get(&self) -> Option<Item<T>> {
        loop {
            // Due items count as ready, however many became due at once.
            let (taken, more_is_due) = self
                .0
                .update(true, |core, now, effects| core.state.take_due(now, effects));
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
        // A worker of a queue that is never empty must yield.
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
                match self
                    .0
                    .poll_take(&mut waiter.ticket, parker.waker(), &mut take)
                {
                    TakeResult::Taken(taken) => return Some(taken),
                    TakeResult::Closed => return None,
                    TakeResult::Wait(until) => parker.park(until.map(|until| {
                        let now = self.0.now().read();
                        Duration::from_nanos(until.saturating_sub(now))
                    })),
                }
            }
        })
    }
}

// === impl Item ===

impl<T: Hash + Eq + Clone + Send + Sync + 'static> Item<T> {
    /// As [`Item::done`], and then [`Queue::get`] of the same queue, with one operation on the queue instead of two if an item
    /// is ready: for workers that get item after item.
    ///
    /// The item is settled before the future waits for another one, or when the future is dropped before that. Cancel-safe
    /// as [`Queue::get`] is.
    ///
    /// # Panics
    /// As [`Queue::get`].
    pub fn done_and_get(self) -> impl Future<Output = Option<Self>> + Send {
        Ending::new(self, false).get()
    }

    /// As [`Item::forget`], and then [`Queue::get`]; otherwise as [`Item::done_and_get`].
    ///
    /// # Panics
    /// As [`Queue::get`].
    pub fn forget_and_get(self) -> impl Future<Output = Option<Self>> + Send {
        Ending::new(self, true).get()
    }

    /// As [`Item::done`], and then [`Queue::try_get`] of the same queue, with one operation on the queue instead of two.
    #[must_use]
    pub fn done_and_try_get(self) -> Option<Self> {
        self.end_and_try_get(false).ok()
    }

    /// As [`Item::forget`], and then [`Queue::try_get`]; otherwise as [`Item::done_and_try_get`].
    #[must_use]
    pub fn forget_and_try_get(self) -> Option<Self> {
        self.end_and_try_get(true).ok()
    }

    fn end_and_try_get(self, forget: bool) -> Result<Self, Queue<T>> {
        match self.end_and_take(forget) {
            Ok(next) => Ok(next),
            Err((shared, more_is_due)) => {
                let queue = Queue(shared);
                let next = if more_is_due { queue.try_get() } else { None };
                next.ok_or(queue)
            }
        }
    }
}

/// An item that ends at the first poll, or at the drop before it.
struct Ending<T: Hash + Eq + Clone + 'static> {
    item: Option<Item<T>>,
    forget: bool,
}

// === impl Ending ===

impl<T: Hash + Eq + Clone + Send + Sync + 'static> Ending<T> {
    fn new(item: Item<T>, forget: bool) -> Self {
        let item = Some(item);
        Self { item, forget }
    }

    async fn get(mut self) -> Option<Item<T>> {
        // A worker of a queue that is never empty must yield.
        tokio::task::coop::consume_budget().await;
        match self.item.take()?.end_and_try_get(self.forget) {
            Ok(next) => Some(next),
            Err(queue) => queue.get().await,
        }
    }
}

impl<T: Hash + Eq + Clone + 'static> Drop for Ending<T> {
    fn drop(&mut self) {
        if let Some(mut item) = self.item.take() {
            item.end(self.forget);
        }
    }
}

/// Items that were taken together. If taking one of them panics, those before it are not lost.
struct Batch<'a, T: Hash + Eq + Clone + 'static> {
    shared: &'a std::sync::Arc<Shared<T>>,
    at_most: usize,
    taken: Vec<Taken<T>>,
}

// === impl Batch ===

impl<'a, T: Hash + Eq + Clone + 'static> Batch<'a, T> {
    fn new(shared: &'a std::sync::Arc<Shared<T>>, at_most: usize) -> Self {
        /// Capacity that is allocated before the lock is taken.
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

/// A waiting call. Leaves the waiters when dropped.
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
        /// Number of polls in a row before other tasks run.
        const POLLS: usize = 16;
        let mut polls = 0;
        loop {
            match self
                .shared
                .poll_take(&mut self.ticket, cx.waker(), &mut *take)
            {
                TakeResult::Taken(taken) => return Poll::Ready(Some(taken)),
                TakeResult::Closed => return Poll::Ready(None),
                TakeResult::Wait(None) => {
                    sleep.set(None);
                    return Poll::Pending;
                }
                // More is due than one slice. The runtime's timers do not help: they round up to a millisecond.
                TakeResult::Wait(Some(until)) if until <= self.shared.now().read() => {
                    polls += 1;
                    if polls == POLLS {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                TakeResult::Wait(Some(until)) => {
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

/// The end of one sleep: tokio's timers reach about two years.
fn within_reach(until: Instant) -> Instant {
    const REACH: Duration = Duration::from_secs(86_400 * 365);
    if until <= Instant::now() + REACH {
        until
    } else {
        Instant::now() + REACH
    }
}
