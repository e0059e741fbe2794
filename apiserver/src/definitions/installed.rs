//! The definitions that are served.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

/// The definitions that are served, by their names.
///
/// The lock covers a definition's status, its resources in the registry and its table, so that the last of several
/// writers leaves the state of the last write.
#[derive(Debug, Default)]
pub(crate) struct Installed(Mutex<HashMap<String, Served>>);

/// A definition that is served.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) uid: String,
    /// The spec and the accepted names.
    pub(super) content: (Value, Value),
}

// === impl Installed ===

impl Installed {
    /// A copy, and what `with` reads while no definition changes what is served.
    pub(crate) fn copy_with<T>(&self, with: impl FnOnce() -> T) -> (Self, T) {
        let served = self.0.lock();
        let read = with();
        (Self(Mutex::new(served.clone())), read)
    }

    /// Excludes other changes of what is served until the guard is dropped.
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<String, Served>> {
        self.0.lock()
    }
}
