//! The request of an add, and the times of a waiting item.

use std::time::Duration;

use super::{Now, nanoseconds};
use crate::limiter::Delay;
use crate::reason::ReasonBits;
use crate::slots::NEVER;

/// The request of an add.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AddRequest {
    pub(crate) after: Option<Duration>,
    pub(crate) rate_limited: bool,
    pub(crate) priority: i32,
    pub(crate) reasons: ReasonBits,
}

/// The times a waiting item waits for; [`NEVER`] for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Ready at this time, without a token.
    pub(crate) ready_at: u64,
    /// In the token queue from this time on.
    pub(crate) join_at: u64,
}

// === impl AddRequest ===

impl AddRequest {
    /// Whether it has a delay.
    pub(super) fn is_delayed(&self) -> bool {
        self.rate_limited || self.after.is_some_and(|after| !after.is_zero())
    }

    /// The times to wait for; `None`: ready now.
    pub(super) fn wait(&self, delay: Option<Delay>, now: &Now) -> Option<Wait> {
        if self.after.is_none() && delay.is_none() {
            return None;
        }
        let now = now.read();
        let later = |delay: Duration| now.saturating_add(nanoseconds(delay)).min(NEVER - 1);
        let mut wait = Wait::NOTHING;
        if let Some(after) = self.after {
            wait.ready_at = later(after);
        }
        if let Some(delay) = delay {
            let at_most = delay.at_most.map_or(NEVER, later);
            wait.ready_at = wait.ready_at.min(at_most);
            wait.join_at = later(delay.back_off);
        }
        (wait.ready_at > now).then(|| wait.without_needless_token())
    }
}

// === impl Wait ===

impl Wait {
    pub(super) const NOTHING: Self = Self {
        ready_at: NEVER,
        join_at: NEVER,
    };

    /// Drops the token queue if the item is ready by then anyway.
    fn without_needless_token(mut self) -> Self {
        if self.join_at >= self.ready_at {
            self.join_at = NEVER;
        }
        self
    }

    /// The first of the times.
    pub(crate) fn next(&self) -> u64 {
        self.ready_at.min(self.join_at)
    }

    /// Whether there is at most one time.
    pub(super) fn is_simple(&self) -> bool {
        self.ready_at == NEVER || self.join_at == NEVER
    }

    /// Moves all times to `at` or later.
    pub(super) fn not_before(mut self, at: u64) -> Self {
        let later = |time: &mut u64| {
            if *time != NEVER {
                *time = at.max(*time);
            }
        };
        later(&mut self.ready_at);
        later(&mut self.join_at);
        self.without_needless_token()
    }

    pub(super) fn until(at: u64) -> Self {
        Self {
            ready_at: at,
            ..Self::NOTHING
        }
    }

    /// Merges two: the earlier times count.
    pub(super) fn merge(mut self, other: Self) -> Self {
        self.ready_at = self.ready_at.min(other.ready_at);
        self.join_at = self.join_at.min(other.join_at);
        self
    }
}
