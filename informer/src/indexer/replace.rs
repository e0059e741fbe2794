//! Builds the next state beside the present one.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::objects::{Objects, Slot};
use super::ordered::Namespaces;
use super::state::State;
use crate::event::{Event, UpdateReason};
use crate::fifo::Snapshot;
use crate::object::Stored;

/// The state after `snapshot` replaced everything in `old`, and the events for handlers: first the deletions, then the
/// rest in the order of the list (client-go: `processReplacedAll`).
///
/// An object whose version did not change keeps its entry and makes no event.
pub(super) fn replace<S: Stored + ?Sized>(
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
        let listed = next.objects.names.find(old.objects.names.hash(key), key);
        if let (None, Some(known)) = (listed, old.get(key)) {
            next.take(old, Arc::clone(known), false);
        }
    }
    let events = next.events(old, initial);
    let Next {
        objects,
        namespaces: ref mut names,
        namespace: ref mut last,
        ..
    } = next;
    let order = objects.names.in_order();
    let mut shared = |name: &str| shared(last, names, &old.namespaces, name);
    let namespaces = objects.names.by_namespace(&order, &mut shared);
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
        namespaces,
        objects,
        resource_version: snapshot.resource_version,
        parts: Arc::clone(&old.parts),
    };
    (state, events)
}

/// The state that is being built.
struct Next<S: ?Sized> {
    objects: Objects<S>,
    /// For each slot, the slot of the old state with the same key.
    former: Vec<Option<Slot>>,
    /// The names of the namespaces so far, each once.
    namespaces: BTreeSet<Arc<str>>,
    /// The last namespace: lists come sorted, so it is nearly always that of the next object.
    namespace: Arc<str>,
}

impl<S: Stored + ?Sized> Next<S> {
    fn take(&mut self, old: &State<S>, object: Arc<S>, new_epoch: bool) {
        let hash = old.objects.names.hash(object.key_ref());
        let former = old.objects.names.find(hash, object.key_ref());
        let known = former.and_then(|slot| old.objects.get(slot));
        let entry = match known {
            Some(known) if !new_epoch && is_same::<S>(known, &object) => Arc::clone(known),
            _ => object,
        };
        let namespace = shared(
            &mut self.namespace,
            &mut self.namespaces,
            &old.namespaces,
            entry.namespace().unwrap_or_default(),
        );
        let (slot, twice) = self.objects.insert(hash, &namespace, entry);
        if twice.is_none() {
            debug_assert_eq!(slot as usize, self.former.len(), "slots are taken in order");
            self.former.push(former);
        }
    }

    fn events(&self, old: &State<S>, initial: bool) -> Vec<Event<S>> {
        // The objects in both states, with the same uid.
        let mut stayed = vec![false; old.objects.names.end() as usize];
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

/// The name of a namespace, shared with the old state and among all of its objects. `last` is the namespace of the
/// object before.
fn shared(
    last: &mut Arc<str>,
    names: &mut BTreeSet<Arc<str>>,
    old: &Namespaces,
    namespace: &str,
) -> Arc<str> {
    if **last != *namespace {
        *last = match names.get(namespace) {
            Some(seen) => Arc::clone(seen),
            None => {
                let name = old.shared(namespace);
                names.insert(Arc::clone(&name));
                name
            }
        };
    }
    Arc::clone(last)
}

/// True if both are the same version of the same object.
pub(crate) fn is_same<S: Stored + ?Sized>(known: &S, object: &S) -> bool {
    std::ptr::addr_eq(known, object)
        || (known.uid() == object.uid()
            && known.resource_version() == object.resource_version()
            && !object.resource_version().is_empty())
}
