//! Time and randomness of a program, as one handle that is passed in.
//!
//! A [`Clock`] replaces three calls that a library must never make to the operating system directly:
//!
//! * [`Clock::now`]: the time of the wall clock, for dates: an expiry, a certificate;
//! * [`Clock::since_boot`]: elapsed time, *suspend included*: for judging a lease after a laptop lid was
//!   closed;
//! * [`Clock::random`]: a number, from entropy in production and from a fixed seed in tests.
//!
//! Monotonic time for time-outs and delays stays with `tokio::time`. [`Clock::simulated`] follows it, so that under
//! a paused runtime hours pass in milliseconds, in every part that holds the clock:
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! use std::time::Duration;
//! let clock = reeve_clock::Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 7);
//! tokio::time::sleep(Duration::from_secs(3600)).await;
//! assert_eq!(clock.now().to_string(), "2026-01-01T01:00:00Z");
//! # });
//! ```
//!
//! A wall clock can be set while the program runs. A task that sleeps until a date also awaits
//! [`JumpWatcher::jumped`] of one [`Clock::watch_jumps`], and evaluates the date again when that returns.

mod jump;
mod random;

pub use jump::{Jump, JumpWatcher};
pub use random::{Random, scaled};

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The longest duration that is supported: thirty years. It can be multiplied by small numbers and added to a time
/// without overflow. Options are limited to it; a longer duration means never.
pub const LONGEST: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Wall time, suspend-aware elapsed time and randomness. Cloning is cheap; clones share everything.
#[derive(Clone, Debug)]
pub struct Clock {
    time: Time,
    random: Random,
}

#[derive(Clone, Debug)]
enum Time {
    System,
    Simulated(Arc<Simulated>),
}

#[derive(Debug)]
struct Simulated {
    started: Instant,
    start: Timestamp,
    /// Sum of the arguments of [`Clock::jump`].
    offset: Mutex<SignedDuration>,
    /// Sum of the arguments of [`Clock::suspend`].
    suspended: Mutex<Duration>,
}

// === impl Clock ===

impl Clock {
    /// The machine's clocks, and randomness from its entropy.
    #[must_use]
    pub fn system() -> Self {
        Self {
            time: Time::System,
            random: Random::from_entropy(),
        }
    }

    /// A clock that starts at `start` and follows `tokio::time`, with randomness from `seed`.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled.
    #[must_use]
    pub fn simulated(start: Timestamp, seed: u64) -> Self {
        let simulated = Simulated {
            started: Instant::now(),
            start,
            offset: Mutex::new(SignedDuration::ZERO),
            suspended: Mutex::new(Duration::ZERO),
        };
        Self {
            time: Time::Simulated(Arc::new(simulated)),
            random: Random::seeded(seed),
        }
    }

    /// The time of the wall clock, which may be set back or forward at any moment.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.time {
            #[allow(
                clippy::disallowed_methods,
                reason = "this is the one place that reads it"
            )]
            Time::System => Timestamp::now(),
            Time::Simulated(simulated) => simulated.now(),
        }
    }

    /// Time since an arbitrary fixed point, counting time spent suspended, never set back.
    ///
    /// `CLOCK_BOOTTIME` on Linux; elsewhere the monotonic clock, which may stand still in suspend.
    #[must_use]
    pub fn since_boot(&self) -> Duration {
        match &self.time {
            Time::System => system_since_boot(),
            Time::Simulated(simulated) => simulated.since_start(),
        }
    }

    /// The source of randomness.
    #[must_use]
    pub fn random(&self) -> &Random {
        &self.random
    }

    /// The same time, with randomness of its own, which begins with a number of this clock's and `salt`. Two clocks of one
    /// seed that branch with different salts do not repeat each other.
    #[must_use]
    pub fn branch(&self, salt: u64) -> Self {
        Self {
            time: self.time.clone(),
            random: Random::seeded(self.random.next_u64() ^ salt),
        }
    }

    /// Time from now until the wall clock reaches `due`; zero when it is due or past.
    #[must_use]
    pub fn until(&self, due: Timestamp) -> Duration {
        Duration::try_from(due.duration_since(self.now())).unwrap_or(Duration::ZERO)
    }

    /// Sets a simulated wall clock forward or back, as an administrator or NTP would.
    ///
    /// Does nothing to a system clock.
    pub fn jump(&self, by: SignedDuration) {
        if let Time::Simulated(simulated) = &self.time {
            let mut offset = simulated.offset.lock();
            *offset = offset.saturating_add(by);
        }
    }

    /// Suspends the simulated machine for `duration`: wall time and [`Clock::since_boot`] go on, tokio's time and
    /// every timer stand still.
    ///
    /// Does nothing to a system clock.
    pub fn suspend(&self, duration: Duration) {
        if let Time::Simulated(simulated) = &self.time {
            let mut suspended = simulated.suspended.lock();
            *suspended = suspended.saturating_add(duration);
        }
    }

    /// Watches for changes of the wall clock by more than `tolerance` against monotonic time, from now on, comparing
    /// the two every `interval`.
    #[must_use]
    pub fn watch_jumps(&self, tolerance: Duration, interval: Duration) -> JumpWatcher {
        JumpWatcher::new(self.clone(), tolerance, interval)
    }
}

// === impl Simulated ===

impl Simulated {
    fn since_start(&self) -> Duration {
        self.started
            .elapsed()
            .saturating_add(*self.suspended.lock())
    }

    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.since_start()).unwrap_or(SignedDuration::MAX);
        self.start
            .saturating_add(elapsed)
            .and_then(|at| at.saturating_add(*self.offset.lock()))
            .unwrap_or(Timestamp::MAX)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn system_since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn system_since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn simulated_time_follows_tokio() {
        let clock = Clock::simulated(start(), 1);
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(clock.now(), start() + SignedDuration::from_secs(90));
        assert_eq!(clock.since_boot(), Duration::from_secs(90));
    }

    #[tokio::test(start_paused = true)]
    async fn until_is_zero_for_the_past() {
        let clock = Clock::simulated(start(), 1);
        assert_eq!(
            clock.until(start() - SignedDuration::from_secs(1)),
            Duration::ZERO
        );
        assert_eq!(
            clock.until(start() + SignedDuration::from_secs(3)),
            Duration::from_secs(3)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_of_the_wall_clock_is_seen_and_measured() {
        let clock = Clock::simulated(start(), 1);
        let mut watcher = clock.watch_jumps(Duration::from_secs(1), Duration::from_secs(5));
        let watch = tokio::spawn(async move { watcher.jumped().await });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!watch.is_finished(), "time passing is no jump");
        clock.jump(SignedDuration::from_hours(2));
        let jump = watch.await.unwrap();
        assert_eq!(jump.by, SignedDuration::from_hours(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_between_two_calls_is_reported_by_the_next() {
        let clock = Clock::simulated(start(), 1);
        let mut watcher = clock.watch_jumps(Duration::from_secs(1), Duration::from_secs(5));
        for by in [2, -1] {
            // The caller works for longer than the interval, and the clock is set meanwhile.
            tokio::time::sleep(Duration::from_secs(60)).await;
            clock.jump(SignedDuration::from_hours(by));
            let before = Instant::now();
            let jump = watcher.jumped().await;
            assert_eq!(jump.by, SignedDuration::from_hours(by));
            assert_eq!(before.elapsed(), Duration::ZERO, "the comparison was due");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_are_dropped_sooner_than_the_interval_miss_no_jump() {
        let clock = Clock::simulated(start(), 1);
        let mut watcher = clock.watch_jumps(Duration::from_secs(1), Duration::from_secs(5));
        clock.jump(SignedDuration::from_hours(2));
        let second = Duration::from_secs(1);
        let mut waited = 0;
        let jump = loop {
            match tokio::time::timeout(second, watcher.jumped()).await {
                Ok(jump) => break jump,
                Err(_) => waited += 1,
            }
            assert!(waited < 60, "no call lasts for an interval");
        };
        assert_eq!((jump.by, waited), (SignedDuration::from_hours(2), 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspend_counts_as_a_jump() {
        let clock = Clock::simulated(start(), 1);
        let mut watcher = clock.watch_jumps(Duration::from_secs(1), Duration::from_secs(5));
        clock.suspend(Duration::from_secs(600));
        assert_eq!(watcher.jumped().await.by, SignedDuration::from_secs(600));
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_moves_wall_time_only() {
        let clock = Clock::simulated(start(), 1);
        clock.jump(SignedDuration::from_secs(-30));
        assert_eq!(clock.now(), start() - SignedDuration::from_secs(30));
        assert_eq!(clock.since_boot(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspend_is_seen_by_both_clocks_and_by_no_timer() {
        let clock = Clock::simulated(start(), 1);
        let before = Instant::now();
        clock.suspend(Duration::from_secs(600));
        assert_eq!(clock.now(), start() + SignedDuration::from_secs(600));
        assert_eq!(clock.since_boot(), Duration::from_secs(600));
        assert_eq!(before.elapsed(), Duration::ZERO);
    }

    #[test]
    fn the_system_clock_moves_forward() {
        let clock = Clock::system();
        let (before, now) = (clock.since_boot(), clock.now());
        assert!(clock.since_boot() >= before);
        assert!(now > start());
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
