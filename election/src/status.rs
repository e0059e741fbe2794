//! The state of one candidate, for reports.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use reeve_clock::Clock;

use crate::options::Options;

/// The state of one candidate at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// `namespace/name` of the lease.
    pub lease: String,
    /// The identity of the candidate.
    pub identity: String,
    /// The state of the candidate.
    pub state: State,
    /// The time of its last change of state.
    pub since: Timestamp,
    /// The holder that the candidate saw last, which may be itself. `None` before it saw one, and after it released the
    /// lease.
    pub holder: Option<String>,
    /// Renewals of the lease by this candidate, without the writes that took it.
    pub renewals: u64,
    /// The time of the last write that took or renewed the lease.
    pub last_renewal: Option<Timestamp>,
    /// The last request without success. It stays when later requests succeed.
    pub last_error: Option<FailedRequest>,
}

/// A request for the lease that had no success.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedRequest {
    /// The error.
    pub message: String,
    /// Its time.
    pub at: Timestamp,
}

/// The state of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// It does not contend: not yet, or not any more.
    Idle,
    /// It contends for the lease.
    Candidate,
    /// It holds the lease.
    Leading,
    /// It lost the lease, and does not contend.
    Lost,
}

/// The state of a candidate, readable while an elector runs. Clones are one state, and electors that follow one another
/// may share it ([`Elector::with_status`](crate::Elector::with_status)).
#[derive(Clone)]
pub struct SharedStatus {
    clock: Clock,
    status: Arc<Mutex<Status>>,
}

// === impl SharedStatus ===

impl SharedStatus {
    /// The state of a candidate with these options that does not contend yet. Times are those of `clock`.
    #[must_use]
    pub fn new(options: &Options, clock: &Clock) -> Self {
        let status = Status {
            lease: options.key(),
            identity: options.holder().unwrap_or_default().to_owned(),
            state: State::Idle,
            since: clock.now(),
            holder: None,
            renewals: 0,
            last_renewal: None,
            last_error: None,
        };
        Self {
            clock: clock.clone(),
            status: Arc::new(Mutex::new(status)),
        }
    }

    /// The state now.
    #[must_use]
    pub fn get(&self) -> Status {
        self.status.lock().clone()
    }

    pub(crate) fn enter(&self, state: State) {
        let now = self.clock.now();
        let mut status = self.status.lock();
        // A loss is visible until the next candidacy.
        let kept = status.state == State::Lost && state == State::Idle;
        if status.state == state || kept {
            return;
        }
        (status.state, status.since) = (state, now);
        if state == State::Leading {
            status.holder = Some(status.identity.clone());
        }
    }

    pub(crate) fn held_by(&self, holder: Option<&str>) {
        self.status.lock().holder = holder.map(str::to_owned);
    }

    /// A write took the lease or renewed it.
    pub(crate) fn renewed(&self) {
        let now = self.clock.now();
        let mut status = self.status.lock();
        status.last_renewal = Some(now);
        if status.state == State::Leading {
            status.renewals += 1;
        }
    }

    pub(crate) fn failed(&self, cause: &str) {
        let at = self.clock.now();
        self.status.lock().last_error = Some(FailedRequest {
            message: cause.to_owned(),
            at,
        });
    }
}

impl fmt::Debug for SharedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status.lock().fmt(f)
    }
}

// === impl State ===

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Candidate => "candidate",
            Self::Leading => "leading",
            Self::Lost => "lost",
        })
    }
}
