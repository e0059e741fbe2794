//! Builds the next state beside the present one.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::index::Index;
use super::objects::{Objects, Slot};
use super::ordered::Namespaces;
use super::state::State;
use super::store::Indexer;
use crate::event::{Event, UpdateReason};
use crate::fifo::Snapshot;
use crate::object::Stored;
use crate::turns::{PIECE, Turns};

/// A state that is built beside the present one, in turns, to take its place in one step.
pub(crate) struct Replacement<S: Stored + ?Sized> {
    old: Arc<State<S>>,
    next: State<S>,
    events: Events<S>,
}

/// The events of a replacement: first the deletions, then the rest in the order of the list.
struct Events<S: Stored + ?Sized> {
    deleted: Vec<Event<S>>,
    rest: Vec<Event<S>>,
}

/// A replacement that took place.
pub(crate) struct Replaced<S: Stored + ?Sized> {
    events: Events<S>,
    freed: Freed<S>,
}

/// States that nothing reads any more, which may share parts. [`Freed::free`] drops them in turns.
pub(crate) struct Freed<S: Stored + ?Sized>(Vec<Arc<State<S>>>);

// === impl Replacement ===

impl<S: Stored + ?Sized> Replacement<S> {
    /// The state after `snapshot` replaced everything in `old`, but the objects of the namespaces that `keeps` accepts;
    /// and the events for handlers (client-go: `processReplacedAll`).
    ///
    /// An object whose version did not change keeps its entry and makes no event.
    pub(super) async fn build(
        old: Arc<State<S>>,
        snapshot: Snapshot<S>,
        initial: bool,
        keeps: impl Fn(Option<&str>) -> bool,
    ) -> Self {
        let mut turns = Turns::new();
        let mut next = Next {
            objects: old.objects.emptied(snapshot.objects.len()),
            former: Vec::with_capacity(snapshot.objects.len()),
            namespaces: BTreeSet::new(),
            namespace: Arc::from(""),
        };
        for object in snapshot.objects {
            next.take(&old, object, snapshot.new_epoch);
            turns.spend(1).await;
        }
        for slot in old.slots() {
            turns.spend(1).await;
            if keeps(old.objects.names.key(slot).namespace)
                && let Some(known) = old.objects.get(slot)
            {
                next.take(&old, Arc::clone(known), false);
            }
        }
        for key in snapshot.retained {
            turns.spend(1).await;
            let key = key.as_ref();
            let listed = next.objects.names.find(old.objects.names.hash(key), key);
            if let (None, Some(known)) = (listed, old.get(key)) {
                next.take(&old, Arc::clone(known), false);
            }
        }
        let (events, owned) = next.events(&old, initial, &mut turns).await;
        let Next {
            objects,
            namespaces: ref mut names,
            namespace: ref mut last,
            ..
        } = next;
        let order = objects.names.in_order(&mut turns).await;
        let mut shared = |name: &str| shared(last, names, &old.namespaces, name);
        let namespaces = objects.names.by_namespace(&order, &mut shared);
        let mut replacement = Self {
            next: State {
                owned,
                indexes: Vec::new(),
                namespaces,
                objects,
                resource_version: snapshot.resource_version,
                parts: Arc::clone(&old.parts),
            },
            old,
            events,
        };
        let wanted = replacement.old.indexes.clone();
        replacement.index(&wanted).await;
        replacement
    }

    /// Builds what is missing of these indexes, and drops all others.
    async fn index(&mut self, wanted: &[Arc<Index<S>>]) {
        let mut turns = Turns::new();
        let mut built = std::mem::take(&mut self.next.indexes);
        for index in wanted {
            let known = built.iter().position(|known| known.is_rebuilt(index));
            let rebuilt = match known {
                Some(known) => built.swap_remove(known),
                None => Arc::new(index.rebuilt(self.next.entries(), &mut turns).await),
            };
            self.next.indexes.push(rebuilt);
        }
    }

    /// Builds indexes that were added since [`Replacement::build`] began.
    pub(crate) async fn follow(&mut self, indexer: &Indexer<S>) {
        let wanted = indexer.snapshot().0.indexes.clone();
        self.index(&wanted).await;
    }

    /// Takes the place of `present`; returned unchanged if an index was added or removed since it was built.
    pub(super) fn swap(mut self, present: &mut Arc<State<S>>) -> Result<Replaced<S>, Box<Self>> {
        let (built, wanted) = (&self.next.indexes, &present.indexes);
        let complete = built.len() == wanted.len()
            && built
                .iter()
                .zip(wanted)
                .all(|(one, other)| one.is_rebuilt(other));
        if !complete {
            return Err(Box::new(self));
        }
        debug_assert!(
            self.old.objects.is_same(&present.objects),
            "the objects changed while their replacement was built"
        );
        self.next.parts = Arc::clone(&present.parts);
        let replaced = std::mem::replace(present, Arc::new(self.next));
        Ok(Replaced {
            events: self.events,
            freed: Freed(vec![self.old, replaced]),
        })
    }
}

// === impl Replaced ===

impl<S: Stored + ?Sized> Replaced<S> {
    /// The number of events.
    pub(crate) fn len(&self) -> usize {
        self.events.deleted.len() + self.events.rest.len()
    }

    /// The events, in order, and the state that was replaced.
    pub(crate) fn into_parts(self) -> (impl Iterator<Item = Event<S>> + use<S>, Freed<S>) {
        let Events { deleted, rest } = self.events;
        (deleted.into_iter().chain(rest), self.freed)
    }
}

// === impl Freed ===

impl<S: Stored + ?Sized> Freed<S> {
    pub(super) fn new(state: Arc<State<S>>) -> Self {
        Self(vec![state])
    }

    /// Drops what no snapshot refers to: if it is large, in turns of a task of its own, so that the present task goes
    /// on. Without a runtime it is dropped at once.
    pub(crate) fn free(self) {
        if self.0.iter().all(|state| state.len() <= PIECE) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.in_turns());
        }
    }

    async fn in_turns(self) {
        let mut turns = Turns::new();
        for state in self.0 {
            let Some(state) = Arc::into_inner(state) else {
                continue;
            };
            state.objects.free(&mut turns).await;
            for index in state.indexes {
                Index::free(index, &mut turns).await;
            }
        }
    }
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

    /// The events that lead from `old` here, and the memory that the objects own.
    async fn events(&self, old: &State<S>, initial: bool, turns: &mut Turns) -> (Events<S>, usize) {
        // The objects in both states, with the same uid.
        let mut stayed = vec![false; old.objects.names.end() as usize];
        let (mut deleted, mut rest) = (Vec::new(), Vec::new());
        let mut owned = 0;
        for (slot, former) in (0..).zip(&self.former) {
            turns.spend(1).await;
            let Some(object) = self.objects.get(slot) else {
                continue;
            };
            owned += object.owned_bytes();
            let known = former.and_then(|slot| Some((slot, old.objects.get(slot)?)));
            match known {
                Some((former, known)) if known.uid() == object.uid() => {
                    stayed[former as usize] = true;
                    if !Arc::ptr_eq(known, object) {
                        rest.push(Event::Updated {
                            old: Arc::clone(known),
                            new: Arc::clone(object),
                            reason: UpdateReason::Relist,
                        });
                    }
                }
                _ => rest.push(Event::Added {
                    object: Arc::clone(object),
                    initial,
                }),
            }
        }
        for slot in old.slots() {
            turns.spend(1).await;
            if let Some(last) = old.objects.get(slot).filter(|_| !stayed[slot as usize]) {
                deleted.push(Event::Deleted {
                    key: old.key_of(last.key_ref()),
                    last: Some(Arc::clone(last)),
                    seen: Some(Arc::clone(last)),
                    tombstone: true,
                });
            }
        }
        (Events { deleted, rest }, owned)
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
