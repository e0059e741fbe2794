//! How an item is to be added.

use std::time::Duration;

use crate::reason::{CustomReasons, Reason, ReasonBits};
use crate::state::Wish;

/// The priority of what is not urgent: initial lists and resyncs. controller-runtime: `LowPriority`.
pub const LOW_PRIORITY: i32 = -100;

/// How an item is to be added. See [`Queue::add_with`](crate::Queue::add_with).
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
    /// Ready once no such add has come for a while. With other delays too, whichever is earlier.
    pub debounce: Option<Debounce>,
}

/// Ready once it has been quiet: each add with it pushes the time away, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debounce {
    pub(crate) quiet: Duration,
    pub(crate) at_most: Duration,
}

// === impl AddOptions ===

impl AddOptions {
    /// Whether the add has to look at the clock.
    pub(crate) fn needs_time(&self) -> bool {
        self.after.is_some() || self.rate_limited || self.debounce.is_some()
    }

    /// The reason, unless its number is known to the queue only.
    pub(crate) fn plain_reason(&self) -> Option<ReasonBits> {
        match self.reason {
            None => Some(ReasonBits::default()),
            Some(reason) => ReasonBits::plain(reason),
        }
    }

    pub(crate) fn wish(&self, custom: &mut CustomReasons) -> Wish {
        Wish {
            after: self.after,
            rate_limited: self.rate_limited,
            debounce: self.debounce,
            priority: self.priority.unwrap_or(0),
            reasons: self
                .reason
                .map(|reason| custom.encode(reason))
                .unwrap_or_default(),
        }
    }
}

// === impl Debounce ===

impl Debounce {
    /// Ready once no such add has come for `quiet`; ten times that after the first one at the latest.
    #[must_use]
    pub fn new(quiet: Duration) -> Self {
        Self {
            quiet,
            at_most: quiet.saturating_mul(10),
        }
    }

    /// Ready this long after the first add at the latest. What is below the quiet time counts as that.
    #[must_use]
    pub fn at_most(mut self, at_most: Duration) -> Self {
        self.at_most = at_most.max(self.quiet);
        self
    }
}
