//! Retries of conflicts.

use std::time::Duration;

use reeve_clock::{Clock, LONGEST};

use crate::error::Error;

/// Number of tries, and pauses between them (client-go: `wait.Backoff`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// Maximum number of tries.
    pub attempts: u32,
    /// The first pause.
    pub first: Duration,
    /// Factor between one pause and the next.
    pub factor: f64,
    /// Maximum random share by which a pause is lengthened.
    pub jitter: f64,
}

/// For conflicts between few writers: 5 tries, 10 ms apart (client-go: `retry.DefaultRetry`).
pub const DEFAULT_RETRY: Backoff = Backoff {
    attempts: 5,
    first: Duration::from_millis(10),
    factor: 1.0,
    jitter: 0.1,
};

/// For conflicts between many writers: 4 tries, 10, 50 and 250 ms apart (client-go: `retry.DefaultBackoff`).
pub const DEFAULT_BACKOFF: Backoff = Backoff {
    attempts: 4,
    first: Duration::from_millis(10),
    factor: 5.0,
    jitter: 0.1,
};

/// Calls `attempt` until it ends without a conflict, or the tries are used up; returns the last result. Read the
/// object from the server in each attempt (client-go: `retry.RetryOnConflict`).
///
/// [`Client::edit`](crate::Client::edit) does that for one object. A reconcile that writes what it read from a cache
/// should return the conflict instead: the queue retries, and the caches are newer by then.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use reeve_clock::{Clock, LONGEST};
/// use reeve_client::{Client, DEFAULT_RETRY, Error, retry_on_conflict};
/// use reeve_client::ObjectKey;
///
/// async fn count(client: &Client, clock: &Clock, key: &ObjectKey) -> Result<ConfigMap, Error> {
///     retry_on_conflict(clock, DEFAULT_RETRY, || async {
///         let mut map: ConfigMap = client.get(key).await?;
///         let data = map.data.get_or_insert_default();
///         let count: u64 = data.get("count").and_then(|count| count.parse().ok()).unwrap_or(0);
///         data.insert("count".to_owned(), (count + 1).to_string());
///         client.update(&map).await
///     })
///     .await
/// }
/// ```
///
/// # Errors
/// Those of `attempt`.
pub async fn retry_on_conflict<T, A>(
    clock: &Clock,
    backoff: Backoff,
    attempt: impl FnMut() -> A,
) -> Result<T, Error>
where
    A: Future<Output = Result<T, Error>>,
{
    retry_on(clock, backoff, Error::is_conflict, attempt).await
}

/// As [`retry_on_conflict`], for errors that `retriable` accepts (client-go: `retry.OnError`).
///
/// # Errors
/// Those of `attempt`.
pub async fn retry_on<T, E, A>(
    clock: &Clock,
    backoff: Backoff,
    retriable: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> A,
) -> Result<T, E>
where
    A: Future<Output = Result<T, E>>,
{
    let mut pauses = Pauses::new(backoff);
    loop {
        let error = match attempt().await {
            Err(error) if retriable(&error) => error,
            result => return result,
        };
        match pauses.next(clock) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return Err(error),
        }
    }
}

/// The pauses after failed tries.
pub(crate) struct Pauses {
    backoff: Backoff,
    /// The next one, without jitter.
    pause: Duration,
    /// Tries left.
    left: u32,
}

// === impl Pauses ===

impl Pauses {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            pause: backoff.first.min(LONGEST),
            left: backoff.attempts,
        }
    }

    /// The pause after one more failed try, or `None` when the tries are used up.
    pub(crate) fn next(&mut self, clock: &Clock) -> Option<Duration> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return None;
        }
        let pause = clock.random().jitter(self.pause, self.backoff.jitter);
        let longer = self.pause.as_secs_f64() * self.backoff.factor.max(0.0);
        self.pause =
            Duration::try_from_secs_f64(longer).map_or(LONGEST, |longer| longer.min(LONGEST));
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// Fails `failures` times, then succeeds.
    async fn tried(backoff: Backoff, failures: u32, conflict: bool) -> (u32, bool, Duration) {
        let (clock, start) = (
            Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 7),
            Instant::now(),
        );
        let mut tries = 0;
        let result = retry_on(
            &clock,
            backoff,
            |error: &bool| *error,
            || {
                tries += 1;
                std::future::ready(if tries <= failures {
                    Err(conflict)
                } else {
                    Ok(())
                })
            },
        )
        .await;
        (tries, result.is_ok(), start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_may_be_as_long_as_they_can_be() {
        let forever = Backoff {
            first: Duration::MAX,
            ..DEFAULT_BACKOFF
        };
        let steep = Backoff {
            factor: f64::INFINITY,
            ..DEFAULT_BACKOFF
        };
        for backoff in [forever, steep] {
            let (tries, well, _) = tried(backoff, 2, true).await;
            assert_eq!((tries, well), (3, true), "{backoff:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn conflicts_are_tried_again_as_often_as_client_go_does() {
        for (case, backoff, failures, conflict, tries, ends_well, pauses) in [
            ("no conflict", DEFAULT_RETRY, 0, true, 1, true, 0),
            ("some", DEFAULT_RETRY, 3, true, 4, true, 30),
            ("the last try", DEFAULT_RETRY, 4, true, 5, true, 40),
            ("too many", DEFAULT_RETRY, 9, true, 5, false, 40),
            ("another error", DEFAULT_RETRY, 9, false, 1, false, 0),
            ("growing", DEFAULT_BACKOFF, 9, true, 4, false, 310),
        ] {
            let (tried, well, took) = tried(backoff, failures, conflict).await;
            assert_eq!((tried, well), (tries, ends_well), "{case}");
            let least = Duration::from_millis(pauses);
            // tokio's timers end on whole milliseconds.
            let most = least.mul_f64(1.1) + Duration::from_millis(u64::from(tries));
            assert!(least <= took && took <= most, "{case}: {took:?}");
        }
    }
}
