//! One watch of an informer: a reflector, the queue behind it, and how far the store has come with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::part::Part;
use crate::event::Event;
use crate::fifo::{Batch, Delta, Fifo};
use crate::health::{HealthCell, WatchHealth};
use crate::indexer::{Change, Indexer};
use crate::object::Stored;
use crate::processor::Processor;
use crate::reflector::Reflector;
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
pub(super) struct Applied<S: Stored + ?Sized> {
    /// For the handlers, in order.
    pub(super) events: Vec<Event<S>>,
    /// The number of deltas that were older than the store.
    pub(super) stale: usize,
}

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

    /// Fills the queue until the feed is stopped.
    pub(super) async fn run(self: Arc<Self>) {
        self.reflector.run(self.stop.clone()).await;
    }

    /// Applies a batch to the store. `processor` is locked by the caller: a resync goes to its handlers at once.
    pub(super) fn apply(
        &self,
        indexer: &Indexer<S>,
        processor: &Processor<S>,
        batch: Batch<S>,
    ) -> Applied<S> {
        let initial = batch.initial;
        let mut events = Vec::new();
        let mut stale = 0;
        let mut single = Vec::with_capacity(batch.deltas.len());
        for delta in batch.deltas {
            match delta {
                Delta::ReplacedAll(snapshot) => {
                    let version = snapshot.resource_version.clone();
                    events.extend(match &self.part {
                        Part::Whole => indexer.replace(snapshot, initial),
                        part => part.replace(indexer, snapshot, initial),
                    });
                    // After the store, which a reader of the version may read next.
                    self.set_version(version);
                }
                Delta::SyncAll => processor.resync(indexer),
                Delta::Bookmark(version) => {
                    self.set_version(version.clone());
                    indexer.change(|change| match self.part.name() {
                        None => change.set_version(version),
                        part => change.advance_part(part, version),
                    });
                }
                delta => single.push(delta),
            }
        }
        if !single.is_empty() {
            indexer.change(|change| {
                for delta in single {
                    match change.apply(delta, initial) {
                        Change::Known => {}
                        Change::Stale => stale += 1,
                        Change::One(event) => events.push(event),
                        Change::Recreated(deleted, added) => events.extend([deleted, added]),
                    }
                }
                if let Some(version) = &batch.resource_version {
                    change.advance_part(self.part.name(), version.clone());
                }
            });
            if let Some(version) = &batch.resource_version {
                self.advance(version);
            }
        }
        Applied { events, stale }
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
