//! The events of the last minute.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The length of the window.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// When the events of the last minute were, as many as a cap can be about.
#[derive(Clone, Debug, Default)]
pub(super) struct Window(VecDeque<Instant>);

// === impl Window ===

impl Window {
    /// How long until fewer than `most` events lie within the last minute; `None`: fewer do now.
    pub(super) fn full_for(&mut self, most: usize, now: Instant) -> Option<Duration> {
        self.prune(now);
        let position = self.0.len().checked_sub(most.max(1))?;
        let leaves = *self.0.get(position)? + MINUTE;
        Some(leaves.saturating_duration_since(now))
    }

    /// Adds an event. Of more than `kept` the earliest are forgotten: no cap is about them.
    pub(super) fn add(&mut self, at: Instant, kept: usize) {
        // An event from before a restart may be earlier than the last one.
        let position = self.0.partition_point(|other| *other <= at);
        self.0.insert(position, at);
        while self.0.len() > kept.max(1) {
            self.0.pop_front();
        }
    }

    /// How many events lie within the last minute, of those that are kept.
    pub(super) fn len(&mut self, now: Instant) -> usize {
        self.prune(now);
        self.0.len()
    }

    fn prune(&mut self, now: Instant) {
        while self.0.front().is_some_and(|at| *at + MINUTE <= now) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_minute_has_more_events_than_the_cap(
            cap in 1usize..6,
            waits in proptest::collection::vec(0u64..40, 1..80),
        ) {
            let start = Instant::now();
            let (mut window, mut now, mut taken) = (Window::default(), start, Vec::new());
            for wait in waits {
                now += Duration::from_secs(wait);
                match window.full_for(cap, now) {
                    None => {
                        window.add(now, cap);
                        taken.push(now);
                    }
                    Some(wait) => {
                        prop_assert!(wait > Duration::ZERO && wait <= MINUTE);
                        let mut later = window.clone();
                        prop_assert_eq!(later.full_for(cap, now + wait), None);
                    }
                }
            }
            for (position, first) in taken.iter().enumerate() {
                let within = taken[position..].iter().filter(|at| **at < *first + MINUTE);
                prop_assert!(within.count() <= cap);
            }
        }
    }
}
