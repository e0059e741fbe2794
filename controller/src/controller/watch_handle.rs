//! Handles that remove a watch or a source from a running controller.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::lifecycle::{Id, Inspect};

/// A watch or a source that was added to a controller ([`Handle::watch`](crate::manager::Handle::watch),
/// [`Handle::watch_source`](crate::manager::Handle::watch_source)). Clones refer to the same.
///
/// Dropping it changes nothing: the watch stays for as long as the controller, as in controller-runtime, which cannot
/// remove one. [`WatchHandle::remove`] removes it, and [`WatchHandle::remove_on_drop`] returns a guard that does.
#[derive(Clone)]
pub struct WatchHandle {
    controller: Weak<dyn Inspect>,
    id: Id,
}

/// Removes a watch or a source when it is dropped. It does not wait for a running handler.
#[must_use = "dropping it removes the watch"]
#[derive(Debug)]
pub struct WatchGuard {
    watch: WatchHandle,
    keeps: bool,
}

// === impl WatchHandle ===

impl WatchHandle {
    pub(crate) fn new(controller: &Arc<dyn Inspect>, id: Id) -> Self {
        Self {
            controller: Arc::downgrade(controller),
            id,
        }
    }

    /// Removes it at once, and returns when its handler no longer runs. A source is dropped, so that its sender fails;
    /// the cache of a kind stops after the linger when nothing else uses it. Queued requests stay queued.
    ///
    /// After the end of the controller or the removal of its cluster it has no effect. The future may be dropped.
    pub fn remove(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let controller = self.controller.upgrade();
        let removed = controller.map(|controller| controller.remove(self.id));
        async move {
            if let Some(removed) = removed {
                removed.await;
            }
        }
    }

    /// Removes it when the guard is dropped.
    pub fn remove_on_drop(self) -> WatchGuard {
        WatchGuard {
            watch: self,
            keeps: false,
        }
    }
}

impl fmt::Debug for WatchHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchHandle")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

// === impl WatchGuard ===

impl WatchGuard {
    /// Gives the guard up: the watch stays.
    #[must_use]
    pub fn keep(mut self) -> WatchHandle {
        self.keeps = true;
        self.watch.clone()
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        if !self.keeps {
            drop(self.watch.remove());
        }
    }
}
