//! Names of a manager's controllers, leases and clusters, each taken once at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// The names that are taken. Clones are one set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Arc<Mutex<BTreeSet<String>>>);

/// A name that is taken; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Name {
    name: String,
    names: Names,
}

// === impl Names ===

impl Names {
    /// Takes `name`; `None` if it is taken.
    pub(crate) fn take(&self, name: &str) -> Option<Name> {
        let new = self.0.lock().insert(name.to_owned());
        new.then(|| Name {
            name: name.to_owned(),
            names: self.clone(),
        })
    }
}

// === impl Name ===

impl Drop for Name {
    fn drop(&mut self) {
        self.names.0.lock().remove(&self.name);
    }
}
