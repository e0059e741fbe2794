//! The objects that the consumer of a queue has: [`KnownObjects`].

use std::sync::Arc;

use reeve_client::KeyRef;

/// The objects that the consumer of a queue has already (client-go: `KeyListerGetter`).
pub trait KnownObjects<S: ?Sized>: Send + Sync {
    /// The object with this key.
    fn known(&self, key: KeyRef<'_>) -> Option<Arc<S>>;
    /// All objects.
    fn known_objects(&self) -> Vec<Arc<S>>;
}

/// A consumer without objects: deletions of objects that are not in the queue are dropped, and a list deletes only
/// objects that are in the queue (client-go: `KnownObjects` is nil).
impl<S: ?Sized> KnownObjects<S> for () {
    fn known(&self, _: KeyRef<'_>) -> Option<Arc<S>> {
        None
    }

    fn known_objects(&self) -> Vec<Arc<S>> {
        Vec::new()
    }
}
