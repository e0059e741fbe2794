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
    /// The options of the election do not fit together.
    #[error(transparent)]
    LeaderElection(#[from] crate::leader_election::Error),
    /// Two controllers have one name.
    #[error("there is a controller {0} already; metrics and logs need distinct names")]
    DuplicateController(String),
    /// A kind that a controller watches cannot be cached as it wants it.
    #[error("the controller {controller} was not added: {source}")]
    Cache {
        /// The controller.
        controller: String,
        /// Why not.
        source: crate::cache::CacheError,
    },
    /// It ran before.
    #[error("a manager runs once")]
    AlreadyRun,
    /// Nothing can be added to a manager that stops.
    #[error("the manager is stopping; {0} was not added")]
    Stopping(String),
    /// Too much was added at once.
    #[error("the manager does not keep up with what is added; {0} was not added")]
    Busy(String),
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
        cause: Box<Error>,
        /// What went wrong then.
        stop: Box<Error>,
    },
}
