//! What removes a watch or a source from a controller that runs.

use std::fmt;
use std::sync::{Arc, Weak};

use super::watching::Id;
use crate::manager::Inspect;

/// A watch or a source that was added to a controller ([`Handle::watch`](crate::manager::Handle::watch),
/// [`Handle::watch_source`](crate::manager::Handle::watch_source)). Clones are of the same.
///
/// Dropping it changes nothing: the watch stays for as long as the controller, as in controller-runtime, which cannot
/// remove one. [`WatchHandle::remove`] takes it away, and [`WatchHandle::remove_on_drop`] makes a guard that does.
#[derive(Clone)]
pub struct WatchHandle {
    controller: Weak<dyn Inspect>,
    id: Id,
}

/// Takes a watch or a source away when it is dropped. It does not wait for a handler that runs.
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

    /// Takes it away at once, and returns when its handler does not run any more. A source is dropped, so that its
    /// sender learns of it; the cache of a kind stops after the linger when nothing else uses it. Requests that are
    /// queued stay queued.
    ///
    /// What is gone already, with the controller or its cluster, is left alone. The future may be dropped.
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
