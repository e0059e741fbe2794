//! Leader election by a Lease, compatible with client-go: the two contend for the same lease.
//!
//! One replica leads. It renews the lease every [`Options::retry_period`]; when it has not succeeded for
//! [`Options::renew_deadline`] it stops leading, which leaves LeaseDuration − RenewDeadline for its workers to
//! stop before another may take the lease. The others wait until they have seen no change for
//! [`Options::lease_duration`].
//!
//! What happens when things go wrong:
//! * *the API server does not answer*: the leader goes on until the renew deadline, then stops; nobody leads
//!   until the server is back, for the others cannot take the lease either;
//! * *the process is paused or the machine suspended*: leases are judged on a clock that counts suspend, and
//!   the [`Fence`] of the clients is closed the moment the lease could have been taken, before the process has
//!   noticed anything;
//! * *another took the lease*: the leader stops at once, without waiting for its deadline;
//! * *the process dies*: another leads after the lease duration. A restarted Pod with the same identity takes
//!   its own lease back at once.
//!
//! As in Kubernetes itself there is no fencing on the server: a request already on its way when the lease ends
//! may still arrive.

mod elector;
mod record;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reeve_clock::Clock;

pub(crate) use elector::Elector;
pub use record::Record;

/// How far the wait between two tries to take the lease varies (client-go: `JitterFactor`).
pub const JITTER: f64 = 1.2;

/// What is wrong with [`Options`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The lease has no name.
    #[error("leader election: the lease needs a name and a namespace")]
    NoName,
    /// The identity is empty.
    #[error("leader election: the identity is empty; a Pod's name is a good one")]
    NoIdentity,
    /// The lease would end before the holder gives up.
    #[error(
        "leader election: the lease duration {lease:?} must be longer than the renew deadline {renew:?}"
    )]
    LeaseTooShort {
        /// The lease duration.
        lease: Duration,
        /// The renew deadline.
        renew: Duration,
    },
    /// The holder would give up before its second try.
    #[error(
        "leader election: the renew deadline {renew:?} must be longer than {JITTER} times the retry period {retry:?}"
    )]
    DeadlineTooShort {
        /// The renew deadline.
        renew: Duration,
        /// The retry period.
        retry: Duration,
    },
    /// A Lease stores whole seconds.
    #[error(
        "leader election: the lease duration {lease:?} must be at least a second, the retry period positive"
    )]
    TooShort {
        /// The lease duration.
        lease: Duration,
    },
}

/// Which lease, as whom, and how patient.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) identity: String,
    pub(crate) lease_duration: Duration,
    pub(crate) renew_deadline: Duration,
    pub(crate) retry_period: Duration,
    pub(crate) release_on_stop: bool,
}

// === impl Options ===

impl Options {
    /// The lease `namespace`/`name`, held as `identity`.
    ///
    /// The identity must differ between replicas, and be the same after a restart: a Pod's name is both
    /// ([`identity`]). Defaults are client-go's: 15 s, 10 s, 2 s; released on stop.
    #[must_use]
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_stop: true,
        }
    }

    /// How long the others wait after the last renewal they saw; whole seconds, 15 s unless said.
    #[must_use]
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.lease_duration = duration;
        self
    }

    /// How long the holder keeps leading without a renewal, 10 s unless said.
    #[must_use]
    pub fn renew_deadline(mut self, deadline: Duration) -> Self {
        self.renew_deadline = deadline;
        self
    }

    /// How long between two tries, 2 s unless said.
    #[must_use]
    pub fn retry_period(mut self, period: Duration) -> Self {
        self.retry_period = period;
        self
    }

    /// Whether the lease is given up on a graceful stop, so that another leads at once. True unless said:
    /// the workers have stopped by then.
    #[must_use]
    pub fn release_on_stop(mut self, release: bool) -> Self {
        self.release_on_stop = release;
        self
    }

    /// Whether the options make sense together (client-go: `NewLeaderElector`).
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn validate(&self) -> Result<(), Error> {
        let (lease, renew, retry) = (self.lease_duration, self.renew_deadline, self.retry_period);
        if self.name.is_empty() || self.namespace.is_empty() {
            return Err(Error::NoName);
        }
        if self.identity.is_empty() {
            return Err(Error::NoIdentity);
        }
        if lease < Duration::from_secs(1) || retry.is_zero() {
            return Err(Error::TooShort { lease });
        }
        if lease <= renew {
            return Err(Error::LeaseTooShort { lease, renew });
        }
        if renew <= retry.mul_f64(JITTER) {
            return Err(Error::DeadlineTooShort { renew, retry });
        }
        Ok(())
    }
}

/// The identity to hold a lease with: the Pod's name from `POD_NAME`, which a restarted Pod keeps; else the
/// host's name and something random, so that two processes on one host differ.
#[must_use]
pub fn identity(clock: &Clock) -> String {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    variable("POD_NAME").unwrap_or_else(|| {
        let host = variable("HOSTNAME").unwrap_or_else(|| "local".to_owned());
        format!("{host}_{:016x}", clock.random().next_u64())
    })
}

/// Tells until when the lease is certainly ours. Clients of a controller that needs the lease ask it before
/// each write. Clones share it.
#[derive(Clone, Debug)]
pub struct Fence {
    clock: Clock,
    /// Milliseconds on the clock that counts suspend; zero when not leading.
    until: Arc<AtomicU64>,
}

// === impl Fence ===

impl Fence {
    pub(crate) fn closed(clock: Clock) -> Self {
        Self {
            clock,
            until: Arc::default(),
        }
    }

    /// Whether the lease is ours right now, as far as anyone can know.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.clock.since_boot() < Duration::from_millis(self.until.load(Ordering::Acquire))
    }

    pub(crate) fn open_until(&self, until: Duration) {
        let millis = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.until.store(millis, Ordering::Release);
    }

    pub(crate) fn close(&self) {
        self.until.store(0, Ordering::Release);
    }
}
