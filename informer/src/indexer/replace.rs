//! Builds the next state beside the present one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::objects::Objects;
use super::ordered::Ordered;
use super::slot::Slot;
use super::state::State;
use crate::event::{Event, UpdateReason};
use crate::fifo::Snapshot;
use crate::object::Stored;

/// The state after `snapshot` replaced everything in `old`, and the events for handlers: first the deletions, then the
/// rest in the order of the list (client-go: `processReplacedAll`).
///
/// An object whose version did not change keeps its entry and makes no event.
pub(super) fn replace<S: Stored>(
    old: &State<S>,
    snapshot: Snapshot<S>,
    initial: bool,
) -> (State<S>, Vec<Event<S>>) {
    let mut next = Next {
        objects: old.objects.emptied(snapshot.objects.len()),
        former: Vec::with_capacity(snapshot.objects.len()),
        namespaces: BTreeSet::new(),
        namespace: Arc::from(""),
    };
    for object in snapshot.objects {
        next.take(old, object, snapshot.new_epoch);
    }
    for key in snapshot.retained {
        let key = key.as_ref();
        let listed = next.objects.find(old.objects.hash(key), key);
        if let (None, Some(known)) = (listed, old.get(key)) {
            next.take(old, Arc::clone(known), false);
        }
    }
    let events = next.events(old, initial);
    let order = in_order(&next.objects);
    let namespaces = namespaces(&mut next, old, &order);
    let objects = next.objects;
    let indexes = old.indexes.iter().map(|index| {
        let objects = order
            .iter()
            .filter_map(|slot| Some((*slot, &**objects.get(*slot)?)));
        Arc::new(index.rebuilt(objects))
    });
    let owned = order.iter().filter_map(|slot| objects.get(*slot));
    let owned = owned.map(|object| object.owned_bytes()).sum();
    let state = State {
        owned,
        indexes: indexes.collect(),
        namespaces: Arc::new(namespaces),
        objects,
        resource_version: snapshot.resource_version,
        parts: Arc::clone(&old.parts),
    };
    (state, events)
}

/// The state that is being built.
struct Next<S> {
    objects: Objects<S>,
    /// For each slot, the slot of the old state with the same key.
    former: Vec<Option<Slot>>,
    /// The names of the namespaces so far, each once.
    namespaces: BTreeSet<Arc<str>>,
    /// The last namespace: lists come sorted, so it is nearly always that of the next object.
    namespace: Arc<str>,
}

impl<S: Stored> Next<S> {
    fn take(&mut self, old: &State<S>, object: Arc<S>, new_epoch: bool) {
        let hash = old.objects.hash(object.key_ref());
        let former = old.objects.find(hash, object.key_ref());
        let known = former.and_then(|slot| old.objects.get(slot));
        let entry = match known {
            Some(known) if !new_epoch && is_same::<S>(known, &object) => Arc::clone(known),
            _ => object,
        };
        let namespace = self.shared(old, entry.namespace().unwrap_or_default());
        let (slot, twice) = self.objects.insert(hash, &namespace, entry);
        if twice.is_none() {
            debug_assert_eq!(slot as usize, self.former.len(), "slots are taken in order");
            self.former.push(former);
        }
    }

    /// The name of a namespace, shared with the old state and among all of its objects.
    fn shared(&mut self, old: &State<S>, namespace: &str) -> Arc<str> {
        if *self.namespace != *namespace {
            self.namespace = match self.namespaces.get(namespace) {
                Some(seen) => Arc::clone(seen),
                None => {
                    let known = old.namespaces.get_key_value(namespace);
                    let name =
                        known.map_or_else(|| Arc::from(namespace), |(name, _)| Arc::clone(name));
                    self.namespaces.insert(Arc::clone(&name));
                    name
                }
            };
        }
        Arc::clone(&self.namespace)
    }

    fn events(&self, old: &State<S>, initial: bool) -> Vec<Event<S>> {
        // The objects in both states, with the same uid.
        let mut stayed = vec![false; old.objects.end() as usize];
        let mut events = Vec::new();
        for (slot, former) in (0..).zip(&self.former) {
            let Some(object) = self.objects.get(slot) else {
                continue;
            };
            let known = former.and_then(|slot| Some((slot, old.objects.get(slot)?)));
            match known {
                Some((former, known)) if known.uid() == object.uid() => {
                    stayed[former as usize] = true;
                    if !Arc::ptr_eq(known, object) {
                        events.push(Event::Updated {
                            old: Arc::clone(known),
                            new: Arc::clone(object),
                            reason: UpdateReason::Relist,
                        });
                    }
                }
                _ => events.push(Event::Added {
                    object: Arc::clone(object),
                    initial,
                }),
            }
        }
        let gone = old.at(old.slots().filter(|slot| !stayed[*slot as usize]));
        let deleted = gone.map(|last| Event::Deleted {
            key: old.key_of(last.key_ref()),
            last: Some(Arc::clone(last)),
            seen: Some(Arc::clone(last)),
            tombstone: true,
        });
        // Before the others; nearly always there are none.
        events.splice(0..0, deleted);
        events
    }
}

/// Every slot, in the order of the keys. Lists come in this order, except from some servers that stream.
fn in_order<S: Stored>(objects: &Objects<S>) -> Vec<Slot> {
    let mut order: Vec<Slot> = (0..objects.end()).collect();
    if !order.is_sorted_by(|a, b| objects.key(*a) <= objects.key(*b)) {
        order.sort_unstable_by(|a, b| objects.key(*a).cmp(&objects.key(*b)));
    }
    order
}

/// The slots of each namespace.
fn namespaces<S: Stored>(
    next: &mut Next<S>,
    old: &State<S>,
    order: &[Slot],
) -> BTreeMap<Arc<str>, Arc<Ordered>> {
    let mut namespaces = BTreeMap::new();
    let mut rest = order;
    while let Some(first) = rest.first() {
        let namespace = next.objects.key(*first).namespace;
        let length = rest.partition_point(|slot| next.objects.key(*slot).namespace == namespace);
        let name = namespace.unwrap_or_default().to_owned();
        let slots = Ordered::from_sorted(&rest[..length]);
        namespaces.insert(next.shared(old, &name), Arc::new(slots));
        rest = &rest[length..];
    }
    namespaces
}

/// True if both are the same version of the same object.
pub(crate) fn is_same<S: Stored>(known: &S, object: &S) -> bool {
    std::ptr::eq(known, object)
        || (known.uid() == object.uid()
            && known.resource_version() == object.resource_version()
            && !object.resource_version().is_empty())
}
