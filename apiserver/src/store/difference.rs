//! The difference between a copy and the store as it is now.

use std::sync::Arc;

use super::object::{Key, Object};
use super::objects::{Copy, Store};

/// An object that is not as it was.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) storage: String,
    pub(crate) key: Key,
    /// The object in the copy.
    pub(crate) then: Option<Arc<Object>>,
    /// Whether the object exists now.
    pub(crate) exists: bool,
}

// === impl Copy ===

impl Copy {
    /// The objects that were written since the copy was made. It takes a walk over both, and reads no content.
    pub(crate) fn differences(&self, store: &Store) -> Vec<Difference> {
        let now = store.state.read();
        let mut found = Vec::new();
        let mut add = |storage: &String, key: &Key, then: Option<&Arc<Object>>, exists: bool| {
            found.push(Difference {
                storage: storage.clone(),
                key: key.clone(),
                then: then.cloned(),
                exists,
            });
        };
        for (storage, table) in &self.0.tables {
            let current = now.tables.get(storage).map(|table| &table.objects);
            for (key, then) in table.objects.iter() {
                match current.and_then(|objects| objects.get(key.as_str())) {
                    Some(object) if object.is_the_same(then) => {}
                    object => add(storage, key, Some(then), object.is_some()),
                }
            }
        }
        for (storage, table) in &now.tables {
            let then = self.0.tables.get(storage).map(|table| &table.objects);
            for (key, _) in table.objects.iter() {
                if then.is_none_or(|objects| objects.get(key.as_str()).is_none()) {
                    add(storage, key, None, true);
                }
            }
        }
        found
    }
}
