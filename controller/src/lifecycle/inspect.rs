//! The interface of a running controller for the manager and its handles.

use std::any::Any;

use futures::future::BoxFuture;

use super::state::Unavailable;
use crate::cache::{CacheError, Caches};
use crate::debug::{ControllerReport, WritesReport};

/// Errors of adding a watch or a source to a controller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// A runnable that is not a controller, or a controller that has stopped.
    #[error("{0} cannot take a watch: it is not a controller, or has stopped")]
    NoController(String),
    /// The controller's requests are of another type.
    #[error("controller {0} and this watch have different request types")]
    OtherRequests(String),
    /// The kind cannot be cached as the watch requires.
    #[error("watch was not added to {controller}: {source}")]
    Cache {
        /// The controller.
        controller: String,
        /// The cause.
        source: CacheError,
    },
}

/// A watch or a source of one controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(pub(crate) u64);

/// A running controller, for health, handles and the removal of clusters.
pub(crate) trait Inspect: Send + Sync {
    /// The kinds it cannot follow.
    fn unavailable(&self) -> Vec<Unavailable>;
    /// Running reconciles, with their durations.
    fn at_work(&self) -> Vec<String>;
    /// Its figures and sources. The ticket adds its state.
    fn report(&self) -> ControllerReport;
    /// Its own writes, if its keys wait for them.
    fn own_writes(&self) -> Option<WritesReport>;
    /// Adds a watch or a source: a `Late` of its request type.
    fn take(&self, late: Box<dyn Any + Send>) -> Result<Id, WatchError>;
    /// Removes a watch or a source at once. The future ends when its handler no longer runs.
    fn remove(&self, id: Id) -> BoxFuture<'static, ()>;
    /// Removes every watch in these caches, as [`Inspect::remove`].
    fn leave_caches(&self, caches: &Caches) -> BoxFuture<'static, ()>;
    /// Removes every watch in the caches of clusters that were removed.
    fn leave_removed(&self);
}
