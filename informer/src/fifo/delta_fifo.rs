//! Deltas per key (client-go: `DeltaFIFO`).

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::NEW_EPOCH;
use super::delta::{Batch, Deletion, Delta};
use super::known::KnownObjects;
use super::queue::Fifo;
use super::snapshot::Snapshot;
use crate::object::Stored;
use reeve_client::ObjectKey;
use reeve_client::ResourceVersion;

/// Collects the deltas of each object under its key, and returns them key by key in the order of each key's first
/// delta. More deltas of a key do not change its place.
///
/// A list becomes one delta an object, and a [`Deletion::FinalStateUnknown`] for each object that is known
/// ([`KnownObjects`], or only in the queue) and not in the list. The store therefore equals one server version only
/// when the queue is empty; only then the version is passed on, as a bookmark.
///
/// A new epoch of the server's history ([`Snapshot::new_epoch`]) is passed on as a bookmark of version 0 before the
/// list: until the queue is empty, no version in the store can be compared with that of a newer state. An object with
/// the same version as before counts as unchanged.
///
/// A list and a resync are enqueued at once, in one turn of the task that reads them: about a microsecond an object.
///
/// [`Builder::delta_fifo`](crate::Builder::delta_fifo) chooses it as the queue of an informer. Without an informer, a
/// consumer that may fail takes deltas with [`DeltaFifo::pop`].
pub struct DeltaFifo<S: ?Sized> {
    inner: Mutex<Inner<S>>,
    known: Arc<dyn KnownObjects<S>>,
    key_function: KeyFunction<S>,
    emit_replaced: bool,
    capacity: usize,
    readable: Notify,
    writable: Notify,
}

type KeyFunction<S> = Arc<dyn Fn(&S) -> ObjectKey + Send + Sync>;

struct Inner<S: ?Sized> {
    /// Keys in order of their first delta.
    order: VecDeque<ObjectKey>,
    items: HashMap<ObjectKey, Item<S>>,
    /// The keys being processed, with the newest state of each: the consumer may have it or not. As many as there are
    /// working consumers.
    in_process: Vec<InProcess<S>>,
    /// The number of keys that were passed to consumers.
    handed_out: u64,
    /// The number of deltas that wait, of all keys.
    waiting: usize,
    /// A list or a change has been appended.
    populated: bool,
    /// The number of keys of the first list that are still to be processed.
    initial: usize,
    /// The newest version pushed, which is passed on when the queue is empty.
    version: Option<ResourceVersion>,
    /// The server's history began again, which is not passed on yet.
    new_epoch: bool,
}

struct InProcess<S: ?Sized> {
    number: u64,
    key: ObjectKey,
    /// `None` if the object is gone.
    state: Option<Arc<S>>,
}

/// The deltas that wait for one key.
struct Item<S: ?Sized> {
    deltas: Vec<Delta<S>>,
    /// The key was in the queue before the first list, or came with it.
    initial: bool,
    /// While the key is processed: its number in `processing`.
    number: u64,
}

// === impl DeltaFifo ===

impl<S: Stored + ?Sized> DeltaFifo<S> {
    /// A queue whose consumer has the objects `known` (`()` for none), and in which up to `capacity` deltas wait before
    /// producers have to wait.
    #[must_use]
    pub fn new(known: Arc<dyn KnownObjects<S>>, capacity: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                order: VecDeque::new(),
                items: HashMap::new(),
                in_process: Vec::new(),
                handed_out: 0,
                waiting: 0,
                populated: false,
                initial: 0,
                version: None,
                new_epoch: false,
            }),
            known,
            key_function: Arc::new(S::key),
            emit_replaced: true,
            capacity: capacity.max(1),
            readable: Notify::new(),
            writable: Notify::new(),
        }
    }

    /// Makes objects of a list [`Delta::Replaced`] (default), or [`Delta::Sync`] as before client-go had the
    /// former (client-go: `EmitDeltaTypeReplaced`).
    #[must_use]
    pub fn emit_replaced(mut self, emit: bool) -> Self {
        self.emit_replaced = emit;
        self
    }

    /// The key of an object; `known` has to use the same (client-go: `KeyFunction`). Default: namespace and name.
    #[must_use]
    pub fn key_function(mut self, key: impl Fn(&S) -> ObjectKey + Send + Sync + 'static) -> Self {
        self.key_function = Arc::new(key);
        self
    }

    /// Appends deltas of one object, unless some wait for it already: those are newer, and these are dropped
    /// (client-go: `AddIfNotPresent`). True if they were appended.
    pub fn add_if_not_present(&self, deltas: Vec<Delta<S>>) -> bool {
        let Some(key) = deltas.last().and_then(|delta| self.key_of(delta)) else {
            return false;
        };
        let mut inner = self.inner.lock();
        inner.populated = true;
        if inner.items.contains_key(&key) {
            return false;
        }
        inner.put_back(
            key,
            Item {
                deltas,
                initial: false,
                number: 0,
            },
        );
        drop(inner);
        self.readable.notify_one();
        true
    }

    /// Passes the deltas of the next key to `process`, with whether they are part of the first list; `None` if none
    /// wait. If `process` fails or panics the deltas return to the queue: before deltas of the key that came meanwhile,
    /// or else at the end, so that other keys do not wait (client-go: `Pop` and `ErrRequeue`, which drops them if
    /// others came meanwhile). Other tasks may push meanwhile, and so may `process`.
    pub fn pop<E>(
        &self,
        process: impl FnOnce(&[Delta<S>], bool) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let (key, item, initial) = self.inner.lock().take()?;
        let result = catch_unwind(AssertUnwindSafe(|| process(&item.deltas, initial)));
        let mut inner = self.inner.lock();
        inner.processed(&item);
        if matches!(result, Ok(Ok(()))) {
            inner.settle(&item);
        } else {
            inner.put_back(key, item);
            self.readable.notify_one();
        }
        drop(inner);
        self.writable.notify_one();
        Some(result.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    fn key_of(&self, delta: &Delta<S>) -> Option<ObjectKey> {
        match delta {
            Delta::Deleted(
                Deletion::FinalStateUnknown { key, .. } | Deletion::Unreadable { key, .. },
            ) => Some(key.clone()),
            delta => delta.object().map(|object| (self.key_function)(object)),
        }
    }
}

impl<S: Stored + ?Sized> Inner<S> {
    fn enqueue(&mut self, key: ObjectKey, delta: Delta<S>) {
        self.waiting += 1;
        if let Some(item) = self.items.get_mut(&key) {
            item.deltas.push(delta);
            self.waiting -= merge_deletions(&mut item.deltas);
        } else {
            let item = Item {
                deltas: vec![delta],
                initial: false,
                number: 0,
            };
            self.items.insert(key.clone(), item);
            self.order.push_back(key);
        }
    }

    /// The deltas of the next key, and whether they are part of the first list.
    fn take(&mut self) -> Option<(ObjectKey, Item<S>, bool)> {
        let key = self.order.pop_front()?;
        let mut item = self.items.remove(&key)?;
        self.waiting -= item.deltas.len();
        let initial = item.initial || !self.populated;
        self.handed_out += 1;
        item.number = self.handed_out;
        self.in_process.push(InProcess {
            number: item.number,
            key: key.clone(),
            state: newest(&item.deltas).cloned(),
        });
        Some((key, item, initial))
    }

    /// Ends the processing of a key.
    fn processed(&mut self, item: &Item<S>) {
        self.in_process.retain(|other| other.number != item.number);
    }

    /// Called after processing only: a queue that is synced has delivered its last object.
    fn settle(&mut self, item: &Item<S>) {
        self.initial -= usize::from(item.initial);
    }

    /// True if the key waits or is being processed: the consumer may not have its newest state yet.
    fn is_under_way(&self, key: &ObjectKey) -> bool {
        self.items.contains_key(key) || self.in_process.iter().any(|other| other.key == *key)
    }

    /// True if the object waits, or is about to reach the consumer.
    fn holds(&self, key: &ObjectKey) -> bool {
        let about = |other: &InProcess<S>| other.key == *key && other.state.is_some();
        self.items.contains_key(key) || self.in_process.iter().any(about)
    }

    fn put_back(&mut self, key: ObjectKey, mut item: Item<S>) {
        self.waiting += item.deltas.len();
        if let Some(newer) = self.items.get_mut(&key) {
            item.deltas.append(&mut newer.deltas);
            newer.deltas = item.deltas;
            newer.initial |= item.initial;
        } else {
            self.items.insert(key.clone(), item);
            self.order.push_back(key);
        }
    }

    fn note(&mut self, version: &ResourceVersion) {
        let newer = self
            .version
            .as_ref()
            .is_none_or(|held| version.reaches(held));
        if newer && !version.is_empty() {
            self.version = Some(version.clone());
        }
    }
}

/// The object after those deltas; `None` if it is gone.
fn newest<S: Stored + ?Sized>(deltas: &[Delta<S>]) -> Option<&Arc<S>> {
    deltas
        .last()
        .filter(|last| !matches!(last, Delta::Deleted(_)))?;
    deltas.iter().rev().find_map(Delta::object)
}

/// Merges two deletions in a row: the one with more information stays (client-go: `dedupDeltas`). Returns how many were
/// removed.
fn merge_deletions<S: ?Sized>(deltas: &mut Vec<Delta<S>>) -> usize {
    let [.., Delta::Deleted(former), Delta::Deleted(_)] = &deltas[..] else {
        return 0;
    };
    let keep_former = matches!(former, Deletion::Seen(_));
    let place = deltas.len() - if keep_former { 1 } else { 2 };
    deltas.remove(place);
    1
}

impl<S: Stored + ?Sized> Fifo<S> for DeltaFifo<S> {
    fn push(&self, delta: Delta<S>) {
        let Some(key) = self.key_of(&delta) else {
            return;
        };
        let mut inner = self.inner.lock();
        inner.populated = true;
        if let Some(object) = delta.object() {
            inner.note(&ResourceVersion::from(object.resource_version()));
        }
        let unknown = matches!(delta, Delta::Deleted(_))
            && !inner.holds(&key)
            && self.known.known(key.as_ref()).is_none();
        if !unknown {
            inner.enqueue(key, delta);
        }
        drop(inner);
        self.readable.notify_one();
    }

    fn replace(&self, snapshot: Snapshot<S>) {
        let mut inner = self.inner.lock();
        let mut listed: HashSet<ObjectKey> = HashSet::new();
        for object in snapshot.objects {
            let key = (self.key_function)(&object);
            listed.insert(key.clone());
            let delta = if self.emit_replaced {
                Delta::Replaced(object)
            } else {
                Delta::Sync(object)
            };
            inner.enqueue(key, delta);
        }
        listed.extend(snapshot.retained);
        // Objects that only the queue has (kubernetes#115658), or the consumer that processes them, with their newest
        // state.
        let waiting = inner
            .order
            .iter()
            .filter_map(|key| Some((key, newest(&inner.items.get(key)?.deltas)?)));
        let in_process = inner.in_process.iter().filter_map(|other| {
            let more = inner.items.contains_key(&other.key);
            Some((&other.key, other.state.as_ref().filter(|_| !more)?))
        });
        let only_here: Vec<_> = waiting
            .chain(in_process)
            .filter(|(key, _)| !listed.contains(*key))
            .map(|(key, state)| (key.clone(), Arc::clone(state)))
            .collect();
        for (key, last) in only_here {
            let last = Some(last);
            inner.enqueue(
                key.clone(),
                Delta::Deleted(Deletion::FinalStateUnknown { key, last }),
            );
        }
        for object in self.known.known_objects() {
            let key = (self.key_function)(&object);
            if listed.contains(&key) || inner.is_under_way(&key) {
                continue;
            }
            let last = Some(object);
            inner.enqueue(
                key.clone(),
                Delta::Deleted(Deletion::FinalStateUnknown { key, last }),
            );
        }
        if !inner.populated {
            inner.populated = true;
            inner.initial = inner.order.len();
            for item in inner.items.values_mut() {
                item.initial = true;
            }
        }
        // A list sets the version: it may be of a new epoch.
        inner.version = Some(snapshot.resource_version);
        inner.new_epoch |= snapshot.new_epoch;
        drop(inner);
        self.readable.notify_one();
    }

    fn resync(&self) {
        let mut inner = self.inner.lock();
        for object in self.known.known_objects() {
            let key = (self.key_function)(&object);
            // Deltas that wait already deliver the object (client-go: syncKeyLocked), and deltas being processed have
            // just delivered it.
            if !inner.is_under_way(&key) {
                inner.enqueue(key, Delta::Sync(object));
            }
        }
        drop(inner);
        self.readable.notify_one();
    }

    fn bookmark(&self, version: ResourceVersion) {
        self.inner.lock().note(&version);
        self.readable.notify_one();
    }

    fn process(&self, process: &mut dyn FnMut(Batch<S>)) -> bool {
        let batch = |deltas, initial| Batch {
            deltas,
            initial,
            resource_version: None,
        };
        let mut inner = self.inner.lock();
        if std::mem::take(&mut inner.new_epoch) {
            drop(inner);
            process(batch(
                vec![Delta::Bookmark(ResourceVersion::from(NEW_EPOCH))],
                false,
            ));
            return true;
        }
        let Some((_, mut item, initial)) = inner.take() else {
            let Some(version) = inner.version.take() else {
                return false;
            };
            drop(inner);
            process(batch(vec![Delta::Bookmark(version)], false));
            return true;
        };
        drop(inner);
        let deltas = batch(std::mem::take(&mut item.deltas), initial);
        let result = catch_unwind(AssertUnwindSafe(|| process(deltas)));
        let mut inner = self.inner.lock();
        inner.processed(&item);
        inner.settle(&item);
        drop(inner);
        result.unwrap_or_else(|panic| resume_unwind(panic));
        self.writable.notify_one();
        true
    }

    fn has_synced(&self) -> bool {
        let inner = self.inner.lock();
        inner.populated && inner.initial == 0
    }

    fn len(&self) -> usize {
        self.inner.lock().waiting
    }

    /// A version that waits is a batch, too.
    fn is_empty(&self) -> bool {
        let inner = self.inner.lock();
        inner.waiting == 0 && inner.version.is_none() && !inner.new_epoch
    }

    fn has_room(&self) -> bool {
        self.len() < self.capacity
    }

    fn readable(&self) -> &Notify {
        &self.readable
    }

    fn writable(&self) -> &Notify {
        &self.writable
    }
}

impl<S: Stored + ?Sized> std::fmt::Debug for DeltaFifo<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeltaFifo")
            .field("deltas", &self.len())
            .finish_non_exhaustive()
    }
}
