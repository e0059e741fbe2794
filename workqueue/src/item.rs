//! An item that was handed out, to be settled exactly once.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::builder::OnDrop;
use crate::cause::Cause;
use crate::mailbox::Letter;
use crate::reason::{CustomReasons, Reason, ReasonBits};
use crate::shared::Shared;
use crate::state::{Now, Outcome, Taken};

/// An item that was handed out: until it is settled, nobody else gets it.
///
/// Each way to settle it consumes it, so it is settled once (client-go accepts a `Done` for an item
/// that nobody has, and may then queue it twice). Dropping it settles it as the queue was configured
/// with [`Builder::on_drop`](crate::Builder::on_drop); so a worker that panics, or a future that is
/// dropped, leaves the queue in order.
#[must_use = "dropping an item settles it as `OnDrop` says"]
pub struct Item<T: Hash + Eq + Clone + 'static> {
    shared: Arc<Shared<T>>,
    key: T,
    /// Slot and flight.
    place: (u32, u32),
    priority: i32,
    failures: u32,
    reasons: ReasonBits,
    /// When it was handed out, in nanoseconds of the queue.
    started: u64,
    /// What dropping it means; `None` when it is settled.
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

    /// Processed. The failure record is left as it is (controller-runtime: a terminal error).
    pub fn done(mut self) {
        self.end(false);
    }

    /// Processed well: the failure record is cleared.
    pub fn forget(mut self) {
        self.end(true);
    }

    /// Failed: counted, and back after the limiter's delay with the same priority. Returns the
    /// item's own back-off; the wait for a token, if the limiter has any, comes on top.
    ///
    /// If the item was added again meanwhile it is back at once; the failure counts all the same.
    pub fn retry(mut self) -> Duration {
        let priority = self.priority;
        self.settle(Outcome::Retry {
            priority,
            cause: None,
        })
    }

    /// As [`Item::retry`], and says why: the limiter sees it, the item waits as long as
    /// [`Cause::retry_after`] asks for at least, and the message shows in snapshots until the item
    /// succeeds.
    pub fn retry_because(mut self, cause: Cause) -> Duration {
        let priority = self.priority;
        let cause = Some(cause);
        self.settle(Outcome::Retry { priority, cause })
    }

    /// Processed well, and wanted again after `delay` with the same priority: the failure record is
    /// cleared. If the item was added again meanwhile it is back at once, and `delay` is forgotten.
    pub fn requeue_after(mut self, delay: Duration) {
        let priority = self.priority;
        self.settle(Outcome::After { delay, priority });
    }

    /// Not processed: back in the queue after `delay` as it was handed out, with its priority, its reasons and its
    /// failures. If the item was added again meanwhile it is back when that add is due, and `delay` is forgotten. For
    /// [`Builder::min_interval`](crate::Builder::min_interval) it was not handed out, as far as what is added later goes.
    pub fn put_back(mut self, delay: Duration) {
        let (priority, reasons) = (self.priority, self.reasons);
        self.settle(Outcome::Back {
            delay,
            priority,
            reasons,
        });
    }

    /// The priority it was handed out with, or was set to since.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// The priority with which [`Item::retry`], [`Item::requeue_after`] and [`Item::put_back`] put it back.
    pub fn set_priority(&mut self, priority: i32) {
        self.priority = priority;
    }

    /// How often in a row it had failed when it was handed out: 0 for a first attempt.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.failures
    }

    /// Why it was added: the reasons of all adds that collapsed into this run.
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

    /// Ends the run; nothing follows from it.
    fn end(&mut self, forget: bool) {
        // A limiter that panics is not asked again when the item is dropped for that.
        self.on_drop = Some(OnDrop::Done);
        let place = self.place;
        self.shared.leave_or_apply(Letter::Settle { place, forget });
        self.ended(&self.shared.now());
    }

    /// Ends the run with a wish for another one.
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
            Some(OnDrop::Retry) => {
                let priority = self.priority;
                self.settle(Outcome::Retry {
                    priority,
                    cause: None,
                });
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
