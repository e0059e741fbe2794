//! What can go wrong with a manager.

use std::time::Duration;

use tower::BoxError;

/// Why a manager could not be made, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A server could not be bound.
    #[error("{0}")]
    Bind(#[source] std::io::Error),
    /// The metrics server cannot serve.
    #[error(transparent)]
    MetricsServer(#[from] crate::metrics_server::Error),
    /// The options of the election do not fit together.
    #[error(transparent)]
    LeaderElection(#[from] crate::leader_election::Error),
    /// The options of the caches cannot be read, or do not fit together.
    #[error(transparent)]
    CacheOptions(#[from] crate::cache::OptionsError),
    /// Two controllers have one name.
    #[error("there is a controller {0} already; metrics and logs need distinct names")]
    DuplicateController(String),
    /// Two controllers, or a controller and the manager, contend for leases of one name. Their namespaces may differ:
    /// checks and metrics are called after the name.
    #[error("a lease of the name of {0} is contended for already; share it, or name another")]
    DuplicateLease(String),
    /// Two clusters have one name.
    #[error("there is a cluster {0} already")]
    DuplicateCluster(String),
    /// A kind that a controller watches cannot be cached as it wants it.
    #[error("the controller {controller} was not added: {source}")]
    Cache {
        /// The controller.
        controller: String,
        /// Why not.
        source: crate::cache::CacheError,
    },
    /// It ran before.
    #[error("a manager runs once, and this one did; build another with `Manager::builder`")]
    AlreadyRun,
    /// Nothing can be added to a manager that stops.
    #[error("the manager is stopping; {0} was not added")]
    Stopping(String),
    /// Something it ran failed.
    #[error("{name} failed: {}", crate::error_chain(&**source))]
    Runnable {
        /// What failed.
        name: String,
        /// Why.
        source: BoxError,
    },
    /// Another replica leads, or may.
    #[error("leadership is lost: {0}; the process must exit")]
    LeadershipLost(BoxError),
    /// Some did not end in time.
    #[error("still running when the grace period of {grace:?} ended: {}", names.join(", "))]
    GraceExpired {
        /// The grace period.
        grace: Duration,
        /// What was dropped.
        names: Vec<String>,
    },
    /// It failed, and then did not stop well either.
    #[error("{cause}; and when stopping: {stop}")]
    Both {
        /// Why it stopped.
        #[source]
        cause: Box<Error>,
        /// What went wrong then.
        stop: Box<Error>,
    },
    /// Several things went wrong when it stopped.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<Error>),
}

// === impl Error ===

impl Error {
    /// All of `errors` as one.
    pub(super) fn all(mut errors: Vec<Self>) -> Result<(), Self> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Self::Several(errors)),
        }
    }

    /// Whether it says that the manager's lease was lost, alone or among others. A program may take that for a restart
    /// like any other: `std::process::exit`, for to drop a runtime is to wait for threads that something blocks. (A
    /// controller that loses a lease of its own stands by, and nothing ends.)
    #[must_use]
    pub fn is_leadership_lost(&self) -> bool {
        match self {
            Self::LeadershipLost(_) => true,
            Self::Both { cause, stop } => cause.is_leadership_lost() || stop.is_leadership_lost(),
            Self::Several(errors) => errors.iter().any(Self::is_leadership_lost),
            _ => false,
        }
    }
}
