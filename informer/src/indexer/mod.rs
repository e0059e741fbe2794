//! The store: objects by key, and by the values of named indexes.
//!
//! Readers share a lock that writers hold only for single changes and for swapping in a state that was built
//! beside the old one; what a change frees is dropped after the lock is released. A list costs one reference
//! count an object, no copies.

mod index;
mod state;

pub use index::{Error, IndexFunction, IndexValues, NAMESPACE_INDEX};
pub(crate) use state::{Change, Transaction};

use std::sync::Arc;

use indexmap::IndexMap;
use parking_lot::{Mutex, RwLock};

use crate::entry::Stored;
use crate::event::{Event, UpdateReason};
use crate::fifo::KnownObjects;
use crate::key::{KeyRef, ObjectKey};
use crate::version::ResourceVersion;
use index::Index;
use state::State;

/// In the order of insertion, so that the same history gives the same lists. The hash is seeded anew in each
/// process, but it is a fast one: whoever can create objects with names of his choice in a cluster has shorter
/// ways to slow its controllers down.
pub(crate) type Map<K, V> = IndexMap<K, V, foldhash::fast::RandomState>;

/// Objects by key, with named indexes.
///
/// An index by namespace is always there, under [`NAMESPACE_INDEX`]. Lists come in no promised order, but in
/// the same one for the same history of changes.
pub struct Indexer<S> {
    state: RwLock<State<S>>,
    /// Held through a whole change, so that a state can be built beside the one that is read.
    writer: Mutex<()>,
}

/// A state to replace everything with.
#[derive(Debug)]
pub struct Snapshot<S> {
    /// The objects. Of two with one key the later counts.
    pub objects: Vec<Arc<S>>,
    /// Keys that exist but could not be read: what the store holds of them stays.
    pub retained: Vec<ObjectKey>,
    /// The version of the whole.
    pub resource_version: ResourceVersion,
    /// The server's history began anew: equal versions do not mean equal objects.
    pub new_epoch: bool,
}

// === impl Indexer ===

impl<S: Stored> Indexer<S> {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: RwLock::new(State::new()),
            writer: Mutex::new(()),
        }
    }

    /// The object with this key.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<S>> {
        self.state.read().objects.get(key).cloned()
    }

    /// The object with this key, without an owned key.
    #[must_use]
    pub fn get_ref(&self, key: KeyRef<'_>) -> Option<Arc<S>> {
        self.state.read().objects.get(&key).cloned()
    }

    /// Every object, as of one moment.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<S>> {
        self.state.read().objects.values().cloned().collect()
    }

    /// Every key, as of one moment.
    #[must_use]
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.state.read().objects.keys().cloned().collect()
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version of the store's content: of the last change, list or bookmark that went in (client-go:
    /// `LastStoreSyncResourceVersion`).
    #[must_use]
    pub fn resource_version(&self) -> ResourceVersion {
        self.state.read().resource_version.clone()
    }

    /// Adds an index; objects that are already here are indexed too.
    ///
    /// `function` gives the values of an object, and must give the same for the same object. If it fails, or
    /// panics, the object is in the store but not in this index, and the failure is counted
    /// ([`Indexer::index_failures`]).
    ///
    /// # Errors
    /// [`Error::Exists`] if there is an index of this name.
    pub fn add_index(
        &self,
        name: impl Into<Arc<str>>,
        function: impl Fn(&S) -> IndexValues + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let _writer = self.writer.lock();
        let mut index = Index::new(name.into(), Arc::new(function));
        let objects = {
            let state = self.state.read();
            if state.index(&index.name).is_some() {
                return Err(Error::Exists { name: index.name });
            }
            state.objects.clone()
        };
        for (key, object) in &objects {
            index.insert(key, object);
        }
        self.state.write().indexes.push(index);
        Ok(())
    }

    /// The objects that have `value` in the index called `name`.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such index.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<S>>, Error> {
        let state = self.state.read();
        let found = state.known_index(name)?.values.get(value);
        Ok(found
            .map(|objects| objects.values().cloned().collect())
            .unwrap_or_default())
    }

    /// The keys of the objects that have `value` in the index called `name`.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such index.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<ObjectKey>, Error> {
        let state = self.state.read();
        let found = state.known_index(name)?.values.get(value);
        Ok(found
            .map(|objects| objects.keys().cloned().collect())
            .unwrap_or_default())
    }

    /// Every value in the index called `name`.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such index.
    pub fn index_values(&self, name: &str) -> Result<Vec<Arc<str>>, Error> {
        let state = self.state.read();
        Ok(state.known_index(name)?.values.keys().cloned().collect())
    }

    /// How often the function of the index called `name` failed for an object, and what it said last.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such index.
    pub fn index_failures(&self, name: &str) -> Result<(u64, Option<String>), Error> {
        let state = self.state.read();
        let index = state.known_index(name)?;
        Ok((index.failures, index.last_failure.clone()))
    }

    /// Names of all indexes.
    #[must_use]
    pub fn index_names(&self) -> Vec<Arc<str>> {
        self.state
            .read()
            .indexes
            .iter()
            .map(|index| Arc::clone(&index.name))
            .collect()
    }

    /// Changes several objects in one step that no reader sees half of.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Transaction<'_, S>) -> R) -> R {
        let _writer = self.writer.lock();
        let mut freed = Vec::new();
        let mut state = self.state.write();
        let result = change(&mut Transaction::new(&mut state, &mut freed));
        drop(state);
        drop(freed);
        result
    }

    /// Replaces everything in one step that no reader sees half of, and tells what changed: first what is
    /// gone, then the rest in the order of the list (client-go: `processReplacedAll`).
    ///
    /// An object whose version did not change keeps its entry and makes no event.
    pub(crate) fn replace(&self, snapshot: Snapshot<S>, initial: bool) -> Vec<Event<S>> {
        let _writer = self.writer.lock();
        // Only this thread writes, so what is read here holds until the swap.
        let (old, functions) = {
            let state = self.state.read();
            (state.objects.clone(), state.empty_indexes())
        };
        let mut objects: Map<ObjectKey, Arc<S>> = Map::with_capacity_and_hasher(
            snapshot.objects.len(),
            foldhash::fast::RandomState::default(),
        );
        // Lists come sorted: neighbours share their namespace.
        let mut namespace: Option<Arc<str>> = None;
        for object in snapshot.objects {
            let (key, entry) = match old.get_key_value(&object.key_ref()) {
                Some((key, known)) if !snapshot.new_epoch && is_same::<S>(known, &object) => {
                    (key.clone(), Arc::clone(known))
                }
                Some((key, _)) => (key.clone(), object),
                None => {
                    let mut key = object.key();
                    if key.namespace == namespace {
                        key.namespace.clone_from(&namespace);
                    }
                    (key, object)
                }
            };
            namespace.clone_from(&key.namespace);
            objects.insert(key, entry);
        }
        for key in snapshot.retained {
            if let Some(known) = old.get(&key) {
                objects.entry(key).or_insert_with(|| Arc::clone(known));
            }
        }
        let events = differences(&old, &objects, initial);
        let mut next = State {
            objects,
            indexes: functions,
            resource_version: snapshot.resource_version,
        };
        next.rebuild_indexes();
        let freed = std::mem::replace(&mut *self.state.write(), next);
        drop(freed);
        events
    }
}

impl<S: Stored> Default for Indexer<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Stored> KnownObjects<S> for Indexer<S> {
    fn known(&self, key: KeyRef<'_>) -> Option<Arc<S>> {
        self.get_ref(key)
    }

    fn known_objects(&self) -> Vec<Arc<S>> {
        self.list()
    }
}

impl<S: Stored> std::fmt::Debug for Indexer<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Indexer")
            .field("objects", &self.len())
            .field("indexes", &self.index_names())
            .field("resource_version", &self.resource_version())
            .finish()
    }
}

/// True if both are the same version of the same object.
pub(crate) fn is_same<S: Stored>(known: &S, object: &S) -> bool {
    std::ptr::eq(known, object)
        || (known.uid() == object.uid()
            && known.resource_version() == object.resource_version()
            && !object.resource_version().is_empty())
}

/// What a handler has to be told when `old` becomes `new` in one step.
fn differences<S: Stored>(
    old: &Map<ObjectKey, Arc<S>>,
    new: &Map<ObjectKey, Arc<S>>,
    initial: bool,
) -> Vec<Event<S>> {
    let gone = old.iter().filter(|(key, known)| {
        new.get(*key)
            .is_none_or(|object| object.uid() != known.uid())
    });
    let mut events: Vec<_> = gone
        .map(|(key, known)| Event::Deleted {
            key: key.clone(),
            last: Some(Arc::clone(known)),
            tombstone: true,
        })
        .collect();
    for (key, object) in new {
        match old.get(key) {
            Some(known) if Arc::ptr_eq(known, object) => {}
            Some(known) if known.uid() == object.uid() => events.push(Event::Updated {
                old: Arc::clone(known),
                new: Arc::clone(object),
                reason: UpdateReason::Relist,
            }),
            _ => events.push(Event::Added {
                object: Arc::clone(object),
                initial,
            }),
        }
    }
    events
}

#[cfg(test)]
mod tests;
