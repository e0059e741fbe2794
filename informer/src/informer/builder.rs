//! Making an informer.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use kube_client::Client;
use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::sync::{Notify, watch};

use super::{Inner, SharedInformer, Stage};
use crate::decode::SkipPath;
use crate::entry::Stored;
use crate::fifo::{DeltaFifo, Fifo, KnownObjects, RealFifo};
use crate::health::HealthCell;
use crate::indexer::Indexer;
use crate::metrics::{Metrics, Recorder};
use crate::processor::Processor;
use crate::reading::Reading;
use crate::reflector::{Reflector, ReflectorOptions, Transform};
use crate::transport::{Endpoint, Scope, Selection};
use crate::version::ResourceVersion;

/// How many deltas wait between the reflector and the store (client-go: 2 batches of 1,000).
const FIFO_CAPACITY: usize = 2000;

/// Makes a [`SharedInformer`].
#[must_use = "call `build`"]
pub struct Builder<S: Stored> {
    client: Client,
    endpoint: Endpoint,
    selection: Selection,
    name: Option<Arc<str>>,
    clock: Option<Clock>,
    metrics: Option<Arc<dyn Metrics>>,
    resync: Option<Duration>,
    transform: Option<Transform<S>>,
    options: ReflectorOptions,
    delta_fifo: bool,
    skip: Vec<SkipPath>,
    decoded: Option<NonZeroUsize>,
}

// === impl Builder ===

impl<S: Stored> Builder<S> {
    pub(super) fn new(client: Client, endpoint: Endpoint) -> Self {
        Self {
            client,
            endpoint,
            selection: Selection::default(),
            name: None,
            clock: None,
            metrics: None,
            resync: None,
            transform: None,
            options: ReflectorOptions::default(),
            delta_fifo: false,
            skip: Vec::new(),
            decoded: None,
        }
    }

    /// Where the objects are. Default: the whole cluster.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.selection.scope = scope;
        self
    }

    /// A label selector as kubectl writes it. Default: all.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.selection.labels = selector.into();
        self
    }

    /// A field selector as kubectl writes it. Default: all.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.selection.fields = selector.into();
        self
    }

    /// Scope and selectors in one.
    pub fn selection(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// A name for logs, health and metrics. Default: the resource and its group.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The source of dates and jitter. Default: [`Clock::system`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Where measurements go. Default: nowhere.
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// How often handlers that do not say otherwise are shown every object again. Default: never.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Changes every object before it is stored or shown, to drop what is not needed. It runs once an object
    /// (client-go: `SetTransform`).
    pub fn transform(mut self, transform: impl Fn(&mut S) + Send + Sync + 'static) -> Self {
        self.transform = Some(Arc::new(transform));
        self
    }

    /// Leaves a part of every object out, as bytes, before anything is decoded: `.skip(".status".parse()?)`. May
    /// be said many times. Default: only `.metadata.managedFields`, always.
    pub fn skip(mut self, path: SkipPath) -> Self {
        self.skip.push(path);
        self
    }

    /// For a form that is decoded on reading ([`Compact`](crate::Compact)): keeps the `objects` that were read last
    /// as their type, in one cache for the store. It takes as much memory as so many typed objects, and about 250
    /// bytes for each. Default: none are kept, each read decodes.
    pub fn cache_decoded(mut self, objects: NonZeroUsize) -> Self {
        self.decoded = Some(objects);
        self
    }

    /// How to list and watch.
    pub fn reflector(mut self, options: ReflectorOptions) -> Self {
        self.options = options;
        self
    }

    /// Use a [`DeltaFifo`] between the reflector and the store. Default: a [`RealFifo`].
    pub fn delta_fifo(mut self) -> Self {
        self.delta_fifo = true;
        self
    }

    /// The informer, not yet running.
    #[must_use]
    pub fn build(self) -> SharedInformer<S> {
        let clock = self.clock.unwrap_or_else(Clock::system);
        let name = self
            .name
            .unwrap_or_else(|| Arc::from(self.endpoint.to_string()));
        let recorder = Recorder::new(Arc::clone(&name), self.metrics);
        let health = Arc::new(HealthCell::new(clock.clone()));
        let indexer = Arc::new(Indexer::new());
        let known: Arc<dyn KnownObjects<S>> = Arc::clone(&indexer) as _;
        let fifo: Arc<dyn Fifo<S>> = if self.delta_fifo {
            Arc::new(DeltaFifo::new(Arc::clone(&known), FIFO_CAPACITY))
        } else {
            Arc::new(RealFifo::new(FIFO_CAPACITY))
        };
        let mut reflector = Reflector {
            health: Arc::clone(&health),
            recorder: recorder.clone(),
            transform: self.transform,
            known: Some(known),
            ..Reflector::new(
                self.client,
                self.endpoint.clone(),
                self.selection.clone(),
                self.options,
                Arc::clone(&fifo),
                clock,
            )
        };
        for path in &self.skip {
            reflector.decoding.skip.add(path);
        }
        let reading = Reading::new(self.decoded, Arc::clone(&health), recorder.clone());
        reflector.decoding.reading = Arc::new(reading);
        SharedInformer {
            lease: None,
            inner: Arc::new(Inner {
                name,
                endpoint: self.endpoint,
                selection: self.selection,
                default_resync: self.resync,
                indexer,
                fifo,
                reflector,
                health,
                recorder,
                processor: Mutex::new(Processor::new()),
                handlers_changed: Notify::new(),
                stage: watch::Sender::new(Stage::Created),
                synced: watch::Sender::new(false),
                version: watch::Sender::new(ResourceVersion::default()),
            }),
        }
    }
}

impl<S: Stored> std::fmt::Debug for Builder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("endpoint", &self.endpoint)
            .field("selection", &self.selection)
            .finish_non_exhaustive()
    }
}
