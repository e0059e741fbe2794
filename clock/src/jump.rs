//! Noticing that the wall clock was set.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A change of the wall clock that monotonic time does not explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// How far the wall clock moved: positive is forward.
    pub by: SignedDuration,
}

/// Compares wall and monotonic time between two looks.
#[derive(Debug)]
pub(crate) struct Watcher {
    wall: Timestamp,
    monotonic: Instant,
}

// === impl Watcher ===

impl Watcher {
    pub(crate) fn new(wall: Timestamp, monotonic: Instant) -> Self {
        Self { wall, monotonic }
    }

    /// The jump since the last look, if it is larger than `tolerance`; remembers this look.
    pub(crate) fn observe(
        &mut self,
        wall: Timestamp,
        monotonic: Instant,
        tolerance: Duration,
    ) -> Option<Jump> {
        let passed = SignedDuration::try_from(monotonic.saturating_duration_since(self.monotonic))
            .unwrap_or(SignedDuration::MAX);
        let by = wall.duration_since(self.wall).saturating_sub(passed);
        *self = Self { wall, monotonic };
        (by.unsigned_abs() > tolerance).then_some(Jump { by })
    }
}
