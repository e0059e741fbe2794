//! Deltas per key (client-go: `DeltaFIFO`).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Batch, Deletion, Delta, Fifo, KnownObjects, Snapshot};
use crate::entry::Stored;
use crate::key::ObjectKey;
use crate::version::ResourceVersion;

/// Collects the deltas of each object under its key, and hands them out key by key in the order in which the
/// keys came. A key keeps its place when more comes for it.
///
/// A list becomes one delta an object, and a [`Deletion::FinalStateUnknown`] for each object that is known
/// ([`KnownObjects`], or only in the queue) and not in the list. The store therefore equals one server
/// version only when the queue is empty; only then the version is passed on, as a bookmark.
pub struct DeltaFifo<S> {
    inner: Mutex<Inner<S>>,
    known: Arc<dyn KnownObjects<S>>,
    emit_replaced: bool,
    capacity: usize,
    readable: Arc<Notify>,
    writable: Notify,
}

struct Inner<S> {
    /// Keys in order of their first delta.
    order: VecDeque<ObjectKey>,
    deltas: HashMap<ObjectKey, Vec<Delta<S>>>,
    /// A list or change came.
    populated: bool,
    /// How many keys of the first list are still to be processed.
    initial: usize,
    /// The newest version pushed, to pass on when the queue is empty.
    version: Option<ResourceVersion>,
}

// === impl DeltaFifo ===

impl<S: Stored> DeltaFifo<S> {
    /// A queue whose consumer holds `known`, and in which up to `capacity` keys wait before producers are
    /// held.
    #[must_use]
    pub fn new(known: Arc<dyn KnownObjects<S>>, capacity: usize) -> Self {
        Self {
            inner: Mutex::new(Inner {
                order: VecDeque::new(),
                deltas: HashMap::new(),
                populated: false,
                initial: 0,
                version: None,
            }),
            known,
            emit_replaced: true,
            capacity: capacity.max(1),
            readable: Arc::default(),
            writable: Notify::new(),
        }
    }

    /// Whether objects of a list come as [`Delta::Replaced`] (default) or as [`Delta::Sync`], as they did
    /// before client-go had the former (client-go: `EmitDeltaTypeReplaced`).
    #[must_use]
    pub fn emit_replaced(mut self, emit: bool) -> Self {
        self.emit_replaced = emit;
        self
    }

    /// Tells `readable` when there may be something to process: one consumer of several queues waits for that.
    #[must_use]
    pub(crate) fn telling(mut self, readable: Arc<Notify>) -> Self {
        self.readable = readable;
        self
    }

    /// The deltas that wait for `key`, oldest first, as text (`Added@5`), for inspection.
    #[must_use]
    pub fn waiting(&self, key: &ObjectKey) -> Vec<String> {
        let inner = self.inner.lock();
        inner
            .deltas
            .get(key)
            .into_iter()
            .flatten()
            .map(describe)
            .collect()
    }
}

impl<S: Stored> Inner<S> {
    fn enqueue(&mut self, key: ObjectKey, delta: Delta<S>) {
        if let Some(deltas) = self.deltas.get_mut(&key) {
            deltas.push(delta);
            merge_deletions(deltas);
        } else {
            self.deltas.insert(key.clone(), vec![delta]);
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

/// Two deletions in a row are one: the one that knows more stays (client-go: `dedupDeltas`).
fn merge_deletions<S>(deltas: &mut Vec<Delta<S>>) {
    let [.., Delta::Deleted(former), Delta::Deleted(_)] = &deltas[..] else {
        return;
    };
    let keep_former = matches!(former, Deletion::Seen(_));
    let place = deltas.len() - if keep_former { 1 } else { 2 };
    deltas.remove(place);
}

fn describe<S: Stored>(delta: &Delta<S>) -> String {
    let kind = match delta {
        Delta::Added(_) => "Added",
        Delta::Updated(_) => "Updated",
        Delta::Deleted(Deletion::Seen(_)) => "Deleted",
        Delta::Deleted(Deletion::FinalStateUnknown { .. }) => "Tombstone",
        Delta::Replaced(_) => "Replaced",
        Delta::Sync(_) => "Sync",
        Delta::ReplacedAll(_) => "ReplacedAll",
        Delta::SyncAll => "SyncAll",
        Delta::Bookmark(_) => "Bookmark",
    };
    match delta.object() {
        Some(object) => format!("{kind}@{}", object.resource_version()),
        None => kind.to_owned(),
    }
}

impl<S: Stored> Fifo<S> for DeltaFifo<S> {
    fn push(&self, delta: Delta<S>) {
        let Some(key) = delta.key_ref().map(crate::key::KeyRef::to_key) else {
            return;
        };
        let mut inner = self.inner.lock();
        inner.populated = true;
        if let Some(object) = delta.object() {
            inner.note(&ResourceVersion::from(object.resource_version()));
        }
        let unknown = matches!(delta, Delta::Deleted(_))
            && !inner.deltas.contains_key(&key)
            && self.known.known(key.as_ref()).is_none();
        if !unknown {
            inner.enqueue(key, delta);
        }
        drop(inner);
        self.readable.notify_one();
    }

    fn replace(&self, snapshot: Snapshot<S>) {
        let mut inner = self.inner.lock();
        let mut listed: HashMap<ObjectKey, ()> = HashMap::new();
        for object in snapshot.objects {
            let key = object.key();
            listed.insert(key.clone(), ());
            let delta = if self.emit_replaced {
                Delta::Replaced(object)
            } else {
                Delta::Sync(object)
            };
            inner.enqueue(key, delta);
        }
        for key in snapshot.retained {
            listed.insert(key, ());
        }
        // Objects that only the queue knows (kubernetes#115658), with their newest state.
        let queued: Vec<_> = inner
            .order
            .iter()
            .filter(|key| !listed.contains_key(*key))
            .cloned()
            .collect();
        for key in queued {
            let deltas = inner
                .deltas
                .get(&key)
                .map(Vec::as_slice)
                .unwrap_or_default();
            if matches!(deltas.last(), Some(Delta::Deleted(_))) {
                continue;
            }
            let last = deltas
                .iter()
                .rev()
                .find_map(|delta| delta.object().cloned());
            inner.enqueue(
                key.clone(),
                Delta::Deleted(Deletion::FinalStateUnknown { key, last }),
            );
        }
        for object in self.known.known_objects() {
            let key = object.key();
            if listed.contains_key(&key) || inner.deltas.contains_key(&key) {
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
        }
        // A list starts a new reckoning: it may be of a new epoch.
        inner.version = Some(snapshot.resource_version);
        drop(inner);
        self.readable.notify_one();
    }

    fn resync(&self) {
        let mut inner = self.inner.lock();
        for object in self.known.known_objects() {
            let key = object.key();
            // What waits already will show the object (client-go: syncKeyLocked).
            if !inner.deltas.contains_key(&key) {
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
        let (batch, counted) = {
            let mut inner = self.inner.lock();
            let Some(key) = inner.order.pop_front() else {
                let Some(version) = inner.version.take() else {
                    return false;
                };
                drop(inner);
                let deltas = vec![Delta::Bookmark(version)];
                process(Batch {
                    deltas,
                    initial: false,
                    resource_version: None,
                });
                return true;
            };
            let deltas = inner.deltas.remove(&key).unwrap_or_default();
            let initial = !inner.populated || inner.initial > 0;
            (
                Batch {
                    deltas,
                    initial,
                    resource_version: None,
                },
                inner.initial > 0,
            )
        };
        process(batch);
        if counted {
            // After processing: a queue that says it is synced has shown its last object.
            let mut inner = self.inner.lock();
            inner.initial = inner.initial.saturating_sub(1);
        }
        self.writable.notify_one();
        true
    }

    fn has_synced(&self) -> bool {
        let inner = self.inner.lock();
        inner.populated && inner.initial == 0
    }

    fn len(&self) -> usize {
        self.inner.lock().order.len()
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

impl<S: Stored> std::fmt::Debug for DeltaFifo<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeltaFifo")
            .field("keys", &self.len())
            .finish_non_exhaustive()
    }
}
