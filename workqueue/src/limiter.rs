//! Delays of failed items, and the rate at which failed items leave together.
//!
//! The queue counts failures in the slot of the key; a limiter turns the count into a [`Delay`]. A delay
//! has two parts: the item's own back-off and, with a [`TokenBucket`], the wait for a token after it. A
//! token is taken when an item is released, first come first served, so an item that is cancelled or
//! merged with an immediate add leaves no debt (client-go reserves a token when the item is added, and
//! never gives it back).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use governor::clock::Clock as GovernorClock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter as Governor};
use reeve_clock::Random;
use tokio::time::Instant;

use crate::cause::Cause;

/// Returns the delay of a failed item.
///
/// Called with the queue locked: it must not block and must not use the queue.
pub trait RateLimiter<T>: Send + Sync + 'static {
    /// The delay after this failure.
    fn when(&self, failure: &Failure<'_, T>) -> Delay;

    /// Called when the item's failure record was cleared, for limiters that keep records of their own.
    fn forget(&self, _item: &T) {}

    /// Takes a token for the first item in the token queue at `at`, or returns the time of the next try.
    ///
    /// Called only for items whose [`Delay`] leaves a wait after the back-off. `at` never decreases, and may
    /// lie in the past.
    ///
    /// # Errors
    /// The earliest time at which there may be a token.
    fn release(&self, _at: Instant) -> Result<(), Instant> {
        Ok(())
    }
}

/// A failure of an item, as passed to a limiter.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure<'a, T> {
    /// The item that failed.
    pub item: &'a T,
    /// Failures in a row before this one: 0 for the first failure.
    pub failures: u32,
    /// The cause, if the worker set one ([`Item::retry_because`](crate::Item::retry_because)).
    pub cause: Option<&'a Cause>,
    /// Source of randomness for jitter, from the queue's clock.
    pub random: &'a Random,
}

/// The delay of a failed item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The item's own back-off. After it the item enters the token queue.
    pub back_off: Duration,
    /// Time after which the item needs no token, counted from the failure. `None`: never.
    pub at_most: Option<Duration>,
}

/// `base · 2ⁿ` after `n` earlier failures in a row, `max` at most, with optional jitter.
///
/// client-go: `TypedItemExponentialFailureRateLimiter`.
#[derive(Clone, Debug)]
pub struct ItemExponentialFailure {
    base: Duration,
    max: Duration,
    jitter: f64,
}

/// A short delay for the first failures in a row, a long one for those after.
///
/// client-go: `TypedItemFastSlowRateLimiter`.
#[derive(Clone, Debug)]
pub struct ItemFastSlow {
    fast: Duration,
    slow: Duration,
    fast_attempts: u32,
}

/// A common rate for all failed items, with a burst.
///
/// client-go: `TypedBucketRateLimiter`; but a token is taken when an item is released. Clones share
/// the bucket, so several queues can share one rate.
#[derive(Clone, Debug)]
pub struct TokenBucket(Arc<Bucket>);

#[derive(Debug)]
struct Bucket {
    governor: Governor<NotKeyed, InMemoryState, Moment, NoOpMiddleware<Nanos>>,
    moment: Moment,
    started: Instant,
}

/// The clock of governor: the time whose release is being decided.
#[derive(Clone, Debug, Default)]
struct Moment(Arc<AtomicU64>);

/// The longest delay of several limiters; an item needs a token of each that has tokens.
///
/// client-go: `TypedMaxOfRateLimiter`.
pub struct MaxOf<T> {
    members: Vec<Box<dyn RateLimiter<T>>>,
    /// Number of members that have already given the first item in the token queue its token.
    granted: AtomicUsize,
}

/// A limiter whose delay, with the wait for a token, is cut at a maximum.
///
/// client-go: `TypedWithMaxWaitRateLimiter`.
#[derive(Clone, Debug)]
pub struct WithMaxWait<L> {
    inner: L,
    max: Duration,
}

/// The default of controllers: per item 5 ms · 2ⁿ up to 1000 s, all items together 10 a second with a
/// burst of 100. client-go: `DefaultTypedControllerRateLimiter`.
#[must_use]
pub fn default_controller_rate_limiter<T: 'static>() -> MaxOf<T> {
    MaxOf::new()
        .and(ItemExponentialFailure::default())
        .and(TokenBucket::new(10.0, 100))
}

// === impl Delay ===

impl Delay {
    /// A fixed delay without a token.
    #[must_use]
    pub fn exactly(delay: Duration) -> Self {
        Self {
            back_off: delay,
            at_most: Some(delay),
        }
    }

    /// A back-off, then a token.
    #[must_use]
    pub fn then_token(back_off: Duration) -> Self {
        Self {
            back_off,
            at_most: None,
        }
    }

    /// Raises the delay to `least`.
    pub(crate) fn at_least(mut self, least: Duration) -> Self {
        self.back_off = self.back_off.max(least);
        self.at_most = self.at_most.map(|at_most| at_most.max(least));
        self
    }
}

impl From<Duration> for Delay {
    fn from(delay: Duration) -> Self {
        Self::exactly(delay)
    }
}

// === impl ItemExponentialFailure ===

impl ItemExponentialFailure {
    /// `base` after the first failure, doubled by each further one, `max` at most.
    #[must_use]
    pub fn new(base: Duration, max: Duration) -> Self {
        Self {
            base,
            max,
            jitter: 0.0,
        }
    }

    /// Lengthens each delay by a uniform random share of up to `factor`, within the maximum. Spreads items
    /// that failed together.
    #[must_use]
    pub fn jitter(mut self, factor: f64) -> Self {
        self.jitter = factor;
        self
    }

    /// The delay after `failures` earlier failures in a row, with the [jitter](Self::jitter) that `random` gives.
    #[must_use]
    pub fn jittered(&self, failures: u32, random: &Random) -> Duration {
        let delay = self.delay(failures);
        if self.jitter > 0.0 && delay < self.max {
            return random.jitter(delay, self.jitter).min(self.max);
        }
        delay
    }

    /// The delay after `failures` earlier failures in a row, without jitter.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        if self.base.is_zero() {
            return Duration::ZERO;
        }
        1u32.checked_shl(failures)
            .and_then(|factor| self.base.checked_mul(factor))
            .or_else(|| {
                // Beyond 2^31 times the base, only a tiny base is still below its maximum.
                let doubled = self.base.checked_mul(1 << 31)?;
                doubled.checked_mul(1u32.checked_shl(failures - 31)?)
            })
            .map_or(self.max, |delay| delay.min(self.max))
    }
}

/// 5 ms to 1000 s, as in client-go's default controller limiter and controller-runtime.
impl Default for ItemExponentialFailure {
    fn default() -> Self {
        Self::new(Duration::from_millis(5), Duration::from_secs(1000))
    }
}

impl<T> RateLimiter<T> for ItemExponentialFailure {
    fn when(&self, failure: &Failure<'_, T>) -> Delay {
        Delay::exactly(self.jittered(failure.failures, failure.random))
    }
}

// === impl ItemFastSlow ===

impl ItemFastSlow {
    /// `fast` after each of the first `fast_attempts` failures in a row, `slow` after later ones.
    #[must_use]
    pub fn new(fast: Duration, slow: Duration, fast_attempts: u32) -> Self {
        Self {
            fast,
            slow,
            fast_attempts,
        }
    }
}

impl<T> RateLimiter<T> for ItemFastSlow {
    fn when(&self, failure: &Failure<'_, T>) -> Delay {
        Delay::exactly(if failure.failures < self.fast_attempts {
            self.fast
        } else {
            self.slow
        })
    }
}

// === impl TokenBucket ===

impl TokenBucket {
    /// `per_second` tokens a second, with a `burst` after an idle time.
    ///
    /// A rate of zero or less counts as one token in 1000 s; a burst of 0 counts as 1, and one that takes centuries to gather
    /// as what gathers in them.
    #[must_use]
    pub fn new(per_second: f64, burst: u32) -> Self {
        const SLOWEST: Duration = Duration::from_secs(1000);
        let period = Duration::try_from_secs_f64(1.0 / per_second)
            .unwrap_or(SLOWEST)
            .clamp(Duration::from_nanos(1), SLOWEST);
        // The bucket counts the nanoseconds of a full burst.
        let most = u128::from(u64::MAX / 2) / period.as_nanos();
        let burst = burst.min(u32::try_from(most).unwrap_or(u32::MAX));
        let burst = std::num::NonZeroU32::new(burst).unwrap_or(std::num::NonZeroU32::MIN);
        let quota = Quota::with_period(period)
            .expect("the period is at least a nanosecond")
            .allow_burst(burst);
        let moment = Moment::default();
        Self(Arc::new(Bucket {
            governor: Governor::direct_with_clock(quota, moment.clone()),
            moment,
            started: Instant::now(),
        }))
    }
}

impl<T> RateLimiter<T> for TokenBucket {
    fn when(&self, _failure: &Failure<'_, T>) -> Delay {
        Delay::then_token(Duration::ZERO)
    }

    fn release(&self, at: Instant) -> Result<(), Instant> {
        let bucket = &*self.0;
        let since = at.saturating_duration_since(bucket.started);
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        bucket.moment.0.store(nanos, Ordering::Relaxed);
        bucket
            .governor
            .check()
            .map_err(|not_until| at + not_until.wait_time_from(Nanos::from(nanos)))
    }
}

// === impl Moment ===

impl GovernorClock for Moment {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::from(self.0.load(Ordering::Relaxed))
    }
}

// === impl MaxOf ===

impl<T> MaxOf<T> {
    /// No limiter: no delay.
    #[must_use]
    pub fn new() -> Self {
        Self {
            members: Vec::new(),
            granted: AtomicUsize::new(0),
        }
    }

    /// Adds a limiter.
    #[must_use]
    pub fn and(mut self, limiter: impl RateLimiter<T>) -> Self {
        self.members.push(Box::new(limiter));
        self
    }
}

impl<T> Default for MaxOf<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> std::fmt::Debug for MaxOf<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MaxOf")
            .field("members", &self.members.len())
            .finish_non_exhaustive()
    }
}

impl<T: 'static> RateLimiter<T> for MaxOf<T> {
    fn when(&self, failure: &Failure<'_, T>) -> Delay {
        self.members.iter().map(|member| member.when(failure)).fold(
            Delay::exactly(Duration::ZERO),
            |one, other| Delay {
                back_off: one.back_off.max(other.back_off),
                at_most: one
                    .at_most
                    .zip(other.at_most)
                    .map(|(one, other)| one.max(other)),
            },
        )
    }

    fn forget(&self, item: &T) {
        for member in &self.members {
            member.forget(item);
        }
    }

    fn release(&self, at: Instant) -> Result<(), Instant> {
        // The queue releases one item at a time: a token of one member is kept for the first item in the token
        // queue until the other members have given theirs.
        let granted = self.granted.load(Ordering::Relaxed);
        for (index, member) in self.members.iter().enumerate().skip(granted) {
            if let Err(later) = member.release(at) {
                self.granted.store(index, Ordering::Relaxed);
                return Err(later);
            }
        }
        self.granted.store(0, Ordering::Relaxed);
        Ok(())
    }
}

// === impl WithMaxWait ===

impl<L> WithMaxWait<L> {
    /// Limits the delays of `inner` to `max`.
    #[must_use]
    pub fn new(inner: L, max: Duration) -> Self {
        Self { inner, max }
    }
}

impl<T, L: RateLimiter<T>> RateLimiter<T> for WithMaxWait<L> {
    fn when(&self, failure: &Failure<'_, T>) -> Delay {
        let delay = self.inner.when(failure);
        Delay {
            back_off: delay.back_off.min(self.max),
            at_most: Some(delay.at_most.unwrap_or(self.max).min(self.max)),
        }
    }

    fn forget(&self, item: &T) {
        self.inner.forget(item);
    }

    fn release(&self, at: Instant) -> Result<(), Instant> {
        self.inner.release(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn when<L: RateLimiter<&'static str>>(limiter: &L, failures: u32) -> Delay {
        limiter.when(&Failure {
            item: &"key",
            failures,
            cause: None,
            random: &Random::seeded(1),
        })
    }

    #[test]
    fn exponential_doubles_up_to_its_maximum() {
        let limiter = ItemExponentialFailure::new(MS, 1000 * MS);
        for (failures, delay) in [(0, 1), (1, 2), (2, 4), (3, 8), (9, 512), (10, 1000)] {
            assert_eq!(when(&limiter, failures), Delay::exactly(delay * MS));
        }
    }

    #[test]
    fn exponential_does_not_overflow() {
        let hours = Duration::from_secs(1000 * 3600);
        for max in [Duration::from_secs(1000), hours, Duration::MAX] {
            for base in [Duration::from_nanos(1), MS, hours] {
                let limiter = ItemExponentialFailure::new(base, max);
                let mut last = Duration::ZERO;
                for failures in [0, 5, 29, 30, 31, 32, 33, 60, 61, 62, 63, 64, 200, u32::MAX] {
                    let Delay { back_off, .. } = when(&limiter, failures);
                    assert!(back_off >= last && back_off <= max, "{base:?} {failures}");
                    last = back_off;
                }
                assert_eq!(last, max);
            }
        }
    }

    #[test]
    fn exponential_without_a_base_never_delays() {
        let limiter = ItemExponentialFailure::new(Duration::ZERO, Duration::from_secs(1000));
        for failures in [0, 1, 31, 62, 63, u32::MAX] {
            assert_eq!(limiter.delay(failures), Duration::ZERO, "{failures}");
        }
    }

    #[test]
    fn jitter_lengthens_a_delay_within_its_factor_and_the_maximum() {
        let limiter = ItemExponentialFailure::new(100 * MS, 300 * MS).jitter(0.5);
        let random = Random::seeded(3);
        let delay = |failures| {
            let item = &"key";
            let Delay { back_off, .. } = limiter.when(&Failure {
                item,
                failures,
                cause: None,
                random: &random,
            });
            back_off
        };
        let first: Vec<_> = (0..50).map(|_| delay(0)).collect();
        assert!(first.iter().all(|&d| d >= 100 * MS && d <= 150 * MS));
        assert!(first.iter().any(|&d| d != first[0]));
        assert!((0..50).all(|_| delay(1) <= 300 * MS));
    }

    #[test]
    fn fast_slow_is_fast_for_the_first_attempts() {
        let limiter = ItemFastSlow::new(5 * MS, 10_000 * MS, 3);
        let delays = [0, 1, 2, 3, 4].map(|failures| when(&limiter, failures).back_off / 5);
        assert_eq!(delays, [MS, MS, MS, 2000 * MS, 2000 * MS]);
    }

    #[test]
    fn the_longest_delay_of_several_counts() {
        let limiter = MaxOf::new()
            .and(ItemFastSlow::new(5 * MS, 3000 * MS, 3))
            .and(ItemExponentialFailure::new(MS, 1000 * MS));
        let delays = [0, 1, 2, 3, 4].map(|failures| when(&limiter, failures));
        assert_eq!(
            delays,
            [5, 5, 5, 3000, 3000].map(|delay| Delay::exactly(delay * MS))
        );
    }

    #[test]
    fn a_maximum_wait_cuts_delays_and_the_wait_for_a_token() {
        let limiter =
            WithMaxWait::new(ItemExponentialFailure::new(500 * MS, 10_000 * MS), 800 * MS);
        let delays = [0, 1, 9].map(|failures| when(&limiter, failures));
        assert_eq!(
            delays,
            [500, 800, 800].map(|delay| Delay::exactly(delay * MS))
        );
        let limiter = WithMaxWait::new(TokenBucket::new(1.0, 1), 800 * MS);
        assert_eq!(
            when(&limiter, 0),
            Delay {
                back_off: Duration::ZERO,
                at_most: Some(800 * MS)
            }
        );
    }

    #[test]
    fn a_burst_that_takes_centuries_to_gather_is_as_large_as_can_be_counted() {
        for (rate, burst) in [(0.1, u32::MAX), (0.0, 20_000_000), (f64::NAN, u32::MAX)] {
            let bucket = TokenBucket::new(rate, burst);
            let now = Instant::now();
            for _ in 0..1000 {
                assert_eq!(RateLimiter::<()>::release(&bucket, now), Ok(()), "{rate}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_gives_its_burst_at_once_and_then_its_rate() {
        let bucket = TokenBucket::new(10.0, 3);
        let start = Instant::now();
        let release = |after: Duration| RateLimiter::<u32>::release(&bucket, start + after);
        for _ in 0..3 {
            assert_eq!(release(Duration::ZERO), Ok(()));
        }
        assert_eq!(release(Duration::ZERO), Err(start + 100 * MS));
        assert_eq!(release(60 * MS), Err(start + 100 * MS));
        assert_eq!(release(100 * MS), Ok(()));
        assert_eq!(release(150 * MS), Err(start + 200 * MS));
        for _ in 0..3 {
            assert_eq!(release(1000 * MS), Ok(()));
        }
        assert_eq!(release(1000 * MS), Err(start + 1100 * MS));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_of_one_bucket_is_kept_until_the_other_has_one() {
        let (slow, fast) = (TokenBucket::new(1.0, 1), TokenBucket::new(10.0, 1));
        let both: MaxOf<u32> = MaxOf::new().and(fast.clone()).and(slow);
        let start = Instant::now();
        assert_eq!(both.release(start), Ok(()));
        assert_eq!(both.release(start), Err(start + 100 * MS));
        assert_eq!(both.release(start + 100 * MS), Err(start + 1000 * MS));
        assert_eq!(both.release(start + 1000 * MS), Ok(()));
        let fast_has_one = RateLimiter::<u32>::release(&fast, start + 1000 * MS);
        assert_eq!(fast_has_one, Ok(()), "only one token was taken at 100 ms");
    }
}
