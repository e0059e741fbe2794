//! Detection of changes of the wall clock.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep_until};

use crate::Clock;

/// A change of the wall clock that monotonic time does not explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// How far the wall clock moved: positive is forward.
    pub by: SignedDuration,
}

/// Reports changes of the wall clock; see [`Clock::watch_jumps`].
///
/// It keeps the last readings between calls, so the next call of [`jumped`](Self::jumped) reports a jump that happens
/// between two calls, or while a call is dropped.
#[derive(Debug)]
pub struct JumpWatcher {
    clock: Clock,
    tolerance: Duration,
    interval: Duration,
    /// The readings of the last comparison.
    wall: Timestamp,
    monotonic: Instant,
}

// === impl JumpWatcher ===

impl JumpWatcher {
    pub(crate) fn new(clock: Clock, tolerance: Duration, interval: Duration) -> Self {
        Self {
            wall: clock.now(),
            monotonic: Instant::now(),
            clock,
            tolerance,
            interval,
        }
    }

    /// Returns when the wall clock has moved by more than the tolerance against monotonic time since the last
    /// comparison. A suspend counts as a jump: monotonic time stood still in it.
    ///
    /// Cancel-safe: a call that is dropped loses nothing, and does not delay the next comparison.
    pub async fn jumped(&mut self) -> Jump {
        loop {
            // An overflow means never.
            match self.monotonic.checked_add(self.interval) {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
            if let Some(jump) = self.compare() {
                return jump;
            }
        }
    }

    /// The jump since the last comparison, if it is larger than the tolerance.
    fn compare(&mut self) -> Option<Jump> {
        let (wall, monotonic) = (self.clock.now(), Instant::now());
        let passed = SignedDuration::try_from(monotonic.saturating_duration_since(self.monotonic))
            .unwrap_or(SignedDuration::MAX);
        let by = wall.duration_since(self.wall).saturating_sub(passed);
        (self.wall, self.monotonic) = (wall, monotonic);
        (by.unsigned_abs() > self.tolerance).then_some(Jump { by })
    }
}
