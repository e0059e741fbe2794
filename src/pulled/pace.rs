//! How fast lists are written.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Writes that need no wait after a pause.
const BURST: u32 = 20;

/// The time between two writes afterwards: 60 a minute, each of up to a megabyte.
const STEP: Duration = Duration::from_secs(1);

/// The pace of all sources together (a virtual scheduling rate limit).
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the writes so far are worked off.
    until: Mutex<Option<Instant>>,
}

// === impl Pace ===

impl Pace {
    /// Waits until the next write may begin.
    pub(super) async fn turn(&self) {
        let now = Instant::now();
        let until = {
            let mut until = self.until.lock();
            let next = until.map_or(now, |at| at.max(now)) + STEP;
            *until = Some(next);
            next
        };
        let burst = STEP * BURST;
        if let Some(begin) = until.checked_sub(burst) {
            tokio::time::sleep_until(begin).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_needs_no_wait_and_then_one_write_a_second_is_made() {
        // The clock of a test may begin at zero.
        tokio::time::sleep(Duration::from_secs(60)).await;
        let pace = Pace::default();
        let began = Instant::now();
        for _ in 0..BURST {
            pace.turn().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..60 {
            pace.turn().await;
        }
        let took = began.elapsed().as_secs();
        assert!((60..=61).contains(&took), "{took} s");
        tokio::time::sleep(Duration::from_secs(10)).await;
        let began = Instant::now();
        for _ in 0..10 {
            pace.turn().await;
        }
        assert!(began.elapsed() < Duration::from_millis(10), "a pause");
    }
}
