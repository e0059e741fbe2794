//! The store: [`Indexer`].

use std::sync::Arc;

use parking_lot::Mutex;

use super::bytes::StoreBytes;
use super::index::{Error, Index, IndexValues};
use super::ordered::Ordered;
use super::replace::Replacement;
use super::replaced::{Freed, Replaced};
use super::sharded::Sharded;
use super::snapshot::StoreSnapshot;
use super::state::State;
use super::transaction::{Former, Transaction};
#[cfg(test)]
use crate::event::Event;
use crate::fifo::{KnownObjects, Snapshot};
use crate::object::{Spares, Stored};
use crate::turns::{PIECE, Turns, at_once};
use reeve_client::ResourceVersion;
use reeve_client::{KeyRef, ObjectKey};

/// Lists of up to this many objects are made under the lock: writers wait for microseconds, and need not copy what they
/// change, as they would while a snapshot is held.
const LISTED_UNDER_LOCK: usize = 4096;

/// The most rounds in which an index that is added in turns follows the changes of the store.
const ROUNDS: usize = 16;

/// Objects by key, with named indexes.
///
/// An index by namespace is always there, under [`NAMESPACE_INDEX`](super::NAMESPACE_INDEX). Lists come in the order of
/// the keys: by namespace, cluster-scoped objects first, then by name.
///
/// This is client-go's `Indexer` for reading. `Add`, `Update`, `Delete`, `Replace`, `Resync` and `Transaction` have no
/// counterpart on purpose: only the informer writes, so that the store equals the server's state; own writes that no
/// watch has brought yet belong into a [`MutationCache`](crate::MutationCache). `GetIndexers` is
/// [`Indexer::index_names`]; the functions are not returned.
pub struct Indexer<S: ?Sized> {
    state: Sharded<State<S>>,
    /// Held through a whole change, so that a state can be built beside the one that is read.
    pub(super) writer: Mutex<()>,
    spares: Arc<Spares<S>>,
}

// === impl Indexer ===

impl<S: Stored + ?Sized> Indexer<S> {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: Sharded::new(State::new()),
            writer: Mutex::new(()),
            spares: Arc::default(),
        }
    }

    /// The object with this key (client-go: `GetByKey`).
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<S>> {
        self.get_ref(key.as_ref())
    }

    /// The object with this key, without an owned key. With [`Stored::key_ref`] of an object it returns the present
    /// state of that object (client-go: `Get`).
    #[must_use]
    pub fn get_ref(&self, key: KeyRef<'_>) -> Option<Arc<S>> {
        self.state.read().get(key).cloned()
    }

    /// Calls `read` with the object with this key, without a copy of its `Arc`, and returns the result; `None` if there is no
    /// such object. See [`Lister::with`](crate::Lister::with).
    ///
    /// # Panics
    /// If `read` adds or removes an index of this store, or of any within a second such call.
    pub fn with<R>(&self, key: KeyRef<'_>, read: impl FnOnce(&Arc<S>) -> R) -> Option<R> {
        self.state.lend(|state| state.get(key).map(read))
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

    /// At most `limit` objects of one namespace, or of all, whose keys come after `after`. With the last key of one
    /// page as `after` of the next, all objects are read without being held at once.
    ///
    /// Each page is as of its own moment: an object that is added or deleted meanwhile may be seen or not, and no other
    /// is missed or comes twice. For one moment, use [`Indexer::snapshot`] and its [`range`](StoreSnapshot::range). A
    /// page costs its size, and the logarithm of the whole.
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
        StoreSnapshot(self.state.snapshot())
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.read().len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory of the store. This walks the indexes' values, so call it as often as metrics are read.
    #[must_use]
    pub fn bytes(&self) -> StoreBytes {
        self.snapshot().0.bytes()
    }

    /// The version of the store's content: that of the last change, list or bookmark (client-go:
    /// `LastStoreSyncResourceVersion`).
    #[must_use]
    pub fn resource_version(&self) -> ResourceVersion {
        self.state.read().resource_version.clone()
    }

    /// Adds an index; objects that are already here are indexed too (client-go: `AddIndexers`).
    ///
    /// `function` returns the values of an object, and must return the same for the same object. If it fails, or
    /// panics, the object is in the store but not in this index, and the failure is counted
    /// ([`Indexer::index_failures`]). It is called while the store is locked (as in client-go): a function that reads
    /// a store, this one or another, through a lister too, can deadlock.
    ///
    /// All objects are indexed before this returns: about a microsecond for each. In a store of thousands, use
    /// [`Indexer::add_index_in_turns`], or add the index before the informer runs.
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

    /// Adds an index of the values of a label, called `label:` and the label's name. Label selectors with `=` or `in`
    /// on this label check only the objects that the index finds.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is an index of this name.
    pub fn add_label_index(&self, label: impl Into<Arc<str>>) -> Result<(), Error> {
        let label = label.into();
        self.add(Index::of_label(label_index_name(&label), label))
    }

    /// Before a lock under which the store is changed.
    ///
    /// # Panics
    /// If this thread is within [`Indexer::with`] of this store, or of any within a second such call.
    pub(crate) fn check_not_lent(&self) {
        self.state.check_not_lent();
    }

    /// Removes an index that [`Indexer::add_index`] added, and returns whether there was one. Its name is free then, for the
    /// same function or another. client-go has no counterpart: its indexes stay.
    ///
    /// Reads of the index end with [`Error::Unknown`] from then on; a [`StoreSnapshot`] from before still has it. The index by
    /// namespace stays: for [`NAMESPACE_INDEX`](super::NAMESPACE_INDEX) the result is `false`.
    pub fn remove_index(&self, name: &str) -> bool {
        self.state.check_not_lent();
        let writer = self.writer.lock();
        let removed = self.state.write(|state| {
            let found = state.indexes.iter().position(|index| &*index.name == name);
            found.map(|at| Arc::make_mut(state).indexes.remove(at))
        });
        // The function and the values are freed after the lock.
        drop(writer);
        removed.is_some()
    }

    /// Removes an index that [`Indexer::add_label_index`] added, and returns whether there was one. Selectors with this label
    /// check more objects then, and find the same.
    pub fn remove_label_index(&self, label: &str) -> bool {
        self.remove_index(&label_index_name(label))
    }

    /// As [`Indexer::add_index`], in turns: other tasks run while the objects that are already here are indexed. The index
    /// is there, and complete, once this returns. Dropping the future adds nothing.
    ///
    /// # Errors
    /// [`Error::Exists`] if there is an index of this name.
    pub async fn add_index_in_turns(
        &self,
        name: impl Into<Arc<str>>,
        function: impl Fn(&S) -> IndexValues + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.add_in_turns(Index::new(name.into(), Arc::new(function)))
            .await
    }

    /// As [`Indexer::add_label_index`], in turns. See [`Indexer::add_index_in_turns`].
    ///
    /// # Errors
    /// [`Error::Exists`] if there is an index of this name.
    pub async fn add_label_index_in_turns(&self, label: impl Into<Arc<str>>) -> Result<(), Error> {
        let label = label.into();
        let index = Index::of_label(label_index_name(&label), label);
        self.add_in_turns(index).await
    }

    fn add(&self, index: Index<S>) -> Result<(), Error> {
        // Only this thread writes, so what is read here holds until the index is in.
        self.state.check_not_lent();
        let _writer = self.writer.lock();
        let state = self.snapshot().0;
        check_free(&state, &index)?;
        let index = at_once(index.rebuilt(state.new_entries(), &mut Turns::endless()));
        drop(state);
        self.push(Arc::new(index));
        Ok(())
    }

    async fn add_in_turns(&self, index: Index<S>) -> Result<(), Error> {
        let mut turns = Turns::new();
        let mut state = self.snapshot().0;
        check_free(&state, &index)?;
        let mut index = Arc::new(index.rebuilt(state.new_entries(), &mut turns).await);
        // Each round indexes what changed during the one before, so the rounds become shorter.
        for _ in 0..ROUNDS {
            let now = self.snapshot().0;
            let changes = Index::follow(&mut index, &state, &now, &mut turns).await;
            Freed::new(std::mem::replace(&mut state, now)).free();
            if changes <= PIECE {
                break;
            }
        }
        self.state.check_not_lent();
        let writer = self.writer.lock();
        let now = self.snapshot().0;
        check_free(&now, &index)?;
        at_once(Index::follow(
            &mut index,
            &state,
            &now,
            &mut Turns::endless(),
        ));
        drop(now);
        self.push(index);
        drop(writer);
        Freed::new(state).free();
        Ok(())
    }

    /// Adds an index of the present objects. The caller holds the writer's lock.
    fn push(&self, index: Arc<Index<S>>) {
        self.state
            .write(|state| Arc::make_mut(state).indexes.push(index));
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
            return Ok(state.namespaces.names());
        };
        let mut values: Vec<_> = index.values().cloned().collect();
        values.sort_unstable();
        Ok(values)
    }

    /// The number of failures of the function of the index called `name`, and its last error.
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
        if size(&state) <= LISTED_UNDER_LOCK {
            return read(&state);
        }
        let snapshot = Arc::clone(&state);
        drop(state);
        read(&snapshot)
    }

    /// Changes several objects in one step that no reader sees half of.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Transaction<'_, S>) -> R) -> R {
        self.change_and_free(change).0
    }

    /// The same, and the entries that are to be dropped, for a caller that has another lock.
    pub(crate) fn change_and_free<R>(
        &self,
        change: impl FnOnce(&mut Transaction<'_, S>) -> R,
    ) -> (R, Vec<Arc<S>>) {
        // Dropped after the lock: the drop of an object may change an index.
        let mut former = Former::default();
        let writer = self.writer.lock();
        let changed = self
            .state
            .write(|state| change(&mut Transaction::new(Arc::make_mut(state), &mut former)));
        drop(writer);
        let dropped = self.spares.give(std::mem::take(&mut former.gone));
        (changed, dropped)
    }

    /// Entries that the store had, to be read over.
    pub(crate) fn spares(&self) -> &Arc<Spares<S>> {
        &self.spares
    }

    /// Builds the state in which `snapshot` takes the place of the namespaces that `replaces` accepts. The caller prevents other changes of the objects until [`Indexer::swap`]; indexes may be added and removed.
    pub(crate) async fn replacement(
        &self,
        snapshot: Snapshot<S>,
        initial: bool,
        replaces: impl Fn(Option<&str>) -> bool,
        turns: &mut Turns,
    ) -> Replacement<S> {
        Replacement::of(self.snapshot().0, snapshot, initial, replaces, turns).await
    }

    /// Has a replacement take place, and `settle` change versions, in one step that no reader sees half of. Returned
    /// unchanged if it has to [follow](Replacement::follow) a change of the indexes first.
    pub(crate) fn swap(
        &self,
        replacement: Replacement<S>,
        settle: impl FnOnce(&mut Transaction<'_, S>),
    ) -> Result<Replaced<S>, Box<Replacement<S>>> {
        let _writer = self.writer.lock();
        self.state.write(|state| {
            let replaced = replacement.swap(state)?;
            settle(&mut Transaction::new(
                Arc::make_mut(state),
                &mut Former::default(),
            ));
            Ok(replaced)
        })
    }

    /// Replaces everything, and returns what changed: first what is gone, then the rest in the order of the list.
    #[cfg(test)]
    pub(crate) fn replace(&self, snapshot: Snapshot<S>, initial: bool) -> Vec<Event<S>> {
        let mut turns = Turns::endless();
        let replacement = at_once(self.replacement(snapshot, initial, |_| true, &mut turns));
        let replaced = self.swap(replacement, |_| {}).ok();
        replaced
            .expect("no index was added")
            .into_parts()
            .0
            .collect()
    }
}

fn check_free<S: Stored + ?Sized>(state: &State<S>, index: &Index<S>) -> Result<(), Error> {
    let name = &index.name;
    match state.known_index(name) {
        Ok(_) => Err(Error::Exists { name: name.clone() }),
        Err(_) => Ok(()),
    }
}

/// The name of the index of a label.
fn label_index_name(label: &str) -> Arc<str> {
    format!("label:{label}").into()
}

impl<S: Stored + ?Sized> Default for Indexer<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Stored + ?Sized> KnownObjects<S> for Indexer<S> {
    fn known(&self, key: KeyRef<'_>) -> Option<Arc<S>> {
        self.get_ref(key)
    }

    fn known_objects(&self) -> Vec<Arc<S>> {
        self.list()
    }
}

impl<S: Stored + ?Sized> std::fmt::Debug for Indexer<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Indexer")
            .field("objects", &self.len())
            .field("indexes", &self.index_names())
            .field("resource_version", &self.resource_version())
            .finish()
    }
}
