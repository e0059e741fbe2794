//! How much of the past is kept.

use std::time::Duration;

use tokio::time::Instant;

/// How much history is kept, for each resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// Minimum number of events, whatever their age. Default 100.
    pub min_events: usize,
    /// Maximum number of events, whatever their age. Default 102,400.
    pub max_events: usize,
    /// Approximate maximum size besides the objects in bytes, whatever the number of events. Default 64 MiB.
    pub max_bytes: usize,
    /// Beyond the minimum, older events are dropped, with or without further writes. Default 75 seconds.
    pub age: Duration,
}

// === impl History ===

impl Default for History {
    fn default() -> Self {
        Self {
            min_events: 100,
            max_events: 102_400,
            max_bytes: 64 * 1024 * 1024,
            age: Duration::from_secs(75),
        }
    }
}

/// `by` before `at`. A machine that runs for a shorter time may have no such instant: the oldest one is the same then.
pub(super) fn earlier(at: Instant, by: Duration) -> Instant {
    at.checked_sub(by).unwrap_or(at)
}
