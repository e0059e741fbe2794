//! Makes a reflector: [`Builder`].

use std::sync::Arc;

use kube_client::Client;
use reeve_clock::Clock;

use super::encoding::JsonOnly;
use super::options::ReflectorOptions;
use super::refusals::Refusals;
use super::run::Reflector;
use crate::fifo::{Fifo, KnownObjects};
use crate::health::HealthCell;
use crate::metrics::Recorder;
use crate::object::{Decoding, EntryReader, EntryType, Form, SkipPath, Stored};
use reeve_client::ResourceVersion;
use reeve_client::transport::{Endpoint, Limits, Selection, Transport};

/// Makes a [`Reflector`] for a queue and a consumer of your own. An informer makes its reflectors itself.
#[must_use = "call `build`"]
pub struct Builder<S: Stored + ?Sized> {
    client: Client,
    reflector: Reflector<S>,
}

impl<S: Form> Reflector<S> {
    /// Begins a reflector that lists and watches `endpoint` and fills `fifo` (client-go: `NewReflector`).
    pub fn builder(client: Client, endpoint: Endpoint, fifo: Arc<dyn Fifo<S>>) -> Builder<S> {
        Self::builder_of(EntryType::known(), client, endpoint, fifo)
    }
}

impl<S: Stored + ?Sized> Reflector<S> {
    /// As [`Reflector::builder`], for entries of a type that is a value.
    pub fn builder_of(
        entry_type: EntryType<S>,
        client: Client,
        endpoint: Endpoint,
        fifo: Arc<dyn Fifo<S>>,
    ) -> Builder<S> {
        let mut decoding = Decoding::of(endpoint.api_version(), endpoint.kind());
        // The server calls metadata alone PartialObjectMetadata.
        if !endpoint.is_metadata_only() {
            decoding = decoding.guarded();
        }
        let clock = Clock::system();
        let reflector = Self {
            transport: Transport::new(client.clone(), Limits::default()),
            entries: EntryReader::new(entry_type, decoding),
            endpoint,
            fifo,
            selection: Selection::default(),
            options: ReflectorOptions::default(),
            transform: None,
            known: None,
            not_before: ResourceVersion::default(),
            rereads: Arc::default(),
            handover: None,
            refusals: Refusals::default(),
            json_only: JsonOnly::default(),
            health: Arc::new(HealthCell::new(clock.clone())),
            recorder: Recorder::default(),
            clock,
        };
        Builder { client, reflector }
    }
}

// === impl Builder ===

impl<S: Stored + ?Sized> Builder<S> {
    /// The objects to list and watch. Default: all of the kind.
    pub fn selection(mut self, selection: Selection) -> Self {
        self.reflector.selection = selection;
        self
    }

    /// The options of lists and watches.
    pub fn options(mut self, options: ReflectorOptions) -> Self {
        self.reflector.options = options;
        self
    }

    /// The source of dates and jitter. Default: [`Clock::system`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.reflector.health = Arc::new(HealthCell::new(clock.clone()));
        self.reflector.clock = clock;
        self
    }

    /// Changes every object before it is queued, to drop unneeded parts. An object at which it panics is left out, as
    /// one that cannot be read.
    pub fn transform(mut self, transform: impl Fn(&mut S) + Send + Sync + 'static) -> Self {
        self.reflector.transform = Some(Arc::new(transform));
        self
    }

    /// Leaves a part of every object out, as bytes, before anything is decoded. Each call adds a path. Default: only
    /// `.metadata.managedFields`, which is always left out.
    pub fn skip(mut self, path: SkipPath) -> Self {
        let entries = &mut self.reflector.entries;
        entries.decoding = std::mem::take(&mut entries.decoding).skip(&path);
        self
    }

    /// The objects that the consumer of the queue holds: a list then queues the held entry of an object that has not
    /// changed. Default: none.
    pub fn known(mut self, known: Arc<dyn KnownObjects<S>>) -> Self {
        self.reflector.known = Some(known);
        self
    }

    /// The reflector, not yet running.
    #[must_use]
    pub fn build(self) -> Reflector<S> {
        let transport = Transport::new(self.client, self.reflector.options.limits);
        Reflector {
            transport,
            ..self.reflector
        }
    }
}

impl<S: Stored + ?Sized> std::fmt::Debug for Builder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Builder").field(&self.reflector).finish()
    }
}
