//! Log lines about frequent events, at a bounded rate.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Passes the first event, then one a period.
#[derive(Debug)]
pub(crate) struct Sampled {
    period: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    passed: Option<Instant>,
    held: u64,
}

// === impl Sampled ===

impl Sampled {
    /// Passes one event within `period`.
    pub(crate) fn every(period: Duration) -> Self {
        Self {
            period,
            state: Mutex::default(),
        }
    }

    /// Whether to log this event: `Some` with the number of events that were not logged before it.
    pub(crate) fn pass(&self) -> Option<u64> {
        let mut state = self.state.lock();
        if state.passed.is_some_and(|at| at.elapsed() < self.period) {
            state.held += 1;
            return None;
        }
        state.passed = Some(Instant::now());
        Some(std::mem::take(&mut state.held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn the_first_event_passes_and_then_one_a_period_with_a_count_of_the_others() {
        let sampled = Sampled::every(PERIOD);
        let passed: Vec<_> = (0..5).map(|_| sampled.pass()).collect();
        assert_eq!(passed, [Some(0), None, None, None, None]);
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert_eq!(sampled.pass(), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(sampled.pass(), Some(5));
        tokio::time::advance(PERIOD).await;
        assert_eq!(sampled.pass(), Some(0));
    }
}
