//! The reconciler of the ConfigMap: reads it, puts it in force, keeps the last good one.

mod chosen;
mod engaged;
mod guarded;
mod memory;
mod warned;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use reeve_controller::events::EventType;
use reeve_controller::source::Sender;
use reeve_controller::{Context, Outcome, Reconciler, Request, reconcile};
use tokio::sync::watch;
use tokio::time::Instant;

use self::chosen::Chosen;
use self::memory::Memory;
use super::engines::Engines;
use super::gateway;
use super::live::{Live, State};
use super::record::{Record, is_forbidden};
use super::sweep::Affected;
use crate::api::Place;
use crate::config::{Changes, ChannelConfig, Config, Options, allowlist};
use crate::decide::Coverage;
use crate::guard::{Discovery, Guard};
use crate::lists::ListReconciler;
use crate::metrics::Metrics;
use crate::names::Resolver;
use crate::notify::{Channel, Notifications};
use crate::outbound::Outbound;
use crate::pulled::Sources;
use crate::sets::{self, Sets};
use crate::time::Time;
use crate::trigger::{self, Triggers};

/// How soon a listener that could not be bound is tried again.
const LISTEN_AGAIN: Duration = Duration::from_secs(10);

/// The shortest wait for the end of an entry of the allowlist.
const SOON: Duration = Duration::from_millis(1);

/// How often the name of the gateway is resolved again, the files that the ConfigMap names are checked, and a record
/// that was deleted is written again.
const CHECK_AGAIN: Duration = Duration::from_secs(30);

/// How long bans at a gateway wait for a record that an outage keeps from being written.
const UNRECORDED: Duration = Duration::from_secs(600);

/// How long a pass waits for the time, before it leaves the date of a gateway to the next.
const UNDATED: Duration = Duration::from_secs(10);

/// The parts that a configuration is put in force in.
#[derive(Debug)]
pub struct Consumers {
    /// For the parts that read the configuration when they need it.
    pub live: Live,
    /// The engines, which are connected again.
    pub engines: Arc<Engines>,
    /// The HTTP servers for alerts.
    pub triggers: Arc<Triggers>,
    /// The lists that are pulled.
    pub sources: Arc<Sources>,
    /// Notifications.
    pub notifications: Notifications,
    /// How hooks are called.
    pub outbound: Arc<dyn Outbound>,
    /// Requests for every block.
    pub blocks: Sender<Request>,
    /// Whether this replica leads. A standby does not read `blocks`: every block is requested when it leads.
    pub leading: watch::Receiver<bool>,
    /// What is counted.
    pub metrics: Metrics,
    /// What is kept for the next run.
    pub record: Arc<Record>,
    /// The time by the API server's clock, which blocks are created by.
    pub time: Time,
    /// How the name of a gateway is resolved.
    pub resolver: Arc<dyn Resolver>,
    /// The engines that follow the set of bans.
    pub sets: Arc<Sets>,
    /// Caps and brakes.
    pub guard: Guard,
    /// The bans that stand, which a new policy is compared with.
    pub coverage: Arc<Mutex<Coverage>>,
    /// The lists, whose entries a new policy is compared with too.
    pub(crate) lists: ListReconciler,
    /// The addresses of the cluster.
    pub discovery: Discovery,
}

/// Reads the ConfigMap `request` and puts it in force. Runs on every replica.
#[derive(Debug)]
pub struct ConfigurationReconciler {
    request: Request,
    options: Options,
    /// The namespace of blocks that triggers make.
    namespace: String,
    consumers: Consumers,
    memory: Mutex<Memory>,
}

/// Why the record is not written.
struct Unrecorded {
    problem: String,
    /// The API server is away or overloaded.
    outage: bool,
}

// === impl ConfigurationReconciler ===

impl ConfigurationReconciler {
    /// Reads the ConfigMap named `request`.
    #[must_use]
    pub fn new(
        request: Request,
        options: Options,
        namespace: String,
        consumers: Consumers,
    ) -> Self {
        Self {
            request,
            options,
            namespace,
            consumers,
            memory: Mutex::default(),
        }
    }

    async fn read(&self, ctx: &Context) -> Result<Outcome, reconcile::Error> {
        let unread = self.recall(ctx).await?;
        let map = ctx.lister::<ConfigMap>()?.get(&self.request)?;
        let map = map.as_deref();
        let Some(Chosen {
            data,
            mut config,
            right,
        }) = self.choose(ctx, map)
        else {
            return Ok(unread.map_or_else(Outcome::done, |_| Outcome::requeue_after(LISTEN_AGAIN)));
        };
        let mended = right && self.memory.lock().accept();
        let before = self.consumers.live.config();
        let unresolved = self.resolve(&mut config).await;
        let now = self.consumers.time.now();
        let (allowlist, next_end) = allowlist::at(&config.allowlist, now);
        config.policy.allowlist = allowlist;
        config.policy.discovered = self.discovered(&config, before.is_none()).await;
        self.warn_of_ends(ctx, map, &config, now);
        self.warn_of_pods(ctx, map, &config);
        self.warn_of_sources(ctx, map, &config);
        let config = Arc::new(config);
        let lists = self.listed(&config, before.as_deref()).await;
        let freed = self.consider(map, &data, &config, before.as_deref(), lists);
        let unrecorded = self.record(ctx, map, data, &config, unread).await;
        let (held, news) = self.hold(before.as_deref(), &config, unrecorded.as_ref());
        let unrecorded = unrecorded.map(|it| it.problem);
        let changes = match &before {
            Some(before) => config.changes(before),
            None => Changes::all(),
        };
        let stamps = config
            .notify
            .iter()
            .flat_map(ChannelConfig::stamps)
            .collect();
        let (edited, retry) = {
            let mut memory = self.memory.lock();
            (memory.with_files(changes, stamps), memory.unconnected)
        };
        let mut changes = edited;
        changes.notify |= retry;
        // Alerts record the gateway in the blocks that they make.
        changes.triggers |= news;
        let mut problems = self.put_in_force(&config, changes).await?;
        self.consumers.record.hold(held);
        self.consumers.guard.in_force();
        let version = map.and_then(|map| map.metadata.resource_version.as_deref());
        if right && self.memory.lock().is_new(version) {
            self.consumers.metrics.config_read(true);
        }
        if let (Some(before), Ok(place)) = (&before, config.place())
            && before.engines != config.engines
        {
            // The statuses name the engines.
            self.consumers.coverage.lock().suspect(place);
        }
        let again = before.is_some();
        let refusals = |before: &Arc<Config>| changes.blocks || before.policy != config.policy;
        if before.as_ref().is_none_or(refusals) {
            self.consumers.sources.recheck();
        }
        let affected = match before {
            Some(before) if !changes.blocks && !freed && !self.memory.lock().unqueued => {
                Affected::meeting(&before.policy, &config.policy)
            }
            _ => Affected::All,
        };
        if *self.consumers.leading.borrow() {
            // The configuration is in force: after a failure the next run finds no difference any more.
            self.memory.lock().unqueued = !affected.is_none();
            affected.queue(ctx, &config, &self.consumers.blocks).await?;
            self.memory.lock().unqueued = false;
        }
        self.report_brakes(ctx, map);
        let undated = self.date(ctx).await;
        problems.extend(unresolved);
        problems.extend(unrecorded.or(undated));
        problems.extend(self.consumers.record.unreadable());
        problems.extend(self.consumers.discovery.problems());
        if self.memory.lock().are_news(&problems) {
            for problem in &problems {
                tracing::warn!("{problem}");
                self.warn(ctx, map, "ConfigPartly", problem);
            }
        }
        if self.memory.lock().unconnected {
            // That a channel could not be connected once more is no news.
            changes.notify = edited.notify;
        }
        if right && (mended || !changes.is_empty()) {
            self.announce(ctx, map, &config, changes, again);
        }
        let again = if problems.is_empty() {
            CHECK_AGAIN
        } else {
            LISTEN_AGAIN
        };
        let next_end = next_end.map(|end| self.consumers.time.until(end));
        // Zero would be "done" to the queue.
        let again = next_end.map_or(again, |end| again.min(end.max(SOON)));
        Ok(Outcome::requeue_after(again))
    }

    /// Protects the addresses behind the gateway's name. Returns why they are not known.
    async fn resolve(&self, config: &mut Config) -> Option<String> {
        let (host, port) = gateway::named(config)?;
        let answer = self.consumers.resolver.resolve(&host, port).await;
        let answers = &mut self.memory.lock().answers;
        answers.protect(config, &host, answer)
    }

    /// Reads the record once. A server that refuses that is no reason to stop: the right may come with the next
    /// manifests. Returns why it is not read, which is tried again.
    async fn recall(&self, ctx: &Context) -> Result<Option<String>, reconcile::Error> {
        if self.memory.lock().recalled {
            return Ok(None);
        }
        let good = match self.consumers.record.read(ctx.client()).await {
            Ok(good) => good,
            Err(error) if is_forbidden(&error) => {
                let key = self.consumers.record.key();
                return Ok(Some(format!(
                    "operator cannot read its record {key}: {error}; apply the access rules of this version"
                )));
            }
            Err(error) => return Err(error.into()),
        };
        let mut memory = self.memory.lock();
        memory.recalled = true;
        memory.good = good.or(memory.good.take());
        Ok(None)
    }

    /// Records what is about to be put in force, before any call can be made because of it. Returns why it is not
    /// recorded, which is tried again.
    async fn record(
        &self,
        ctx: &Context,
        map: Option<&ConfigMap>,
        data: BTreeMap<String, String>,
        config: &Config,
        unread: Option<String>,
    ) -> Option<Unrecorded> {
        for place in self.consumers.record.trust_gateways(config) {
            let note = format!(
                "the gateway {place} is withdrawn: the operator does not call it any more, and bans that stand there count as lifted"
            );
            tracing::info!(configmap = %self.request, "{note}");
            self.event(ctx, map, EventType::Normal, "GatewayWithdrawn", &note);
        }
        let keepers = config.engines.iter().filter_map(sets::Definition::keeper);
        let cleared = self.consumers.sets.cleared();
        self.consumers
            .record
            .set_keepers(keepers.collect(), cleared);
        // A record that was not read may be better than this one.
        let unwritten = match unread {
            None => self.write(ctx, &data).await,
            Some(problem) => Some(Unrecorded {
                problem,
                outage: false,
            }),
        };
        self.memory.lock().good = Some(data);
        unwritten
    }

    /// Holds bans at a gateway that the record does not name, because a process that starts after this one would not follow
    /// their intents; or holds them no more. Only an outage is waited for, and not for long: a server may refuse the record
    /// until its access rules change. Returns what is held once the configuration is in force, and whether that is news.
    fn hold(
        &self,
        before: Option<&Config>,
        config: &Config,
        unrecorded: Option<&Unrecorded>,
    ) -> (Vec<Place>, bool) {
        let record = &self.consumers.record;
        let outage = unrecorded.is_some_and(|it| it.outage);
        let place = config.place().ok().filter(|_| outage);
        let place = place.filter(|place| !record.names(place));
        let place = place.filter(|place| {
            let called = before.and_then(|before| before.place().ok()) == Some(*place);
            !called || record.holds(place)
        });
        let mut memory = self.memory.lock();
        let place = match place {
            Some(place) => {
                let since = *memory.held_since.get_or_insert_with(Instant::now);
                (since.elapsed() < UNRECORDED).then_some(place)
            }
            None => {
                memory.held_since = None;
                None
            }
        };
        let held: Vec<Place> = place.into_iter().cloned().collect();
        let former = record.held();
        let news = former != held;
        // Blocks that waited for it are requested.
        memory.unqueued |= news && held.is_empty();
        // Until this configuration is in force, blocks are decided about by the former one.
        let former = former.into_iter();
        let former = former.filter(|former| config.place().ok() != Some(former));
        record.hold(held.iter().cloned().chain(former).collect());
        (held, news)
    }

    /// Records since when the former gateways are replaced, once the present one is in force: until then blocks are
    /// banned at a former one. Returns why it is not recorded.
    async fn date(&self, ctx: &Context) -> Option<String> {
        let Consumers { record, time, .. } = &self.consumers;
        // Without the time the next pass records it: an edit that mends something does not wait here.
        let compared = tokio::time::timeout(UNDATED, time.compared()).await;
        if compared.is_err() || !record.in_force(time.now()) {
            return None;
        }
        let good = {
            let memory = self.memory.lock();
            memory.good.clone().filter(|_| memory.recalled)
        };
        // A record that was not read yet is written when it is.
        let unwritten = self.write(ctx, &good?).await;
        unwritten.map(|it| it.problem)
    }

    /// Returns why the record is not written.
    async fn write(&self, ctx: &Context, data: &BTreeMap<String, String>) -> Option<Unrecorded> {
        let record = &self.consumers.record;
        let error = record.write(ctx.client(), data).await.err()?;
        let problem = format!(
            "operator cannot write its record {}: {error}; after a restart it does not know the former gateways and the last good configuration",
            record.key()
        );
        Some(Unrecorded {
            problem,
            outage: error.is_outage(),
        })
    }

    fn announce(
        &self,
        ctx: &Context,
        map: Option<&ConfigMap>,
        config: &Config,
        changes: Changes,
        again: bool,
    ) {
        for dropped in &config.dropped {
            tracing::warn!(configmap = %self.request, "left out: {dropped}");
            let note = format!("left out, and refused at the next edit: {dropped}");
            self.warn(ctx, map, "ConfigPartly", &note);
        }
        for warning in &config.warnings {
            tracing::warn!(configmap = %self.request, "{warning}");
        }
        let note = "the configuration is in force";
        tracing::info!(configmap = %self.request, ?changes, "{note}");
        if again {
            self.event(ctx, map, EventType::Normal, "ConfigLoaded", note);
        }
    }

    fn warn(&self, ctx: &Context, map: Option<&ConfigMap>, reason: &'static str, note: &str) {
        self.event(ctx, map, EventType::Warning, reason, note);
    }

    fn event(
        &self,
        ctx: &Context,
        map: Option<&ConfigMap>,
        kind: EventType,
        reason: &'static str,
        note: &str,
    ) {
        if let Some(map) = map {
            ctx.events().event(map, kind, reason, "Configure", note);
        }
    }

    /// Returns what could not be put in force, and is tried again.
    async fn put_in_force(
        &self,
        config: &Arc<Config>,
        changes: Changes,
    ) -> Result<Vec<String>, reconcile::Error> {
        let consumers = &self.consumers;
        let mut problems = Vec::new();
        if changes.engine
            && let Ok(engine) = &config.engine
        {
            consumers.engines.forget(&engine.place);
        }
        // Blocks that are decided about by this configuration are confirmed by its engines.
        let resync = config.resync_interval;
        consumers.sets.replace(&config.engines, resync);
        consumers.live.set(State::Loaded(Arc::clone(config)));
        if changes.triggers {
            let place = config.place().ok();
            let place = place.filter(|place| !consumers.record.holds(place));
            consumers.triggers.set(trigger::Settings {
                namespace: self.namespace.clone(),
                place: place.cloned(),
                default_duration: config.default_duration,
                max_duration: config.max_duration,
                repeated_alert: config.repeated_alert,
                unblock_grace: config.unblock_grace,
                escalation: config.guard.escalation,
                shadow: config.guard.shadow.clone(),
            });
        }
        consumers.sources.set(&config.sources);
        // Without a change too: a listener that failed is tried again.
        let failed = consumers.triggers.apply(&config.triggers).await;
        problems.extend(failed.iter().map(ToString::to_string));
        // One listener that cannot be bound must not take the replica out of the Service of the others.
        let deaf = !failed.is_empty() && consumers.triggers.addresses().await.is_empty();
        consumers.live.serves(deaf.then(|| problems.join("; ")));
        consumers.sets.retire(&consumers.record.former_keepers());
        problems.extend(consumers.sets.serve().await);
        if changes.notify {
            // One that cannot be connected does not keep the others off.
            let mut channels: Vec<Channel> = Vec::new();
            let mut unconnected: Vec<&str> = Vec::new();
            for channel in &config.notify {
                match channel.connect(&consumers.outbound, &consumers.time) {
                    Ok(connected) => channels.push(connected),
                    // It works on as it was connected before: a mount is renewed, or a file is missing for a moment.
                    Err(error) => {
                        problems.push(error);
                        unconnected.push(&channel.name);
                    }
                }
            }
            self.memory.lock().unconnected = !unconnected.is_empty();
            consumers.notifications.set_and_keep(channels, &unconnected);
        }
        Ok(problems)
    }
}

impl Reconciler for ConfigurationReconciler {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, reconcile::Error> {
        if request != self.request {
            return Ok(Outcome::done());
        }
        self.read(&ctx).await
    }
}
