//! The objects and indexes of one moment, and single changes to them.

use std::sync::Arc;

use super::Map;
use super::index::{Error, Index, NAMESPACE_INDEX};
use crate::entry::Stored;
use crate::event::{Event, UpdateReason};
use crate::fifo::{Deletion, Delta};
use crate::key::{KeyRef, ObjectKey};
use crate::version::{self, ResourceVersion};

pub(crate) struct State<S> {
    pub(super) objects: Map<ObjectKey, Arc<S>>,
    pub(super) indexes: Vec<Index<S>>,
    pub(super) resource_version: ResourceVersion,
}

// === impl State ===

impl<S: Stored> State<S> {
    pub(super) fn new() -> Self {
        Self {
            objects: Map::default(),
            indexes: vec![Index::by_namespace()],
            resource_version: ResourceVersion::default(),
        }
    }

    pub(super) fn index(&self, name: &str) -> Option<&Index<S>> {
        self.indexes.iter().find(|index| &*index.name == name)
    }

    pub(super) fn known_index(&self, name: &str) -> Result<&Index<S>, Error> {
        self.index(name).ok_or_else(|| Error::Unknown {
            name: name.into(),
            known: self
                .indexes
                .iter()
                .map(|index| Arc::clone(&index.name))
                .collect(),
        })
    }

    /// A key that shares its namespace with the other keys.
    fn key_for(&self, key: KeyRef<'_>) -> ObjectKey {
        let known = key.namespace.and_then(|namespace| {
            let index = self.index(NAMESPACE_INDEX)?;
            index.values.get_key_value(namespace)
        });
        ObjectKey {
            namespace: known
                .map(|(namespace, _)| Arc::clone(namespace))
                .or_else(|| key.namespace.map(Arc::from)),
            name: Arc::from(key.name),
        }
    }

    /// The same indexes without objects.
    pub(super) fn empty_indexes(&self) -> Vec<Index<S>> {
        self.indexes.iter().map(Index::emptied).collect()
    }

    pub(super) fn rebuild_indexes(&mut self) {
        for index in &mut self.indexes {
            for (key, object) in &self.objects {
                index.insert(key, object);
            }
        }
    }
}

/// What a change to the store came to.
#[derive(Debug)]
pub(crate) enum Change<S: Stored> {
    /// Nothing: it was known already.
    Known,
    /// Nothing: it is older than what is known.
    Stale,
    /// One event for the handlers.
    One(Event<S>),
    /// The object was deleted and created again in between.
    Recreated(Event<S>, Event<S>),
}

/// Changes under the store's lock.
pub(crate) struct Transaction<'a, S> {
    state: &'a mut State<S>,
    /// What is dropped after the lock.
    freed: &'a mut Vec<Arc<S>>,
}

// === impl Transaction ===

impl<'a, S: Stored> Transaction<'a, S> {
    pub(super) fn new(state: &'a mut State<S>, freed: &'a mut Vec<Arc<S>>) -> Self {
        Self { state, freed }
    }

    /// Notes that the store's content is as of `version`, unless it is of a later one.
    pub(crate) fn advance(&mut self, version: ResourceVersion) {
        if !version.is_empty() && version.reaches(&self.state.resource_version) {
            self.state.resource_version = version;
        }
    }

    /// Notes that the store's content is as of `version`, whatever was said before.
    pub(crate) fn set_version(&mut self, version: ResourceVersion) {
        self.state.resource_version = version;
    }

    /// Applies a delta about one object. `initial` marks an addition as part of the first list.
    pub(crate) fn apply(&mut self, delta: Delta<S>, initial: bool) -> Change<S> {
        match delta {
            Delta::Added(object) | Delta::Updated(object) => {
                self.put(object, initial, UpdateReason::Changed)
            }
            Delta::Replaced(object) => self.put(object, initial, UpdateReason::Relist),
            Delta::Sync(object) => self.resync(&object),
            Delta::Deleted(deletion) => self.delete(deletion),
            // These are about the whole store, and handled where that is held.
            Delta::ReplacedAll(_) | Delta::SyncAll | Delta::Bookmark(_) => Change::Known,
        }
    }

    fn put(&mut self, object: Arc<S>, initial: bool, reason: UpdateReason) -> Change<S> {
        let Some((key, known)) = self.state.objects.get_key_value(&object.key_ref()) else {
            let key = self.state.key_for(object.key_ref());
            self.insert(key, Arc::clone(&object));
            return Change::One(Event::Added { object, initial });
        };
        let (key, known) = (key.clone(), Arc::clone(known));
        if known.uid() == object.uid() {
            match version::compare(object.resource_version(), known.resource_version()) {
                // What a list says counts, also when it is of a new epoch.
                Some(std::cmp::Ordering::Less)
                    if reason == UpdateReason::Changed && self.is_comparable(&known) =>
                {
                    return Change::Stale;
                }
                Some(std::cmp::Ordering::Equal) if !object.resource_version().is_empty() => {
                    return Change::Known;
                }
                _ => {}
            }
            self.insert(key, Arc::clone(&object));
            return Change::One(Event::Updated {
                old: known,
                new: object,
                reason,
            });
        }
        self.insert(key.clone(), Arc::clone(&object));
        Change::Recreated(
            Event::Deleted {
                key,
                last: Some(known),
                tombstone: true,
            },
            Event::Added {
                object,
                initial: false,
            },
        )
    }

    /// False for an entry that is newer than the store as a whole: it was kept from before the server's
    /// history began anew, and its version says nothing about that of a newer state.
    fn is_comparable(&self, known: &Arc<S>) -> bool {
        version::compare(
            known.resource_version(),
            self.state.resource_version.as_str(),
        ) != Some(std::cmp::Ordering::Greater)
    }

    fn resync(&mut self, object: &Arc<S>) -> Change<S> {
        // The object may be gone, or newer, since the resync was asked for.
        match self.state.objects.get(&object.key_ref()) {
            Some(now) => Change::One(Event::Updated {
                old: Arc::clone(now),
                new: Arc::clone(now),
                reason: UpdateReason::Resync,
            }),
            None => Change::Known,
        }
    }

    fn delete(&mut self, deletion: Deletion<S>) -> Change<S> {
        let (key, seen) = match deletion {
            Deletion::Seen(object) => (object.key(), Some(object)),
            Deletion::FinalStateUnknown { key, .. } => (key, None),
        };
        let Some(known) = self.state.objects.get(&key) else {
            return Change::Known;
        };
        if let Some(object) = &seen {
            // The deletion of a former object of this name, or of a former state: some servers give the
            // deleted object its last version and not the deletion's, so an equal one counts.
            let other = !object.uid().is_empty() && object.uid() != known.uid();
            let older = version::compare(object.resource_version(), known.resource_version())
                == Some(std::cmp::Ordering::Less);
            if other || (older && self.is_comparable(known)) {
                return Change::Stale;
            }
        }
        let known = self.remove(&key);
        Change::One(Event::Deleted {
            key,
            tombstone: seen.is_none(),
            last: seen.or(known),
        })
    }

    fn insert(&mut self, key: ObjectKey, object: Arc<S>) {
        let old = self.state.objects.insert(key.clone(), Arc::clone(&object));
        for index in &mut self.state.indexes {
            match &old {
                Some(old) => index.update(&key, old, &object),
                None => index.insert(&key, &object),
            }
        }
        self.freed.extend(old);
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Arc<S>> {
        let old = self.state.objects.swap_remove(key)?;
        for index in &mut self.state.indexes {
            index.remove(key, &old);
        }
        self.freed.push(Arc::clone(&old));
        Some(old)
    }
}
