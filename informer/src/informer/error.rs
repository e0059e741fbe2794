//! Errors of an informer that is over, runs already, or does not watch where it is asked.

use std::sync::Arc;

use reeve_client::transport::Scope;

/// The informer has stopped and takes no more handlers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer {name} has stopped; build a new one")]
pub struct Stopped {
    /// The informer's name.
    pub name: Arc<str>,
}

/// The informer cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It ran before, or runs now. An informer runs once (client-go: the same).
    #[error("the informer {name} was started before; an informer runs once")]
    StartedBefore {
        /// The informer's name.
        name: Arc<str>,
    },
}

/// A wait that cannot succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The informer stopped.
    #[error("the informer {name} stopped before that")]
    Stopped {
        /// The informer's name.
        name: Arc<str>,
    },
    /// The informer does not watch this scope.
    #[error("the informer {name} does not watch {scope}")]
    OutOfScope {
        /// The informer's name.
        name: Arc<str>,
        /// The scope of the wait.
        scope: Scope,
    },
}
