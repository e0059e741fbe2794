//! One watch of an informer: a reflector, the queue behind it, and how far that has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube_client::Client;
use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::decode::SkipPath;
use crate::entry::Stored;
use crate::fifo::{DeltaFifo, Fifo, KnownObjects, RealFifo};
use crate::health::{HealthCell, WatchHealth};
use crate::indexer::{Indexer, NAMESPACE_INDEX};
use crate::key::KeyRef;
use crate::metrics::Recorder;
use crate::reading::Reading;
use crate::reflector::{Reflector, ReflectorOptions, Transform};
use crate::transport::{Endpoint, Scope, Selection};
use crate::version::ResourceVersion;

/// How many deltas wait between a reflector and the store (client-go: 2 batches of 1,000).
const FIFO_CAPACITY: usize = 2000;

/// What the watches of one informer have in common.
pub(super) struct Source<S: Stored> {
    pub(super) client: Client,
    pub(super) endpoint: Endpoint,
    pub(super) selection: Selection,
    pub(super) options: ReflectorOptions,
    pub(super) transform: Option<Transform<S>>,
    pub(super) skip: Vec<SkipPath>,
    pub(super) reading: Arc<Reading>,
    pub(super) delta_fifo: bool,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    pub(super) indexer: Arc<Indexer<S>>,
    /// Told when there may be something in any queue.
    pub(super) readable: Arc<Notify>,
}

pub(super) struct Feed<S: Stored> {
    pub(super) scope: Scope,
    /// It fills one namespace of the store and not all of it.
    pub(super) part: Option<Arc<str>>,
    pub(super) fifo: Arc<dyn Fifo<S>>,
    pub(super) health: Arc<HealthCell>,
    reflector: Reflector<S>,
    stop: CancellationToken,
    synced: AtomicBool,
    /// What the store holds of the scope is of this version.
    version: Mutex<ResourceVersion>,
}

/// What the store holds of one namespace.
struct Within<S> {
    indexer: Arc<Indexer<S>>,
    namespace: Arc<str>,
}

// === impl Source ===

impl<S: Stored> Source<S> {
    /// A watch that fills the store from `scope`.
    pub(super) fn whole(&self, scope: Scope) -> Arc<Feed<S>> {
        self.feed(scope, None, ResourceVersion::default())
    }

    /// One watch of several. It takes nothing older than `not_before`, which is known already.
    pub(super) fn part(&self, scope: Scope, not_before: ResourceVersion) -> Arc<Feed<S>> {
        let part = match &scope {
            Scope::Cluster => None,
            Scope::Namespace(namespace) => Some(Arc::clone(namespace)),
        };
        self.feed(scope, part, not_before)
    }

    fn feed(
        &self,
        scope: Scope,
        part: Option<Arc<str>>,
        not_before: ResourceVersion,
    ) -> Arc<Feed<S>> {
        let known: Arc<dyn KnownObjects<S>> = match &part {
            None => Arc::clone(&self.indexer) as _,
            Some(namespace) => Arc::new(Within {
                indexer: Arc::clone(&self.indexer),
                namespace: Arc::clone(namespace),
            }),
        };
        let readable = Arc::clone(&self.readable);
        let fifo: Arc<dyn Fifo<S>> = if self.delta_fifo {
            Arc::new(DeltaFifo::new(Arc::clone(&known), FIFO_CAPACITY).telling(readable))
        } else {
            Arc::new(RealFifo::new(FIFO_CAPACITY).telling(readable))
        };
        let health = Arc::new(HealthCell::new(self.clock.clone()));
        let selection = Selection {
            scope: scope.clone(),
            ..self.selection.clone()
        };
        let mut reflector = Reflector {
            health: Arc::clone(&health),
            recorder: self.recorder.clone(),
            transform: self.transform.clone(),
            known: Some(known),
            not_before,
            ..Reflector::new(
                self.client.clone(),
                self.endpoint.clone(),
                selection,
                self.options,
                Arc::clone(&fifo),
                self.clock.clone(),
            )
        };
        for path in &self.skip {
            reflector.decoding.skip.add(path);
        }
        reflector.decoding.reading = Arc::clone(&self.reading);
        Arc::new(Feed {
            scope,
            part,
            fifo,
            health,
            reflector,
            stop: CancellationToken::new(),
            synced: AtomicBool::new(false),
            version: Mutex::new(ResourceVersion::default()),
        })
    }
}

// === impl Feed ===

impl<S: Stored> Feed<S> {
    /// Fills the queue until the feed is stopped.
    pub(super) async fn run(self: Arc<Self>) {
        self.reflector.run(self.stop.clone()).await;
    }

    /// Nothing more of it is to reach the store.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// True once its first list is in the store.
    pub(super) fn has_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    pub(super) fn version(&self) -> ResourceVersion {
        self.version.lock().clone()
    }

    /// What the store holds of the scope is of `version` now.
    pub(super) fn set_version(&self, version: ResourceVersion) {
        *self.version.lock() = version;
    }

    /// The same, unless it is of a later version.
    pub(super) fn advance(&self, version: &ResourceVersion) {
        let mut held = self.version.lock();
        if !version.is_empty() && version.reaches(&held) {
            held.clone_from(version);
        }
    }

    pub(super) fn health(&self) -> WatchHealth {
        self.health
            .watch(self.scope.clone(), self.has_synced(), self.version())
    }

    /// Notes what was processed.
    pub(super) fn progress(&self) {
        if !self.has_synced() && self.fifo.has_synced() {
            self.synced.store(true, Ordering::Release);
        }
    }
}

// === impl Within ===

impl<S: Stored> KnownObjects<S> for Within<S> {
    fn known(&self, key: KeyRef<'_>) -> Option<Arc<S>> {
        self.indexer.get_ref(key)
    }

    fn known_objects(&self) -> Vec<Arc<S>> {
        self.indexer
            .by_index(NAMESPACE_INDEX, &self.namespace)
            .unwrap_or_default()
    }
}
