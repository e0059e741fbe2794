//! The blocks in the cache.

use std::sync::Arc;

use reeve_controller::{Caches, ObjectKey};

use super::sink::Known;
use crate::api::IPBlock;

/// The blocks that the cache of the operator holds.
#[derive(Clone)]
pub(super) struct CachedBlocks(Caches);

// === impl CachedBlocks ===

impl CachedBlocks {
    /// Over `caches`.
    #[must_use]
    pub(super) fn new(caches: Caches) -> Self {
        Self(caches)
    }
}

impl Known for CachedBlocks {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<IPBlock>> {
        let lister = self.0.lister::<IPBlock>().ok()?;
        lister.get(&ObjectKey::namespaced(namespace, name)).ok()?
    }

    fn all(&self, namespace: &str) -> Result<Vec<Arc<IPBlock>>, String> {
        let lister = self.0.lister::<IPBlock>();
        let lister = lister.map_err(|error| error.to_string())?;
        lister
            .namespace(namespace)
            .map_err(|error| error.to_string())
    }
}

impl std::fmt::Debug for CachedBlocks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CachedBlocks")
            .finish_non_exhaustive()
    }
}
