//! Makes a factory: [`FactoryBuilder`].

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kube_client::Client;
use kube_core::Resource;
use reeve_clock::Clock;

use super::informer_factory::InformerFactory;
use crate::informer::{Builder, MetricsProvider, NamespaceSet, SharedInformer};
use crate::object::{EntryType, Form, Stored};
use crate::reflector::{ReflectorOptions, Refusals};
use reeve_client::transport::{Endpoint, Scope, Selection};

/// The time that an informer runs on after its last use.
const LINGER: Duration = Duration::from_secs(30);

/// Makes an [`InformerFactory`] (client-go: `NewSharedInformerFactoryWithOptions`).
#[must_use = "call `build`"]
pub struct FactoryBuilder {
    client: Client,
    clock: Option<Clock>,
    options: ReflectorOptions,
    resync: Option<Duration>,
    metrics: Option<Arc<dyn MetricsProvider>>,
    linger: Duration,
    kinds: HashMap<KindKey, Box<dyn Any + Send + Sync>>,
}

/// A kind in one form.
type KindKey = (String, (TypeId, TypeId));
type Configure<S> = Arc<dyn Fn(Builder<S>) -> Builder<S> + Send + Sync>;

/// The settings of new informers.
pub(super) struct Recipe {
    client: Client,
    clock: Clock,
    options: ReflectorOptions,
    /// The client is of one server, so a refusal that one informer sees counts for all.
    refusals: Refusals,
    resync: Option<Duration>,
    metrics: Option<Arc<dyn MetricsProvider>>,
    kinds: HashMap<KindKey, Box<dyn Any + Send + Sync>>,
    pub(super) linger: Duration,
}

// === impl FactoryBuilder ===

impl FactoryBuilder {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            clock: None,
            options: ReflectorOptions::default(),
            resync: None,
            metrics: None,
            linger: LINGER,
            kinds: HashMap::new(),
        }
    }

    /// The source of dates and jitter. Default: [`Clock::system`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The options of lists and watches.
    pub fn reflector(mut self, options: ReflectorOptions) -> Self {
        self.options = options;
        self
    }

    /// The period in which handlers without a resync period of their own receive every object again. Default: never.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Where measurements go. Default: nowhere.
    pub fn metrics(mut self, metrics: Arc<dyn MetricsProvider>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// The time that an informer runs on after its last use, so that a later request finds its cache filled. Default:
    /// 30 s; zero stops it at once.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Settings of informers of `K`: their resync period, how they list and watch, a transform (client-go:
    /// `WithCustomResyncConfig`, `WithTransform`). They apply after the settings of the factory; a selection or
    /// namespaces set here are not kept.
    pub fn configure<K>(
        self,
        configure: impl Fn(Builder<K>) -> Builder<K> + Send + Sync + 'static,
    ) -> Self
    where
        K: Form + Resource,
        K::DynamicType: Default,
    {
        self.configure_for(&Endpoint::of::<K>(), configure)
    }

    /// As [`FactoryBuilder::configure`], for the kind at `endpoint` in the form `S`.
    pub fn configure_for<S: Form>(
        mut self,
        endpoint: &Endpoint,
        configure: impl Fn(Builder<S>) -> Builder<S> + Send + Sync + 'static,
    ) -> Self {
        let configure: Configure<S> = Arc::new(configure);
        self.kinds.insert(
            kind_key(EntryType::<S>::known(), endpoint),
            Box::new(configure),
        );
        self
    }

    /// The factory, without informers.
    #[must_use]
    pub fn build(self) -> InformerFactory {
        InformerFactory::from_recipe(Recipe {
            client: self.client,
            clock: self.clock.unwrap_or_else(Clock::system),
            options: self.options,
            refusals: Refusals::default(),
            resync: self.resync,
            metrics: self.metrics,
            kinds: self.kinds,
            linger: self.linger,
        })
    }
}

impl std::fmt::Debug for FactoryBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FactoryBuilder")
            .field("options", &self.options)
            .field("resync", &self.resync)
            .field("linger", &self.linger)
            .finish_non_exhaustive()
    }
}

// === impl Recipe ===

impl Recipe {
    pub(super) fn make<S: Stored + ?Sized>(
        &self,
        entry_type: EntryType<S>,
        endpoint: Endpoint,
        selection: Selection,
        namespaces: Option<NamespaceSet>,
        particular: impl FnOnce(Builder<S>) -> Builder<S>,
    ) -> SharedInformer<S> {
        let configure = self
            .kinds
            .get(&kind_key(entry_type, &endpoint))
            .and_then(|configure| configure.downcast_ref::<Configure<S>>());
        let mut builder = SharedInformer::builder_of(entry_type, self.client.clone(), endpoint)
            .clock(self.clock.clone())
            .reflector(self.options)
            .refusals(self.refusals.clone());
        if let Some(period) = self.resync {
            builder = builder.resync(period);
        }
        if let Some(metrics) = &self.metrics {
            builder = builder.metrics(Arc::clone(metrics));
        }
        if let Some(configure) = configure {
            builder = configure(builder);
        }
        particular(builder)
            .selection(selection)
            .only_namespaces(namespaces)
            .build()
    }
}

fn kind_key<S: Stored + ?Sized>(entry_type: EntryType<S>, endpoint: &Endpoint) -> KindKey {
    (endpoint.path(&Scope::Cluster), entry_type.id())
}
