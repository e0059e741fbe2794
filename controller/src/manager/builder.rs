//! The builder of a manager.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reeve_clock::{Clock, LONGEST};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{Addresses, Error, GRACE_PERIOD, Manager, Shared, Stage};
use crate::cache::{CacheOptions, Caches, Selected};
use crate::client::Client;
use crate::controller::Defaults;
use crate::debug::{self, Elections, Queues};
use crate::events::Writer;
use crate::health::Health;
use crate::leader_election::{self, Fence, SharedStatus};
use crate::lifecycle::{Board, Names, Runnable};
#[cfg(feature = "clap")]
use crate::log_levels::LogLevels;
use crate::metrics::Metrics;
use crate::metrics_server::{MetricsServer, Parts};
use crate::own_writes::Reading;
use crate::server::Server;

/// Builds a manager. By default it serves nothing, has no leader election and watches every namespace.
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    client: kube_client::Client,
    clock: Clock,
    metrics: Metrics,
    health: Health,
    board: Board,
    cache: CacheOptions,
    election: Option<leader_election::Options>,
    health_address: Option<SocketAddr>,
    metrics_server: Option<MetricsServer>,
    instance: Option<String>,
    grace: Duration,
    cache_timeout: Duration,
    defaults: Defaults,
    #[cfg(feature = "clap")]
    log_levels: Option<LogLevels>,
    #[cfg(feature = "webhook")]
    webhooks: super::webhooks::Webhooks,
    stopping: CancellationToken,
}

// === impl Builder ===

impl Builder {
    pub(super) fn new(client: kube_client::Client) -> Self {
        Self {
            client,
            clock: Clock::system(),
            metrics: Metrics::new(),
            health: Health::new(),
            board: Board::default(),
            cache: CacheOptions::new(),
            election: None,
            health_address: None,
            metrics_server: None,
            instance: None,
            grace: GRACE_PERIOD,
            cache_timeout: Duration::from_secs(120),
            defaults: Defaults::new(),
            #[cfg(feature = "clap")]
            log_levels: None,
            #[cfg(feature = "webhook")]
            webhooks: super::webhooks::Webhooks::default(),
            stopping: CancellationToken::new(),
        }
    }

    /// Takes wall time and randomness from `clock`. Default: the system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Counts into `metrics`, which the client may share.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Sets the contents of the caches. Default: all objects of every watched kind. Call it before
    /// [`Builder::namespace`] and [`Builder::resync`], which add to it.
    pub fn cache(mut self, options: CacheOptions) -> Self {
        self.cache = options;
        self
    }

    /// Watches namespaced kinds in this namespace only. Each further call adds a namespace
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

    /// Serves `/metrics` there in plain HTTP ([`MetricsServer::at`]). Port 0 takes a free one.
    pub fn metrics_address(self, address: SocketAddr) -> Self {
        self.metrics_server(MetricsServer::at(address))
    }

    /// Serves `/metrics`, the pages of [`debug`] and more, as `server` is configured.
    pub fn metrics_server(mut self, server: MetricsServer) -> Self {
        self.metrics_server = Some(server);
        self
    }

    /// Serves `/debug/log` on the metrics server, where the levels of the log are changed, and ends temporary levels at their
    /// time. [`Manager::from_options`] does this for the log of its options.
    #[cfg(feature = "clap")]
    pub fn log_levels(mut self, levels: LogLevels) -> Self {
        self.log_levels = Some(levels);
        self
    }

    /// Runs a webhook server on every replica, whether it leads or not: from before the caches fill until the stop, in which
    /// it goes on for its [linger](reeve_webhook::Server::linger) time while the workers end. Its clock and metrics are the
    /// manager's. Its stop ends within nine tenths of the [grace period](Builder::grace_period): with the default of 30 s it
    /// goes on for 15 s, and calls in work have 11.9 s; with 10 s, 6 s and 3 s ([`reeve_webhook::Server::stop_within`]). The check `webhooks` of `/readyz` is its readiness; `/readyz/webhooks`, or `/readyz` on the server's own port,
    /// does not depend on controllers (controller-runtime: `WebhookServer`).
    #[cfg(feature = "webhook")]
    pub fn webhooks(mut self, server: reeve_webhook::Server) -> Self {
        self.webhooks.server = Some(server);
        self
    }

    /// Whether the webhook server runs. Default: it does, if there is one. If not, nothing of [`Builder::webhooks`] and
    /// [`Builder::webhook_certificates`] is used: no port, no Secret, no check of readiness. [`Manager::from_options`] sets it
    /// from `--enable-webhooks` and `ENABLE_WEBHOOKS`.
    #[cfg(feature = "webhook")]
    pub fn webhooks_enabled(mut self, enabled: bool) -> Self {
        self.webhooks.enabled = enabled;
        self
    }

    /// Has the webhook server make and renew its certificates by itself: `make` gets a client. Events of the Secret record what
    /// happens. Rights: those of [`reeve_webhook::certificates`]. Without a server the manager is not built; a program that serves
    /// webhooks by other means runs [`Rotation`](reeve_webhook::certificates::Rotation) itself.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::Pod;
    /// use reeve_controller::Manager;
    /// use reeve_controller::webhook::admission::{Request, Verdict};
    /// use reeve_controller::webhook::certificates::Rotation;
    /// use reeve_controller::webhook::{Server, Webhook};
    ///
    /// async fn protect(request: Request<Pod>) -> Verdict {
    ///     Verdict::allow().audit("checked", request.name)
    /// }
    ///
    /// # async fn example(client: kube_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::at(([0, 0, 0, 0], 9443).into());
    /// let manager = Manager::builder(client)
    ///     .webhooks(server.webhook(Webhook::validating("protect.example.com", protect)))
    ///     .webhook_certificates(|client| Rotation::new(client, "guard", "guard").validating("pods-example"))
    ///     .build()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "webhook")]
    pub fn webhook_certificates(
        mut self,
        make: impl FnOnce(reeve_client::Client) -> reeve_webhook::certificates::Rotation
        + Send
        + 'static,
    ) -> Self {
        self.webhooks.rotation = Some(Box::new(make));
        self
    }

    /// Names this replica in events. Default: the identity of the election, or [`leader_election::identity`].
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        self
    }

    /// Limits the duration of a stop. Default: [`GRACE_PERIOD`]. Zero drops everything at once; [`Duration::MAX`] waits
    /// indefinitely (controller-runtime: a negative `GracefulShutdownTimeout`).
    pub fn grace_period(mut self, grace: Duration) -> Self {
        self.grace = grace.min(LONGEST);
        self
    }

    /// Limits the wait of the start for caches that neither fill nor fail. Default: 2 minutes. Controllers wait for
    /// theirs by themselves, without limit.
    pub fn cache_sync_timeout(mut self, timeout: Duration) -> Self {
        self.cache_timeout = timeout;
        self
    }

    /// Delivers every object again after each `period` ([`CacheOptions::resync`]). Default: never.
    pub fn resync(mut self, period: Duration) -> Self {
        self.cache = self.cache.resync(period);
        self
    }

    /// Sets the defaults of the controllers: workers, also by kind, time-outs, warm-up.
    pub fn controllers(mut self, defaults: Defaults) -> Self {
        self.defaults = defaults;
        self
    }

    /// Binds the servers and builds the manager.
    ///
    /// # Errors
    /// When an address cannot be bound, or the options of the election or of the caches do not fit together, or there are
    /// certificates for webhooks and no webhooks.
    pub async fn build(mut self) -> Result<Manager, Error> {
        if let Some(options) = self.election.take() {
            options.validate()?;
            self.election = Some(options.identified(&self.clock));
        }
        self.cache.validate()?;
        let instance = self.instance.take();
        let instance = instance.unwrap_or_else(|| self.identity());
        let client = Client::from(reeve_client::Client::measured(
            self.client.clone(),
            self.metrics.requests().clone(),
        ))
        .with_clock(self.clock.clone());
        let (writer, events) = Writer::new(client.clone(), self.clock.clone(), instance.clone());
        let caches = Caches::new(
            client.kube().clone(),
            self.clock.clone(),
            std::mem::take(&mut self.cache),
            self.metrics.informers(),
        );
        let client = client
            .with_reading(Reading::new(&caches, &self.metrics, "manager"))
            .with_notes(Arc::default());
        self.check(&caches);
        let sources = debug::Sources {
            queues: Queues::default(),
            caches,
            clusters: Arc::default(),
            board: self.board.clone(),
            elections: Elections::default(),
            instance: instance.clone(),
            clock: self.clock.clone(),
        };
        let candidate = self.election.as_ref().map(|options| {
            let status = SharedStatus::new(options, &self.clock);
            sources.elections.add(None, status)
        });
        #[cfg_attr(
            not(feature = "webhook"),
            allow(unused_mut, reason = "webhooks add to both")
        )]
        let (mut addresses, mut servers) = self.bind(&client, &sources).await?;
        #[cfg(feature = "webhook")]
        if let Some((address, more)) = self.bind_webhooks(&client, &events).await? {
            addresses.webhooks = Some(address);
            servers.extend(more);
        }
        let fence = self.fence();
        let manager = Manager {
            shared: Arc::new(Shared {
                clock: self.clock,
                client,
                caches: sources.caches,
                metrics: self.metrics,
                queues: sources.queues,
                health: self.health,
                board: self.board,
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
                clusters: sources.clusters,
                instance,
                cluster_names: Names::default(),
                leading: watch::channel(false).0,
                elections: sources.elections,
                candidate,
                stopping: self.stopping,
                release_by: Arc::default(),
            }),
        };
        manager.add(writer.runnable("events"))?;
        for server in servers {
            manager.add(server)?;
        }
        Ok(manager)
    }

    /// The default name of this replica in events.
    fn identity(&self) -> String {
        let elected = self.election.as_ref();
        let holder = elected.and_then(leader_election::Options::holder);
        holder.map_or_else(|| leader_election::identity(&self.clock), str::to_owned)
    }

    /// Adds the checks of every manager, and measures the states of the controllers.
    fn check(&self, caches: &Caches) {
        let (caches, ready) = (caches.clone(), self.health.ready());
        ready.add("informers", move || caches.check());
        let board = self.board.clone();
        self.metrics.observe(&board);
        ready.add("controllers", move || board.check());
    }

    /// Binds the servers. Returns their addresses and runnables.
    async fn bind(
        &mut self,
        client: &Client,
        sources: &debug::Sources,
    ) -> Result<(Addresses, Vec<Runnable>), Error> {
        let (mut addresses, mut runnables) = (Addresses::default(), Vec::new());
        if let Some(address) = self.health_address {
            let server = Server::bind("health", address, self.health.handler());
            let server = server.await.map_err(Error::Bind)?;
            addresses.health = server.local_addr().ok();
            runnables.push(Runnable::server(server));
        }
        if let Some(server) = self.metrics_server.take() {
            let parts = Parts::new(self.metrics.handler(), self.clock.clone())
                .pages(sources.pages())
                .reviewer(Arc::new(client.clone()));
            #[cfg(feature = "clap")]
            let parts = parts.controls(self.log_levels.iter().map(LogLevels::control).collect());
            #[cfg(feature = "tls")]
            let parts = parts.certificates(self.metrics.certificates());
            let server = server.bind(parts).await?;
            addresses.metrics = server.local_addr().ok();
            runnables.push(Runnable::server(server));
        }
        #[cfg(feature = "clap")]
        if let Some(levels) = self.log_levels.take() {
            let ends = Runnable::new("log levels", move |stop| async move {
                match stop.run_until_cancelled(levels.fall_back()).await {
                    None => Ok::<(), std::convert::Infallible>(()),
                    Some(never) => match never {},
                }
            });
            runnables.push(ends.as_server());
        }
        Ok((addresses, runnables))
    }

    /// Binds the webhook server, if there is one.
    #[cfg(feature = "webhook")]
    async fn bind_webhooks(
        &mut self,
        client: &Client,
        events: &tokio::sync::mpsc::Sender<crate::events::Recorded>,
    ) -> Result<Option<(SocketAddr, Vec<Runnable>)>, Error> {
        if !self.webhooks.check()? {
            // A recorder shows its series.
            return Ok(None);
        }
        let webhooks = std::mem::take(&mut self.webhooks);
        let recorder = crate::events::Recorder::new(
            "webhook",
            events.clone(),
            self.metrics.events_dropped("webhook"),
            self.clock.clone(),
        );
        let parts = super::webhooks::Parts {
            client,
            recorder,
            clock: &self.clock,
            metrics: &self.metrics,
            health: &self.health,
            stopping: &self.stopping,
            time_to_stop: super::run::time_of_webhooks(self.grace),
        };
        webhooks.bind(parts).await
    }

    /// The fence of the manager's lease, with its health checks.
    fn fence(&self) -> Option<Fence> {
        let options = self.election.as_ref()?;
        let fence = Fence::closed(self.clock.clone());
        leader_election::add_checks(&self.health, options.name(), &fence);
        Some(fence)
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
