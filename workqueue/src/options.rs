//! Options of an add.

use std::time::Duration;

use crate::reason::{CustomReasons, Reason, ReasonBits};
use crate::state::AddRequest;

/// The priority of initial lists and resyncs, which are not urgent. controller-runtime: `LowPriority`.
pub const LOW_PRIORITY: i32 = -100;

/// Options of an add. See [`Queue::add_with`](crate::Queue::add_with).
#[derive(Clone, Copy, Debug, Default)]
pub struct AddOptions {
    /// Delay. `None`: ready now.
    pub after: Option<Duration>,
    /// Counts a failure, and delays by the limiter; with `after` too, the earlier time counts.
    pub rate_limited: bool,
    /// Higher priorities are handed out first. `None`: 0.
    pub priority: Option<i32>,
    /// The reason, handed out with the item.
    pub reason: Option<Reason>,
}

// === impl AddOptions ===

impl AddOptions {
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
            priority: self.priority.unwrap_or(0),
            reasons: self
                .reason
                .map(|reason| custom.encode(reason))
                .unwrap_or_default(),
        }
    }
}
