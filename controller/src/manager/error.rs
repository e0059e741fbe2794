//! Errors of building and running a manager.

use std::time::Duration;

use tower::BoxError;

/// An error of building or running a manager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A server could not be bound.
    #[error("{0}")]
    Bind(#[source] std::io::Error),
    /// The metrics server cannot serve.
    #[error(transparent)]
    MetricsServer(#[from] crate::metrics_server::Error),
    /// The webhook server cannot serve.
    #[cfg(feature = "webhook")]
    #[error(transparent)]
    Webhooks(#[from] reeve_webhook::Error),
    /// `webhook_certificates` was called, and `webhooks` was not.
    #[cfg(feature = "webhook")]
    #[error(
        "certificates for webhooks were configured, and no webhook server: call `webhooks`, or run a `Rotation` for a server of the program"
    )]
    CertificatesWithoutWebhooks,
    /// The options of the election do not fit together.
    #[error(transparent)]
    LeaderElection(#[from] crate::leader_election::Error),
    /// The options of the caches cannot be read, or do not fit together.
    #[error(transparent)]
    CacheOptions(#[from] crate::cache::OptionsError),
    /// Two controllers have one name.
    #[error("controller name {0} is taken: metrics and logs need distinct names; use another")]
    DuplicateController(String),
    /// Two controllers, or a controller and the manager, contend for leases of one name. Different namespaces do not
    /// help: checks and metrics are named after the lease only.
    #[error("lease name of {0} is taken in this manager; share that lease or use another name")]
    DuplicateLease(String),
    /// Two clusters have one name.
    #[error("cluster name {0} is taken; use another")]
    DuplicateCluster(String),
    /// A kind cannot be cached as a controller requires.
    #[error("controller {controller} was not added: {source}")]
    Cache {
        /// The controller.
        controller: String,
        /// The cause.
        source: crate::cache::CacheError,
    },
    /// The manager ran before.
    #[error("manager cannot run twice; build another with `Manager::builder`")]
    AlreadyRun,
    /// A stopping manager accepts no additions.
    #[error("{0} was not added: the manager is stopping")]
    Stopping(String),
    /// A runnable failed.
    #[error("{name} failed: {}", crate::error_chain(&**source))]
    Runnable {
        /// The name of the runnable.
        name: String,
        /// Its error.
        source: BoxError,
    },
    /// Another replica leads, or may.
    #[error("leadership is lost: {0}; the process must exit")]
    LeadershipLost(BoxError),
    /// Some runnables did not end in time.
    #[error("still running when the grace period of {grace:?} ended: {}", names.join(", "))]
    GraceExpired {
        /// The grace period.
        grace: Duration,
        /// The runnables that were dropped.
        names: Vec<String>,
    },
    /// The manager failed, and its stop failed, too.
    #[error("{cause}; and when stopping: {stop}")]
    Both {
        /// The cause of the stop.
        #[source]
        cause: Box<Error>,
        /// The failure of the stop.
        stop: Box<Error>,
    },
    /// Several failures of a stop.
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

    /// Whether the manager's lease was lost, alone or among other errors. A program may treat that as a normal restart
    /// and call `std::process::exit`, because dropping a runtime waits for blocked threads. (A controller that loses a
    /// lease of its own stands by, and nothing ends.)
    #[must_use]
    pub fn is_leadership_lost(&self) -> bool {
        self.has(|error| matches!(error, Self::LeadershipLost(_)))
    }

    /// Whether work may go on after the run: on a thread that it blocks.
    #[cfg(feature = "clap")]
    pub(crate) fn may_leave_work(&self) -> bool {
        self.has(|error| matches!(error, Self::LeadershipLost(_) | Self::GraceExpired { .. }))
    }

    fn has(&self, which: fn(&Self) -> bool) -> bool {
        match self {
            Self::Both { cause, stop } => cause.has(which) || stop.has(which),
            Self::Several(errors) => errors.iter().any(|error| error.has(which)),
            error => which(error),
        }
    }
}
