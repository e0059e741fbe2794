//! The times of a waiting item.

use crate::now::NEVER;

/// What a waiting item waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Ready at `until`.
    Delayed { until: u64 },
    /// In the token queue from `until` on; ready at `at_most`, which is later, also without a token.
    BackingOff { until: u64, at_most: Option<u64> },
}

// === impl Wait ===

impl Wait {
    /// Ready at `ready_at`, and in the token queue from `join_at` on if that is earlier; [`NEVER`] for none, but
    /// not for both.
    #[inline(always)]
    pub(crate) fn new(ready_at: u64, join_at: u64) -> Self {
        if join_at >= ready_at {
            return Self::Delayed { until: ready_at };
        }
        Self::BackingOff {
            until: join_at,
            at_most: (ready_at != NEVER).then_some(ready_at),
        }
    }

    /// The times of [`Wait::new`].
    #[inline(always)]
    fn times(self) -> (u64, u64) {
        match self {
            Self::Delayed { until } => (until, NEVER),
            Self::BackingOff { until, at_most } => (at_most.unwrap_or(NEVER), until),
        }
    }

    /// The time of its timer.
    #[inline(always)]
    pub(crate) fn until(self) -> u64 {
        match self {
            Self::Delayed { until } | Self::BackingOff { until, .. } => until,
        }
    }

    /// The time at which it is ready without a token.
    #[inline(always)]
    pub(super) fn ready_at(self) -> Option<u64> {
        match self {
            Self::Delayed { until } => Some(until),
            Self::BackingOff { at_most, .. } => at_most,
        }
    }

    /// Whether it is in the token queue at `now`.
    pub(crate) fn joins_by(self, now: u64) -> bool {
        matches!(self, Self::BackingOff { until, .. } if until <= now)
    }

    /// Merges two: the earlier times count.
    #[inline(always)]
    pub(super) fn merge(self, other: Self) -> Self {
        let ((ready_at, join_at), (other_ready_at, other_join_at)) = (self.times(), other.times());
        Self::new(ready_at.min(other_ready_at), join_at.min(other_join_at))
    }

    /// Moves all times to `at` or later.
    pub(crate) fn not_before(self, at: u64) -> Self {
        let (ready_at, join_at) = self.times();
        Self::new(ready_at.max(at), join_at.max(at))
    }
}
