//! What the lock of the store guards: tables, the index of owners, and work for the background task.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::persist::{Log, PersistError};
use super::table::Table;
use super::{Chore, Key, Object};

/// Everything that one write changes at once.
pub(super) struct State {
    pub(super) revision: u64,
    pub(super) tables: HashMap<String, Table>,
    /// The last events of resources that are gone, for watches that have not seen them yet.
    pub(super) retired: HashMap<String, Table>,
    /// Nothing is written any more.
    pub(super) closed: bool,
    /// Dependents by the uid of an owner they name.
    pub(super) owned: HashMap<String, BTreeSet<(String, Key)>>,
    pub(super) chores: BTreeSet<Chore>,
    /// Objects that wait on a finalizer of the garbage collector, by uid.
    pub(super) waiting: HashMap<String, (String, Key)>,
    /// Namespaces that terminate: a removal inside wakes the task.
    pub(super) terminating: BTreeSet<String>,
    /// Resources whose definition is being deleted: a removal wakes the task.
    pub(super) ending: BTreeSet<String>,
    pub(super) log: Option<Log>,
}

// === impl State ===

impl State {
    /// Nothing yet.
    pub(super) fn new(revision: u64) -> Self {
        Self {
            revision,
            tables: HashMap::new(),
            retired: HashMap::new(),
            closed: false,
            owned: HashMap::new(),
            chores: BTreeSet::new(),
            waiting: HashMap::new(),
            terminating: BTreeSet::new(),
            ending: BTreeSet::new(),
            log: None,
        }
    }

    /// Keeps the index of owners, and notes what the background task must look at.
    pub(super) fn note(
        &mut self,
        storage: &str,
        key: &Key,
        previous: Option<&Object>,
        object: Option<&Object>,
    ) {
        let before: BTreeSet<&str> = previous
            .map(|object| object.owner_uids().collect())
            .unwrap_or_default();
        let after: BTreeSet<&str> = object
            .map(|object| object.owner_uids().collect())
            .unwrap_or_default();
        for uid in before.difference(&after) {
            if let Some(owned) = self.owned.get_mut(*uid) {
                owned.remove(&(storage.to_owned(), key.clone()));
                if owned.is_empty() {
                    self.owned.remove(*uid);
                }
                // An owner that waits for this dependent may go on.
                self.chores.insert(Chore::Owner((*uid).to_owned()));
            }
        }
        for uid in after.difference(&before) {
            self.owned
                .entry((*uid).to_owned())
                .or_default()
                .insert((storage.to_owned(), key.clone()));
        }
        if before != after && !after.is_empty() {
            self.chores
                .insert(Chore::Dependent(storage.to_owned(), key.clone()));
        }
        if let Some(uid) = previous.and_then(Object::uid)
            && !object.is_some_and(Object::has_collector_finalizer)
        {
            self.waiting.remove(uid);
        }
        match object {
            None => {
                if let Some(uid) = previous.and_then(Object::uid)
                    && self.owned.contains_key(uid)
                {
                    self.chores.insert(Chore::Owner(uid.to_owned()));
                }
                if self.terminating.contains(key.namespace()) && !key.namespace().is_empty() {
                    self.chores
                        .insert(Chore::Namespace(key.namespace().to_owned()));
                }
                if self.ending.contains(storage) {
                    self.chores.insert(Chore::Definition(storage.to_owned()));
                }
            }
            Some(object) if object.is_terminating() => {
                if object.has_collector_finalizer() {
                    if let Some(uid) = object.uid() {
                        self.waiting
                            .insert(uid.to_owned(), (storage.to_owned(), key.clone()));
                    }
                    self.chores
                        .insert(Chore::Finalize(storage.to_owned(), key.clone()));
                }
                if storage == "namespaces" {
                    self.terminating.insert(key.name().to_owned());
                    self.chores.insert(Chore::Namespace(key.name().to_owned()));
                }
            }
            Some(_) => {
                if storage == "namespaces" && previous.is_none() {
                    self.chores.insert(Chore::Namespace(key.name().to_owned()));
                }
            }
        }
    }

    pub(super) fn snapshot(&mut self) {
        if let Err(error) = self.snapshot_now() {
            // The log still holds everything; the next write tries again.
            tracing::warn!(%error, "the snapshot of the store could not be written; the log goes on");
        }
    }

    pub(super) fn snapshot_now(&mut self) -> Result<(), PersistError> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        let mut tables: BTreeMap<&str, &BTreeMap<Key, Arc<Object>>> = BTreeMap::new();
        for (storage, table) in &self.tables {
            tables.insert(storage, &table.objects);
        }
        log.snapshot(self.revision, &tables)
    }
}
