//! Input and output of the machine: events and actions.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use reeve_client::Error;

use super::role::Lost;

/// The time of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// On the clock that counts suspend. Every wait and every lease is measured on it.
    pub(crate) boot: Duration,
    /// The date, which is written into the lease and never compared.
    pub(crate) date: Timestamp,
}

/// Input of a step.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Contend for the lease, unless the machine does already.
    Contend,
    /// Stop, and release the lease within `limit`. The fence is closed already. `lands_in` is the time until all writes
    /// under the lease have landed, `None` while a write is in flight or a worker runs.
    Stop {
        limit: Duration,
        lands_in: Option<Duration>,
    },
    /// The answer to [`Action::Read`]: the lease, if it exists.
    Read(Result<Option<Box<Lease>>, Failure>),
    /// The answer to [`Action::Create`] or [`Action::Update`]: the lease as it is stored.
    Written(Result<Box<Lease>, Failure>),
    /// The watch shows the lease.
    Shown(Box<Lease>),
    /// The watch shows that the lease was deleted.
    Deleted,
    /// The watch ended, with an error or without.
    WatchEnded(Option<String>),
    /// All writes under the lease have landed.
    Landed,
    /// The time [`Machine::wake_at`](super::Machine::wake_at) has come.
    Timer,
}

/// Output of a step. The machine has at most one request in flight, and at most one open watch.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Reads the lease; the answer is [`Event::Read`].
    Read,
    /// Creates the lease; the answer is [`Event::Written`].
    Create(Box<Lease>),
    /// Updates the lease; the answer is [`Event::Written`].
    Update(Box<Lease>),
    /// Opens the watch on the lease.
    OpenWatch,
    /// Closes the watch.
    CloseWatch,
    /// Closes the watch and gives up the request in flight; its answer is not an event any more.
    Abandon,
    /// Opens the fence until the renew deadline after `sent_at`.
    RenewFence { sent_at: Duration },
    /// Closes the fence.
    CloseFence,
    /// Logs and counts.
    Report(Report),
}

/// What happened, for the log and the metrics.
#[derive(Clone, Debug)]
pub(crate) enum Report {
    /// Another candidate holds the lease.
    Held { holder: String },
    /// Another candidate wrote the lease before this one.
    WrittenFirst { cause: String },
    /// A try to take the lease failed.
    NotTaken { cause: String },
    /// The lease was taken.
    Leading,
    /// A write without a read before failed; a read follows.
    SlowPath { cause: String },
    /// A try to renew the lease failed.
    NotRenewed { cause: String },
    /// The lease was lost.
    Lost(Lost),
    /// The watch failed.
    NotWatched { cause: String },
    /// The lease was released.
    Released,
    /// A try to release the lease failed.
    NotReleased { cause: String },
    /// The release would take longer than its limit.
    ReleaseTooShort,
    /// The release took longer than its limit, because a worker or a write under the lease did not end.
    StillWorking,
    /// The release took longer than its limit.
    ReleaseTooSlow,
}

/// A request without success.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// The text of the error.
    pub(crate) cause: String,
}

/// What a failed write may have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// Nothing: another client wrote the lease first.
    Conflict,
    /// Nothing: there is no lease.
    NotFound,
    /// Nothing: the request was refused.
    Refused,
    /// The write may have taken effect.
    Ambiguous,
}

// === impl Failure ===

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = if error.is_conflict() || error.is_already_exists() {
            FailureKind::Conflict
        } else if error.is_not_found() {
            FailureKind::NotFound
        } else if error.is_ambiguous() {
            FailureKind::Ambiguous
        } else {
            FailureKind::Refused
        };
        Self {
            kind,
            cause: error.to_string(),
        }
    }
}
