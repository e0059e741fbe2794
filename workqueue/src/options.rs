//! Options of a queue's calls: of an add, and of an item that is dropped unsettled.

use std::time::Duration;

use crate::reason::{CustomReasons, Reason, ReasonBits};
use crate::state::AddRequest;

/// The priority of initial lists and resyncs, which are not urgent. controller-runtime: `LowPriority`.
pub const LOW_PRIORITY: i32 = -100;

/// Options of an add. See [`Queue::add_with`](crate::Queue::add_with).
///
/// ```
/// # use std::time::Duration;
/// use reeve_workqueue::{AddOptions, LOW_PRIORITY, Queue, Reason};
/// let queue = Queue::new();
/// let resync = AddOptions::new().priority(LOW_PRIORITY).reason(Reason::Resync);
/// queue.add_all_with(["pod-1", "pod-2"], resync);
/// queue.add_with("pod-3", resync.after(Duration::from_secs(1)));
/// # assert_eq!(queue.len(), 2);
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "options do nothing until an add gets them"]
pub struct AddOptions {
    after: Option<Duration>,
    rate_limited: bool,
    pub(crate) priority: i32,
    reason: Option<Reason>,
}

/// Outcome of an [`Item`](crate::Item) that is dropped unsettled: its worker panicked, or the future that
/// processed it was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDrop {
    /// As [`Item::done`](crate::Item::done): the item does not run again unless it is added again.
    #[default]
    Done,
    /// As [`Item::retry`](crate::Item::retry): counted as a failure, requeued after the limiter's delay.
    Retry,
    /// As [`Item::put_back`](crate::Item::put_back) without a delay: a future that is dropped did not process its item. After a
    /// panic as [`OnDrop::Retry`].
    PutBack,
}

// === impl AddOptions ===

impl AddOptions {
    /// An add that is ready now, with priority 0 and without a reason.
    pub fn new() -> Self {
        Self::default()
    }

    /// Delays the add. Default: ready now.
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }

    /// Counts a failure, and delays the add by the limiter. With [`AddOptions::after`] too, the earlier time
    /// counts.
    pub fn rate_limited(mut self) -> Self {
        self.rate_limited = true;
        self
    }

    /// Sets the priority; higher ones are handed out first. Default: 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the reason, which is handed out with the item. Default: none.
    pub fn reason(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Whether the add has to read the clock.
    pub(crate) fn needs_time(&self) -> bool {
        self.after.is_some() || self.rate_limited
    }

    /// The reason, unless it is a custom one, whose number only the queue has.
    pub(crate) fn plain_reason(&self) -> Option<ReasonBits> {
        match self.reason {
            None => Some(ReasonBits::default()),
            Some(reason) => ReasonBits::plain(reason),
        }
    }

    pub(crate) fn request(&self, custom: &mut CustomReasons) -> AddRequest {
        AddRequest {
            after: self.after,
            rate_limited: self.rate_limited,
            priority: self.priority,
            reasons: self
                .reason
                .map(|reason| custom.encode(reason))
                .unwrap_or_default(),
        }
    }
}
