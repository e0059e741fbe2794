//! The moment of an operation, in nanoseconds since the queue was built.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// A time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// The moment of an operation, read from the clock on first use. Most adds do not use it.
#[derive(Clone, Debug)]
pub(crate) struct Now {
    origin: Instant,
    at: Cell<u64>,
}

// === impl Now ===

impl Now {
    pub(crate) fn new(origin: Instant) -> Self {
        Self {
            origin,
            at: Cell::new(NEVER),
        }
    }

    /// A given moment.
    pub(crate) fn at(origin: Instant, at: u64) -> Self {
        let at = Cell::new(at);
        Self { origin, at }
    }

    pub(crate) fn read(&self) -> u64 {
        if self.at.get() == NEVER {
            let since = Instant::now().saturating_duration_since(self.origin);
            self.at.set(nanoseconds(since));
        }
        self.at.get()
    }
}

/// Converts to nanoseconds; 584 years at most.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The moment `at` of a queue built at `origin`; distant ones are clamped.
pub(crate) fn instant(origin: Instant, at: u64) -> Instant {
    const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);
    origin
        .checked_add(Duration::from_nanos(at))
        .unwrap_or_else(|| origin + FAR)
}
