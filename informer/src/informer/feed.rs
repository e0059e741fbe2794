//! One watch of an informer: a reflector, the queue behind it, and how far the store has come with it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::part::Part;
use crate::fifo::{Batch, Delta, Fifo, NEW_EPOCH, Snapshot};
use crate::health::{HealthCell, WatchHealth};
use crate::indexer::{Change, Indexer, Replaced, Replacement};
use crate::object::Stored;
use crate::processor::{Processor, Recipients};
use crate::reflector::Reflector;
use crate::turns::Turns;
use reeve_client::ResourceVersion;
use reeve_client::transport::Scope;

/// One watch of an informer.
pub(super) struct Feed<S: Stored + ?Sized> {
    pub(super) scope: Scope,
    /// The part of the store that it fills.
    pub(super) part: Part,
    pub(super) fifo: Arc<dyn Fifo<S>>,
    pub(super) health: Arc<HealthCell>,
    reflector: Reflector<S>,
    stop: CancellationToken,
    synced: AtomicBool,
    /// The version of what the store holds of the scope.
    version: Mutex<ResourceVersion>,
}

/// The result of a batch.
#[derive(Default)]
pub(super) struct Applied {
    /// An object changed.
    pub(super) changed: bool,
    /// The number of deltas that were older than the store.
    pub(super) stale: usize,
}

/// The handlers that receive the events of a replacement, if it took place.
type Swapped<S> = Result<(Recipients<S>, Replaced<S>), Box<Replacement<S>>>;

// === impl Feed ===

impl<S: Stored + ?Sized> Feed<S> {
    pub(super) fn new(
        scope: Scope,
        part: Part,
        fifo: Arc<dyn Fifo<S>>,
        health: Arc<HealthCell>,
        reflector: Reflector<S>,
    ) -> Self {
        Self {
            scope,
            part,
            fifo,
            health,
            reflector,
            stop: CancellationToken::new(),
            synced: AtomicBool::new(false),
            version: Mutex::new(ResourceVersion::default()),
        }
    }

    /// The namespaces of which the store may still have objects with other parts left out than this feed does.
    pub(super) fn rereads(&self) -> Arc<BTreeSet<Arc<str>>> {
        if self.has_synced() {
            return Arc::default();
        }
        Arc::clone(&self.reflector.rereads)
    }

    /// Fills the queue until the feed is stopped.
    pub(super) async fn run(self: Arc<Self>) {
        self.reflector.run(self.stop.clone()).await;
    }

    /// Applies a batch to the store, and enqueues its events for the handlers. Both happen under the lock of `processor`,
    /// so a handler that is added meanwhile sees the batch either in the store or as events. Nothing else changes the
    /// objects until this returns.
    pub(super) async fn apply(
        &self,
        indexer: &Indexer<S>,
        processor: &Mutex<Processor<S>>,
        batch: Batch<S>,
    ) -> Applied {
        let mut applied = Applied::default();
        let mut single = batch.deltas;
        // Deltas about the whole store are rare.
        let whole = single.extract_if(.., |delta| delta.key_ref().is_none());
        for delta in whole.collect::<Vec<_>>() {
            match delta {
                Delta::ReplacedAll(snapshot) => {
                    let replaced = self.replace(indexer, processor, snapshot, batch.initial);
                    applied.changed |= replaced.await;
                }
                Delta::SyncAll => {
                    let (store, due) = {
                        let processor = processor.lock();
                        (indexer.snapshot(), processor.due())
                    };
                    due.resync(&store).await;
                    store.free();
                }
                Delta::Bookmark(version) => {
                    self.set_version(version.clone());
                    indexer.change(|change| match self.part.name() {
                        None => change.set_version(version),
                        // All that was seen is of the former history.
                        Some(part) if version.as_str() == NEW_EPOCH => {
                            change.set_part(part, version.clone());
                            change.set_version(version);
                        }
                        part => change.advance_part(part, version),
                    });
                }
                Delta::Added(_)
                | Delta::Updated(_)
                | Delta::Deleted(_)
                | Delta::Replaced(_)
                | Delta::Sync(_) => {}
            }
        }
        if !single.is_empty() {
            let version = batch.resource_version.as_ref();
            self.apply_single(
                indexer,
                processor,
                single,
                batch.initial,
                version,
                &mut applied,
            );
        }
        applied
    }

    /// Applies deltas about one object each, in one step.
    fn apply_single(
        &self,
        indexer: &Indexer<S>,
        processor: &Mutex<Processor<S>>,
        deltas: Vec<Delta<S>>,
        initial: bool,
        version: Option<&ResourceVersion>,
        applied: &mut Applied,
    ) {
        let processor = processor.lock();
        let mut events = Vec::with_capacity(deltas.len());
        let ((), dropped) = indexer.change_and_free(|change| {
            for delta in deltas {
                match change.apply(delta, initial) {
                    Change::Known => {}
                    Change::Stale => applied.stale += 1,
                    Change::One(event) => events.push(event),
                    Change::Recreated(deleted, added) => events.extend([deleted, added]),
                }
            }
            if let Some(version) = version {
                change.advance_part(self.part.name(), version.clone());
            }
        });
        if let Some(version) = version {
            self.advance(version);
        }
        applied.changed |= events.iter().any(|event| !event.is_resync());
        processor.distribute(events);
        drop(processor);
        drop(dropped);
    }

    /// Replaces what the store holds of the scope by a list. Returns whether anything changed.
    ///
    /// The next state is built beside the present one in turns, and takes its place in one step. The events of that step
    /// follow in turns, for the handlers of the moment of the step.
    async fn replace(
        &self,
        indexer: &Indexer<S>,
        processor: &Mutex<Processor<S>>,
        snapshot: Snapshot<S>,
        initial: bool,
    ) -> bool {
        let list = (snapshot.resource_version.clone(), snapshot.new_epoch);
        if let Some(held) = self.part.few(indexer, &snapshot) {
            let processor = processor.lock();
            let events = self.part.replace_within(indexer, held, snapshot, initial);
            let changed = !events.is_empty();
            processor.distribute(events);
            self.set_version(list.0);
            return changed;
        }
        let mut turns = Turns::new();
        let holds = |namespace: Option<&str>| self.part.holds(namespace);
        let mut replacement = indexer
            .replacement(snapshot, initial, holds, &mut turns)
            .await;
        let (recipients, replaced) = loop {
            match self.swap(indexer, processor, replacement, &list) {
                Ok(replaced) => break replaced,
                Err(unfinished) => replacement = *unfinished,
            }
            replacement.follow(indexer, &mut turns).await;
        };
        let (changed, (events, freed)) = (replaced.len() > 0, replaced.into_parts());
        recipients.deliver(events).await;
        drop(recipients);
        freed.free();
        changed
    }

    /// The step in which a replacement takes place, and the handlers that receive its events.
    fn swap(
        &self,
        indexer: &Indexer<S>,
        processor: &Mutex<Processor<S>>,
        replacement: Replacement<S>,
        (version, new_epoch): &(ResourceVersion, bool),
    ) -> Swapped<S> {
        let processor = processor.lock();
        let replaced = self.part.swap(indexer, replacement, version, *new_epoch)?;
        // After the store, which a reader of the version may read next.
        self.set_version(version.clone());
        Ok((processor.recipients(), replaced))
    }

    /// Marks the feed as synced once its first list was processed.
    pub(super) fn mark_processed(&self) {
        if !self.has_synced() && self.fifo.has_synced() {
            self.synced.store(true, Ordering::Release);
        }
    }

    /// True if something in `scope` may come from this feed.
    pub(super) fn meets(&self, scope: &Scope) -> bool {
        match &self.part {
            Part::Whole => self.scope.contains(scope),
            part => part.meets(scope),
        }
    }

    /// Stops the feed. Nothing more of it reaches the store.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// True once the first list is in the store.
    pub(super) fn has_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    pub(super) fn version(&self) -> ResourceVersion {
        self.version.lock().clone()
    }

    /// Sets the version of what the store holds of the scope.
    fn set_version(&self, version: ResourceVersion) {
        *self.version.lock() = version;
    }

    /// Sets the version, unless it is older than the present one.
    fn advance(&self, version: &ResourceVersion) {
        let mut held = self.version.lock();
        if !version.is_empty() && version.reaches(&held) {
            held.clone_from(version);
        }
    }

    pub(super) fn health(&self) -> WatchHealth {
        self.health
            .watch(self.scope.clone(), self.has_synced(), self.version())
    }
}
