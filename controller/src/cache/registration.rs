//! A handler that is registered with a cache.

use std::fmt;
use std::sync::Arc;

use super::slot::Interest;
use super::store::{Handle, Store};

/// A handler that is registered. Dropping it takes the handler away.
#[must_use = "dropping it takes the handler away"]
pub struct Registration {
    store: Arc<dyn Store>,
    handle: Box<dyn Handle>,
    interest: Interest,
}

// === impl Registration ===

impl Registration {
    pub(super) fn new(interest: Interest, store: Arc<dyn Store>, handle: Box<dyn Handle>) -> Self {
        Self {
            store,
            handle,
            interest,
        }
    }

    /// Whether the handler has seen every object of the first list.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.handle.is_synced()
    }

    /// Returns when the handler has seen every object of the first list.
    pub async fn synced(&self) {
        self.handle.synced().await;
    }

    /// What the handler still waits for, and why; `None` if for nothing.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        if self.is_synced() {
            return None;
        }
        let health = self.store.health();
        Some(health.trouble().unwrap_or_else(|| health.name.to_string()))
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
            .field("synced", &self.is_synced())
            .finish_non_exhaustive()
    }
}
