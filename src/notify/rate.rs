//! How often a channel may be used: at most so many in any so long, for several such pairs.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Remembers the last sends and computes how long the next has to wait.
#[derive(Debug)]
pub(super) struct Rate {
    limits: Vec<(usize, Duration)>,
    sent: VecDeque<Instant>,
}

// === impl Rate ===

impl Rate {
    pub(super) fn new(limits: Vec<(usize, Duration)>) -> Self {
        Self {
            limits,
            sent: VecDeque::new(),
        }
    }

    pub(super) fn limits(&self) -> &[(usize, Duration)] {
        &self.limits
    }

    /// How long until another send fits into every window.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let waits = self.limits.iter().filter_map(|(count, window)| {
            let nth_last = self.sent.len().checked_sub((*count).max(1))?;
            let free = *self.sent.get(nth_last)? + *window;
            Some(free.saturating_duration_since(now))
        });
        waits.max().unwrap_or(Duration::ZERO)
    }

    /// Counts an attempt: the channel counts refused ones too.
    pub(super) fn used(&mut self, now: Instant) {
        let longest = self.limits.iter().map(|(count, _)| *count).max();
        self.sent.push_back(now);
        while self.sent.len() > longest.unwrap_or(0) {
            self.sent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_window_ever_holds_more_than_its_count() {
        const LIMITS: &[(usize, Duration)] =
            &[(5, Duration::from_secs(1)), (100, Duration::from_secs(60))];
        let mut rate = Rate::new(LIMITS.to_vec());
        let mut times = Vec::new();
        for _ in 0..350 {
            tokio::time::sleep(rate.wait(Instant::now())).await;
            rate.used(Instant::now());
            times.push(Instant::now());
        }
        for (count, window) in LIMITS {
            for pair in times.windows(count + 1) {
                assert!(pair[*count] - pair[0] >= *window);
            }
        }
        let took = times[349] - times[0];
        assert!(
            took <= Duration::from_secs(190),
            "no slower than needed: {took:?}"
        );
    }
}
