//! Watches and sources that are added to a controller while its manager runs.

use super::watch::Watch;
use super::watch_handle::WatchHandle;
use super::watching::Late;
use crate::handler::Watched;
use crate::lifecycle::{Handle, WatchError};
use crate::reconcile::RequestKey;
use crate::source::Source;

impl Handle {
    /// Adds a watch to a controller, before or while it runs (controller-runtime: `Controller.Watch`). A running
    /// controller receives every existing object at once, and goes on with its work meanwhile; a controller that has
    /// not started its workers waits for this watch, too.
    ///
    /// The watch stays, whether or not the returned handle is kept, until the controller ends, [`WatchHandle::remove`]
    /// removes it, or its [cluster is removed](crate::Manager::remove_cluster). On a standby it is registered when that
    /// leads. Two watches of one kind are two: a reconcile that adds watches keeps their handles. A kind that cannot be
    /// followed fails readiness and is named there, in the log, in [`Handle::health`] and in the metric
    /// `reeve_controller_informer_unavailable`; the controller goes on with the others. With a
    /// [`cache_sync_timeout`](crate::controller::Builder::cache_sync_timeout) it then stops the manager. That time
    /// counts from here for this watch if the workers run; before, it is one for all watches.
    ///
    /// # Errors
    /// When this is not a controller or has stopped, its requests are of another type than `R`, the kind cannot be
    /// cached as the watch requires, or the cluster of the watch was removed.
    pub fn watch<V: Watched, R: RequestKey>(
        &self,
        watch: Watch<V, R>,
    ) -> Result<WatchHandle, WatchError> {
        self.take(Late::Watch(watch.close()))
    }

    /// Adds a source of requests to a controller
    /// ([`Builder::watches_source`](crate::controller::Builder::watches_source)); it is read from now on, or when the
    /// controller leads. A source that fails is [named](crate::source#when-a-source-fails); a source that has come to
    /// its [end](Source::finite) is forgotten.
    ///
    /// # Errors
    /// When this is not a controller or has stopped, or its requests are of another type than `R`.
    pub fn watch_source<R: RequestKey>(
        &self,
        source: impl Into<Source<R>>,
    ) -> Result<WatchHandle, WatchError> {
        self.take(Late::Source(source.into()))
    }

    fn take<R: RequestKey>(&self, late: Late<R>) -> Result<WatchHandle, WatchError> {
        let inspect = self.ticket().inspect();
        match inspect {
            Some(inspect) if !self.ticket().is_asked_to_stop() => {
                let id = inspect.take(Box::new(late))?;
                Ok(WatchHandle::new(&inspect, id))
            }
            _ => Err(WatchError::NoController(self.name().to_owned())),
        }
    }
}
