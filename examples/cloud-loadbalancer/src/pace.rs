//! The pace of calls to the cloud: as fast as it accepts, found out by its refusals.
//!
//! Calls take slots with an interval between them. A throttled call doubles the interval and delays the next slot to the
//! time that the cloud gave; each accepted call shortens the interval by a twentieth, down to the configured one.
//! Without this, many Services that fail together come back together, and each of them fails in the middle again.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The longest interval.
const SLOWEST: Duration = Duration::from_secs(5);
/// The interval after the first refusal, at least.
const FIRST: Duration = Duration::from_millis(50);

/// The pace of calls.
#[derive(Debug)]
pub(crate) struct Pace {
    fastest: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    interval: Duration,
    next: Instant,
}

// === impl Pace ===

impl Pace {
    /// At most one call each `fastest`.
    pub(crate) fn new(fastest: Duration) -> Self {
        Self {
            fastest,
            state: Mutex::new(State {
                interval: fastest,
                next: Instant::now(),
            }),
        }
    }

    /// Waits for a slot.
    pub(crate) async fn slot(&self) {
        let slot = {
            let mut state = self.state.lock();
            let slot = state.next.max(Instant::now());
            state.next = slot + state.interval;
            slot
        };
        sleep_until(slot).await;
    }

    /// The cloud accepted a call.
    pub(crate) fn accepted(&self) {
        let mut state = self.state.lock();
        state.interval = (state.interval * 19 / 20).max(self.fastest);
    }

    /// The cloud refused a call, and accepts others after `wait`.
    pub(crate) fn throttled(&self, wait: Duration) {
        let mut state = self.state.lock();
        state.interval = (state.interval * 2).clamp(FIRST, SLOWEST);
        state.next = state.next.max(Instant::now() + wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of `calls` calls, of which the cloud accepts `limit` a second.
    async fn time_of(calls: u32, limit: u32) -> (Duration, u32) {
        let pace = Pace::new(Duration::from_millis(20));
        let begin = Instant::now();
        let (mut second, mut used, mut refused, mut done) = (begin, 0, 0, 0);
        while done < calls {
            pace.slot().await;
            if second.elapsed() >= Duration::from_secs(1) {
                (second, used) = (Instant::now(), 0);
            }
            if used < limit {
                used += 1;
                done += 1;
                pace.accepted();
            } else {
                refused += 1;
                pace.throttled(Duration::from_secs(1));
            }
        }
        (begin.elapsed(), refused)
    }

    #[tokio::test(start_paused = true)]
    async fn a_cloud_without_a_limit_is_called_at_the_configured_pace() {
        let (time, refused) = time_of(100, 1000).await;
        assert_eq!((time, refused), (Duration::from_millis(20 * 99), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cloud_that_throttles_refuses_few_calls() {
        let (time, refused) = time_of(1000, 5).await;
        assert!(
            time < Duration::from_secs(500),
            "at least two a second: {time:?}"
        );
        assert!(refused < 150, "{refused} of a thousand");
    }
}
