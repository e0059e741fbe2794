//! The parts of the operator, and how they are connected.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_controller::source::Source;
use reeve_controller::{Client, Controller, Manager, Request, Runnable, predicate, source};
use reeve_serve::access::Access;
use reeve_workqueue::ItemExponentialFailure;

use super::outside::Outside;
use super::runnables::{
    compared, ending, ends, followed_lists, jumps, list_controller, pulling, set_freshness,
};
use super::{Error, Kept, Settings};
use crate::api::IPBlock;
use crate::config::{self, CONFIG_MAP};
use crate::engine::{self, GuardSettings};
use crate::guard::{Discovery, Guard};
use crate::inbound;
use crate::lists::{self, ListReconciler};
use crate::lock::KeyedLocks;
use crate::metrics::Metrics;
use crate::notify::{self, Notifications};
use crate::outbound::{AddressPolicy, Http};
use crate::page;
use crate::pulled::{self, Sources};
use crate::reconcile::{
    Announcer, BlockReconciler, Checks, ConfigurationReconciler, Consumers, Dependencies, Engines,
    FIRST_RETRY, Gateways, LONGEST_RETRY, LiftsFirst, Live, Losses, MirrorReconciler, Record,
    Standby, is_another_failure,
};
use crate::sets::{self, Sets};
use crate::time::{Time, server_time};
use crate::trigger::{self, KubeBlocks, Triggers};

/// Requests on their way from the configuration and the coverage to the queue.
const REQUESTS: usize = 4096;

/// What the operator and its page read of the parts that are added to the manager.
pub(super) struct Assembled {
    pub(super) triggers: Arc<Triggers>,
    pub(super) sets: Arc<Sets>,
    live: Live,
    guard: Guard,
    pulled: Arc<Sources>,
    time: Time,
}

/// Everything that is added to the manager.
pub(super) fn assemble(
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
        .with_predicate(predicate::function(|event| !is_another_failure(event)))
        .watches_source(requests)
        .workers(settings.workers)
        .back_off(ItemExponentialFailure::new(FIRST_RETRY, LONGEST_RETRY))
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
            namespace: settings.watch_namespace.clone(),
        }))?;
    let standing_by = Arc::clone(&standby);
    let mirror = MirrorReconciler {
        sets: Arc::clone(&sets),
        standby,
        live: live.clone(),
        record: Arc::clone(&record),
        time: time.clone(),
        recalled: Mutex::new(false),
        filling: tokio::sync::Mutex::default(),
    };
    // Requested once even when there is no block: set engines wait for the first reading.
    let (nothing, reading) = source::channel::<Request>(1);
    nothing.try_send(Request::cluster("none"))?;
    let mirror = Controller::builder("sets")
        .for_kind::<IPBlock>()
        .with_predicate(predicate::resource_version_changed())
        .with_predicate(predicate::function(move |_| Standby::follows(&standing_by)))
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
        guard: guard.clone(),
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
                lists: followed.clone(),
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
pub(super) async fn serve_page(
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
