//! Which alerts that meet `unblockGrace` are reported by an Event: few of them, since a sender repeats its alerts.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::debounce::Debounce;
use crate::target::Target;

/// An address is reported again after this time.
const AGAIN: Duration = Duration::from_secs(600);

/// Addresses that are remembered for that.
const REMEMBERED: usize = 1000;

/// Events of all triggers within a minute.
const MOST: usize = 30;

const MINUTE: Duration = Duration::from_secs(60);

/// The Events of the last time.
#[derive(Debug)]
pub(super) struct Graced {
    reported: Debounce,
    recent: Mutex<VecDeque<Instant>>,
}

// === impl Graced ===

impl Graced {
    /// Nothing is reported yet.
    pub(super) fn new() -> Self {
        Self {
            reported: Debounce::new(AGAIN, REMEMBERED),
            recent: Mutex::default(),
        }
    }

    /// Whether an alert for `target` is to be reported. If it is, it counts as reported.
    pub(super) fn pass(&self, target: Target) -> bool {
        if self.reported.is_recent(&target, AGAIN) {
            return false;
        }
        let (mut recent, now) = (self.recent.lock(), Instant::now());
        while recent.front().is_some_and(|at| *at + MINUTE <= now) {
            recent.pop_front();
        }
        let passes = recent.len() < MOST;
        if passes {
            recent.push_back(now);
            self.reported.remember(target, AGAIN);
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_is_reported_once_in_ten_minutes_and_few_addresses_in_one() {
        let graced = Graced::new();
        let target = |last: usize| format!("192.0.2.{last}").parse::<Target>().unwrap();
        assert!(graced.pass(target(0)));
        assert!(!graced.pass(target(0)));
        let passed = (0..200).filter(|last| graced.pass(target(*last))).count();
        assert_eq!(passed, MOST - 1);
        tokio::time::advance(MINUTE).await;
        assert!(!graced.pass(target(0)) && graced.pass(target(200)));
        tokio::time::advance(AGAIN).await;
        assert!(graced.pass(target(0)));
    }
}
