//! The delays after failures: [`Backoff`].

use std::time::Duration;

use reeve_clock::{LONGEST, Random, scaled};
use tokio::time::Instant;

/// The options of an exponential back-off. The defaults are client-go's for reflectors.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct BackoffOptions {
    initial: Duration,
    factor: f64,
    cap: Duration,
    jitter: f64,
    reset: Duration,
}

impl Default for BackoffOptions {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(800),
            factor: 2.0,
            cap: Duration::from_secs(30),
            jitter: 1.0,
            reset: Duration::from_secs(120),
        }
    }
}

// === impl BackoffOptions ===

impl BackoffOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The first delay. Default: 800 ms.
    pub fn initial(mut self, delay: Duration) -> Self {
        self.initial = delay.min(LONGEST);
        self
    }

    /// The ratio of each delay to the one before. Default: 2.
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// The longest delay before jitter. Default: 30 s.
    pub fn cap(mut self, delay: Duration) -> Self {
        self.cap = delay.min(LONGEST);
        self
    }

    /// The largest part of itself by which each delay is lengthened. Default: 1, with which a delay of 30 s becomes one
    /// of 30 s to 60 s.
    pub fn jitter(mut self, jitter: f64) -> Self {
        self.jitter = jitter;
        self
    }

    /// The time without any delay after which the next delay is the first again. Default: 2 min. (client-go resets it
    /// every 2 min even during an outage, which doubles the load on a server that is down.)
    pub fn reset(mut self, time: Duration) -> Self {
        self.reset = time;
        self
    }
}

/// An exponential back-off with jitter, which begins again after a quiet time.
#[derive(Debug)]
pub(crate) struct Backoff {
    options: BackoffOptions,
    random: Random,
    /// The delay of the next call, before jitter.
    base: Duration,
    /// The end of the last delay.
    busy_until: Option<Instant>,
}

// === impl Backoff ===

impl Backoff {
    /// A back-off that has not waited yet.
    pub(crate) fn new(options: BackoffOptions, random: Random) -> Self {
        Self {
            base: options.initial,
            options,
            random,
            busy_until: None,
        }
    }

    /// The delay to wait from now on.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let now = Instant::now();
        let idle = self
            .busy_until
            .map(|end| now.saturating_duration_since(end));
        if idle.is_some_and(|idle| idle >= self.options.reset) {
            self.base = self.options.initial;
        }
        let delay = self.random.jitter(self.base, self.options.jitter);
        let delay = delay.min(LONGEST);
        self.base = scaled(self.base, self.options.factor.max(1.0)).min(self.options.cap);
        self.busy_until = Some(now + delay);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delays_double_to_the_cap_with_jitter() {
        let mut backoff = Backoff::new(BackoffOptions::default(), Random::seeded(1));
        for expected in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            let base = Duration::from_millis(expected);
            let delay = backoff.next_delay();
            assert!(delay >= base && delay < base * 2, "{delay:?} for {base:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_options_are_too_large() {
        for factor in [f64::NAN, f64::INFINITY, f64::MAX, -1.0] {
            for time in [Duration::ZERO, Duration::from_secs(1), Duration::MAX] {
                let options = BackoffOptions::new()
                    .initial(time)
                    .factor(factor)
                    .cap(Duration::MAX)
                    .jitter(factor)
                    .reset(Duration::MAX);
                let mut backoff = Backoff::new(options, Random::seeded(1));
                for _ in 0..5 {
                    let delay = backoff.next_delay();
                    assert!(delay >= time.min(LONGEST) && delay <= LONGEST);
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_continuous_outage_never_starts_over() {
        let mut backoff = Backoff::new(BackoffOptions::default(), Random::seeded(2));
        let start = Instant::now();
        let mut attempts = 0;
        while start.elapsed() < Duration::from_secs(3600) {
            tokio::time::sleep(backoff.next_delay()).await;
            attempts += 1;
        }
        assert!(
            (60..=120).contains(&attempts),
            "{attempts} attempts in an hour"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn two_quiet_minutes_start_over() {
        let mut backoff = Backoff::new(BackoffOptions::default(), Random::seeded(3));
        for _ in 0..8 {
            tokio::time::sleep(backoff.next_delay()).await;
        }
        tokio::time::sleep(Duration::from_secs(119)).await;
        assert!(backoff.next_delay() >= Duration::from_secs(30));
        tokio::time::sleep(Duration::from_secs(60 + 120)).await;
        assert!(backoff.next_delay() < Duration::from_millis(1600));
    }
}
