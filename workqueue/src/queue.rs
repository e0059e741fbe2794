//! The handle of a queue: what producers and workers call.

use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::blocking::Parker;
use crate::builder::Builder;
use crate::item::Item;
use crate::reason::Reason;
use crate::shared::{Look, Shared};
use crate::slots::Place;
use crate::snapshot::{Snapshot, SnapshotItem, Standing};
use crate::state::{Shutdown, Wish, instant};
use crate::waiters::Ticket;

/// The priority of what is not urgent: initial lists and resyncs. controller-runtime: `LowPriority`.
pub const LOW_PRIORITY: i32 = -100;

/// A work queue. Cheap to clone; clones are handles of the same queue.
///
/// The rules, and where they come from, are in the [crate's docs](crate).
pub struct Queue<T>(pub(crate) Arc<Shared<T>>);

/// How an item is to be added. See [`Queue::add_with`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AddOptions {
    /// Ready after this long. `None`: now.
    pub after: Option<Duration>,
    /// Counted as a failure, and ready after the limiter's delay; with `after` too, whichever is
    /// earlier.
    pub rate_limited: bool,
    /// Higher ones are handed out first. `None`: 0.
    pub priority: Option<i32>,
    /// Why; handed out with the item.
    pub reason: Option<Reason>,
}

// === impl Queue ===

impl<T: Hash + Eq + Clone + Send + Sync + 'static> Queue<T> {
    /// A queue with defaults: see [`Builder`].
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// How a queue is to be.
    pub fn builder() -> Builder<T> {
        Builder::new()
    }

    /// Wants `item` processed now.
    ///
    /// client-go: `Add`. An item that waits in the queue already is not queued twice; one that is
    /// being worked on runs again after; one that waits for a time is ready now, and its timer is
    /// gone (controller-runtime).
    pub fn add(&self, item: T) {
        self.add_with(item, AddOptions::default());
    }

    /// Wants `item` processed `delay` from now. Any length: what is beyond 584 years never comes.
    ///
    /// client-go: `AddAfter`. The earlier of several times wins. If the item is ready already, or
    /// runs and was added again, it is processed once, now (controller-runtime).
    pub fn add_after(&self, item: T, delay: Duration) {
        self.add_with(
            item,
            AddOptions {
                after: Some(delay),
                ..AddOptions::default()
            },
        );
    }

    /// Counts a failure of `item` and wants it processed after the limiter's delay.
    ///
    /// client-go: `AddRateLimited`. Workers rather call [`Item::retry`].
    pub fn add_rate_limited(&self, item: T) {
        self.add_with(
            item,
            AddOptions {
                rate_limited: true,
                ..AddOptions::default()
            },
        );
    }

    /// Wants `item` processed as `options` say.
    ///
    /// controller-runtime: `AddWithOpts`. An add of an item that is wanted already merges with it:
    /// the higher priority, the earlier time. One whose priority rises goes to the end of its new
    /// priority.
    pub fn add_with(&self, item: T, options: AddOptions) {
        let hash = self.0.hash(&item);
        let needs_time = options.after.is_some() || options.rate_limited;
        let wish = Wish {
            after: options.after,
            rate_limited: options.rate_limited,
            priority: options.priority.unwrap_or(0),
            reason: options.reason,
        };
        self.0.update(needs_time, |core, now, effects| {
            core.state.add(hash, item, wish, now, effects);
        });
    }

    /// Takes back every add of `item` that was not handed out yet: it is not ready, waits for
    /// nothing, and does not run again after the run it may be in. Returns whether there was one.
    /// Its failure record stays; see [`Queue::forget`].
    pub fn cancel(&self, item: &T) -> bool {
        let hash = self.0.hash(item);
        self.0.update(false, |core, _, effects| {
            core.state.cancel(hash, item, effects)
        })
    }

    /// Clears the failure record of `item`. client-go: `Forget`.
    pub fn forget(&self, item: &T) {
        let hash = self.0.hash(item);
        self.0.update(false, |core, _, effects| {
            core.state.forget(hash, item, effects);
        });
    }

    /// How often in a row `item` has failed. client-go: `NumRequeues`.
    #[must_use]
    pub fn num_requeues(&self, item: &T) -> u32 {
        let hash = self.0.hash(item);
        self.0.core.lock().state.failures(hash, item)
    }

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
        // A queue that is never empty must not keep its worker from yielding.
        tokio::task::coop::consume_budget().await;
        let mut waiter = Waiter {
            queue: self,
            ticket: None,
        };
        let mut sleep = pin!(None);
        poll_fn(|cx| waiter.poll(cx, sleep.as_mut())).await
    }

    /// The next item if there is one now.
    #[must_use]
    pub fn try_get(&self) -> Option<Item<T>> {
        let taken = self.0.update(true, |core, now, _| core.state.take(now))?;
        Some(Item::new(&self.0, taken))
    }

    /// As [`Queue::get`], for plain threads: blocks the thread until there is an item.
    #[must_use]
    pub fn get_blocking(&self) -> Option<Item<T>> {
        let mut waiter = Waiter {
            queue: self,
            ticket: None,
        };
        Parker::with(|parker| {
            loop {
                match self.0.look(&mut waiter.ticket, parker.waker()) {
                    Look::Item(taken) => return Some(Item::new(&self.0, taken)),
                    Look::Closed => return None,
                    Look::Wait(until) => parker.park(until.map(|until| {
                        let now = self.0.now();
                        Duration::from_nanos(until.saturating_sub(now))
                    })),
                }
            }
        })
    }

    /// How many items are ready to be handed out. Items that wait or are being worked on are not
    /// counted. client-go: `Len`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.update(false, |core, now, effects| {
            while core.state.advance(now, effects) {}
            core.state.ready.len()
        })
    }

    /// Nothing is ready to be handed out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Refuses adds from now on and drops what waits for a time. What is ready is still handed
    /// out; then [`Queue::get`] returns `None`. Ends a drain in progress. client-go: `ShutDown`.
    pub fn shut_down(&self) {
        self.0.update(false, |core, _, effects| {
            core.state.shut_down(Shutdown::Immediate, effects);
        });
    }

    /// As [`Queue::shut_down`], and waits until everything that was ready has been handed out and
    /// settled, what was added again while being worked on included.
    ///
    /// client-go: `ShutDownWithDrain`; but it returns early when nothing is in flight though items
    /// are queued. Without workers it waits until [`Queue::shut_down`]. Dropping the future leaves
    /// the queue draining.
    pub async fn shut_down_with_drain(&self) {
        self.0.update(false, |core, _, effects| {
            core.state.shut_down(Shutdown::Draining, effects);
        });
        poll_fn(|cx| self.0.poll_drained(cx)).await;
    }

    /// Adds are refused. client-go: `ShuttingDown`.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.0.core.lock().state.shutdown != Shutdown::Running
    }

    /// What the queue holds, with up to 1,000 items: see [`Queue::snapshot_of`].
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<T> {
        self.snapshot_of(1000)
    }

    /// What the queue holds, with up to `limit` items. One look under the lock whose cost grows
    /// with `limit`, not with the queue.
    #[must_use]
    pub fn snapshot_of(&self, limit: usize) -> Snapshot<T> {
        self.0.update(true, |core, now, _| {
            let state = &core.state;
            let item = |index: u32, standing: Standing| {
                let slot = &state.slots[index];
                Some(SnapshotItem {
                    item: slot.key.clone()?,
                    standing,
                    priority: match slot.place {
                        Place::Unwanted | Place::Vacant => 0,
                        _ => slot.priority,
                    },
                    failures: slot.failures,
                    reasons: state.custom_reasons.decode(slot.reasons),
                })
            };
            let due = |index: u32| {
                let slot = &state.slots[index];
                Duration::from_nanos(slot.at.min(slot.join_at).saturating_sub(now))
            };
            let in_flight = state.flights.iter().map(|flight| {
                let standing = Standing::InFlight {
                    running: Duration::from_nanos(now.saturating_sub(flight.started)),
                    again: state.slots[flight.slot].place == Place::Dirty,
                };
                (flight.slot, standing)
            });
            let ready = state.ready.iter(&state.slots);
            let in_line = state.line.iter(&state.slots);
            let mut waiting: Vec<u32> = state
                .timers
                .some(&state.slots, limit)
                .filter(|&index| {
                    let slot = &state.slots[index];
                    slot.place == Place::Waiting && !slot.in_flight
                })
                .collect();
            waiting.sort_by_key(|&index| due(index));
            let items = in_flight
                .chain(ready.map(|index| (index, Standing::Ready)))
                .chain(
                    in_line
                        .filter(|&index| !state.slots[index].in_flight)
                        .map(|index| (index, Standing::InLine)),
                )
                .chain(waiting.into_iter().map(|index| {
                    let due_in = due(index);
                    (index, Standing::Waiting { due_in })
                }))
                .take(limit)
                .filter_map(|(index, standing)| item(index, standing))
                .collect();
            Snapshot {
                name: self.0.name.clone(),
                ready: state.ready.len(),
                waiting: state.waiting,
                in_line: state.line.len(),
                in_flight: state.flights.len(),
                records: state.records.len(),
                refused: state.refused,
                shutting_down: state.shutdown != Shutdown::Running,
                items,
            }
        })
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Hash + Eq + Clone + Send + Sync + 'static> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.0.name)
            .finish_non_exhaustive()
    }
}

/// Somebody in `get`. Leaves the waiters when dropped.
struct Waiter<'a, T: Hash + Eq + Clone + 'static> {
    queue: &'a Queue<T>,
    ticket: Ticket,
}

// === impl Waiter ===

impl<T: Hash + Eq + Clone + 'static> Waiter<'_, T> {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut sleep: Pin<&mut Option<Sleep>>,
    ) -> Poll<Option<Item<T>>> {
        let shared = &self.queue.0;
        loop {
            match shared.look(&mut self.ticket, cx.waker()) {
                Look::Item(taken) => return Poll::Ready(Some(Item::new(shared, taken))),
                Look::Closed => return Poll::Ready(None),
                Look::Wait(None) => {
                    sleep.set(None);
                    return Poll::Pending;
                }
                Look::Wait(Some(until)) => {
                    let until = within_reach(instant(shared.origin, until));
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
        self.queue.0.leave(&mut self.ticket);
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
