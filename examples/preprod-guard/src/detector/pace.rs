//! The limit of Events (token bucket): a caller that reaches the webhook port could make the guard fill the store of the
//! cluster with records.

use std::time::Duration;

use tokio::time::Instant;

/// The most Events at once: those of a large collection.
const MOST_AT_ONCE: u32 = 2000;

/// The time of one Event after these: 20 a second.
const TIME_OF_ONE: Duration = Duration::from_millis(50);

/// The Events that may be written.
#[derive(Debug)]
pub(super) struct Pace {
    /// The time at which the full number is there again.
    full: Instant,
}

// === impl Pace ===

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { full: now }
    }

    /// Whether an Event may be written.
    pub(super) fn has(&self, now: Instant) -> bool {
        self.full.saturating_duration_since(now) <= TIME_OF_ONE * (MOST_AT_ONCE - 1)
    }

    /// Counts an Event.
    pub(super) fn take(&mut self, now: Instant) {
        self.full = self.full.max(now) + TIME_OF_ONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_events_at_once_and_then_twenty_a_second() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut count = |now| {
            let mut events = 0;
            while pace.has(now) {
                pace.take(now);
                events += 1;
            }
            events
        };
        assert_eq!(count(start), 2000);
        assert_eq!(count(start + Duration::from_secs(1)), 20);
        assert_eq!(count(start + Duration::from_secs(3600)), 2000);
    }
}
