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
//! What may be asked for and what is kept are two things: a compaction forbids reads of the past, and leaves to
//! watches what they resume from, as a real server's watch caches do.
//!
//! There is one writer at a time and no waiting inside the lock.

mod chores;
mod object;
mod persist;
mod read;
mod state;
mod table;
mod upkeep;
mod write;

pub(crate) use chores::Chore;
pub(crate) use object::{Key, Object};
pub use persist::PersistError;
pub(crate) use read::{HistoryError, Page, Query};
pub(crate) use table::{Change, Event};
pub(crate) use write::{CommitError, Expected};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::{Notify, watch};

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
    /// About so many bytes are kept beside the objects, however few events that are. Default 64 MiB.
    pub max_bytes: usize,
    /// Beyond the minimum, events older than this go, whether more are written or not. Default 75 seconds.
    pub age: Duration,
}

/// The objects of all resources.
pub(crate) struct Store {
    state: RwLock<State>,
    revision: watch::Sender<u64>,
    chores: Notify,
    history: History,
    event_ttl: Option<Duration>,
    step: u64,
    /// Writes that the disk refused.
    failures: AtomicU64,
}

// === impl History ===

impl Default for History {
    fn default() -> Self {
        Self {
            min_events: 100,
            max_events: 102_400,
            max_bytes: 64 * 1024 * 1024,
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
            event_ttl: None,
            step: step.max(1),
            failures: AtomicU64::new(0),
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
        let store = Self::new(start.max(found.revision).max(found.reserved), step, history);
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
        self.retire(&mut state, storage);
    }

    /// Lets no object be added to a resource any more, if it has none; whether that holds now.
    pub(crate) fn seal(&self, storage: &str) -> bool {
        let mut state = self.state.write();
        let Some(table) = state.tables.get_mut(storage) else {
            return true;
        };
        table.sealed |= table.objects.is_empty();
        table.sealed
    }

    /// The newest version.
    pub(crate) fn revision(&self) -> u64 {
        *self.revision.borrow()
    }

    /// Follows the newest version.
    pub(crate) fn follow_revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// The oldest version from which a watch of `storage` can start.
    #[cfg(test)]
    fn oldest(&self, storage: &str) -> Option<u64> {
        let state = self.state.read();
        state.tables.get(storage).map(|table| table.oldest)
    }

    /// Refuses reads at versions up to `version` from now on. Events stay, and watches resume.
    pub(crate) fn compact(&self, version: u64) {
        let mut state = self.state.write();
        let version = version.min(state.revision);
        for table in state.tables.values_mut() {
            table.compact(version);
        }
    }

    /// Forgets events up to and including `version`, of every resource. Watches that saw them go on.
    pub(crate) fn forget(&self, version: u64) {
        let mut state = self.state.write();
        let version = version.min(state.revision);
        for table in state.tables.values_mut() {
            table.forget(version);
        }
    }

    /// Names of the resources that have a table.
    pub(crate) fn storages(&self) -> Vec<String> {
        let mut names: Vec<String> = self.state.read().tables.keys().cloned().collect();
        names.sort();
        names
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

    /// How many writes the disk refused so far.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Makes the writes from now on fail as on a full disk, or succeed again.
    #[cfg(test)]
    pub(crate) fn break_disk(&self, broken: bool) {
        self.state.write().broken = broken;
    }

    /// Writes what is in memory to disk and lets go of the directory. Later writes are refused.
    pub(crate) fn close(&self) -> Result<(), PersistError> {
        self.state.write().close()
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
