//! A handler that is registered with a cache.

use std::fmt;
use std::sync::Arc;

use reeve_informer::CacheHealth;

use super::slot::Interest;
use super::store::{Handle, Store};

/// A registered handler. Dropping it removes the handler.
#[must_use = "dropping it removes the handler"]
pub struct Registration {
    store: Arc<Store>,
    handle: Handle,
    interest: Interest,
}

// === impl Registration ===

impl Registration {
    pub(super) fn new(interest: Interest, store: Arc<Store>, handle: Handle) -> Self {
        Self {
            store,
            handle,
            interest,
        }
    }

    /// Whether the handler has seen every object of the first list.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        // An index that the handler reads may be missing until then.
        self.interest.slot().store().is_some() && self.handle.has_synced()
    }

    /// Waits until the handler has seen every object of the first list.
    pub async fn wait_synced(&self) {
        self.interest.slot().made().await;
        self.handle.synced().await;
    }

    /// The health of the kind's informer.
    #[must_use]
    pub fn health(&self) -> CacheHealth {
        self.store.health()
    }

    /// Removes the handler, and waits until it does not run any more.
    pub async fn remove(&self) {
        self.handle.remove().await;
    }

    /// Removes the handler without waiting: a callback may still run.
    pub(crate) fn unregister(&self) {
        self.handle.unregister();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.handle.unregister();
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("interest", &self.interest)
            .field("synced", &self.has_synced())
            .finish_non_exhaustive()
    }
}
