//! The store itself: its state behind one lock, and the signals of its changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use super::epoch::{Decision, Restores};
use super::history::History;
use super::object::Object;
use super::persist::{Directory, FormerVersion, Log, PersistError};
use super::sequencer::Queue;
use super::state::{EVENTS, State};
use super::table::Table;

/// The objects of all resources. Clones share them.
#[derive(Clone)]
pub(crate) struct Store(pub(super) Arc<Shared>);

/// What the clones of a store share.
pub(crate) struct Shared {
    pub(super) queue: Queue,
    /// The log on disk, if there is one. Its lock is that of writers, and is taken before that of the state.
    pub(super) log: Mutex<Option<Log>>,
    pub(super) state: RwLock<State>,
    pub(super) revision: watch::Sender<u64>,
    pub(super) chores: Notify,
    /// It changes under the lock of the log.
    pub(super) restores: watch::Sender<Restores>,
    pub(super) history: History,
    pub(super) event_ttl: Option<Duration>,
    pub(super) step: u64,
    /// Whether writes are synced before they are answered.
    pub(super) synced: bool,
    /// Number of writes that the disk refused.
    pub(super) failures: AtomicU64,
}

/// The objects of a store at one time, without their history.
pub(crate) struct Copy(pub(super) State);

// === impl Copy ===

impl Copy {
    /// The version of the last write.
    pub(crate) fn revision(&self) -> u64 {
        self.0.revision
    }
}

// === impl Store ===

impl Store {
    /// An empty store. The first write takes version `start + step`.
    pub(crate) fn new(start: u64, step: u64, history: History) -> Self {
        Self(Arc::new(Shared {
            queue: Queue::default(),
            log: Mutex::default(),
            state: RwLock::new(State::new(start)),
            revision: watch::Sender::new(start),
            chores: Notify::new(),
            restores: watch::Sender::default(),
            history,
            event_ttl: None,
            step: step.max(1),
            synced: false,
            failures: AtomicU64::new(0),
        }))
    }

    /// A store that keeps its objects in `directory`, with the existing ones.
    ///
    /// A directory of an older format is migrated. Objects of a storage get the `apiVersion` that `former` finds if the
    /// format had none.
    pub(crate) fn open(
        directory: &std::path::Path,
        start: u64,
        step: u64,
        history: History,
        former: FormerVersion<'_>,
    ) -> Result<Self, PersistError> {
        let (directory, mut found) = Directory::open(directory)?;
        if directory.is_old() {
            found.set_versions(former);
        }
        let store = Self::new(start.max(found.revision).max(found.reserved), step, history);
        {
            let mut state = store.state.write();
            let revision = state.revision;
            state.api_versions = found.api_versions;
            for (storage, objects) in found.tables {
                let mut table = Table::new(revision);
                for (key, content) in objects {
                    let object = Object::stored(key.clone(), content.api_version, content.json);
                    let object = Arc::new(object);
                    state.note(&storage, &key, None, Some(&object));
                    table.objects.insert(key, object);
                }
                state.tables.insert(storage, table);
            }
            *store.log.lock() = Some(if directory.is_old() {
                directory.migrate(state.freeze())?
            } else {
                directory.start()?
            });
        }
        Ok(store)
    }

    /// Syncs each write before it is answered. Does nothing without a directory.
    ///
    /// # Errors
    /// When the log cannot be synced.
    pub(crate) fn with_synced_writes(mut self, synced: bool) -> Result<Self, PersistError> {
        if let Some(shared) = Arc::get_mut(&mut self.0)
            && let Some(log) = shared.log.get_mut()
        {
            shared.synced = synced;
            log.sync_writes(synced)?;
        }
        Ok(self)
    }

    /// The objects as they are now.
    pub(crate) fn copy(&self) -> Copy {
        Copy(self.state.read().without_history())
    }

    /// A store with the objects of `copy`. Their versions stay; Events are as old as the store.
    pub(crate) fn of(copy: &Copy, step: u64, history: History) -> Self {
        let mut state = copy.0.without_history();
        if let Some(events) = state.tables.get(EVENTS) {
            for (key, _) in events.objects.iter() {
                state.ages.note(key, true);
            }
        }
        let store = Self::new(state.revision, step, history);
        *store.state.write() = state;
        store
    }

    /// Adds the table of a resource; does nothing if it exists.
    pub(crate) fn create_table(&self, storage: &str) {
        let _log = self.log.lock();
        let mut state = self.state.write();
        let revision = state.revision;
        state.retired.remove(storage);
        state
            .tables
            .entry(storage.to_owned())
            .or_insert_with(|| Table::new(revision));
    }

    /// Removes a resource. Its watches see the events up to here, then end.
    pub(crate) fn drop_table(&self, storage: &str) {
        let _log = self.log.lock();
        let mut state = self.state.write();
        self.retire(&mut state, storage);
    }

    /// Seals a resource that has no objects, unless a restore came after the decision: none can be added. Returns whether
    /// it is sealed.
    pub(crate) fn seal(&self, storage: &str, decision: Decision) -> bool {
        let _log = self.log.lock();
        if !self.stands(decision) {
            return false;
        }
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
    pub(super) fn oldest(&self, storage: &str) -> Option<u64> {
        let state = self.state.read();
        state.tables.get(storage).map(|table| table.oldest)
    }

    /// Refuses reads at versions up to `version`. Events stay, and watches resume.
    pub(crate) fn compact(&self, version: u64) {
        let mut state = self.state.write();
        let version = version.min(state.revision);
        for table in state.tables.values_mut() {
            table.compact(version);
        }
    }

    /// Removes events up to and including `version`, of every resource. Watches that saw them go on.
    pub(crate) fn forget(&self, version: u64) {
        let mut state = self.state.write();
        let version = version.min(state.revision);
        for table in state.tables.values_mut() {
            table.forget(version);
        }
    }

    /// Names of the resources with a table.
    pub(crate) fn storages(&self) -> Vec<String> {
        let mut names: Vec<String> = self.state.read().tables.keys().cloned().collect();
        names.sort();
        names
    }

    /// Writes the memory to disk, in full and synced. Does nothing without a directory.
    #[cfg(test)]
    pub(super) fn flush(&self) -> Result<(), PersistError> {
        let mut log = self.log.lock();
        let Some(log) = &mut *log else {
            return Ok(());
        };
        log.begin_snapshot(self.state.read().freeze())?;
        log.wait()
    }

    /// Whether writes are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.read().closed
    }

    /// Number of writes that the disk has refused.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Makes all later writes fail as on a full disk, or succeed again.
    #[cfg(test)]
    pub(crate) fn break_disk(&self, broken: bool) {
        self.state.write().broken = broken;
    }

    /// Writes the memory to disk and releases the directory. Later writes are refused.
    pub(crate) fn close(&self) -> Result<(), PersistError> {
        let mut log = self.log.lock();
        self.state.write().closed = true;
        // Readers go on while the snapshot is written.
        let frozen = self.state.read().freeze();
        match log.take() {
            Some(log) => log.close(frozen),
            None => Ok(()),
        }
    }
}

impl std::ops::Deref for Store {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}
