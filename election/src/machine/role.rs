//! The roles of a candidate. Each variant has the data that is valid in it.

use std::time::Duration;

use super::feed::{Feed, Pace};

/// The role of a candidate.
#[derive(Debug)]
pub(crate) enum Role {
    /// Does not contend: before the start, and after a stop.
    Idle,
    /// Waits until the lease may be free: until the time of the next try, or until news.
    Standby(Contender, Duration),
    /// Has sent a request to take the lease.
    Acquiring(Contender, Request),
    /// Holds the lease until it must be renewed, or until news.
    Leading(Term, Duration),
    /// Holds the lease, and has sent a request to renew it.
    Renewing(Term, Request),
    /// Gives the lease back.
    Releasing(ReleaseLimits, Release),
    /// Does not lead any more, and does not contend.
    Lost(Lost),
}

/// A candidate without the lease.
#[derive(Debug)]
pub(crate) struct Contender {
    pub(super) feed: Feed,
    /// A write of this process may have taken the lease.
    pub(super) may_hold: bool,
}

/// The time for which a candidate holds the lease.
#[derive(Debug)]
pub(crate) struct Term {
    pub(super) feed: Feed,
    /// When the last successful write was sent: the lease is certainly ours for the renew deadline from then on.
    pub(super) renewed: Duration,
    /// The cause of the last failed renewal since.
    pub(super) cause: Option<String>,
}

/// The request in flight of a try to take or renew the lease. A write has the time when it was sent.
#[derive(Debug)]
pub(crate) enum Request {
    /// A write without a read before it (client-go: the fast path). If it fails, a read follows.
    WritingUnread(Duration),
    Reading,
    /// A write of the lease that was read.
    Writing(Duration),
}

/// The limits of a release.
#[derive(Debug)]
pub(crate) struct ReleaseLimits {
    /// When it is given up: the lease expires by itself then.
    pub(super) until: Duration,
    /// How often a conflict leads to another try at once.
    pub(super) pace: Pace,
}

/// The phase of a release: reads the lease, then writes it with an empty holder (client-go: `LeaderElector.release`).
#[derive(Debug)]
pub(crate) enum Release {
    /// Waits until all writes under the lease have landed.
    Landing,
    Reading,
    Writing,
    /// Waits for the time of the next try after a failure.
    Pausing(Duration),
}

/// Reason for which leading ended.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// It was not renewed in time.
    #[error("the lease was not renewed for {deadline:?}: {cause}")]
    Deadline {
        /// The renew deadline.
        deadline: Duration,
        /// Result of the last try to renew it.
        cause: String,
    },
    /// Another candidate took it.
    #[error("the lease was taken by {holder}")]
    Taken {
        /// The holder.
        holder: String,
    },
    /// Another process has the same identity.
    #[error(
        "another process holds the lease as {identity}, too; identities must differ between processes"
    )]
    DuplicateIdentity {
        /// The identity of both.
        identity: String,
    },
}

// === impl Role ===

impl Role {
    /// Whether the server may have this process as the holder.
    pub(super) fn may_hold(&self) -> bool {
        match self {
            Self::Idle => false,
            Self::Standby(contender, _) | Self::Acquiring(contender, Request::Reading) => {
                contender.may_hold
            }
            Self::Acquiring(_, Request::WritingUnread(_) | Request::Writing(_))
            | Self::Leading(..)
            | Self::Renewing(..)
            | Self::Releasing(..)
            | Self::Lost(_) => true,
        }
    }

    /// The watch, in the roles that read its events.
    pub(super) fn feed(&mut self) -> Option<&mut Feed> {
        match self {
            Self::Standby(contender, _) => Some(&mut contender.feed),
            Self::Leading(term, _) => Some(&mut term.feed),
            _ => None,
        }
    }
}
