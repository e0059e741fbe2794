//! Randomness that a test can repeat.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// A shared source of randomness for jitter, names and choices. Not for secrets.
#[derive(Clone)]
pub struct Random(Arc<Mutex<fastrand::Rng>>);

// === impl Random ===

impl Random {
    /// Seeded from the system's entropy.
    #[must_use]
    pub fn from_entropy() -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::new())))
    }

    /// The same sequence for the same `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// A number in `0.0..1.0`.
    #[must_use]
    pub fn unit(&self) -> f64 {
        self.0.lock().f64()
    }

    /// Any number.
    #[must_use]
    pub fn next_u64(&self) -> u64 {
        self.0.lock().u64(..)
    }

    /// A number in `0..bound`; zero when `bound` is zero.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 {
            0
        } else {
            self.0.lock().u64(..bound)
        }
    }

    /// `base` lengthened by up to `factor` of itself, as client-go's `wait.Jitter`: uniform in
    /// `base..base * (1 + factor)`.
    #[must_use]
    pub fn jitter(&self, base: Duration, factor: f64) -> Duration {
        base.saturating_add(scaled(base, self.unit() * factor))
    }
}

/// `time` multiplied by `factor`: zero if the product is negative or not a number, and [`Duration::MAX`] if it is
/// larger than that.
#[must_use]
pub fn scaled(time: Duration, factor: f64) -> Duration {
    let seconds = time.as_secs_f64() * factor;
    if seconds > 0.0 {
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    } else {
        Duration::ZERO
    }
}

impl std::fmt::Debug for Random {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Random").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_sequence() {
        let (one, two) = (Random::seeded(42), Random::seeded(42));
        for _ in 0..100 {
            assert_eq!(one.next_u64(), two.next_u64());
        }
    }

    #[test]
    fn no_time_and_no_factor_is_too_large_to_be_multiplied() {
        let times = [Duration::ZERO, Duration::from_secs(3), Duration::MAX];
        for time in times {
            for factor in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0] {
                let nothing = scaled(time, factor);
                assert_eq!(nothing, Duration::ZERO, "{time:?} {factor}");
                assert_eq!(Random::seeded(1).jitter(time, factor), time);
            }
            for factor in [f64::INFINITY, f64::MAX] {
                let most = if time.is_zero() { time } else { Duration::MAX };
                assert_eq!(scaled(time, factor), most, "{time:?} {factor}");
                assert_eq!(Random::seeded(1).jitter(time, factor), most);
            }
        }
        assert_eq!(scaled(times[1], 1.5), Duration::from_millis(4500));
    }

    #[test]
    fn jitter_stays_within_its_factor() {
        let random = Random::seeded(1);
        let base = Duration::from_millis(800);
        for _ in 0..1000 {
            let jittered = random.jitter(base, 1.0);
            assert!(jittered >= base && jittered < base * 2);
        }
    }

    #[test]
    fn below_zero_bound_is_zero() {
        assert_eq!(Random::seeded(1).below(0), 0);
    }
}
