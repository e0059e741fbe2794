//! Further clusters of a manager: each has a client and caches of its own, whose kinds the controllers may watch.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use reeve_clock::Clock;
use reeve_informer::{Gauges, InformerIdentity, InformerMetrics, MetricsProvider};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::cache::{CacheOptions, Caches, OptionsError, Selected};
use crate::client::Client;
use crate::events::{Recorded, Recorder, Writer};
use crate::lifecycle::Handle;
use crate::lifecycle::Name;
use crate::metrics::Metrics;
use crate::own_writes::Reading;

/// Another API server that the controllers of a manager watch and write to (controller-runtime: package cluster).
/// Cheap to clone; clones are one cluster.
///
/// Its caches start and stop with the manager; its checks and metrics have its name. A controller watches it with
/// [`Builder::watches_in`](crate::controller::Builder::watches_in) and writes to it with
/// [`Context::client_of`](crate::Context::client_of). Events of its objects are recorded there:
/// [`Context::events_of`](crate::Context::events_of), [`Cluster::recorder`].
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    name: String,
    client: Client,
    caches: Caches,
    clock: Clock,
    metrics: Metrics,
    events: mpsc::Sender<Recorded>,
    /// The event writer.
    writing: OnceLock<Handle>,
    /// Cancels the event writer, which drops its open events.
    giving_up: CancellationToken,
    _taken: Name,
}

/// Builds a cluster. By default it watches every namespace.
#[must_use = "a cluster does nothing until it is added to a manager"]
pub struct Builder {
    pub(crate) name: String,
    client: kube_client::Client,
    cache: CacheOptions,
}

/// Gives the informers of a cluster names of their own, because metrics would merge two kinds of one name.
struct Named {
    cluster: String,
    metrics: Arc<dyn MetricsProvider>,
}

// === impl Cluster ===

impl Cluster {
    /// A builder of a cluster whose API server `client` reaches. The name is unique in a manager.
    pub fn builder(name: impl Into<String>, client: kube_client::Client) -> Builder {
        Builder {
            name: name.into(),
            client,
            cache: CacheOptions::new(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// A client for work outside of reconciles. It may write on a standby, too. Its
    /// [cached reads](Client::cached) are of this cluster, and see its own writes.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// Its caches.
    #[must_use]
    pub fn caches(&self) -> &Caches {
        &self.0.caches
    }

    /// A recorder of events in this cluster that names `controller` as their reporter (controller-runtime:
    /// `cluster.GetEventRecorderFor`). Like those of the manager they are written before it stops, and before the
    /// cluster is removed.
    #[must_use]
    pub fn recorder(&self, controller: &str) -> Recorder {
        let Inner {
            clock,
            metrics,
            events,
            ..
        } = &*self.0;
        let dropped = metrics.events_dropped(controller);
        Recorder::new(controller, events.clone(), dropped, clock.clone())
    }

    /// Sets the handle of the event writer.
    pub(crate) fn is_written_by(&self, writing: Handle) {
        let _ = self.0.writing.set(writing);
    }

    /// The handle of the event writer, once it was added.
    pub(crate) fn writing(&self) -> Option<&Handle> {
        self.0.writing.get()
    }

    /// When it is cancelled, open events are dropped.
    pub(crate) fn giving_up(&self) -> &CancellationToken {
        &self.0.giving_up
    }

    /// The name of its readiness check.
    pub(crate) fn check_name(&self) -> String {
        format!("informers-{}", self.0.name)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.0.name)
            .finish_non_exhaustive()
    }
}

// === impl Builder ===

impl Builder {
    /// Sets the contents of the caches. Call it before [`Builder::namespace`] and [`Builder::resync`], which add to it.
    pub fn cache(mut self, options: CacheOptions) -> Self {
        self.cache = options;
        self
    }

    /// Watches namespaced kinds in this namespace only. Each further call adds a namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        let namespace = namespace.into();
        self.cache = self.cache.in_namespace(namespace, Selected::new());
        self
    }

    /// Delivers every object again after each `period`. Default: never.
    pub fn resync(mut self, period: Duration) -> Self {
        self.cache = self.cache.resync(period);
        self
    }

    pub(crate) fn build(
        self,
        clock: Clock,
        metrics: &Metrics,
        instance: &str,
        taken: Name,
    ) -> Result<(Cluster, Writer), OptionsError> {
        self.cache.validate()?;
        let named = Named {
            cluster: self.name.clone(),
            metrics: metrics.informers(),
        };
        let client = Client::from(reeve_client::Client::measured(
            self.client,
            metrics.requests().clone(),
        ))
        .with_clock(clock.clone());
        let kube = client.kube().clone();
        let (writer, events) = Writer::new(client.clone(), clock.clone(), instance.to_owned());
        let caches = Caches::new(kube, clock.clone(), self.cache, Arc::new(named));
        let client = client
            .with_reading(Reading::new(&caches, metrics, &self.name))
            .with_notes(Arc::default());
        let cluster = Cluster(Arc::new(Inner {
            client,
            caches,
            clock,
            metrics: metrics.clone(),
            events,
            writing: OnceLock::new(),
            giving_up: writer.giving_up().clone(),
            name: self.name,
            _taken: taken,
        }));
        Ok((cluster, writer))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

// === impl Named ===

impl MetricsProvider for Named {
    fn informer(
        &self,
        informer: &InformerIdentity,
        gauges: Weak<dyn Gauges>,
    ) -> Box<dyn InformerMetrics> {
        let mut identity = informer.clone();
        identity.name = format!("{}/{}", self.cluster, informer.name).into();
        self.metrics.informer(&identity, gauges)
    }
}
