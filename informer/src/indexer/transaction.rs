//! Single changes to the store: [`Transaction`].

use std::cmp::Ordering;
use std::sync::Arc;

use super::index::Index;
use super::objects::Slot;
use super::state::State;
use crate::event::{Event, UpdateReason};
use crate::fifo::{Deletion, Delta};
use crate::object::Stored;
use reeve_client::ResourceVersion;
use reeve_client::version;

/// The result of a change to the store.
#[derive(Debug)]
pub(crate) enum Change<S: Stored + ?Sized> {
    /// Nothing: the store has this state already.
    Known,
    /// Nothing: it is older than the state in the store.
    Stale,
    /// One event for the handlers.
    One(Event<S>),
    /// The object was deleted and created again in between.
    Recreated(Event<S>, Event<S>),
}

/// Changes under the store's lock.
pub(crate) struct Transaction<'a, S: ?Sized> {
    state: &'a mut State<S>,
    former: &'a mut Former<S>,
}

/// Entries to drop after the lock.
pub(super) struct Former<S: ?Sized> {
    /// Those that the store has no longer.
    pub(super) gone: Vec<Arc<S>>,
    /// Others, and further references to the same.
    late: Vec<Arc<S>>,
}

// === impl Former ===

impl<S: ?Sized> Default for Former<S> {
    fn default() -> Self {
        Self {
            gone: Vec::new(),
            late: Vec::new(),
        }
    }
}

// === impl Transaction ===

impl<'a, S: Stored + ?Sized> Transaction<'a, S> {
    pub(super) fn new(state: &'a mut State<S>, former: &'a mut Former<S>) -> Self {
        Self { state, former }
    }

    /// Sets the version of the store's content, unless it is later already.
    pub(crate) fn advance(&mut self, version: ResourceVersion) {
        if !version.is_empty() && version.reaches(&self.state.resource_version) {
            self.state.resource_version = version;
        }
    }

    /// Sets the version of `part`, a namespace that is watched by itself, or, if `None`, of everything, unless it is
    /// later already.
    pub(crate) fn advance_part(&mut self, part: Option<&str>, version: ResourceVersion) {
        if let Some(namespace) = part
            && self.state.version_of(part).is_older_than(&version)
        {
            self.set_part(namespace, version.clone());
        }
        self.advance(version);
    }

    /// Sets the version of a namespace that is watched by itself, whatever it was before.
    pub(crate) fn set_part(&mut self, namespace: &str, version: ResourceVersion) {
        if self.state.parts.contains_key(namespace)
            && let Some(known) = Arc::make_mut(&mut self.state.parts).get_mut(namespace)
        {
            *known = version;
        }
    }

    /// Sets the namespaces that are watched each by itself; none if all are watched as one.
    pub(crate) fn set_parts(&mut self, namespaces: impl Iterator<Item = Arc<str>>) {
        let known = &self.state.parts;
        let parts = namespaces.map(|namespace| {
            let version = known.get(&namespace).cloned().unwrap_or_default();
            (namespace, version)
        });
        self.state.parts = Arc::new(parts.collect());
    }

    /// Sets the version of the store's content, whatever it was before.
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
            Delta::Sync(object) => {
                let change = self.resync(&object);
                self.former.late.push(object);
                change
            }
            Delta::Deleted(deletion) => {
                self.former.late.extend(match &deletion {
                    Deletion::Seen(object) => Some(Arc::clone(object)),
                    Deletion::FinalStateUnknown { last, .. } => last.clone(),
                    Deletion::Unreadable { .. } => None,
                });
                self.delete(deletion)
            }
            // These concern the whole store, and its owner handles them.
            Delta::ReplacedAll(_) | Delta::SyncAll | Delta::Bookmark(_) => Change::Known,
        }
    }

    fn put(&mut self, object: Arc<S>, initial: bool, reason: UpdateReason) -> Change<S> {
        let hash = self.state.objects.names.hash(object.key_ref());
        let Some((slot, known)) = self.state.objects.find(hash, object.key_ref()) else {
            self.add(hash, Arc::clone(&object));
            return Change::One(Event::Added { object, initial });
        };
        // `Arc::clone` is a locked write, and later reads wait for it: so the object is read first.
        let same = known.uid() == object.uid();
        let order = version::compare(object.resource_version(), known.resource_version());
        let comparable = self.is_comparable(known);
        let known = Arc::clone(known);
        if same {
            match order {
                // A list always counts, also in a new epoch.
                Some(Ordering::Less) if reason == UpdateReason::Changed && comparable => {
                    self.former.late.push(object);
                    return Change::Stale;
                }
                Some(Ordering::Equal) if !object.resource_version().is_empty() => {
                    self.former.late.push(object);
                    return Change::Known;
                }
                _ => {}
            }
            self.update(slot, Arc::clone(&object));
            return Change::One(Event::Updated {
                old: known,
                new: object,
                reason,
            });
        }
        self.update(slot, Arc::clone(&object));
        Change::Recreated(
            Event::Deleted {
                key: self.state.key_of(known.key_ref()),
                last: Some(Arc::clone(&known)),
                seen: Some(known),
                tombstone: true,
            },
            Event::Added {
                object,
                initial: false,
            },
        )
    }

    /// False for an entry that is newer than the store as a whole: it was kept from before a new epoch of the server's
    /// history, and its version cannot be compared with that of a newer state.
    fn is_comparable(&self, known: &Arc<S>) -> bool {
        version::compare(
            known.resource_version(),
            self.state.resource_version.as_str(),
        ) != Some(std::cmp::Ordering::Greater)
    }

    fn resync(&mut self, object: &Arc<S>) -> Change<S> {
        // The object may be gone, or newer, since the resync was requested.
        match self.state.get(object.key_ref()) {
            Some(now) => Change::One(Event::Updated {
                old: Arc::clone(now),
                new: Arc::clone(now),
                reason: UpdateReason::Resync,
            }),
            None => Change::Known,
        }
    }

    fn delete(&mut self, deletion: Deletion<S>) -> Change<S> {
        // The final state, and the uid and version of it.
        let (key, seen, of) = match &deletion {
            Deletion::Seen(object) => (
                object.key_ref(),
                Some(object),
                Some((object.uid(), object.resource_version())),
            ),
            Deletion::Unreadable {
                key,
                uid,
                resource_version,
            } => (key.as_ref(), None, Some((&**uid, &**resource_version))),
            Deletion::FinalStateUnknown { key, .. } => (key.as_ref(), None, None),
        };
        let objects = &self.state.objects;
        let Some((slot, known)) = objects.find(objects.names.hash(key), key) else {
            return Change::Known;
        };
        if let Some((uid, version)) = of {
            // Stale is the deletion of a former object of this name, or of a former state. Some servers send the
            // deleted object with its last version and not with that of the deletion, so an equal version counts.
            let order = version::compare(version, known.resource_version());
            let other = !uid.is_empty() && uid != known.uid();
            let stale = if other {
                // An unreadable deletion may be of a later object of this name, no state of which could be read. Where
                // versions have no order it counts: a stream brings the deletion of an object before the next object.
                seen.is_some() || matches!(order, Some(Ordering::Less | Ordering::Equal))
            } else {
                order == Some(Ordering::Less) && self.is_comparable(known)
            };
            if stale {
                return Change::Stale;
            }
        }
        let key = self.state.key_of(key);
        let known = self.remove(slot);
        Change::One(Event::Deleted {
            key,
            tombstone: seen.is_none(),
            last: seen.cloned().or_else(|| known.clone()),
            seen: known,
        })
    }

    fn add(&mut self, hash: u32, object: Arc<S>) {
        let state = &mut *self.state;
        state.owned += object.owned_bytes();
        let namespace = state
            .namespaces
            .shared(object.namespace().unwrap_or_default());
        let (slot, _) = state.objects.insert(hash, &namespace, Arc::clone(&object));
        let names = &state.objects.names;
        state
            .namespaces
            .add(names, namespace, slot, object.key_ref());
        for index in &mut state.indexes {
            Index::change(index, names, slot, object.key_ref(), Some(&object));
        }
    }

    fn update(&mut self, slot: Slot, object: Arc<S>) {
        let state = &mut *self.state;
        let old = state.objects.put(slot, Arc::clone(&object));
        for index in &mut state.indexes {
            let names = &state.objects.names;
            Index::change(index, names, slot, object.key_ref(), Some(&object));
        }
        state.owned += object.owned_bytes();
        state.owned -= old.as_ref().map_or(0, |old| old.owned_bytes());
        self.former.gone.extend(old);
    }

    fn remove(&mut self, slot: Slot) -> Option<Arc<S>> {
        let state = &mut *self.state;
        let old = Arc::clone(state.objects.get(slot)?);
        let names = &state.objects.names;
        for index in &mut state.indexes {
            Index::change(index, names, slot, old.key_ref(), None);
        }
        state.namespaces.remove(names, old.key_ref());
        state.owned -= old.owned_bytes();
        self.former.gone.extend(state.objects.remove(slot));
        Some(old)
    }
}
