//! What an add asks for, and the times a waiting item waits for.

use std::time::Duration;

use super::{Now, nanoseconds};
use crate::limiter::Delay;
use crate::options::Debounce;
use crate::reason::ReasonBits;
use crate::slots::NEVER;

/// What an add asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish {
    pub(crate) after: Option<Duration>,
    pub(crate) rate_limited: bool,
    pub(crate) debounce: Option<Debounce>,
    pub(crate) priority: i32,
    pub(crate) reasons: ReasonBits,
}

/// What a waiting item waits for; [`NEVER`] where there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Ready then, without a token.
    pub(crate) ready_at: u64,
    /// In line for a token from then on.
    pub(crate) join_at: u64,
    /// Ready then, unless another such add comes first.
    pub(crate) quiet_at: u64,
    /// No later than then, though such adds come on and on.
    pub(crate) quiet_by: u64,
}

// === impl Wish ===

impl Wish {
    /// Does it ask for a delay?
    pub(super) fn is_delayed(&self) -> bool {
        self.rate_limited
            || self.debounce.is_some()
            || self.after.is_some_and(|after| !after.is_zero())
    }

    /// What the item waits for; `None`: it is ready now.
    pub(super) fn wait(&self, delay: Option<Delay>, now: &Now) -> Option<Wait> {
        if self.after.is_none() && delay.is_none() && self.debounce.is_none() {
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
        if let Some(debounce) = self.debounce {
            wait.quiet_by = later(debounce.at_most);
            wait.quiet_at = later(debounce.quiet).min(wait.quiet_by);
        }
        (wait.ready_at.min(wait.quiet_at) > now).then(|| wait.without_useless_line())
    }
}

// === impl Wait ===

impl Wait {
    pub(super) const NOTHING: Self = Self {
        ready_at: NEVER,
        join_at: NEVER,
        quiet_at: NEVER,
        quiet_by: NEVER,
    };

    /// A place in line is not worth it if the item goes by then anyway.
    fn without_useless_line(mut self) -> Self {
        if self.join_at >= self.ready_at.min(self.quiet_at) {
            self.join_at = NEVER;
        }
        self
    }

    /// When something happens first.
    pub(crate) fn next(&self) -> u64 {
        self.ready_at.min(self.join_at).min(self.quiet_at)
    }

    /// It waits for one thing at most.
    pub(super) fn is_simple(&self) -> bool {
        self.quiet_at == NEVER && (self.ready_at == NEVER || self.join_at == NEVER)
    }

    /// Not before `at`.
    pub(super) fn not_before(mut self, at: u64) -> Self {
        let later = |time: &mut u64| {
            if *time != NEVER {
                *time = at.max(*time);
            }
        };
        later(&mut self.ready_at);
        later(&mut self.join_at);
        later(&mut self.quiet_at);
        later(&mut self.quiet_by);
        self.without_useless_line()
    }

    pub(super) fn until(at: u64) -> Self {
        Self {
            ready_at: at,
            ..Self::NOTHING
        }
    }

    /// Both: whatever comes first, but for debouncing, where the later add pushes the time away.
    pub(super) fn merge(mut self, other: Self) -> Self {
        self.ready_at = self.ready_at.min(other.ready_at);
        self.join_at = self.join_at.min(other.join_at);
        if self.quiet_at == NEVER {
            self.quiet_at = other.quiet_at;
            self.quiet_by = other.quiet_by;
        } else if other.quiet_at != NEVER {
            self.quiet_by = self.quiet_by.min(other.quiet_by);
            self.quiet_at = self.quiet_at.max(other.quiet_at).min(self.quiet_by);
        }
        self
    }
}
