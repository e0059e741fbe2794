//! Makes an informer: [`Builder`].

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Weak};
use std::time::Duration;

use kube_client::Client;
use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::sync::{Notify, watch};

use super::inner::{Inner, Stage};
use super::metrics_provider::{Gauges, InformerIdentity, MetricsProvider};
use super::namespaces::NamespaceSet;
use super::shared_informer::SharedInformer;
use super::source::Source;
use super::within::{SelectByScope, Within};
use crate::indexer::Indexer;
use crate::metrics::Recorder;
use crate::object::{DecodeCache, EntryType, SkipPath, Stored};
use crate::processor::Processor;
use crate::reflector::{ReflectorOptions, Refusals, Transform};
use reeve_client::ResourceVersion;
use reeve_client::transport::{Endpoint, Scope, Selection};

/// Makes a [`SharedInformer`].
#[must_use = "call `build`"]
pub struct Builder<S: Stored + ?Sized> {
    client: Client,
    endpoint: Endpoint,
    entry_type: EntryType<S>,
    selection: Selection,
    namespaces: Option<NamespaceSet>,
    name: Option<Arc<str>>,
    clock: Option<Clock>,
    metrics: Option<Arc<dyn MetricsProvider>>,
    resync: Option<Duration>,
    transform: Option<Transform<S>>,
    skip: Vec<SkipPath>,
    within: SelectByScope,
    decoded: Option<NonZeroUsize>,
    packed: bool,
    options: ReflectorOptions,
    refusals: Refusals,
    delta_fifo: bool,
}

// === impl Builder ===

impl<S: Stored + ?Sized> Builder<S> {
    pub(super) fn new(entry_type: EntryType<S>, client: Client, endpoint: Endpoint) -> Self {
        Self {
            client,
            endpoint,
            entry_type,
            selection: Selection::default(),
            namespaces: None,
            name: None,
            clock: None,
            metrics: None,
            resync: None,
            transform: None,
            skip: Vec::new(),
            within: SelectByScope::default(),
            decoded: None,
            packed: false,
            options: ReflectorOptions::default(),
            refusals: Refusals::default(),
            delta_fifo: false,
        }
    }

    /// The scope of the watch. Default: the whole cluster.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.selection.scope = scope;
        self
    }

    /// The namespaces to watch, one by one; they may change while the informer runs. The scope has no effect then.
    /// Default: one watch, of the scope.
    pub fn namespaces(mut self, namespaces: NamespaceSet) -> Self {
        self.namespaces = Some(namespaces);
        self
    }

    /// Replaces the namespaces; `None` for one watch, of the scope.
    pub(crate) fn only_namespaces(mut self, namespaces: Option<NamespaceSet>) -> Self {
        self.namespaces = namespaces;
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

    /// The selection in each namespace, where they differ: `select` is called for each watch when it begins, with
    /// [`Scope::Cluster`] for the watch of all namespaces, or of all others. The label and field selectors of the builder
    /// only name the informer then. `select` must return the same for the same scope.
    pub fn within(mut self, select: impl Fn(&Scope) -> Within + Send + Sync + 'static) -> Self {
        self.within = SelectByScope(Some(Arc::new(select)));
        self
    }

    /// A name for logs, health and metrics. Default: the resource and its group, and what is selected of it:
    /// `deployments.apps in default with labels app=web`.
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
    pub fn metrics(mut self, metrics: Arc<dyn MetricsProvider>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// The period in which handlers without a resync period of their own receive every object again. Default: never.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Changes every object before it is stored, to drop what is not needed. It runs once an object (client-go:
    /// `SetTransform`). An object at which it panics is quarantined, as one that cannot be read: it is counted and
    /// logged, and what the store held of it before stays.
    pub fn transform(mut self, transform: impl Fn(&mut S) + Send + Sync + 'static) -> Self {
        self.transform = Some(Arc::new(transform));
        self
    }

    /// Leaves a part of every object out, as bytes, before anything is decoded: `.skip(".status".parse()?)`. Each call
    /// adds a path. Default: only `.metadata.managedFields`, which is always left out.
    pub fn skip(mut self, path: SkipPath) -> Self {
        self.skip.push(path);
        self
    }

    /// For a form that is decoded on reading ([`Compact`](crate::Compact)): keeps the last `objects` that were read, as
    /// their type, in one cache for the store. It takes the memory of that many typed objects, and about 250 bytes for
    /// each. Default: no cache, so each read decodes.
    pub fn cache_decoded(mut self, objects: NonZeroUsize) -> Self {
        self.decoded = Some(objects);
        self
    }

    /// For [`Compact`](crate::Compact): keeps the text of each object in a short form, as what it has in common with
    /// earlier objects and what it has not. Objects that a controller writes alike take a third to a fifth of their text. For
    /// 1.3 KB it costs about two microseconds when an object arrives, and a third of one when its text is read. A part of up to 4 KB of some
    /// earlier objects stays in memory after they are gone. Default: off.
    pub fn pack(mut self) -> Self {
        self.packed = true;
        self
    }

    /// The options of lists and watches. [`ReflectorOptions::protobuf`] says which kinds are requested as protobuf.
    pub fn reflector(mut self, options: ReflectorOptions) -> Self {
        self.options = options;
        self
    }

    /// The servers that do not offer streaming lists, shared with other informers.
    pub(crate) fn refusals(mut self, refusals: Refusals) -> Self {
        self.refusals = refusals;
        self
    }

    /// Use a [`DeltaFifo`](crate::DeltaFifo) between the reflector and the store. Default: a
    /// [`RealFifo`](crate::RealFifo).
    pub fn delta_fifo(mut self) -> Self {
        self.delta_fifo = true;
        self
    }

    /// The informer, not yet running.
    #[must_use]
    pub fn build(self) -> SharedInformer<S> {
        let clock = self.clock.unwrap_or_else(Clock::system);
        let mut selection = self.selection;
        if self.namespaces.is_some() {
            selection.scope = Scope::Cluster;
        }
        let name = self
            .name
            .unwrap_or_else(|| named(&self.endpoint, &selection).into());
        let identity = InformerIdentity {
            name: Arc::clone(&name),
            group: self.endpoint.group().to_owned(),
            version: self.endpoint.version().to_owned(),
            resource: self.endpoint.plural().to_owned(),
        };
        let indexer = Arc::new(Indexer::new());
        let inner = Arc::new_cyclic(|inner: &Weak<Inner<S>>| {
            let recorder = Recorder::new(self.metrics.map(|metrics| {
                let gauges: Weak<dyn Gauges> = Weak::clone(inner) as _;
                metrics.informer(&identity, gauges)
            }));
            let source = Source {
                client: self.client,
                endpoint: self.endpoint,
                entry_type: self.entry_type,
                selection: selection.clone(),
                options: self.options,
                refusals: self.refusals,
                transform: self.transform,
                skip: self.skip,
                within: self.within,
                cache: Arc::new(DecodeCache::new(self.decoded, recorder.clone())),
                packing: self.packed.then(Arc::default),
                delta_fifo: self.delta_fifo,
                handover: Arc::default(),
                clock: clock.clone(),
                recorder: recorder.clone(),
                indexer: Arc::clone(&indexer),
            };
            let feeds = match &self.namespaces {
                None => vec![source.whole(selection.scope)],
                Some(_) => Vec::new(),
            };
            Inner {
                name,
                namespaces: self.namespaces,
                default_resync: self.resync,
                made: clock.now(),
                indexer,
                source,
                feeds: watch::Sender::new(feeds.into()),
                recorder,
                last_change: AtomicI64::new(0),
                processor: Mutex::new(Processor::new()),
                applying: tokio::sync::Mutex::new(()),
                leaving: Mutex::default(),
                handlers_changed: Notify::new(),
                stage: watch::Sender::new(Stage::Created),
                handlers_synced: AtomicBool::new(false),
                version: watch::Sender::new(ResourceVersion::default()),
                moved: Notify::new(),
            }
        });
        if let Some(namespaces) = &inner.namespaces {
            // One watch for each namespace that the set has so far. The store is empty.
            inner.set_feeds(&namespaces.parts());
        }
        SharedInformer {
            inner,
            in_use: None,
        }
    }
}

fn named(endpoint: &Endpoint, selection: &Selection) -> String {
    let mut name = endpoint.to_string();
    if let Scope::Namespace(namespace) = &selection.scope {
        name.push_str(" in ");
        name.push_str(namespace);
    }
    for (what, selector) in [("labels", &selection.labels), ("fields", &selection.fields)] {
        if !selector.is_empty() {
            name.push_str(&format!(" with {what} {selector}"));
        }
    }
    name
}

impl<S: Stored + ?Sized> std::fmt::Debug for Builder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("endpoint", &self.endpoint)
            .field("selection", &self.selection)
            .finish_non_exhaustive()
    }
}
