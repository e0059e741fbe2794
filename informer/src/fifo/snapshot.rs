//! The whole state, as a list brings it: [`Snapshot`].

use std::collections::BTreeSet;
use std::sync::Arc;

use reeve_client::{ObjectKey, ResourceVersion};

/// A state that replaces the content of the store.
#[derive(Debug)]
pub struct Snapshot<S: ?Sized> {
    /// The objects. Of two with one key the later counts.
    pub objects: Vec<Arc<S>>,
    /// Keys of objects that exist but could not be read: the store keeps what it holds of them.
    pub retained: Vec<ObjectKey>,
    /// The version of the whole.
    pub resource_version: ResourceVersion,
    /// The server's history began again: equal versions do not mean equal objects.
    pub new_epoch: bool,
    /// The namespaces whose objects the store may have with other parts left out: equal versions do not mean equal entries. A
    /// [`DeltaFifo`](crate::DeltaFifo) passes its objects on one by one, without this.
    pub reread: Arc<BTreeSet<Arc<str>>>,
}

// === impl Snapshot ===

impl<S: ?Sized> Snapshot<S> {
    /// True if equal versions do not mean equal entries of the store, of all or of some objects.
    pub(crate) fn is_fresh(&self) -> bool {
        self.new_epoch || !self.reread.is_empty()
    }
}
