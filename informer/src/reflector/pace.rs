//! How often a server is asked at most, whatever goes wrong.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// A reserve of requests that fills up over time.
///
/// Back-off bounds how often the same thing is tried again, and not how many requests one try takes: a server
/// that answers every list, and refuses every watch, is asked twice a round. Here all lists and watches
/// count, but for the later pages of a list.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    burst: u32,
    /// When all that was taken will have come back.
    full_at: Instant,
}

// === impl Pace ===

impl Pace {
    /// A full reserve of `burst` requests, of which one comes back each `interval`.
    pub(super) fn new(burst: u32, interval: Duration) -> Self {
        Self {
            interval,
            burst: burst.max(1),
            full_at: Instant::now(),
        }
    }

    /// Takes one request, and returns when it may be sent.
    pub(super) async fn ready(&mut self) {
        let wait = self.take();
        // Even a sleep of no time lasts until the timer's next tick.
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }

    /// Takes one request; gives how long to wait until it may be sent.
    pub(super) fn take(&mut self) -> Duration {
        let now = Instant::now();
        let missing = self.full_at.saturating_duration_since(now) + self.interval;
        self.full_at = now + missing;
        missing.saturating_sub(self.interval * self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_hour_has_room_for_the_burst_and_what_comes_back() {
        let mut pace = Pace::new(20, Duration::from_secs(36));
        let start = Instant::now();
        let mut taken = 0;
        loop {
            tokio::time::sleep(pace.take()).await;
            if start.elapsed() >= Duration::from_secs(3600) {
                break;
            }
            taken += 1;
        }
        assert_eq!(taken, 20 + 99);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_once_a_minute_never_waits() {
        let mut pace = Pace::new(1, Duration::from_secs(36));
        for _ in 0..100 {
            assert_eq!(pace.take(), Duration::ZERO);
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }
}
