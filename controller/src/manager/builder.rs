//! How a manager is put together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::sync::{Notify, watch};

use super::names::Names;
use super::{Addresses, Error, FOR_EVER, GRACE_PERIOD, Manager, Shared, Stage};
use crate::cache::{CacheOptions, Caches, Selected};
use crate::client::measure::Counted;
use crate::client::{Client, Reading};
use crate::controller::Defaults;
use crate::debug::{self, Queues};
use crate::events::Writer;
use crate::health::Health;
use crate::leader_election::{self, Fence};
use crate::metrics::Metrics;
use crate::metrics_server::MetricsServer;
use crate::server::Server;

/// Puts a manager together. Unless said otherwise it serves nothing, elects nobody and watches every namespace.
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    client: kube_client::Client,
    clock: Clock,
    metrics: Metrics,
    health: Health,
    cache: CacheOptions,
    election: Option<leader_election::Options>,
    health_address: Option<SocketAddr>,
    metrics_server: Option<MetricsServer>,
    instance: Option<String>,
    grace: Duration,
    cache_timeout: Duration,
    defaults: Defaults,
}

// === impl Builder ===

impl Builder {
    pub(super) fn new(client: kube_client::Client) -> Self {
        Self {
            client,
            clock: Clock::system(),
            metrics: Metrics::new(),
            health: Health::new(),
            cache: CacheOptions::new(),
            election: None,
            health_address: None,
            metrics_server: None,
            instance: None,
            grace: GRACE_PERIOD,
            cache_timeout: Duration::from_secs(120),
            defaults: Defaults::new(),
        }
    }

    /// Takes wall time and randomness from `clock`; the system's unless said.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Counts into `metrics`, which the client may count into as well.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// What the caches hold; all of every kind that is watched unless said. Say it before [`Builder::namespace`] and
    /// [`Builder::resync`], which add to it.
    pub fn cache(mut self, options: CacheOptions) -> Self {
        self.cache = options;
        self
    }

    /// Watches namespaced kinds in this namespace only; said again, in that one too
    /// ([`CacheOptions::in_namespace`]).
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        let namespace = namespace.into();
        self.cache = self.cache.in_namespace(namespace, Selected::new());
        self
    }

    /// Lets one replica lead at a time. A controller may have a lease of its own instead:
    /// [`Builder::lease`](crate::controller::Builder::lease).
    pub fn leader_election(mut self, options: leader_election::Options) -> Self {
        self.election = Some(options);
        self
    }

    /// Serves `/healthz` and `/readyz` there. Port 0 takes a free one.
    pub fn health_address(mut self, address: SocketAddr) -> Self {
        self.health_address = Some(address);
        self
    }

    /// Serves `/metrics` there, in plain HTTP, as [`MetricsServer::at`] says. Port 0 takes a free one.
    pub fn metrics_address(self, address: SocketAddr) -> Self {
        self.metrics_server(MetricsServer::at(address))
    }

    /// Serves `/metrics`, the pages of [`debug`] and more, to whom it says.
    pub fn metrics_server(mut self, server: MetricsServer) -> Self {
        self.metrics_server = Some(server);
        self
    }

    /// Names this replica in events; the identity of the election, or [`leader_election::identity`], unless said.
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        self
    }

    /// How long a stop may take, [`GRACE_PERIOD`] unless said. Zero drops everything at once; [`Duration::MAX`] waits for
    /// ever (controller-runtime: a negative `GracefulShutdownTimeout`).
    pub fn grace_period(mut self, grace: Duration) -> Self {
        self.grace = grace.min(FOR_EVER);
        self
    }

    /// How long the start waits for caches that neither fill nor fail, 2 minutes unless said. Controllers wait for
    /// theirs on their own, without limit.
    pub fn cache_sync_timeout(mut self, timeout: Duration) -> Self {
        self.cache_timeout = timeout;
        self
    }

    /// Shows every object again this often; never unless said ([`CacheOptions::resync`]).
    pub fn resync(mut self, period: Duration) -> Self {
        self.cache = self.cache.resync(period);
        self
    }

    /// What the controllers do unless they say otherwise: workers, also by kind, time-outs, warm-up.
    pub fn controllers(mut self, defaults: Defaults) -> Self {
        self.defaults = defaults;
        self
    }

    /// Binds the servers and makes the manager.
    ///
    /// # Errors
    /// When an address cannot be bound, or the options of the election or of the caches do not fit together.
    pub async fn build(self) -> Result<Manager, Error> {
        if let Some(options) = &self.election {
            options.validate()?;
        }
        self.cache.validate()?;
        let counted = Counted::new(self.client, Some(self.metrics.clone()));
        let client = Client::counted(counted);
        let kube = client.kube().clone();
        let instance = self
            .instance
            .or_else(|| {
                self.election
                    .as_ref()
                    .map(|options| options.identity.clone())
            })
            .unwrap_or_else(|| leader_election::identity(&self.clock));
        let (writer, events) = Writer::new(client.clone(), self.clock.clone(), instance.clone());
        let caches = Caches::new(
            kube,
            self.clock.clone(),
            self.cache,
            self.metrics.informers(),
        );
        let client = client
            .with_reading(Reading::new(&caches, &self.metrics, "manager"))
            .with_notes(Arc::default());
        let checked = caches.clone();
        self.health
            .ready()
            .add("informers", move || checked.check());
        let board = self.health.board().clone();
        self.metrics.observe(&board);
        self.health
            .ready()
            .add("controllers", move || board.check());
        let mut runnables = vec![writer.runnable("events")];
        let mut addresses = Addresses::default();
        if let Some(address) = self.health_address {
            let server = Server::bind("health", address, self.health.handler());
            let server = server.await.map_err(Error::Bind)?;
            addresses.health = server.local_addr().ok();
            runnables.push(server.runnable());
        }
        let queues = Queues::default();
        let clusters = Arc::default();
        if let Some(server) = self.metrics_server {
            let sources = debug::Sources {
                queues: queues.clone(),
                caches: caches.clone(),
                clusters: Arc::clone(&clusters),
                clock: self.clock.clone(),
            };
            let server = server.bind(&self.metrics, client.clone(), &sources).await?;
            addresses.metrics = server.local_addr().ok();
            runnables.push(server.runnable());
        }
        let fence = self
            .election
            .as_ref()
            .map(|_| Fence::closed(self.clock.clone()));
        let leading = watch::channel(false).0;
        if let (Some(fence), Some(options)) = (&fence, &self.election) {
            leader_election::add_checks(&self.health, &options.name, fence);
        }
        let manager = Manager {
            shared: Arc::new(Shared {
                clock: self.clock,
                client,
                caches,
                metrics: self.metrics,
                queues,
                health: self.health,
                fence,
                election: self.election,
                grace: self.grace,
                cache_timeout: self.cache_timeout,
                addresses,
                events,
                state: Mutex::new(Stage::Building(Vec::new())),
                added: Notify::new(),
                controllers: Names::default(),
                leases: Names::default(),
                defaults: self.defaults,
                clusters,
                instance,
                cluster_names: Names::default(),
                leading,
                release_by: Arc::default(),
            }),
        };
        for runnable in runnables {
            manager.add(runnable)?;
        }
        Ok(manager)
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("cache", &self.cache)
            .field("election", &self.election)
            .finish_non_exhaustive()
    }
}
