//! The state under the store's lock: tables, the index of owners, and chores of the background task.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::chore::Chore;
use super::history::earlier;
use super::map::Map;
use super::object::{Key, Object};
use super::persist::Frozen;
use super::table::Table;

/// The storage of Events.
pub(super) const EVENTS: &str = "events";

/// The state that one write changes.
pub(super) struct State {
    pub(super) revision: u64,
    pub(super) tables: HashMap<String, Table>,
    /// The last events of removed resources, with the time of removal, for watches that have not received them yet.
    pub(super) retired: HashMap<String, (Instant, Table)>,
    /// Events by the time of their last write.
    pub(super) ages: Ages,
    /// The time of the next upkeep.
    pub(super) upkeep_at: Option<Instant>,
    /// Whether writes are refused.
    pub(super) closed: bool,
    /// Dependents by the uid of an owner they name.
    pub(super) owned: Owned,
    pub(super) chores: BTreeSet<Chore>,
    /// Chores that were taken and are not finished.
    pub(super) unfinished: BTreeSet<Chore>,
    /// Objects that wait on a finalizer of the garbage collector, by uid.
    pub(super) waiting: HashMap<String, (String, Key)>,
    /// Namespaces that terminate: a removal inside wakes the task.
    pub(super) terminating: BTreeSet<String>,
    /// Resources whose definition is being deleted: a removal and a creation wake the task.
    pub(super) ending: BTreeSet<String>,
    /// The `apiVersion`s of stored objects: each is in memory once.
    pub(super) api_versions: BTreeSet<Arc<str>>,
    /// Whether writes fail as on a full disk.
    #[cfg(test)]
    pub(super) broken: bool,
}

/// Dependents by the uids of their owners. It is copied in constant time.
#[derive(Clone, Debug, Default)]
pub(super) struct Owned(Map<(String, Key)>);

/// Objects by the time of their last write.
#[derive(Debug, Default)]
pub(super) struct Ages {
    by_time: BTreeSet<(Instant, Key)>,
    times: HashMap<Key, Instant>,
}

// === impl State ===

impl State {
    /// An empty state.
    pub(super) fn new(revision: u64) -> Self {
        Self {
            revision,
            tables: HashMap::new(),
            retired: HashMap::new(),
            ages: Ages::default(),
            upkeep_at: None,
            closed: false,
            owned: Owned::default(),
            chores: BTreeSet::new(),
            unfinished: BTreeSet::new(),
            waiting: HashMap::new(),
            terminating: BTreeSet::new(),
            ending: BTreeSet::new(),
            api_versions: BTreeSet::new(),
            #[cfg(test)]
            broken: false,
        }
    }

    /// The same objects, in memory and without their history, and the chores that are not finished.
    pub(super) fn without_history(&self) -> Self {
        let tables = self.tables.iter();
        Self {
            tables: tables
                .map(|(storage, table)| (storage.clone(), table.without_history(self.revision)))
                .collect(),
            owned: self.owned.clone(),
            chores: self.chores.union(&self.unfinished).cloned().collect(),
            waiting: self.waiting.clone(),
            terminating: self.terminating.clone(),
            ending: self.ending.clone(),
            api_versions: self.api_versions.clone(),
            ..Self::new(self.revision)
        }
    }

    /// The shared text of an `apiVersion`.
    pub(super) fn shared(&self, api_version: &str) -> Arc<str> {
        let known = self.api_versions.get(api_version).cloned();
        known.unwrap_or_else(|| api_version.into())
    }

    /// Shares the `apiVersion` of an object with later ones.
    pub(super) fn learn(&mut self, object: &Object) {
        if !self.api_versions.contains(object.api_version()) {
            self.api_versions.insert(object.shared_api_version());
        }
    }

    /// Updates the index of owners, and adds chores for the background task.
    pub(super) fn note(
        &mut self,
        storage: &str,
        key: &Key,
        previous: Option<&Object>,
        object: Option<&Object>,
    ) {
        if storage == EVENTS {
            self.ages.note(key, object.is_some());
        }
        let before: BTreeSet<&str> = previous
            .map(|object| object.owner_uids().collect())
            .unwrap_or_default();
        let after: BTreeSet<&str> = object
            .map(|object| object.owner_uids().collect())
            .unwrap_or_default();
        for uid in before.difference(&after) {
            if self.owned.remove(uid, storage, key) {
                // An owner that waits for this dependent may continue.
                self.chores.insert(Chore::Owner((*uid).to_owned()));
            }
        }
        for uid in after.difference(&before) {
            self.owned.add(uid, storage, key);
        }
        // A reference that blocks its owner no more is a change of the dependent, too.
        let released = |uid: &&&str| {
            self.waiting.contains_key(**uid)
                && previous.is_some_and(|previous| blocks(previous, uid))
                && !object.is_some_and(|object| blocks(object, uid))
        };
        let released = after.iter().filter(released);
        let released: Vec<Chore> = released
            .map(|uid| Chore::Owner((*uid).to_owned()))
            .collect();
        self.chores.extend(released);
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
                    && self.owned.of(uid).next().is_some()
                {
                    self.chores.insert(Chore::Owner(uid.to_owned()));
                }
                if self.terminating.contains(key.namespace()) && !key.namespace().is_empty() {
                    self.chores
                        .insert(Chore::Namespace(key.namespace().to_owned()));
                }
                // A namespace has its account again, as kube-controller-manager makes it.
                if storage == "serviceaccounts" && key.name() == "default" {
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
                // The create was on its way when the definition was deleted: the background task may have listed before it.
                if previous.is_none() && self.ending.contains(storage) {
                    self.chores.insert(Chore::Definition(storage.to_owned()));
                }
            }
        }
    }

    /// The current objects. They are shared, not copied.
    pub(super) fn freeze(&self) -> Frozen {
        let tables = self.tables.iter();
        Frozen {
            revision: self.revision,
            tables: tables
                .map(|(storage, table)| (storage.clone(), table.objects.clone()))
                .collect(),
        }
    }
}

/// Whether the owner `uid` of an object waits for it.
fn blocks(object: &Object, uid: &str) -> bool {
    let value = object.value();
    let references = value["metadata"]["ownerReferences"].as_array();
    let mut references = references.into_iter().flatten();
    references.any(|one| one["uid"] == uid && one["blockOwnerDeletion"] == true)
}

// === impl Owned ===

impl Owned {
    /// The start of the keys of the dependents of `uid`. No start of another uid begins with it.
    fn prefix(uid: &str) -> String {
        format!("{}:{uid}/", uid.len())
    }

    fn key(uid: &str, storage: &str, key: &Key) -> Key {
        Key::from(&*format!("{}{storage}/{key}", Self::prefix(uid)))
    }

    fn add(&mut self, uid: &str, storage: &str, key: &Key) {
        let dependent = (storage.to_owned(), key.clone());
        self.0.insert(Self::key(uid, storage, key), dependent);
    }

    /// Returns whether it was there.
    fn remove(&mut self, uid: &str, storage: &str, key: &Key) -> bool {
        let key = Self::key(uid, storage, key);
        self.0.remove(key.as_str()).is_some()
    }

    /// The dependents of an owner.
    pub(super) fn of(&self, uid: &str) -> impl Iterator<Item = &(String, Key)> {
        let prefix = Self::prefix(uid);
        let from = self.0.iter_from(|key| key < &*prefix);
        from.take_while(move |(key, _)| key.as_str().starts_with(&prefix))
            .map(|(_, dependent)| dependent)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

// === impl Ages ===

impl Ages {
    /// Records that the object was written now, or removed.
    pub(super) fn note(&mut self, key: &Key, stays: bool) {
        if let Some(time) = self.times.remove(key) {
            self.by_time.remove(&(time, key.clone()));
        }
        if stays {
            let now = Instant::now();
            self.times.insert(key.clone(), now);
            self.by_time.insert((now, key.clone()));
        }
    }

    /// Makes all objects older.
    pub(super) fn age(&mut self, by: Duration) {
        for time in self.times.values_mut() {
            *time = earlier(*time, by);
        }
        let by_key = self.times.iter();
        self.by_time = by_key.map(|(key, time)| (*time, key.clone())).collect();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.times.len().max(self.by_time.len())
    }

    /// The oldest time of a last write.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.by_time.first().map(|(time, _)| *time)
    }

    /// Objects that were not written since `time`, at most `limit`.
    pub(super) fn until(&self, time: Instant, limit: usize) -> Vec<Key> {
        let old = self.by_time.iter().take_while(|(at, _)| *at <= time);
        old.take(limit).map(|(_, key)| key.clone()).collect()
    }
}
