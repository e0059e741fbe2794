//! Who shares a queue: one noisy tenant must not keep the others waiting.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;

/// Whose item it is: a namespace, a customer, a cluster. Given by [`Builder::fair_by`](crate::Builder::fair_by).
///
/// Among items of one priority, tenants that have any take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub(crate) id: u64,
    pub(crate) weight: NonZeroU32,
}

/// Says whose an item is.
pub(crate) type FairBy<T> = dyn Fn(&T) -> Tenant + Send + Sync;

// === impl Tenant ===

impl Tenant {
    /// The tenant of this name, with weight 1. Names are told apart by a hash of 64 bits; should two
    /// collide, they share their turns.
    #[must_use]
    pub fn of(name: impl Hash) -> Self {
        // Its keys are fixed, so the order of a run does not depend on the process.
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self {
            id: hasher.finish(),
            weight: NonZeroU32::MIN,
        }
    }

    /// So many items a turn. If items of one tenant differ in it, the one added last counts.
    #[must_use]
    pub fn weight(mut self, weight: NonZeroU32) -> Self {
        self.weight = weight;
        self
    }
}
