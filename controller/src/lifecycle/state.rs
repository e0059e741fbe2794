//! States of a runnable, for health reports and logs.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// The state of a runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Not started: the manager does not run yet, or waits for the caches.
    Waiting,
    /// Waits until this replica leads.
    Standby,
    /// A controller whose handlers have not seen all first objects: its workers have not started.
    Syncing,
    /// Runs.
    Running,
    /// A stop was requested, and it has not ended.
    Stopping,
    /// Ended without an error.
    Stopped,
    /// Ended with an error, which stops the manager.
    Failed,
}

/// The health of a runnable, for [`Manager::runnables`](crate::Manager::runnables).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunnableHealth {
    /// The name of the runnable or controller.
    pub name: String,
    /// Its state.
    pub state: State,
    /// The time of its last change of state.
    pub since: Timestamp,
    /// Kinds that a controller cannot follow and sources that it does not read, each with its cause.
    pub unavailable: Vec<Unavailable>,
    /// Keys that a controller reconciles now, with the durations; at most ten.
    pub at_work: Vec<String>,
}

/// A kind that a controller needs and cannot follow, or a source that is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unavailable {
    /// The name of the informer, or of the source.
    pub informer: Arc<str>,
    /// The class of the failure: `forbidden`, `not found` for a kind the server does not have, `decode`, `connection`,
    /// …; `not synced` before any failure. Those of a source: [there](crate::source#when-a-source-fails).
    pub cause: &'static str,
    /// The failure as text for people.
    pub message: String,
    /// The controller runs without it: the watch is optional, and the server does not have the kind.
    pub optional: bool,
}

// === impl State ===

impl State {
    /// Whether the runnable has ended.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Stopped | Self::Failed)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "waiting",
            Self::Standby => "standby",
            Self::Syncing => "syncing",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        })
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.cause)
    }
}
