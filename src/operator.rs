//! The operator put together: a manager with the reconcilers, the triggers and the notifications.

mod outside;
mod runnables;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_clock::Clock;
use reeve_controller::cache::{CacheOptions, KindOptions, Selected, StoreForm};
use reeve_controller::options::LogLevels;
use reeve_controller::source::Source;
use reeve_controller::{
    Client, Controller, Manager, MetricsServer, Request, Runnable, controller, leader_election,
    manager, metrics, predicate, source,
};
use reeve_serve::access::Access;
use reeve_workqueue::ItemExponentialFailure;
use tokio_util::sync::CancellationToken;

use self::outside::Outside;
use self::runnables::{
    compared, ending, ends, followed_lists, jumps, list_controller, pulling, set_freshness,
};
use crate::api::IPBlock;
use crate::audit;
use crate::config::{self, CONFIG_MAP};
use crate::decide::Coverage;
use crate::engine::{self, GuardSettings};
use crate::guard::{Discovery, Guard};
use crate::inbound;
use crate::lists::{self, ListReconciler};
use crate::lock::KeyedLocks;
use crate::metrics::Metrics;
use crate::mounted::{self, Directory};
use crate::names::{Resolver, SystemResolver};
use crate::notify::{self, Notifications};
use crate::outbound::{self, AddressPolicy, Http};
use crate::page;
use crate::policy::Protected;
use crate::pulled::{self, Sources};
use crate::reconcile::{
    Announcer, BlockReconciler, Checks, ConfigurationReconciler, Connector, Consumers,
    Dependencies, Engines, FIRST_RETRY, Gateways, LONGEST_RETRY, LiftsFirst, Live, Losses,
    MirrorReconciler, Record, Standby,
};
use crate::sets::{self, Sets};
use crate::target::Target;
use crate::time::{ServerTime, Time, server_time};
use crate::trigger::{self, KubeBlocks, Triggers};

/// The name of the lease.
pub const LEASE: &str = "ipblock-operator";

/// Requests on their way from the configuration and the coverage to the queue.
const REQUESTS: usize = 4096;

/// Blocks that stay decoded in the cache: a run reads its block twice.
const DECODED: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// How the operator runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of the ConfigMap, the lease and the blocks that triggers make.
    pub namespace: String,
    /// Watches blocks in this namespace only; unset, everywhere.
    pub watch_namespace: Option<String>,
    /// The holder of the lease; unset, there is no election.
    pub identity: Option<String>,
    /// How metrics are served, if they are.
    pub metrics_server: Option<MetricsServer>,
    /// The levels of the log, which the metrics server changes.
    pub log_levels: Option<LogLevels>,
    /// Where health is served.
    pub health_address: Option<SocketAddr>,
    /// Blocks worked on at once.
    pub workers: usize,
    /// The gateway may be on loopback.
    pub allow_loopback: bool,
    /// Triggers without credentials serve.
    pub insecure_triggers: bool,
    /// Bearer tokens may go to the gateway over plain HTTP.
    pub bearer_over_http: bool,
    /// The first configuration is read as leniently as the original operator reads it.
    pub takeover: bool,
    /// The directory of the files with secrets that the ConfigMap may name.
    pub secrets: Directory,
    /// Where card templates may be, beside `secrets`.
    pub templates: Directory,
    /// Addresses of the cluster that are never banned.
    pub infrastructure: Vec<Protected>,
    /// Wall time and randomness.
    pub clock: Clock,
    /// Counts the client's requests already, and everything else from here on.
    pub metrics: metrics::Metrics,
    /// How gateways are reached; unset, over HTTP.
    pub connector: Option<Arc<dyn Connector>>,
    /// How the names of gateways and load balancers are resolved.
    pub resolver: Arc<dyn Resolver>,
    /// The API server's clock; unset, the date of its answers.
    pub server_time: Option<Arc<dyn ServerTime>>,
    /// Where notices of bans and lifts go; unset, to the configured channels.
    pub announcer: Option<Arc<dyn Announcer>>,
    /// The audit log.
    pub audit: audit::Log,
    /// How the page is served, if it is.
    pub page: Option<page::Settings>,
}

/// Why the operator does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The manager.
    #[error(transparent)]
    Manager(#[from] manager::Error),
    /// A controller.
    #[error(transparent)]
    Controller(#[from] controller::BuildError),
    /// The HTTP client for hooks.
    #[error("no HTTP client: {0}")]
    Outbound(#[from] outbound::Error),
    /// A request for the start could not be queued.
    #[error(transparent)]
    Source(#[from] source::SendError),
    /// The page.
    #[error(transparent)]
    Page(#[from] page::Error),
    /// The page's address is not known.
    #[error("the page: {0}")]
    Listener(#[from] std::io::Error),
}

/// An operator that is ready to run.
#[derive(Clone)]
pub struct Operator {
    manager: Manager,
    triggers: Arc<Triggers>,
    sets: Arc<Sets>,
    page: Option<SocketAddr>,
    kept: Kept,
}

/// What the operator and its page read of the parts that are added to the manager.
struct Assembled {
    triggers: Arc<Triggers>,
    sets: Arc<Sets>,
    live: Live,
    guard: Guard,
    pulled: Arc<Sources>,
    time: Time,
}

/// The operator's memory of blocks beside the cache. It shrinks with the blocks.
#[derive(Clone, Debug, Default)]
struct Kept {
    coverage: Arc<Mutex<Coverage>>,
    locks: KeyedLocks<Target>,
}

// === impl Settings ===

impl Settings {
    /// The defaults: the namespace `default` as the original's, no election, nothing served, 32 workers.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            namespace: "default".into(),
            watch_namespace: None,
            identity: None,
            metrics_server: None,
            log_levels: None,
            health_address: None,
            workers: 32,
            allow_loopback: false,
            insecure_triggers: false,
            bearer_over_http: false,
            takeover: false,
            secrets: Directory::default(),
            templates: Directory::new(mounted::TEMPLATES),
            infrastructure: Vec::new(),
            clock,
            metrics: metrics::Metrics::new(),
            connector: None,
            resolver: Arc::new(SystemResolver),
            server_time: None,
            announcer: None,
            audit: audit::Log::off(),
            page: None,
        }
    }
}

// === impl Operator ===

impl Operator {
    /// Puts the operator together and binds its servers. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When an address cannot be bound.
    pub async fn build(client: kube_client::Client, settings: Settings) -> Result<Self, Error> {
        // One ConfigMap, not all of the cluster.
        let configuration = KindOptions::new()
            .in_namespace(settings.namespace.as_str(), Selected::new())
            .fields(format!("metadata.name={CONFIG_MAP}"));
        // Blocks are many, alike, and read one at a time.
        let blocks = KindOptions::new()
            .form(StoreForm::Compact)
            .cache_decoded(DECODED)
            .pack();
        let cache = CacheOptions::new()
            .for_kind::<ConfigMap>(configuration)
            .for_kind::<IPBlock>(blocks);
        let cache = Discovery::cache(cache);
        let mut builder = Manager::builder(client.clone())
            .cache(cache)
            .clock(settings.clock.clone())
            .metrics(settings.metrics.clone());
        if let Some(namespace) = &settings.watch_namespace {
            builder = builder.namespace(namespace.as_str());
        }
        if let Some(identity) = &settings.identity {
            let election = leader_election::Options::new(settings.namespace.as_str(), LEASE);
            builder = builder.leader_election(election.identity(identity.as_str()));
        }
        if let Some(address) = settings.health_address {
            builder = builder.health_address(address);
        }
        if let Some(server) = &settings.metrics_server {
            builder = builder.metrics_server(server.clone());
        }
        if let Some(levels) = &settings.log_levels {
            builder = builder.log_levels(levels.clone());
        }
        let manager = builder.build().await?;
        let kept = Kept::default();
        let assembled = assemble(&manager, client.clone(), &settings, &kept)?;
        let page = serve_page(&manager, client, &settings, &assembled).await?;
        Ok(Self {
            manager,
            triggers: assembled.triggers,
            sets: assembled.sets,
            page,
            kept,
        })
    }

    /// The manager, for its addresses and checks.
    #[must_use]
    pub fn manager(&self) -> &Manager {
        &self.manager
    }

    /// The triggers, for the addresses they listen at.
    #[must_use]
    pub fn triggers(&self) -> &Arc<Triggers> {
        &self.triggers
    }

    /// The engines that follow the set of bans, for the addresses they are served at.
    #[must_use]
    pub fn sets(&self) -> &Arc<Sets> {
        &self.sets
    }

    /// Where the page is served, with the port that was chosen.
    #[must_use]
    pub fn page_address(&self) -> Option<SocketAddr> {
        self.page
    }

    /// Runs until `stop` is cancelled or something fails.
    ///
    /// # Errors
    /// See [`manager::Error`].
    pub async fn run(&self, stop: CancellationToken) -> Result<(), Error> {
        Ok(self.manager.run(stop).await?)
    }

    /// Runs until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// See [`manager::Error`].
    pub async fn run_until_signal(&self) -> Result<(), Error> {
        Ok(self.manager.run_until_signal().await?)
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Operator")
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}

/// Everything that is added to the manager.
fn assemble(
    manager: &Manager,
    client: kube_client::Client,
    settings: &Settings,
    kept: &Kept,
) -> Result<Assembled, Error> {
    let counts = Metrics::new();
    let engine_counts = engine::Metrics::new();
    let set_counts = sets::Metrics::default();
    let list_counts = lists::Metrics::default();
    let trigger_counts = trigger::Metrics::default();
    let notify_counts = notify::Metrics::default();
    let source_counts = pulled::Metrics::default();
    let coverage = Arc::clone(&kept.coverage);
    let guard = Guard::new(counts.guard().clone());
    let guarded = guard.clone();
    let shown_guard = guard.clone();
    manager.metrics().register(|registry| {
        counts.register(registry, &coverage);
        engine_counts.register(registry);
        set_counts.register(registry);
        list_counts.register(registry);
        trigger_counts.register(registry);
        notify_counts.register(registry);
        settings.audit.metrics().register(registry);
        source_counts.register(registry);
    });

    let time = Time::new(settings.clock.clone());
    let live = Live::new();
    let (shown, shown_time) = (live.clone(), time.clone());
    let checked = live.clone();
    manager
        .health()
        .ready()
        .add("configuration", move || checked.check());
    let served = live.clone();
    manager
        .health()
        .ready()
        .add("triggers", move || served.check_triggers());
    let connector = settings.connector.clone().unwrap_or_else(|| {
        Arc::new(Gateways {
            allow_loopback: settings.allow_loopback,
            guard: GuardSettings::default(),
            metrics: engine_counts,
        })
    });
    let sets = Arc::new(Sets::new(sets::Dependencies {
        time: time.clone(),
        leading: manager.leading(),
        metrics: set_counts,
        counts: counts.clone(),
        client: client.clone(),
    }));
    let engines = Arc::new(Engines::new(connector).with_sets(Arc::clone(&sets)));
    let standby = Arc::<Mutex<Standby>>::default();
    let server = settings
        .server_time
        .clone()
        .unwrap_or_else(|| server_time(client.clone()));
    let notifications = Notifications::start(settings.clock.clone(), notify_counts);
    let channels = || Arc::new(Outside(notifications.clone())) as Arc<dyn Announcer>;
    let announcer = settings.announcer.clone().unwrap_or_else(channels);
    let blocks = KubeBlocks::new(client.clone())
        .cached(manager.caches().clone())
        .recording(manager.recorder("trigger"));
    let triggers = Arc::new(Triggers::new(
        trigger::Dependencies {
            blocks: Arc::new(blocks),
            locks: KeyedLocks::new(),
            time: time.clone(),
            metrics: trigger_counts,
            limits: inbound::limits(),
        },
        trigger::Settings {
            namespace: settings.namespace.clone(),
            place: None,
            default_duration: Duration::from_secs(3600),
            max_duration: None,
            repeated_alert: trigger::Repeat::default(),
            unblock_grace: Duration::from_secs(600),
            escalation: None,
            shadow: BTreeSet::new(),
        },
    ));
    let policy = AddressPolicy {
        allow_loopback: settings.allow_loopback,
    };
    let caches = manager.caches().clone();
    let pulled = Arc::clone(&triggers);
    let lists = reeve_controller::Client::new(client.clone());
    let sources = Sources::over_network(lists, caches, pulled, policy, time.clone(), source_counts);
    let sources = Arc::new(sources);
    let shown_sources = Arc::clone(&sources);
    let (again, requests) = source::channel::<Request>(REQUESTS);
    let record = Arc::new(Record::new(&settings.namespace));
    let losses = Arc::new(Losses::new(counts.guard().clone()));

    let blocks = Controller::builder("ipblock")
        .watches::<IPBlock>(LiftsFirst::new())
        .with_predicate(predicate::resource_version_changed())
        .watches_source(requests)
        .workers(settings.workers)
        .rate_limiter(ItemExponentialFailure::new(FIRST_RETRY, LONGEST_RETRY))
        .complete(BlockReconciler::new(Dependencies {
            live: live.clone(),
            engines: Arc::clone(&engines),
            coverage: Arc::clone(&coverage),
            locks: kept.locks.clone(),
            time: time.clone(),
            again: again.clone(),
            announcer,
            audit: settings.audit.clone(),
            metrics: counts.clone(),
            record: Arc::clone(&record),
            sets: Arc::clone(&sets),
            standby: Arc::clone(&standby),
            guard: guard.clone(),
            losses: Arc::clone(&losses),
        }))?;
    let mirror = MirrorReconciler {
        sets: Arc::clone(&sets),
        standby,
        live: live.clone(),
        record: Arc::clone(&record),
        time: time.clone(),
        recalled: Mutex::new(false),
    };
    // Requested once even when there is no block: set engines wait for the first reading.
    let (nothing, reading) = source::channel::<Request>(1);
    nothing.try_send(Request::cluster("none"))?;
    let mirror = Controller::builder("sets")
        .for_kind::<IPBlock>()
        .with_predicate(predicate::resource_version_changed())
        .watches_source(Source::from(reading).finite())
        .without_leader_election()
        .complete(mirror)?;
    let checks = Checks {
        losses,
        live: live.clone(),
        engines: Arc::clone(&engines),
        coverage: Arc::clone(&coverage),
        again: again.clone(),
    };

    let followed = ListReconciler::new(lists::Dependencies {
        live: live.clone(),
        sets: Arc::clone(&sets),
        time: time.clone(),
        leading: manager.leading(),
        metrics: list_counts,
    });
    let (lists, list_requests) = source::channel::<Request>(REQUESTS);

    let config_map = Request::namespaced(settings.namespace.as_str(), CONFIG_MAP);
    // Requested once even when there is none: other parts wait for the first configuration.
    let (first, requested) = source::channel::<Request>(1);
    first.try_send(config_map.clone())?;
    let discovery = Discovery::new(counts.guard().clone(), Arc::clone(&settings.resolver));
    let (refresh, refreshed) = source::channel::<Request>(1);
    manager.add(discovery.runnable(
        reeve_controller::Client::new(client.clone()),
        manager.caches().clone(),
        refresh,
        config_map.clone(),
    ))?;
    let outbound = Http::builder().policy(policy).build()?;
    let own_ports = [
        (manager.health_address(), "health"),
        (manager.metrics_address(), "metrics"),
        (settings.page.as_ref().map(|page| page.address), "page"),
    ];
    let options = config::Options {
        insecure_triggers: settings.insecure_triggers,
        allow_loopback: settings.allow_loopback,
        bearer_over_http: settings.bearer_over_http,
        takeover: settings.takeover,
        infrastructure: settings.infrastructure.clone(),
        secrets: settings.secrets.clone(),
        templates: settings.templates.clone(),
        namespace: settings.namespace.clone(),
        watch_namespace: settings.watch_namespace.clone(),
        own_ports: own_ports
            .into_iter()
            .filter_map(|(address, what)| Some((address?.port(), what)))
            .collect(),
    };
    let configuration = Controller::builder("configuration")
        .for_kind::<ConfigMap>()
        .with_predicate(predicate::resource_version_changed())
        .watches_source(Source::from(requested).finite())
        .watches_source(refreshed)
        .without_leader_election()
        .complete(ConfigurationReconciler::new(
            config_map,
            options,
            settings.namespace.clone(),
            Consumers {
                live,
                engines,
                triggers: Arc::clone(&triggers),
                sources: Arc::clone(&sources),
                notifications: notifications.clone(),
                outbound: Arc::new(outbound),
                blocks: again.clone(),
                leading: manager.leading(),
                metrics: counts.clone(),
                record,
                time: time.clone(),
                resolver: Arc::clone(&settings.resolver),
                sets: Arc::clone(&sets),
                guard,
                coverage: Arc::clone(&coverage),
                discovery: discovery.clone(),
            },
        ))?;

    manager.add_controller(configuration)?;
    manager.add_controller(blocks)?;
    manager.add_controller(mirror)?;
    manager.add_controller(list_controller(followed.clone(), &lists, list_requests)?)?;
    manager.add(followed_lists(followed, lists))?;
    manager.add(compared(
        time.clone(),
        server,
        Arc::clone(&coverage),
        counts,
    ))?;
    manager.add(ends(Arc::clone(&coverage), time, again.clone()))?;
    manager.add(checks.runnable())?;
    manager.add(guarded.runnable(again.clone()))?;
    manager.add(jumps(manager, coverage, again))?;
    manager.add(pulling(sources))?;
    let audit = settings.audit.clone();
    manager.add(ending(Arc::clone(&triggers), notifications, audit))?;
    for runnable in sets.runnables() {
        manager.add(runnable)?;
    }
    manager.add(set_freshness(Arc::clone(&sets), manager.caches().clone()))?;
    Ok(Assembled {
        triggers,
        sets,
        live: shown,
        guard: shown_guard,
        pulled: shown_sources,
        time: shown_time,
    })
}

/// Serves the page beside the manager, if it is asked for. Returns its address.
async fn serve_page(
    manager: &Manager,
    client: kube_client::Client,
    settings: &Settings,
    parts: &Assembled,
) -> Result<Option<SocketAddr>, Error> {
    let Some(wanted) = &settings.page else {
        return Ok(None);
    };
    let reader = page::Reader::new(page::Sources {
        caches: manager.caches().clone(),
        live: parts.live.clone(),
        guard: parts.guard.clone(),
        pulled: Arc::clone(&parts.pulled),
        time: parts.time.clone(),
        leads: manager.leading(),
        replica: settings.identity.clone().unwrap_or_default(),
    });
    let clock = settings.clock.clone();
    let access = || Access::new(Client::new(client), clock);
    let guard = page::Guard::of(wanted.address, wanted.token_file.clone(), access);
    let server = page::bind(wanted, &guard, reader).await?;
    let address = server.local_addr()?;
    let serving = Runnable::new("page", move |stop| server.run(stop)).as_server();
    manager.add(serving)?;
    Ok(Some(address))
}

/// The addresses in the environment of a Pod that must never be banned.
#[must_use]
pub fn infrastructure(variable: impl Fn(&str) -> Option<String>) -> Vec<Protected> {
    [
        ("KUBERNETES_SERVICE_HOST", "the API server"),
        ("POD_IP", "the operator's own Pod"),
        ("HOST_IP", "the operator's own node"),
    ]
    .into_iter()
    .filter_map(|(name, what)| {
        let address: IpAddr = variable(name)?.trim().parse().ok()?;
        Some(Protected {
            target: Target::host(address),
            what: what.into(),
        })
    })
    .collect()
}

#[cfg(test)]
#[path = "operator_tests.rs"]
mod tests;
