//! The store: objects by key, in the order of their keys, and by the values of named indexes.
//!
//! Readers share a lock that writers hold for a batch of changes at most, and for swapping in a state that was built
//! beside the old one; what a change frees is dropped after the lock is released. Whoever walks many objects
//! does it on a [`StoreSnapshot`], which takes the lock for a moment only. A list costs one reference count an
//! object, no copies.
//!
//! Beside the objects the store keeps 30 to 40 bytes for each, and its name: a pointer, its key, its place in the
//! hash table, and four bytes for each index that it is in, that of its namespace included.

mod index;
mod keys;
mod objects;
mod ordered;
mod replace;
mod snapshot;
mod state;
mod transaction;

pub use index::{Error, IndexFunction, IndexValues, NAMESPACE_INDEX};
pub(crate) use replace::is_same;
pub use snapshot::StoreSnapshot;
pub(crate) use state::OTHERS;
pub use state::StoreBytes;
pub(crate) use transaction::{Change, Transaction};

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::entry::Stored;
use crate::event::Event;
use crate::fifo::KnownObjects;
use crate::key::{KeyRef, ObjectKey};
use crate::version::ResourceVersion;
use index::Index;
use ordered::Ordered;
use state::State;

/// Lists of up to so many objects are made under the lock: writers wait for microseconds, and need not copy
/// what they change, as they would while a snapshot is held.
const SHORT: usize = 4096;

/// Objects by key, with named indexes.
///
/// An index by namespace is always there, under [`NAMESPACE_INDEX`]. Lists come in the order of the keys: by
/// namespace, cluster-scoped objects first, then by name.
///
/// This is client-go's `Indexer` for reading. `Add`, `Update`, `Delete`, `Replace`, `Resync` and `Transaction`
/// have no counterpart on purpose: only the informer writes, so that the store equals what the server said; own
/// writes that the server has not told of yet belong into a [`MutationCache`](crate::MutationCache).
/// `GetIndexers` is [`Indexer::index_names`]; the functions stay inside.
pub struct Indexer<S> {
    state: RwLock<Arc<State<S>>>,
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
            state: RwLock::new(Arc::new(State::new())),
            writer: Mutex::new(()),
        }
    }

    /// The object with this key (client-go: `GetByKey`).
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<S>> {
        self.get_ref(key.as_ref())
    }

    /// The object with this key, without an owned key. With [`Stored::key_ref`] of an object it gives what is
    /// held of that object now (client-go: `Get`).
    #[must_use]
    pub fn get_ref(&self, key: KeyRef<'_>) -> Option<Arc<S>> {
        self.state.read().get(key).cloned()
    }

    /// Every object, as of one moment (client-go: `List`).
    #[must_use]
    pub fn list(&self) -> Vec<Arc<S>> {
        self.read(State::len, |state| state.iter().cloned().collect())
    }

    /// Every key, as of one moment (client-go: `ListKeys`).
    #[must_use]
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.read(State::len, |state| state.keys().collect())
    }

    /// At most `limit` objects of one namespace, or of all, whose keys come after `after`. With the last key of
    /// one page as `after` of the next, everything is read without being held at once.
    ///
    /// Each page is as of its own moment: what comes or goes meanwhile is seen or not, and nothing else is
    /// missed or comes twice. For one moment, take [`Indexer::snapshot`] and its
    /// [`range`](StoreSnapshot::range). A page costs its size, and the logarithm of the whole.
    #[must_use]
    pub fn list_range(
        &self,
        namespace: Option<&str>,
        after: Option<KeyRef<'_>>,
        limit: usize,
    ) -> Vec<Arc<S>> {
        self.read(
            |state| state.len().min(limit),
            |state| state.range(namespace, after).take(limit).cloned().collect(),
        )
    }

    /// The store as of now, unchanging.
    #[must_use]
    pub fn snapshot(&self) -> StoreSnapshot<S> {
        StoreSnapshot(Arc::clone(&self.state.read()))
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.read().len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much memory the store takes. It walks the indexes' values, so ask as often as for metrics.
    #[must_use]
    pub fn bytes(&self) -> StoreBytes {
        self.snapshot().0.bytes()
    }

    /// The version of the store's content: of the last change, list or bookmark that went in (client-go:
    /// `LastStoreSyncResourceVersion`).
    #[must_use]
    pub fn resource_version(&self) -> ResourceVersion {
        self.state.read().resource_version.clone()
    }

    /// Adds an index; objects that are already here are indexed too (client-go: `AddIndexers`).
    ///
    /// `function` gives the values of an object, and must give the same for the same object. If it fails, or
    /// panics, the object is in the store but not in this index, and the failure is counted
    /// ([`Indexer::index_failures`]). It is asked while the store is locked (as in client-go): one that reads the same
    /// store, through a lister too, waits for itself for ever.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is an index of this name.
    pub fn add_index(
        &self,
        name: impl Into<Arc<str>>,
        function: impl Fn(&S) -> IndexValues + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.add(Index::new(name.into(), Arc::new(function)))
    }

    /// Adds an index of the values of a label, called `label:` and the label's name. Label selectors with `=`
    /// or `in` on this label look at the objects that it finds, not at all of them.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is an index of this name.
    pub fn add_label_index(&self, label: impl Into<Arc<str>>) -> Result<(), Error> {
        let label = label.into();
        self.add(Index::of_label(Arc::from(format!("label:{label}")), label))
    }

    fn add(&self, index: Index<S>) -> Result<(), Error> {
        // Only this thread writes, so what is read here holds until the index is in.
        let _writer = self.writer.lock();
        let state = self.snapshot().0;
        if state.known_index(&index.name).is_ok() {
            return Err(Error::Exists { name: index.name });
        }
        let objects = state
            .slots()
            .filter_map(|slot| Some((slot, &**state.objects.get(slot)?)));
        let index = Arc::new(index.rebuilt(objects));
        drop(state);
        Arc::make_mut(&mut *self.state.write()).indexes.push(index);
        Ok(())
    }

    /// The objects that share a value with `object` in the index called `name`; `object` itself need not be
    /// here (client-go: `Index`).
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such index, [`Error::Function`] if its function fails for `object`.
    pub fn index(&self, name: &str, object: &S) -> Result<Vec<Arc<S>>, Error> {
        self.snapshot().0.index_of(name, object)
    }

    /// The objects that have `value` in the index called `name` (client-go: `ByIndex`).
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such index.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<S>>, Error> {
        self.read_part(name, value, |_, objects| objects.cloned().collect())
    }

    /// The keys of the objects that have `value` in the index called `name` (client-go: `IndexKeys`).
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such index.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<ObjectKey>, Error> {
        self.read_part(name, value, |state, objects| {
            objects
                .map(|object| state.key_of(object.key_ref()))
                .collect()
        })
    }

    /// Every value in the index called `name`, in order (client-go: `ListIndexFuncValues`).
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such index.
    pub fn index_values(&self, name: &str) -> Result<Vec<Arc<str>>, Error> {
        let state = self.snapshot().0;
        let Some(index) = state.known_index(name)? else {
            return Ok(state.namespaces.keys().cloned().collect());
        };
        let mut values: Vec<_> = index.values().cloned().collect();
        values.sort_unstable();
        Ok(values)
    }

    /// How often the function of the index called `name` failed for an object, and what it said last.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such index.
    pub fn index_failures(&self, name: &str) -> Result<(u64, Option<String>), Error> {
        let state = self.state.read();
        let failed = |index: &Index<S>| (index.failures, index.last_failure.clone());
        Ok(state.known_index(name)?.map(failed).unwrap_or_default())
    }

    /// Names of all indexes.
    #[must_use]
    pub fn index_names(&self) -> Vec<Arc<str>> {
        self.state.read().index_names()
    }

    /// Reads the objects that have `value` in the index called `name`.
    fn read_part<R: Default>(
        &self,
        name: &str,
        value: &str,
        read: impl FnOnce(&State<S>, &mut dyn Iterator<Item = &Arc<S>>) -> R,
    ) -> Result<R, Error> {
        self.read(
            |state| {
                state
                    .part(name, value)
                    .ok()
                    .flatten()
                    .map_or(0, Ordered::len)
            },
            |state| {
                let part = state.part(name, value)?;
                Ok(part
                    .map(|part| read(state, &mut state.at(part.iter())))
                    .unwrap_or_default())
            },
        )
    }

    /// Reads `size` objects: under the lock if they are few, else from a snapshot.
    fn read<R>(&self, size: impl Fn(&State<S>) -> usize, read: impl FnOnce(&State<S>) -> R) -> R {
        let state = self.state.read();
        if size(&state) <= SHORT {
            return read(&state);
        }
        let snapshot = Arc::clone(&state);
        drop(state);
        read(&snapshot)
    }

    /// Changes several objects in one step that no reader sees half of.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Transaction<'_, S>) -> R) -> R {
        let _writer = self.writer.lock();
        let mut freed = Vec::new();
        let mut state = self.state.write();
        let result = change(&mut Transaction::new(Arc::make_mut(&mut state), &mut freed));
        drop(state);
        drop(freed);
        result
    }

    /// Replaces everything in one step that no reader sees half of, and tells what changed: first what is
    /// gone, then the rest in the order of the list (client-go: `processReplacedAll`).
    ///
    /// An object whose version did not change keeps its entry and makes no event.
    pub(crate) fn replace(&self, snapshot: Snapshot<S>, initial: bool) -> Vec<Event<S>> {
        // Only this thread writes, so what is read here holds until the swap.
        let _writer = self.writer.lock();
        let old = self.snapshot().0;
        let (next, events) = replace::replace(&old, snapshot, initial);
        let freed = std::mem::replace(&mut *self.state.write(), Arc::new(next));
        drop((old, freed));
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

#[cfg(test)]
mod tests;
