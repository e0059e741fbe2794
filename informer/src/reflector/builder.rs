//! Makes a reflector: [`Builder`].

use std::sync::Arc;

use kube_client::Client;
use reeve_clock::Clock;

use super::options::ReflectorOptions;
use super::refusals::Refusals;
use super::run::{Reflector, Transform};
use crate::fifo::{Fifo, KnownObjects};
use crate::health::HealthCell;
use crate::metrics::Recorder;
use crate::object::{DecodeCache, Decoding, SkipPath, Stored};
use reeve_client::ResourceVersion;
use reeve_client::transport::{Endpoint, Selection, Transport};

/// Makes a [`Reflector`] for a queue and a consumer of your own. An informer makes its reflectors itself.
#[must_use = "call `build`"]
pub struct Builder<S: Stored> {
    client: Client,
    endpoint: Endpoint,
    fifo: Arc<dyn Fifo<S>>,
    selection: Selection,
    options: ReflectorOptions,
    clock: Option<Clock>,
    decoding: Decoding,
    transform: Option<Transform<S>>,
    known: Option<Arc<dyn KnownObjects<S>>>,
    not_before: ResourceVersion,
    refusals: Refusals,
    health: Option<Arc<HealthCell>>,
    recorder: Recorder,
}

impl<S: Stored> Reflector<S> {
    /// Begins a reflector that lists and watches `endpoint` and fills `fifo` (client-go: `NewReflector`).
    pub fn builder(client: Client, endpoint: Endpoint, fifo: Arc<dyn Fifo<S>>) -> Builder<S> {
        Builder::new(client, endpoint, fifo)
    }
}

// === impl Builder ===

impl<S: Stored> Builder<S> {
    fn new(client: Client, endpoint: Endpoint, fifo: Arc<dyn Fifo<S>>) -> Self {
        let decoding = Decoding::of(endpoint.api_version(), endpoint.kind());
        Self {
            client,
            // The server calls metadata alone PartialObjectMetadata.
            decoding: if endpoint.is_metadata_only() {
                decoding
            } else {
                decoding.guarded()
            },
            endpoint,
            fifo,
            selection: Selection::default(),
            options: ReflectorOptions::default(),
            clock: None,
            transform: None,
            known: None,
            not_before: ResourceVersion::default(),
            refusals: Refusals::default(),
            health: None,
            recorder: Recorder::default(),
        }
    }

    /// The objects to list and watch. Default: all of the kind.
    pub fn selection(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// The options of lists and watches.
    pub fn options(mut self, options: ReflectorOptions) -> Self {
        self.options = options;
        self
    }

    /// The source of dates and jitter. Default: [`Clock::system`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Changes every object before it is queued, to drop unneeded parts. An object at which it panics is left out, as
    /// one that cannot be read.
    pub fn transform(self, transform: impl Fn(&mut S) + Send + Sync + 'static) -> Self {
        self.transform_by(Some(Arc::new(transform)))
    }

    /// Leaves a part of every object out, as bytes, before anything is decoded. Each call adds a path. Default: only
    /// `.metadata.managedFields`, which is always left out.
    pub fn skip(mut self, path: SkipPath) -> Self {
        self.decoding = self.decoding.skip(&path);
        self
    }

    /// The objects that the consumer of the queue holds: a list then queues the held entry of an object that has not
    /// changed. Default: none.
    pub fn known(mut self, known: Arc<dyn KnownObjects<S>>) -> Self {
        self.known = Some(known);
        self
    }

    pub(crate) fn transform_by(mut self, transform: Option<Transform<S>>) -> Self {
        self.transform = transform;
        self
    }

    /// Keeps decoded objects in `cache`.
    pub(crate) fn cache(mut self, cache: Arc<DecodeCache>) -> Self {
        self.decoding.cache = cache;
        self
    }

    /// Refuses an older list: the consumer has seen this version, from another reflector.
    pub(crate) fn not_before(mut self, version: ResourceVersion) -> Self {
        self.not_before = version;
        self
    }

    /// The servers that do not offer streaming lists, shared with other reflectors.
    pub(crate) fn refusals(mut self, refusals: Refusals) -> Self {
        self.refusals = refusals;
        self
    }

    pub(crate) fn health(mut self, health: Arc<HealthCell>) -> Self {
        self.health = Some(health);
        self
    }

    pub(crate) fn recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = recorder;
        self
    }

    /// The reflector, not yet running.
    #[must_use]
    pub fn build(self) -> Reflector<S> {
        let clock = self.clock.unwrap_or_else(Clock::system);
        Reflector {
            transport: Transport::new(self.client, self.options.limits),
            endpoint: self.endpoint,
            selection: self.selection,
            decoding: self.decoding,
            options: self.options,
            transform: self.transform,
            fifo: self.fifo,
            known: self.known,
            not_before: self.not_before,
            refusals: self.refusals,
            health: self
                .health
                .unwrap_or_else(|| Arc::new(HealthCell::new(clock.clone()))),
            recorder: self.recorder,
            clock,
        }
    }
}

impl<S: Stored> std::fmt::Debug for Builder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("endpoint", &self.endpoint)
            .field("selection", &self.selection)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
