//! Builds the next state beside the present one.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::index::Index;
use super::objects::{Objects, Slot};
use super::ordered::Namespaces;
use super::replaced::{Events, Freed, Replaced};
use super::state::State;
use super::store::Indexer;
use super::transaction::{Former, Transaction};
use crate::event::{Event, UpdateReason};
use crate::fifo::{Deletion, Delta, Snapshot};
use crate::object::Stored;
use crate::turns::Turns;

/// A state that is built beside the present one, in turns, to take its place in one step.
pub(crate) struct Replacement<S: Stored + ?Sized> {
    old: Arc<State<S>>,
    next: State<S>,
    /// For each slot of `next`, the slot of `old` that has the same key. `None` if `next` is a changed copy of `old`.
    former: Option<Vec<Option<Slot>>>,
    events: Events<S>,
}

// === impl Replacement ===

impl<S: Stored + ?Sized> Replacement<S> {
    /// The state after `snapshot` replaced the objects of the namespaces that `replaces` accepts in `old`, and the events
    /// for handlers (client-go: `processReplacedAll`).
    ///
    /// An object whose version did not change keeps its entry and makes no event.
    pub(super) async fn of(
        old: Arc<State<S>>,
        snapshot: Snapshot<S>,
        initial: bool,
        replaces: impl Fn(Option<&str>) -> bool,
        turns: &mut Turns,
    ) -> Self {
        let held = old.namespaces.count(&replaces);
        // Single changes take equal versions for equal objects.
        if !snapshot.is_fresh() && held + snapshot.objects.len() < old.len() - held {
            return Self::amend(old, snapshot, initial, replaces, turns).await;
        }
        Self::build(old, snapshot, initial, replaces, turns).await
    }

    /// The same, by changes of a copy of `old`. It shares what it does not change, so this costs as much as the objects of
    /// these namespaces, and a copy of the table of keys and of each index's values.
    async fn amend(
        old: Arc<State<S>>,
        snapshot: Snapshot<S>,
        initial: bool,
        replaces: impl Fn(Option<&str>) -> bool,
        turns: &mut Turns,
    ) -> Self {
        let names = &old.objects.names;
        let find = |key| names.find(names.hash(key), key);
        let (mut stay, mut new) = (HashSet::new(), HashSet::new());
        let mut counts = Vec::with_capacity(snapshot.objects.len());
        // From the last object to the first: of two with one key the later counts.
        for object in snapshot.objects.iter().rev() {
            turns.spend(1).await;
            let key = object.key_ref();
            counts.push(match find(key) {
                Some(slot) => stay.insert(slot),
                None => new.insert(key),
            });
        }
        drop(new);
        for key in &snapshot.retained {
            turns.spend(1).await;
            stay.extend(find(key.as_ref()));
        }
        let (mut next, mut events) = (State::clone(&old), Events::new());
        let mut apply = |delta| {
            // Most of what is replaced stays in `old` for now.
            let mut former = Former::default();
            let mut change = Transaction::new(&mut next, &mut former);
            events.push(change.apply(delta, initial));
        };
        for slot in old.namespaces.slots_of(&replaces) {
            turns.spend(1).await;
            if !stay.contains(&slot) {
                let key = old.key_of(names.key(slot));
                apply(Delta::Deleted(Deletion::FinalStateUnknown {
                    key,
                    last: None,
                }));
            }
        }
        for object in snapshot.objects {
            turns.spend(1).await;
            if counts.pop() == Some(true) {
                apply(Delta::Replaced(object));
            }
        }
        next.resource_version = snapshot.resource_version;
        Self {
            old,
            next,
            former: None,
            events,
        }
    }

    /// The same, by a state from nothing.
    async fn build(
        old: Arc<State<S>>,
        snapshot: Snapshot<S>,
        initial: bool,
        replaces: impl Fn(Option<&str>) -> bool,
        turns: &mut Turns,
    ) -> Self {
        let mut next = Next {
            objects: old.objects.emptied(snapshot.objects.len()),
            former: Vec::with_capacity(snapshot.objects.len()),
            namespaces: BTreeSet::new(),
            namespace: Arc::from(""),
        };
        for object in snapshot.objects {
            let namespace = object.namespace().unwrap_or_default();
            let fresh = snapshot.new_epoch || snapshot.reread.contains(namespace);
            next.take(&old, object, fresh);
            turns.spend(1).await;
        }
        for slot in old.slots() {
            turns.spend(1).await;
            if !replaces(old.objects.names.key(slot).namespace)
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
        let (events, owned) = next.events(&old, initial, turns).await;
        let Next {
            objects, former, ..
        } = next;
        let order = objects.names.in_order(turns).await;
        let namespaces = objects.names.by_namespace(&order);
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
            former: Some(former),
            events,
        };
        let wanted = replacement.old.indexes.clone();
        replacement.index(&wanted, turns).await;
        replacement
    }

    /// Builds what is missing of these indexes, and drops all others.
    ///
    /// They are of the objects of `old`, whose values they remember.
    async fn index(&mut self, wanted: &[Arc<Index<S>>], turns: &mut Turns) {
        let mut built = std::mem::take(&mut self.next.indexes);
        for index in wanted {
            let known = built.iter().position(|known| known.is_rebuilt(index));
            let rebuilt = match (known, &self.former) {
                (Some(known), _) => built.swap_remove(known),
                (None, Some(former)) => {
                    let (old, next) = (&self.old.objects, &self.next);
                    let entries = next.slots().filter_map(|slot| {
                        let object = next.objects.get(slot)?;
                        let same = former[slot as usize].filter(|former| {
                            let known = old.get(*former);
                            known.is_some_and(|known| Arc::ptr_eq(known, object))
                        });
                        Some((slot, &**object, same))
                    });
                    Arc::new(index.rebuilt(entries, turns).await)
                }
                (None, None) => {
                    let mut index = Arc::clone(index);
                    Index::follow(&mut index, &self.old, &self.next, turns).await;
                    index
                }
            };
            self.next.indexes.push(rebuilt);
        }
    }

    /// Builds indexes that were added since [`Replacement::of`] began.
    pub(crate) async fn follow(&mut self, indexer: &Indexer<S>, turns: &mut Turns) {
        let wanted = indexer.snapshot().0.indexes.clone();
        self.index(&wanted, turns).await;
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
    /// `fresh`: an equal version is no reason to keep the entry of `old`.
    fn take(&mut self, old: &State<S>, object: Arc<S>, fresh: bool) {
        let hash = old.objects.names.hash(object.key_ref());
        let former = old.objects.names.find(hash, object.key_ref());
        let known = former.and_then(|slot| old.objects.get(slot));
        let entry = match known {
            Some(known) if !fresh && is_same::<S>(known, &object) => Arc::clone(known),
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
