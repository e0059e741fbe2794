//! The waits between requests: [`Waits`].

use std::time::Duration;

use reeve_clock::{Random, scaled};

use super::error::Error;
use super::options::ReflectorOptions;
use super::pace::Pace;
use crate::backoff::Backoff;

/// The longest delay that a server may request (`Retry-After`).
const LONGEST_REQUESTED: Duration = Duration::from_secs(3600);

/// The waits of one reflector between its requests.
#[derive(Debug)]
pub(super) struct Waits {
    pub(super) pace: Pace,
    backoff: Backoff,
    spread: Duration,
    random: Random,
    /// A wait was spread since a watch last worked.
    is_spread: bool,
}

// === impl Waits ===

impl Waits {
    pub(super) fn new(options: &ReflectorOptions, random: &Random) -> Self {
        Self {
            pace: Pace::new(options.request_burst, options.request_interval),
            backoff: Backoff::new(options.backoff, random.clone()),
            spread: options.reconnect_spread,
            random: random.clone(),
            is_spread: false,
        }
    }

    /// The delay after `error`. `spread`: it is lengthened as [`Waits::spread_once`] says.
    pub(super) fn after(&mut self, error: &Error, spread: bool) -> Duration {
        let requested = error.retry_after().unwrap_or_default();
        let delay = self
            .backoff
            .next_delay()
            .max(requested.min(LONGEST_REQUESTED));
        if spread {
            delay + self.spread_once()
        } else {
            delay
        }
    }

    /// A random time, so that reflectors that lost a server at the same moment return at different moments. Zero if a
    /// wait was spread already since a watch last worked: then they are apart.
    pub(super) fn spread_once(&mut self) -> Duration {
        if std::mem::replace(&mut self.is_spread, true) {
            Duration::ZERO
        } else {
            self.random_spread()
        }
    }

    /// A random time up to [`ReflectorOptions::reconnect_spread`].
    pub(super) fn random_spread(&self) -> Duration {
        scaled(self.spread, self.random.unit())
    }

    /// Records that a watch worked.
    pub(super) fn worked(&mut self) {
        self.is_spread = false;
    }
}
