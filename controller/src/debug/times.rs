//! Times of reports.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The time `elapsed` before `now`.
pub(crate) fn before(now: Timestamp, elapsed: Duration) -> Timestamp {
    let elapsed = SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX);
    now.saturating_sub(elapsed).unwrap_or(Timestamp::MIN)
}

/// The time `left` after `now`.
pub(crate) fn after(now: Timestamp, left: Duration) -> Timestamp {
    let left = SignedDuration::try_from(left).unwrap_or(SignedDuration::MAX);
    now.saturating_add(left).unwrap_or(Timestamp::MAX)
}
