//! The news of the lease: when its watch may be open, and how many tries its events may cause.

use std::time::Duration;

/// Maximum pause between two watches that could not be opened, in retry periods.
const LONGEST_PAUSE: u32 = 32;
/// Maximum number of tries that events may cause at once; one more every retry period.
const EAGER: u32 = 3;

/// The watch of a contender, opened again when it ends, with growing pauses if it shows nothing.
#[derive(Debug)]
pub(super) struct Feed {
    /// While the watch is closed: the time from which it may be opened.
    not_before: Option<Duration>,
    pause: Duration,
    period: Duration,
    /// The limit on the tries that events cause.
    pub(super) pace: Pace,
}

/// Limits how often events lead to a try, however fast the lease changes hands.
#[derive(Debug)]
pub(super) struct Pace {
    left: u32,
    since: Duration,
    period: Duration,
}

// === impl Feed ===

impl Feed {
    /// A closed watch that may be opened at once, for tries every `period`.
    pub(super) fn new(now: Duration, period: Duration) -> Self {
        Self {
            not_before: Some(now),
            pause: period,
            period,
            pace: Pace::new(now, period),
        }
    }

    /// Counts the watch as open from now on if it is closed and may be opened. Returns whether it did.
    pub(super) fn open(&mut self, now: Duration) -> bool {
        self.not_before.take_if(|at| *at <= now).is_some()
    }

    /// Records an event of the watch: it works.
    pub(super) fn shows(&mut self) {
        self.pause = self.period;
    }

    /// Counts the watch as closed for a while. Returns whether it was open.
    pub(super) fn close(&mut self, now: Duration) -> bool {
        let open = self.not_before.is_none();
        if open {
            self.not_before = Some(now.saturating_add(self.pause));
            self.pause = (self.pause * 2).min(self.period * LONGEST_PAUSE);
        }
        open
    }

    /// The time from which the watch may be opened, if it is closed.
    pub(super) fn reopens(&self) -> Option<Duration> {
        self.not_before
    }
}

// === impl Pace ===

impl Pace {
    pub(super) fn new(now: Duration, period: Duration) -> Self {
        Self {
            left: EAGER,
            since: now,
            period,
        }
    }

    /// Takes a try, or returns the time of the next one.
    pub(super) fn take(&mut self, now: Duration) -> Result<(), Duration> {
        while self.left < EAGER && now.saturating_sub(self.since) >= self.period {
            self.left += 1;
            self.since += self.period;
        }
        if self.left == 0 {
            return Err(self.since + self.period);
        }
        if self.left == EAGER {
            self.since = now;
        }
        self.left -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(2);

    #[test]
    fn news_lead_to_three_tries_at_once_and_one_more_every_period() {
        let now = Duration::from_secs(1000);
        let mut pace = Pace::new(now, PERIOD);
        for _ in 0..EAGER {
            assert_eq!(pace.take(now), Ok(()));
        }
        assert_eq!(pace.take(now), Err(now + PERIOD));
        assert_eq!(pace.take(now + PERIOD), Ok(()));
        assert_eq!(pace.take(now + PERIOD), Err(now + PERIOD * 2));
        let later = now + PERIOD * 50;
        let tries = (0..10).filter(|_| pace.take(later).is_ok()).count();
        assert_eq!(tries, EAGER as usize, "what was not used does not add up");
    }

    #[test]
    fn a_watch_that_shows_nothing_is_opened_with_growing_pauses() {
        let mut now = Duration::ZERO;
        let mut feed = Feed::new(now, PERIOD);
        for pause in [1, 2, 4, 8, 16, 32, 32] {
            assert!(feed.open(now) && !feed.open(now));
            assert!(feed.close(now) && !feed.close(now));
            assert!(!feed.open(now + PERIOD * pause - Duration::from_millis(1)));
            now += PERIOD * pause;
            assert_eq!(feed.reopens(), Some(now));
        }
        assert!(feed.open(now));
        feed.shows();
        feed.close(now);
        assert_eq!(feed.reopens(), Some(now + PERIOD));
    }
}
