//! Options of an elector: lease, identity and times, and their validation.

use std::collections::BTreeMap;
use std::time::Duration;

use reeve_clock::{Clock, LONGEST, scaled};

/// Jitter of the wait between two tries to take the lease (client-go: `JitterFactor`).
pub const JITTER: f64 = 1.2;

/// Invalid [`Options`], or a client that cannot hold a lease.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The lease has no name.
    #[error("leader election: the lease needs a name and a namespace")]
    NoName,
    /// The identity is empty.
    #[error("leader election: the identity is empty; a Pod's name is a good one")]
    NoIdentity,
    /// The lease would end before the holder stops leading.
    #[error(
        "leader election: the lease duration {lease:?} must be longer than the renew deadline {renew:?}"
    )]
    LeaseTooShort {
        /// The lease duration.
        lease: Duration,
        /// The renew deadline.
        renew: Duration,
    },
    /// The holder would stop leading before its second try.
    #[error(
        "leader election: the renew deadline {renew:?} must be longer than {JITTER} times the retry period {retry:?}"
    )]
    DeadlineTooShort {
        /// The renew deadline.
        renew: Duration,
        /// The retry period.
        retry: Duration,
    },
    /// A Lease stores whole seconds: the others would wait for less than the holder assumes.
    #[error("leader election: the lease duration {lease:?} must be a number of whole seconds")]
    NotWholeSeconds {
        /// The lease duration.
        lease: Duration,
    },
    /// The retry period is zero.
    #[error("leader election: the retry period must be longer than zero")]
    NoRetryPeriod,
    /// The server does not store what the client writes.
    #[error("leader election: the client makes dry runs, so no lease would be stored")]
    DryRun,
}

/// Options of an elector: lease, identity and times.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) namespace: String,
    pub(crate) name: String,
    identity: Option<String>,
    pub(crate) lease_duration: Duration,
    pub(crate) renew_deadline: Duration,
    pub(crate) retry_period: Duration,
    pub(crate) release_on_stop: bool,
    pub(crate) labels: BTreeMap<String, String>,
}

// === impl Options ===

impl Options {
    /// The lease `namespace`/`name`. The identity is that of the process ([`identity`]), the times are client-go's: 15 s,
    /// 10 s, 2 s; released on stop.
    ///
    /// ```
    /// use reeve_election::Options;
    ///
    /// let options = Options::new("default", "worker");
    /// assert_eq!(options.key(), "default/worker");
    /// assert_eq!(options.validate(), Ok(()));
    /// assert_eq!(options.identity("worker-0").holder(), Some("worker-0"));
    /// ```
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: None,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_stop: true,
            labels: BTreeMap::new(),
        }
    }

    /// Sets the name in which the lease is held. It must differ between replicas, and be the same after a restart of one: a
    /// Pod's name is both. Default: [`identity`].
    #[must_use]
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// The options with an identity: the one that is set, else [`identity`] with the randomness of `clock`.
    #[must_use]
    pub fn identified(mut self, clock: &Clock) -> Self {
        self.identity.get_or_insert_with(|| identity(clock));
        self
    }

    /// How long the others wait after the last renewal they saw. Whole seconds; default 15 s; at most 30 years, as the
    /// other two times.
    #[must_use]
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.lease_duration = duration.min(LONGEST);
        self
    }

    /// How long the holder keeps leading without a renewal. Default: 10 s.
    #[must_use]
    pub fn renew_deadline(mut self, deadline: Duration) -> Self {
        self.renew_deadline = deadline.min(LONGEST);
        self
    }

    /// Time between two tries. Default: 2 s.
    #[must_use]
    pub fn retry_period(mut self, period: Duration) -> Self {
        self.retry_period = period.min(LONGEST);
        self
    }

    /// Whether the lease is released on a graceful stop, so that another leads at once. Default: true. The workers have
    /// stopped by then.
    #[must_use]
    pub fn release_on_stop(mut self, release: bool) -> Self {
        self.release_on_stop = release;
        self
    }

    /// Puts the label `key` on the lease, beside those it has (controller-runtime: `LeaderElectionLabels`).
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// `namespace/name` of the lease.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The name of the lease.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The identity, if one is set.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// Whether the options are consistent (client-go: `NewLeaderElector`): the lease duration is longer than the renew
    /// deadline, and that longer than [`JITTER`] retry periods.
    ///
    /// Unlike client-go, which rounds it down silently, the lease duration must be whole seconds.
    ///
    /// # Errors
    /// The first violated rule.
    pub fn validate(&self) -> Result<(), Error> {
        let (lease, renew, retry) = (self.lease_duration, self.renew_deadline, self.retry_period);
        if self.name.is_empty() || self.namespace.is_empty() {
            return Err(Error::NoName);
        }
        if self.identity.as_ref().is_some_and(String::is_empty) {
            return Err(Error::NoIdentity);
        }
        if lease.is_zero() || lease.subsec_nanos() != 0 {
            return Err(Error::NotWholeSeconds { lease });
        }
        if retry.is_zero() {
            return Err(Error::NoRetryPeriod);
        }
        if lease <= renew {
            return Err(Error::LeaseTooShort { lease, renew });
        }
        if renew <= scaled(retry, JITTER) {
            return Err(Error::DeadlineTooShort { renew, retry });
        }
        Ok(())
    }

    /// Time for which a write that was given up may still arrive: until another may take the lease.
    pub(crate) fn margin(&self) -> Duration {
        self.lease_duration - self.renew_deadline
    }
}

/// The identity of this process: the Pod's name from `POD_NAME`, which a restarted Pod keeps; else the host's name with
/// a random suffix, so that two processes on one host differ.
///
/// No two processes may hold one lease in one name at a time: not two containers of a Pod, not a Pod of a StatefulSet
/// that was deleted by force while its node could not be reached, and not a second process with `POD_NAME` exported.
/// The second takes the lease at once, because it looks like the first one, restarted. The first stops leading at its
/// next renewal at the latest, or as soon as its watch shows the change; in between, both write
/// (controller-runtime's identity differs with every start, so there the second waits for the lease to end).
#[must_use]
pub fn identity(clock: &Clock) -> String {
    identity_by(|name| std::env::var(name).ok(), clock)
}

/// [`identity`], with `look_up` for the variables of the environment.
pub(crate) fn identity_by(look_up: impl Fn(&str) -> Option<String>, clock: &Clock) -> String {
    let variable = |name| look_up(name).filter(|value| !value.is_empty());
    variable("POD_NAME").unwrap_or_else(|| {
        let host = variable("HOSTNAME").unwrap_or_else(|| "local".to_owned());
        format!("{host}_{:016x}", clock.random().next_u64())
    })
}
