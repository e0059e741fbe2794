//! What every set engine does.

use std::fmt;
use std::time::Duration;

use super::set::{Differences, TargetSet};
use crate::outbound::BoxFuture;
use crate::target::Target;

/// Keeps one set of targets blocked. Dyn-safe: the configuration chooses the engines.
///
/// A set engine is level-triggered: it owns its whole set, so what a crash leaves half done is found by
/// [`snapshot`](Self::snapshot) and repaired.
pub trait SetEngine: Send + Sync + fmt::Debug {
    /// What this engine can do.
    fn capabilities(&self) -> Capabilities;

    /// How long changes are collected before the next batch.
    fn collect(&self) -> Duration {
        Duration::from_millis(100)
    }

    /// Takes the set from one state to another. The first state is what the last call left, or what `snapshot` returned.
    ///
    /// # Errors
    /// When a part of it may be missing. The next call follows a `snapshot`.
    fn apply<'a>(&'a self, change: &'a Change) -> BoxFuture<'a, Result<(), Error>>;

    /// The set that is blocked now, or `None` for an engine that cannot list it. Without
    /// [`ttl`](Capabilities::ttl) every target is there without end.
    ///
    /// # Errors
    /// When the engine does not answer.
    fn snapshot(&self) -> BoxFuture<'_, Result<Option<TargetSet>, Error>>;

    /// The set is complete, also if it is empty: the engine had nothing to apply.
    fn ready(&self) {}

    /// Counts its readers, every some seconds.
    fn look(&self) {}

    /// It is not served any more: waiting readers are answered now.
    fn close(&self) {}

    /// Removes everything that this engine keeps elsewhere: it is not configured any more.
    ///
    /// # Errors
    /// When a part of it may stand.
    fn clear(&self) -> BoxFuture<'_, Result<(), Error>>;
}

/// What a set engine can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// It blocks IPv6 targets, not only IPv4 ones.
    pub v6: bool,
    /// It blocks ranges, not only addresses.
    pub ranges: bool,
    /// It has the ends: what it serves or programs ends by itself, also without the operator.
    pub ttl: bool,
    /// The most targets that it takes; `None`: no limit of its own.
    pub most: Option<usize>,
}

/// A set that becomes another one.
#[derive(Clone, Debug)]
pub struct Change {
    /// What the engine has.
    pub from: TargetSet,
    /// What it gets.
    pub to: TargetSet,
}

/// Why a set engine does not have its set. The text does not change from one attempt to the next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

// === impl Capabilities ===

impl Capabilities {
    /// Why an engine named `name` cannot block `target`; `None`: it can.
    #[must_use]
    pub fn refusal(&self, name: &str, target: &Target) -> Option<String> {
        let what = if target.is_ipv6() && !self.v6 {
            "IPv6"
        } else if !target.is_host() && !self.ranges {
            "ranges"
        } else {
            return None;
        };
        Some(format!("{name} does not support {what}"))
    }

    /// Whether an engine can block `target`.
    #[must_use]
    pub fn takes(&self, target: &Target) -> bool {
        (self.v6 || !target.is_ipv6()) && (self.ranges || target.is_host())
    }
}

// === impl Change ===

impl Change {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Every target that is added, removed or gets another end.
    pub fn differences(&self) -> Differences<'_> {
        self.from.differences(&self.to)
    }
}
