//! One watch of an informer: a reflector, the queue behind it, and how far that has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube_client::Client;
use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio_util::sync::CancellationToken;

use super::namespaces::Part;
use crate::decode::SkipPath;
use crate::entry::Stored;
use crate::fifo::{DeltaFifo, Fifo, KnownObjects, RealFifo};
use crate::health::{HealthCell, WatchHealth};
use crate::indexer::{Indexer, NAMESPACE_INDEX};
use crate::key::KeyRef;
use crate::metrics::Recorder;
use crate::reading::Reading;
use crate::reflector::{Reflector, ReflectorOptions, Refusals, Transform};
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
    pub(super) refusals: Refusals,
    pub(super) transform: Option<Transform<S>>,
    pub(super) skip: Vec<SkipPath>,
    pub(super) within: Particular,
    pub(super) reading: Arc<Reading>,
    pub(super) delta_fifo: bool,
    pub(super) clock: Clock,
    pub(super) recorder: Recorder,
    pub(super) indexer: Arc<Indexer<S>>,
}

/// What is selected from one namespace of a set, or from all that are watched as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Within {
    /// A label selector, as kubectl writes it; empty for all.
    pub labels: String,
    /// A field selector, as kubectl writes it; empty for all.
    pub fields: String,
    /// What is left out of each object, beside what the builder says.
    pub skip: Vec<SkipPath>,
}

/// What is particular to each scope.
#[derive(Clone, Default)]
pub(super) struct Particular(pub(super) Option<Select>);
/// Says what is selected from a scope.
pub(super) type Select = Arc<dyn Fn(&Scope) -> Within + Send + Sync>;

pub(super) struct Feed<S: Stored> {
    pub(super) scope: Scope,
    /// What it fills of the store.
    pub(super) part: Part,
    pub(super) fifo: Arc<dyn Fifo<S>>,
    pub(super) health: Arc<HealthCell>,
    reflector: Reflector<S>,
    stop: CancellationToken,
    synced: AtomicBool,
    /// What the store holds of the scope is of this version.
    version: Mutex<ResourceVersion>,
}

/// What the store holds of one part.
struct Held<S> {
    indexer: Arc<Indexer<S>>,
    part: Part,
}

// === impl Source ===

impl<S: Stored> Source<S> {
    /// A watch that fills the store from `scope`.
    pub(super) fn whole(&self, scope: Scope) -> Arc<Feed<S>> {
        self.feed(scope, Part::Whole, ResourceVersion::default())
    }

    /// One watch of several. It takes nothing older than `not_before`, which is known already.
    pub(super) fn feed(
        &self,
        scope: Scope,
        part: Part,
        not_before: ResourceVersion,
    ) -> Arc<Feed<S>> {
        let known: Arc<dyn KnownObjects<S>> = match &part {
            Part::Whole => Arc::clone(&self.indexer) as _,
            part => Arc::new(Held {
                indexer: Arc::clone(&self.indexer),
                part: part.clone(),
            }),
        };
        let fifo: Arc<dyn Fifo<S>> = if self.delta_fifo {
            Arc::new(DeltaFifo::new(Arc::clone(&known), FIFO_CAPACITY))
        } else {
            Arc::new(RealFifo::new(FIFO_CAPACITY))
        };
        let health = Arc::new(HealthCell::new(self.clock.clone()));
        let Within {
            labels,
            fields,
            skip,
        } = self.within.selected(&self.selection, &scope);
        let selection = Selection {
            scope: scope.clone(),
            labels,
            fields: part.fields(fields),
        };
        let mut reflector = Reflector {
            health: Arc::clone(&health),
            recorder: self.recorder.clone(),
            transform: self.transform.clone(),
            known: Some(known),
            not_before,
            refusals: self.refusals.clone(),
            ..Reflector::new(
                self.client.clone(),
                self.endpoint.clone(),
                selection,
                self.options,
                Arc::clone(&fifo),
                self.clock.clone(),
            )
        };
        for path in self.skip.iter().chain(&skip) {
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

    /// Whether something in `scope` may come from it.
    pub(super) fn meets(&self, scope: &Scope) -> bool {
        match &self.part {
            Part::Whole => self.scope.contains(scope),
            part => part.meets(scope),
        }
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

// === impl Particular ===

impl Particular {
    /// What is selected from `scope`.
    fn selected(&self, selection: &Selection, scope: &Scope) -> Within {
        match &self.0 {
            Some(within) => within(scope),
            None => Within {
                labels: selection.labels.clone(),
                fields: selection.fields.clone(),
                skip: Vec::new(),
            },
        }
    }
}

// === impl Held ===

impl<S: Stored> KnownObjects<S> for Held<S> {
    fn known(&self, key: KeyRef<'_>) -> Option<Arc<S>> {
        self.indexer.get_ref(key)
    }

    fn known_objects(&self) -> Vec<Arc<S>> {
        match &self.part {
            Part::Namespace(namespace) => self
                .indexer
                .by_index(NAMESPACE_INDEX, namespace)
                .unwrap_or_default(),
            part => {
                let mut objects = self.indexer.list();
                objects.retain(|object| part.holds(object.namespace()));
                objects
            }
        }
    }
}
