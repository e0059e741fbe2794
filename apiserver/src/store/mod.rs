//! Objects, their one sequence of versions, and the recent past of each resource.
//!
//! Everything written takes the next number of one strictly growing sequence, whatever its resource.
//! Objects are immutable and shared; a write replaces one. Each resource keeps a ring of its latest
//! events, and the ring serves three readers:
//!
//! * a watch reads it by a cursor, so no event can be lost between the store and a socket;
//! * a read at an exact version undoes the events since, so pages of a list agree with each other;
//! * a watch that resumes finds out whether anything it needs is gone already.
//!
//! There is one writer at a time and no waiting inside the lock.

mod object;
mod persist;
mod state;
mod table;

pub(crate) use object::{Key, Object};
pub use persist::PersistError;
pub(crate) use table::{Change, Event};

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use persist::Log;
use state::State;
use table::Table;

/// How much of the past is kept, for each resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// This many events are kept whatever their age. Default 100.
    pub min_events: usize,
    /// No more than this many are kept, however young. Default 102,400.
    pub max_events: usize,
    /// Beyond the minimum, events older than this go. Default 75 seconds.
    pub age: Duration,
}

/// What must hold in the store for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// There is no object of the key.
    Absent,
    /// The object is at this version.
    Version(u64),
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    /// What was expected did not hold: somebody else wrote first.
    #[error("the object changed meanwhile")]
    Raced,
    /// The resource is no longer there.
    #[error("the resource {0} has no table")]
    NoTable(String),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Closed,
    /// The log on disk could not be written; memory is unchanged.
    #[error(transparent)]
    Persist(#[from] PersistError),
}

/// A part of the past that is asked for and gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HistoryError {
    /// Events after `oldest` only are kept.
    #[error("version {asked} is older than {oldest}")]
    TooOld {
        /// What was asked for.
        asked: u64,
        /// The oldest version from which history is whole.
        oldest: u64,
    },
    /// The version lies in the future.
    #[error("version {asked} is above {current}")]
    TooNew {
        /// What was asked for.
        asked: u64,
        /// The current version.
        current: u64,
    },
    /// The resource is no longer there.
    #[error("the resource has no table")]
    NoTable,
}

/// Some objects of a resource as they were at one version.
#[derive(Debug)]
pub(crate) struct Page {
    /// The version they were read at.
    pub(crate) version: u64,
    /// In the order of their keys.
    pub(crate) objects: Vec<Arc<Object>>,
    /// The key to go on after, when more remain.
    pub(crate) last: Option<Key>,
    /// How many more remain, whether the filter accepts them or not.
    pub(crate) remaining: usize,
}

/// Which objects of a resource are wanted.
pub(crate) struct Query<'a> {
    /// Keys that start with this: `namespace/`, or everything.
    pub(crate) prefix: &'a str,
    /// Keys after this one.
    pub(crate) after: Option<&'a str>,
    /// Read as of this version; `None` is now.
    pub(crate) at: Option<u64>,
    /// At most this many; `None` is all.
    pub(crate) limit: Option<usize>,
    /// Only objects that this accepts.
    pub(crate) accept: &'a dyn Fn(&Object) -> bool,
}

/// Work for the background task that finishes deletions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Chore {
    /// The owner of this uid went, or waits for its dependents: look at them.
    Owner(String),
    /// An object that names owners: are they there?
    Dependent(String, Key),
    /// An object that waits on a finalizer of the garbage collector.
    Finalize(String, Key),
    /// A namespace that is new, or terminates and lost something.
    Namespace(String),
    /// A CustomResourceDefinition that terminates, by its storage.
    Definition(String),
}

/// The objects of all resources.
pub(crate) struct Store {
    state: RwLock<State>,
    revision: watch::Sender<u64>,
    chores: Notify,
    history: History,
    step: u64,
}

// === impl History ===

impl Default for History {
    fn default() -> Self {
        Self {
            min_events: 100,
            max_events: 102_400,
            age: Duration::from_secs(75),
        }
    }
}

// === impl Store ===

impl Store {
    /// An empty store. The first write takes version `start + step`.
    pub(crate) fn new(start: u64, step: u64, history: History) -> Self {
        Self {
            state: RwLock::new(State::new(start)),
            revision: watch::Sender::new(start),
            chores: Notify::new(),
            history,
            step: step.max(1),
        }
    }

    /// A store that keeps its objects in `directory`, with what is there already.
    pub(crate) fn open(
        directory: &std::path::Path,
        start: u64,
        step: u64,
        history: History,
    ) -> Result<Self, PersistError> {
        let (log, found) = Log::open(directory)?;
        let store = Self::new(start.max(found.revision), step, history);
        {
            let mut state = store.state.write();
            let revision = state.revision;
            for (storage, objects) in found.tables {
                let mut table = Table::new(revision);
                for (key, value) in objects {
                    let object = Arc::new(Object::stored(value));
                    state.note(&storage, &key, None, Some(&object));
                    table.objects.insert(key, object);
                }
                state.tables.insert(storage, table);
            }
            state.log = Some(log);
        }
        Ok(store)
    }

    /// Makes room for a resource; does nothing when it is there.
    pub(crate) fn create_table(&self, storage: &str) {
        let mut state = self.state.write();
        let revision = state.revision;
        state.retired.remove(storage);
        state
            .tables
            .entry(storage.to_owned())
            .or_insert_with(|| Table::new(revision));
    }

    /// Forgets a resource. Its watches see what happened up to here, then end.
    pub(crate) fn drop_table(&self, storage: &str) {
        let mut state = self.state.write();
        if let Some(table) = state.tables.remove(storage) {
            table.signal.send_replace(state.revision);
            state.retired.insert(storage.to_owned(), table);
        }
    }

    /// The newest version.
    pub(crate) fn revision(&self) -> u64 {
        *self.revision.borrow()
    }

    /// Follows the newest version.
    pub(crate) fn follow_revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Waits for work for the background task, and takes all of it.
    pub(crate) async fn next_chores(&self) -> Vec<Chore> {
        loop {
            let waiting = self.chores.notified();
            let taken = self.take_chores();
            if !taken.is_empty() {
                return taken;
            }
            waiting.await;
        }
    }

    /// The work there is for the background task, without waiting.
    pub(crate) fn take_chores(&self) -> Vec<Chore> {
        let taken = std::mem::take(&mut self.state.write().chores);
        taken.into_iter().collect()
    }

    /// Adds work for the background task.
    pub(crate) fn add_chore(&self, chore: Chore) {
        self.state.write().chores.insert(chore);
        self.chores.notify_one();
    }

    /// The object of `key`.
    pub(crate) fn get(&self, storage: &str, key: &str) -> Option<Arc<Object>> {
        self.state
            .read()
            .tables
            .get(storage)?
            .objects
            .get(key)
            .cloned()
    }

    /// The object of `key` as it was at `version`.
    pub(crate) fn get_at(
        &self,
        storage: &str,
        key: &str,
        version: u64,
    ) -> Result<Option<Arc<Object>>, HistoryError> {
        let state = self.state.read();
        let table = state.tables.get(storage).ok_or(HistoryError::NoTable)?;
        if version > state.revision {
            return Err(HistoryError::TooNew {
                asked: version,
                current: state.revision,
            });
        }
        let undone = table.undo_to(version, key)?;
        Ok(match undone.get(key) {
            Some(then) => then.clone(),
            None => table.objects.get(key).cloned(),
        })
    }

    /// Every object of a resource whose key starts with `prefix`, with the version read at.
    pub(crate) fn list(&self, storage: &str, prefix: &str) -> (u64, Vec<Arc<Object>>) {
        let query = Query {
            prefix,
            after: None,
            at: None,
            limit: None,
            accept: &|_| true,
        };
        match self.page(storage, &query) {
            Ok(page) => (page.version, page.objects),
            Err(_) => (self.revision(), Vec::new()),
        }
    }

    /// How many objects a resource has.
    pub(crate) fn count(&self, storage: &str) -> usize {
        let state = self.state.read();
        state
            .tables
            .get(storage)
            .map_or(0, |table| table.objects.len())
    }

    /// The objects that `query` asks for.
    pub(crate) fn page(&self, storage: &str, query: &Query<'_>) -> Result<Page, HistoryError> {
        let state = self.state.read();
        let table = state.tables.get(storage).ok_or(HistoryError::NoTable)?;
        let version = query.at.unwrap_or(state.revision);
        if version > state.revision {
            return Err(HistoryError::TooNew {
                asked: version,
                current: state.revision,
            });
        }
        table.page(version, query)
    }

    /// Writes `value`, or removes the object when it is `None`, if `expected` holds.
    ///
    /// Returns the object as stored; after a removal, the last state with the removal's version.
    pub(crate) fn commit(
        &self,
        storage: &str,
        key: &str,
        expected: Expected,
        value: Option<Value>,
    ) -> Result<Arc<Object>, CommitError> {
        let mut guard = self.state.write();
        let state = &mut *guard;
        if state.closed {
            return Err(CommitError::Closed);
        }
        let table = state
            .tables
            .get_mut(storage)
            .ok_or_else(|| CommitError::NoTable(storage.to_owned()))?;
        let previous = table.objects.get(key).cloned();
        let holds = match (&previous, expected) {
            (None, Expected::Absent) => value.is_some(),
            (Some(object), Expected::Version(version)) => object.version() == version,
            _ => false,
        };
        if !holds {
            return Err(CommitError::Raced);
        }
        let version = state.revision.saturating_add(self.step);
        let (change, object) = match (value, &previous) {
            (Some(value), None) => (Change::Added, Arc::new(Object::new(value, version))),
            (Some(value), Some(_)) => (Change::Modified, Arc::new(Object::new(value, version))),
            (None, Some(previous)) => (Change::Deleted, Arc::new(previous.at_version(version))),
            (None, None) => return Err(CommitError::Raced),
        };
        let key = Key::from(key);
        let stays = (change != Change::Deleted).then_some(&object);
        if let Some(log) = &mut state.log {
            log.append(version, storage, &key, stays.map(|object| object.value()))?;
        }
        let table = state
            .tables
            .get_mut(storage)
            .ok_or_else(|| CommitError::NoTable(storage.to_owned()))?;
        table.record(
            Event {
                version,
                at: Instant::now(),
                key: key.clone(),
                change,
                object: object.clone(),
                previous: previous.clone(),
            },
            &self.history,
        );
        state.revision = version;
        state.note(
            storage,
            &key,
            previous.as_deref(),
            stays.map(|object| &**object),
        );
        if state.log.as_ref().is_some_and(Log::wants_snapshot) {
            state.snapshot();
        }
        let chores = !state.chores.is_empty();
        let signal = state.tables.get(storage).map(|table| table.signal.clone());
        drop(guard);
        self.revision.send_replace(version);
        if let Some(signal) = signal {
            signal.send_replace(version);
        }
        if chores {
            self.chores.notify_one();
        }
        Ok(object)
    }

    /// Follows a resource: the receiver changes with each of its events, and fails when it goes.
    pub(crate) fn follow(&self, storage: &str) -> Option<watch::Receiver<u64>> {
        let state = self.state.read();
        state
            .tables
            .get(storage)
            .map(|table| table.signal.subscribe())
    }

    /// At most `limit` events after `cursor`, with the version up to which nothing else happened.
    pub(crate) fn events_after(
        &self,
        storage: &str,
        cursor: u64,
        limit: usize,
    ) -> Result<(Vec<Event>, u64), HistoryError> {
        let state = self.state.read();
        let Some(table) = state.tables.get(storage) else {
            let last = state.retired.get(storage).ok_or(HistoryError::NoTable)?;
            let events = last.events_after(cursor, limit)?;
            let seen = events.last().ok_or(HistoryError::NoTable)?.version;
            return Ok((events, seen));
        };
        let events = table.events_after(cursor, limit)?;
        let whole = events.len() < limit;
        let seen = match events.last() {
            Some(last) if !whole => last.version,
            _ => state.revision.max(cursor),
        };
        Ok((events, seen))
    }

    /// The version of the last event of `storage`.
    pub(crate) fn last_change(&self, storage: &str) -> u64 {
        let state = self.state.read();
        state
            .tables
            .get(storage)
            .map_or(0, |table| *table.signal.borrow())
    }

    /// The oldest version from which a watch of `storage` can start.
    #[cfg(test)]
    fn oldest(&self, storage: &str) -> Option<u64> {
        let state = self.state.read();
        state.tables.get(storage).map(|table| table.oldest)
    }

    /// Forgets events up to and including `version`, of every resource.
    pub(crate) fn compact(&self, version: u64) {
        let mut state = self.state.write();
        let version = version.min(state.revision);
        for table in state.tables.values_mut() {
            table.compact(version);
        }
    }

    /// Names of the resources that have a table.
    pub(crate) fn storages(&self) -> Vec<String> {
        let mut names: Vec<String> = self.state.read().tables.keys().cloned().collect();
        names.sort();
        names
    }

    /// The objects that name `uid` as an owner.
    pub(crate) fn owned_by(&self, uid: &str) -> Vec<(String, Key)> {
        let state = self.state.read();
        state
            .owned
            .get(uid)
            .map(|owned| owned.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// The object of this uid, if it waits for its dependents.
    pub(crate) fn waiting_owner(&self, uid: &str) -> Option<(String, Key)> {
        self.state.read().waiting.get(uid).cloned()
    }

    /// Says whether removals in `namespace` wake the background task.
    pub(crate) fn set_terminating(&self, namespace: &str, terminating: bool) {
        let mut state = self.state.write();
        if terminating {
            state.terminating.insert(namespace.to_owned());
        } else {
            state.terminating.remove(namespace);
        }
    }

    /// Says whether removals in `storage` wake the background task.
    pub(crate) fn set_ending(&self, storage: &str, ending: bool) {
        let mut state = self.state.write();
        if ending {
            state.ending.insert(storage.to_owned());
        } else {
            state.ending.remove(storage);
        }
    }

    /// Writes what is in memory to disk, in full and synced. Does nothing without a directory.
    #[cfg(test)]
    fn flush(&self) -> Result<(), PersistError> {
        self.state.write().snapshot_now()
    }

    /// Whether writes are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.read().closed
    }

    /// Writes what is in memory to disk and lets go of the directory. Later writes are refused.
    pub(crate) fn close(&self) -> Result<(), PersistError> {
        let mut state = self.state.write();
        let result = state.snapshot_now();
        state.closed = true;
        state.log = None;
        result
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
