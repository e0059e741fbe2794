//! The guard of an item that was handed out. It is settled exactly once.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::cause::Cause;
use crate::now::Now;
use crate::options::OnDrop;
use crate::reason::{CustomReasons, Reason, ReasonBits};
use crate::shared::{DeferredOp, Shared};
use crate::state::{Outcome, Taken};

/// An item that was handed out. No other worker gets it until it is settled.
///
/// Each method that settles an item consumes it, so it is settled once (client-go accepts a `Done` for an
/// item that no worker has, and may then queue it twice). Dropping an item settles it as
/// [`Builder::on_drop`](crate::Builder::on_drop) configures, so a worker that panics and a future that is
/// dropped leave the queue in order.
#[must_use = "dropping an item settles it as `OnDrop` configures"]
pub struct Item<T: Hash + Eq + Clone + 'static> {
    shared: Arc<Shared<T>>,
    key: T,
    /// Slot and flight.
    place: (u32, u32),
    priority: i32,
    failures: u32,
    reasons: ReasonBits,
    /// Time of the hand-out, in nanoseconds of the queue.
    started: u64,
    /// Outcome of a drop; `None` once the item is settled.
    on_drop: Option<OnDrop>,
}

// === impl Item ===

impl<T: Hash + Eq + Clone + 'static> Item<T> {
    pub(crate) fn new(shared: &Arc<Shared<T>>, taken: Taken<T>) -> Self {
        let item = Self {
            shared: Arc::clone(shared),
            key: taken.key,
            place: (taken.slot, taken.flight),
            priority: taken.priority,
            failures: taken.failures,
            reasons: taken.reasons,
            started: taken.started,
            on_drop: Some(shared.on_drop),
        };
        if let Some(metrics) = &shared.metrics {
            metrics.started(taken.waited);
        }
        item
    }

    /// Processed. The failure record is kept (controller-runtime: a terminal error).
    pub fn done(mut self) {
        self.end(false);
    }

    /// Processed successfully: clears the failure record.
    pub fn forget(mut self) {
        self.end(true);
    }

    /// Failed: counts the failure and requeues the item after the limiter's delay, with the same priority.
    /// Returns the item's own back-off; the wait for a token, if the limiter has any, is added to it.
    ///
    /// If the item was added again meanwhile, the earlier of the two times counts, so after an add without a delay it is
    /// ready at once; the failure is counted in either case.
    pub fn retry(mut self) -> Duration {
        let priority = self.priority;
        self.settle(Outcome::Retry {
            priority,
            cause: None,
        })
    }

    /// As [`Item::retry`], with a cause: the limiter gets it, the item waits at least for
    /// [`Cause::retry_after`], and snapshots show the message until the item succeeds.
    pub fn retry_because(mut self, cause: Cause) -> Duration {
        let priority = self.priority;
        let cause = Some(cause);
        self.settle(Outcome::Retry { priority, cause })
    }

    /// Processed successfully, and requeued after `delay` with the same priority: clears the failure record.
    /// If the item was added again meanwhile, the earlier of the two times counts.
    pub fn requeue_after(mut self, delay: Duration) {
        let priority = self.priority;
        self.settle(Outcome::After { delay, priority });
    }

    /// Not processed: requeued after `delay` with the priority, reasons and failures of the hand-out. If the item was
    /// added again meanwhile, the earlier of the two times counts. The hand-out does not count for
    /// the [`Builder::min_interval`](crate::Builder::min_interval) of later adds.
    pub fn put_back(mut self, delay: Duration) {
        let (priority, reasons) = (self.priority, self.reasons);
        self.settle(Outcome::Back {
            delay,
            priority,
            reasons,
        });
    }

    /// The priority of the hand-out, or the one set since.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Sets the priority with which [`Item::retry`], [`Item::requeue_after`] and [`Item::put_back`] requeue the item.
    pub fn set_priority(&mut self, priority: i32) {
        self.priority = priority;
    }

    /// Failures in a row before this hand-out: 0 for a first attempt.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.failures
    }

    /// The reasons of all adds that collapsed into this run.
    #[must_use]
    pub fn reasons(&self) -> Vec<Reason> {
        if self.reasons == ReasonBits::default() {
            return Vec::new();
        }
        if self.reasons.are_plain() {
            return CustomReasons::default().decode(self.reasons);
        }
        self.shared.update(false, |core, _, _| {
            core.state.custom_reasons.decode(self.reasons)
        })
    }

    /// Ends the run without requeuing the item.
    pub(crate) fn end(&mut self, forget: bool) {
        // The drop after a panic of the limiter must not call the limiter again.
        self.on_drop = Some(OnDrop::Done);
        let place = self.place;
        self.shared.submit(DeferredOp::Settle { place, forget });
        self.ended(&self.shared.now());
    }

    /// Ends the run and requeues the item.
    fn settle(&mut self, outcome: Outcome) -> Duration {
        self.on_drop = Some(OnDrop::Done);
        let place = self.place;
        let (delay, now) = self.shared.update(true, |core, now, effects| {
            let delay = core.state.settle(place, outcome, now, effects);
            (delay, now.clone())
        });
        self.ended(&now);
        delay
    }

    /// Ends the run without requeuing the item, and takes the next one under the same lock. If it took none, it returns
    /// whether more is due than one operation applies.
    pub(crate) fn end_and_take(mut self, forget: bool) -> Result<Self, (Arc<Shared<T>>, bool)> {
        let place = self.place;
        let outcome = if forget {
            Outcome::Forget
        } else {
            Outcome::Done
        };
        self.on_drop = Some(OnDrop::Done);
        let on_drop = &mut self.on_drop;
        let (taken, more_is_due, now) = self.shared.update(true, |core, now, effects| {
            core.state.settle(place, outcome, now, effects);
            // It is settled, also if taking the next one panics.
            *on_drop = None;
            let (taken, more_is_due) = core.state.take_due(now, effects);
            (taken, more_is_due, now.clone())
        });
        self.ended(&now);
        match taken {
            Some(taken) => {
                self.begin(taken);
                Ok(self)
            }
            None => Err((Arc::clone(&self.shared), more_is_due)),
        }
    }

    /// Becomes the guard of another item.
    fn begin(&mut self, taken: Taken<T>) {
        let waited = taken.waited;
        self.key = taken.key;
        self.place = (taken.slot, taken.flight);
        self.priority = taken.priority;
        self.failures = taken.failures;
        self.reasons = taken.reasons;
        self.started = taken.started;
        self.on_drop = Some(self.shared.on_drop);
        if let Some(metrics) = &self.shared.metrics {
            metrics.started(waited);
        }
    }

    fn ended(&mut self, now: &Now) {
        self.on_drop = None;
        if let Some(metrics) = &self.shared.metrics {
            let took = now.read().saturating_sub(self.started);
            metrics.finished(Duration::from_nanos(took));
        }
    }
}

impl<T: Hash + Eq + Clone + 'static> Drop for Item<T> {
    fn drop(&mut self) {
        match self.on_drop {
            None => {}
            Some(OnDrop::Done) => self.end(false),
            Some(OnDrop::PutBack) if !std::thread::panicking() => {
                let (priority, reasons) = (self.priority, self.reasons);
                self.settle(Outcome::Back {
                    delay: Duration::ZERO,
                    priority,
                    reasons,
                });
            }
            Some(OnDrop::Retry | OnDrop::PutBack) => {
                let priority = self.priority;
                let retry = Outcome::Retry {
                    priority,
                    cause: None,
                };
                // Nothing settles the item after its drop: a limiter that panics here must not keep its key in flight.
                if catch_unwind(AssertUnwindSafe(|| self.settle(retry))).is_err() {
                    self.end(false);
                }
            }
        }
    }
}

impl<T: Hash + Eq + Clone + 'static> Deref for Item<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.key
    }
}

impl<T: Hash + Eq + Clone + fmt::Debug + 'static> fmt::Debug for Item<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item")
            .field("item", &self.key)
            .field("priority", &self.priority)
            .field("attempts", &self.failures)
            .finish_non_exhaustive()
    }
}
