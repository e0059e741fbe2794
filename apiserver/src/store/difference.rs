//! The difference between a copy and the store as it is now. It costs as much as what was written in between.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::map::{Map, Unshared};
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

/// The objects of one resource at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects(Map<Arc<Object>>);

// === impl Objects ===

impl Objects {
    /// The keys whose objects differ in `later`, each with its object in `later`.
    pub(crate) fn written_until<'a>(
        &'a self,
        later: &'a Self,
    ) -> impl Iterator<Item = (&'a Key, Option<&'a Arc<Object>>)> {
        written(&self.0, &later.0).map(|(key, _, object)| (key, object))
    }
}

// === impl Copy ===

impl Copy {
    /// The objects that were written since the copy was made.
    pub(crate) fn differences(&self, store: &Store) -> Vec<Difference> {
        let now = store.state.read();
        let none = Map::new();
        let tables: BTreeSet<&String> = self.0.tables.keys().chain(now.tables.keys()).collect();
        let mut found = Vec::new();
        for storage in tables {
            let then = self.0.tables.get(storage).map(|table| &table.objects);
            let current = now.tables.get(storage).map(|table| &table.objects);
            let written = written(then.unwrap_or(&none), current.unwrap_or(&none));
            found.extend(written.map(|(key, then, object)| Difference {
                storage: storage.clone(),
                key: key.clone(),
                then: then.cloned(),
                exists: object.is_some(),
            }));
        }
        found
    }
}

// === impl Store ===

impl Store {
    /// The objects of a resource as they are now. They are shared, not copied.
    pub(crate) fn objects(&self, storage: &str) -> Objects {
        let state = self.state.read();
        let table = state.tables.get(storage);
        Objects(table.map_or_else(Map::new, |table| table.objects.clone()))
    }
}

/// The keys of the objects that are not the same in both maps.
fn written<'a>(
    then: &'a Map<Arc<Object>>,
    now: &'a Map<Arc<Object>>,
) -> impl Iterator<Item = Unshared<'a, Arc<Object>>> {
    let unshared = then.unshared(now).into_iter();
    unshared.filter(|(_, then, object)| match (then, object) {
        (Some(then), Some(object)) => !object.is_the_same(then),
        _ => true,
    })
}
