//! What a decision depends on beside the object and the time.

use std::time::Duration;

use jiff::Timestamp;

use crate::api::{Place, Standing};
use crate::policy::Policy;

/// The world around one block, read before deciding.
#[derive(Clone, Debug)]
pub struct World<'a> {
    /// Allowlist, protected ranges, widest range.
    pub policy: &'a Policy,
    /// The engine that is configured now, or why there is none.
    pub place: Result<&'a Place, &'a str>,
    /// The longest ban; `None`: no limit.
    pub max_duration: Option<Duration>,
    /// How long a block that a trigger made is kept after its ban ended, for each time it was banned; `None`: always.
    pub retention: Option<Duration>,
    /// How long a lift by `spec.unblock` counts against alerts: its block is kept at least for that.
    pub unblock_grace: Duration,
    /// Other blocks that stand for an overlapping target, whatever their namespace.
    pub neighbours: &'a [Neighbour],
    /// Whether the ban has to be asserted again.
    pub assert: Assert,
    /// How often a standing ban is asserted again.
    pub resync: Duration,
}

/// Another block whose target overlaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// `namespace/name`.
    pub key: String,
    /// What it bans, and where.
    pub standing: Standing,
    /// Until when; `None`: for ever.
    pub until: Option<Timestamp>,
}

/// When a standing ban is told to the engine again, against gateways that forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assert {
    /// Now: not yet since this process leads, or the last time is too long ago.
    Due,
    /// After this long.
    In(Duration),
}

// === impl World ===

impl World<'_> {
    /// Until when others keep `standing` banned: `None` nobody does, `Some(None)` for ever.
    pub(super) fn kept_by_others(
        &self,
        standing: &Standing,
        now: Timestamp,
    ) -> Option<(Option<Timestamp>, &str)> {
        kept_by(self.neighbours, standing, now)
    }
}

/// A neighbour that is due itself keeps nothing: it is about to be lifted.
pub(super) fn kept_by<'a>(
    neighbours: &'a [Neighbour],
    standing: &Standing,
    now: Timestamp,
) -> Option<(Option<Timestamp>, &'a str)> {
    neighbours
        .iter()
        .filter(|neighbour| neighbour.standing == *standing)
        .filter(|neighbour| neighbour.until.is_none_or(|until| until > now))
        .map(|neighbour| (neighbour.until, neighbour.key.as_str()))
        .max_by(|a, b| later(a.0, b.0))
}

/// Compares two ends, of which `None` is the latest.
pub(super) fn later(a: Option<Timestamp>, b: Option<Timestamp>) -> std::cmp::Ordering {
    match (a, b) {
        (None, None) => std::cmp::Ordering::Equal,
        (None, Some(_)) => std::cmp::Ordering::Greater,
        (Some(_), None) => std::cmp::Ordering::Less,
        (Some(a), Some(b)) => a.cmp(&b),
    }
}
