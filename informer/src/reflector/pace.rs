//! The bound on the requests to a server, whatever goes wrong: [`Pace`].

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// A reserve of requests that fills up over time.
///
/// Back-off bounds how often the same request is repeated, but not how many requests one attempt takes: a server that
/// answers every list, and refuses every watch, gets two a round. So all lists and watches take from this reserve, except
/// the later pages of a list.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    burst: u32,
    /// The time at which the reserve is full again.
    full_at: Instant,
}

// === impl Pace ===

impl Pace {
    /// A full reserve of `burst` requests, one of which comes back each `interval`.
    pub(super) fn new(burst: u32, interval: Duration) -> Self {
        Self {
            interval,
            burst: burst.max(1),
            full_at: Instant::now(),
        }
    }

    /// Returns when a request may be sent, without taking it.
    pub(super) async fn due(&self) {
        wait(self.missing(Instant::now())).await;
    }

    /// Takes one request, and returns when it may be sent.
    pub(super) async fn ready(&mut self) {
        wait(self.take()).await;
    }

    /// Takes one request. Returns the delay after which it may be sent.
    pub(super) fn take(&mut self) -> Duration {
        let now = Instant::now();
        let missing = self.missing(now);
        self.full_at = self.full_at.max(now) + self.interval;
        missing
    }

    /// The delay after which a request may be sent.
    fn missing(&self, now: Instant) -> Duration {
        let taken = self.full_at.saturating_duration_since(now) + self.interval;
        taken.saturating_sub(self.interval * self.burst)
    }
}

/// Even a sleep of no time would last until the next tick of the timer.
async fn wait(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
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
    async fn a_request_a_minute_never_waits() {
        let mut pace = Pace::new(1, Duration::from_secs(36));
        for _ in 0..100 {
            assert_eq!(pace.take(), Duration::ZERO);
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_due_is_ready_and_still_counts() {
        let mut pace = Pace::new(2, Duration::from_secs(36));
        let start = Instant::now();
        for expected in [0, 0, 36, 72] {
            pace.due().await;
            pace.ready().await;
            assert_eq!(start.elapsed().as_secs(), expected);
        }
    }
}
