//! Tenants of a queue: one noisy tenant must not block the others.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;

/// The tenant of an item: a namespace, a customer, a cluster. Set by [`Builder::fair_by`](crate::Builder::fair_by).
///
/// Among items of one priority, tenants with items take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub(crate) id: u64,
    pub(crate) weight: NonZeroU32,
}

/// Returns the tenant of an item.
pub(crate) type FairBy<T> = dyn Fn(&T) -> Tenant + Send + Sync;

// === impl Tenant ===

impl Tenant {
    /// The tenant of this name, with weight 1. Tenants are identified by a 64-bit hash of the name; two names
    /// with the same hash share their turns.
    #[must_use]
    pub fn of(name: impl Hash) -> Self {
        // The hasher has fixed keys, so the order does not depend on the process.
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self {
            id: hasher.finish(),
            weight: NonZeroU32::MIN,
        }
    }

    /// Items a turn. If items of one tenant have different weights, the item added last counts.
    #[must_use]
    pub fn weight(mut self, weight: NonZeroU32) -> Self {
        self.weight = weight;
        self
    }
}
