//! The reconciler of blocks.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use reeve_controller::cache::{Lister, ReadError};
use reeve_controller::client::optional;
use reeve_controller::events::EventType;
use reeve_controller::source::Sender;
use reeve_controller::{Context, Outcome, Reconciler, Request, reconcile};
use reeve_workqueue::LOW_PRIORITY;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::act::Act;
use super::engines::Engines;
use super::live::{Live, State};
use super::loss::Losses;
use super::mirror::{Recorded, Standby};
use super::outdated::{Failures, Freshness, Listed, Outdated};
use super::rails::Former;
use super::record::{Record, is_forbidden};
use super::released::Released;
use super::sweep::{Pages, request_named};
use crate::api::{INTENT, IPBlock, Place};
use crate::audit;
use crate::config::Config;
use crate::decide::{
    Announcement, Claim, Coverage, Effect, Neighbour, Report, Run, Wake, World, recorded_claim,
    recorded_standings, targets,
};
use crate::engine::Kind;
use crate::guard::{self, source_of};
use crate::lock::{Guard, KeyedLocks};
use crate::metrics::Metrics;
use crate::policy::{self, Policy};
use crate::sampled::Sampled;
use crate::sets::Sets;
use crate::target::Target;
use crate::time::Time;

/// How often a standing ban is asserted again without a configuration.
pub(super) const RESYNC: Duration = Duration::from_secs(300);

/// How often a block is looked at whose ban only set engines enforce: they compare their whole set by themselves, and this
/// refreshes what the status says of them.
const RESYNC_OF_SETS: Duration = Duration::from_secs(3600);

/// At most so many standing bans are asserted in a second on average, however many there are: the interval grows.
const ASSERTIONS_A_SECOND: u32 = 100;

/// How long blocks wait for the first configuration. After that due bans are lifted at the gateways in the objects;
/// nothing new is banned.
const PATIENCE: Duration = Duration::from_secs(10);

/// First and longest wait of a block whose run failed. The longest bounds how late a gateway's return is detected.
pub(crate) const FIRST_RETRY: Duration = Duration::from_millis(200);
pub(crate) const LONGEST_RETRY: Duration = Duration::from_secs(15);

/// One line about blocks that the operator may not delete within this time.
const COLLECT_REFUSALS: Duration = Duration::from_secs(600);

/// Why no ban is made at a gateway that the record does not name.
const UNRECORDED: &str = "the record of the operator does not name the gateway yet, because the API server cannot be written to";

/// How long a block that was unblocked is kept at least without a configuration.
const GRACE: Duration = Duration::from_secs(24 * 3600);

/// Sends notifications out of the cluster. Never waits.
pub trait Announcer: Send + Sync + std::fmt::Debug {
    /// `announcement` is about `block` as it is now.
    fn announce(&self, block: &IPBlock, announcement: &Announcement, at: Timestamp);
}

/// What the reconciler works with.
#[derive(Clone, Debug)]
pub struct Dependencies {
    /// The configuration in force.
    pub live: Live,
    /// The engines.
    pub engines: Arc<Engines>,
    /// Which block claims what.
    pub coverage: Arc<Mutex<Coverage>>,
    /// One lock a target: two blocks on one address take turns.
    pub locks: KeyedLocks<Target>,
    /// The time that bans end by.
    pub time: Time,
    /// Requests for blocks whose enforcement is in doubt.
    pub again: Sender<Request>,
    /// Notifications.
    pub announcer: Arc<dyn Announcer>,
    /// The audit log.
    pub audit: audit::Log,
    /// What is counted.
    pub metrics: Metrics,
    /// The gateways that intents are followed to.
    pub record: Arc<Record>,
    /// The engines that follow the set of bans.
    pub sets: Arc<Sets>,
    /// The part that follows the records while this replica does not lead.
    pub(crate) standby: Arc<Mutex<Standby>>,
    /// Caps and brakes.
    pub guard: guard::Guard,
    /// The gateways that lost bans.
    pub losses: Arc<Losses>,
    /// The namespace whose blocks are cached; `None`: all.
    pub namespace: Option<String>,
}

/// Brings one block's ban in line with its spec.
#[derive(Debug)]
pub struct BlockReconciler {
    pub(super) parts: Dependencies,
    /// Set when the record of gateways was read.
    recalled: OnceCell<()>,
    /// When the reading began that the coverage was filled with.
    seeded: OnceCell<Timestamp>,
    /// The log of blocks that may not be deleted: one right is missing for all of them.
    pub(super) refusals: Sampled,
    pub(super) released: Released,
    outdated: Outdated,
    unlisted: Failures,
}

// === impl BlockReconciler ===

impl BlockReconciler {
    /// Without claims yet; the first request reads every block's own records.
    #[must_use]
    pub fn new(parts: Dependencies) -> Self {
        Self {
            parts,
            recalled: OnceCell::new(),
            seeded: OnceCell::new(),
            refusals: Sampled::every(COLLECT_REFUSALS),
            released: Released::default(),
            outdated: Outdated::default(),
            unlisted: Failures::default(),
        }
    }

    /// Reads the gateways that earlier leaders used, once, before their intents are followed: one request, however many
    /// workers wait for it.
    async fn recall(&self, ctx: &Context) -> Result<(), reconcile::Error> {
        let read = async || match self.parts.record.read(ctx.client()).await {
            // Without the right to read it, the gateways of this process have to do; the configuration's reconciler
            // reports that.
            Err(error) if !is_forbidden(&error) => Err(error.into()),
            _ => Ok(()),
        };
        self.recalled.get_or_try_init(read).await.map(drop)
    }

    /// The block with the trusted part of its intent, which a user may write.
    fn believe(&self, ctx: &Context, block: &Arc<IPBlock>) -> Arc<IPBlock> {
        let (believed, ignored) = self.parts.record.believe(block);
        if ignored {
            let note = format!(
                "annotation {INTENT} is ignored: it names a gateway that was never configured, or was replaced before this block was created, or an address that this block does not ban; if a ban stands there, add the gateway to formerGateways"
            );
            tracing::warn!(block = block.key(), "{note}");
            ctx.events().event(
                &**block,
                EventType::Warning,
                "IntentIgnored",
                "Reconcile",
                note,
            );
        }
        believed
    }

    /// Fills the coverage from the cache, once. Bans that are due go first: their alarms are past.
    async fn seed(&self, ctx: &Context, config: Option<&Config>) -> Result<(), reconcile::Error> {
        let seeded = self.seeded.get_or_try_init(|| self.read_all(ctx, config));
        seeded.await.map(drop)
    }

    /// Reads the blocks, with a pause after each page, and returns when it began. No reconcile goes on before its end, and all
    /// see the claims at once.
    async fn read_all(
        &self,
        ctx: &Context,
        config: Option<&Config>,
    ) -> Result<Timestamp, reconcile::Error> {
        let latest = self.unlisted.pause().await;
        let list = Listed::read(ctx, self.parts.namespace.as_deref());
        let listed = tokio::time::timeout_at(latest, list).await;
        let listed = listed.unwrap_or_else(|elapsed| Err(elapsed.into()));
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) if self.unlisted.add() => {
                tracing::warn!(%error, "could not compare the cache with the API server: bans that the former leader lifted may be asserted");
                None
            }
            Err(error) => return Err(error),
        };
        let latest = self.parts.live.config();
        let config = latest.as_deref().or(config);
        let place = config.and_then(|config| config.place().ok());
        let began = self.parts.time.now();
        let mut due = 0;
        let mut recorded = Recorded::default();
        let mut former = Former::default();
        // To free them and make them once more would leave as much memory unused as they take.
        let mut claims = self.parts.standby.lock().lead();
        let mut pages = Pages::new(ctx.lister::<IPBlock>()?);
        loop {
            let page = pages.next()?;
            if page.is_empty() {
                break;
            }
            for block in page {
                let cached = block;
                let (block, _) = self.parts.record.believe(&cached);
                let claim = recorded_claim(&block, place);
                if let Some(listed) = &listed {
                    self.outdated.compare(listed, &cached, claim.is_some());
                }
                let over = claim
                    .as_ref()
                    .is_some_and(|(_, until)| until.is_some_and(|until| until <= began));
                if over || (block.is_held() && block.is_deleting()) {
                    due += 1;
                }
                if let Some((standing, until)) = claim {
                    let key = block.key();
                    // One that was lifted shows its ban until another client's finalizer goes.
                    if !block.is_released() {
                        recorded.add(&standing, until, began);
                    }
                    claims.recall(&key, standing, until);
                    // The end of a released one is reported already.
                    claims.report(&key, !block.is_released());
                    claims.attribute(&key, source_of(&block));
                } else {
                    recorded.add_lifted(&block, began);
                }
                former.add(&block, began);
            }
            Pages::pause().await;
        }
        // Of blocks that are gone since they were followed.
        claims.drop_unenforced();
        claims.pack();
        Pages::pause().await;
        let latest = self.parts.live.config();
        let config = latest.as_deref().or(config);
        let now = self.parts.time.now();
        let outdated = self.outdated.len();
        // A configuration is judged under this lock: before all of what follows, or after it.
        let mut coverage = self.parts.coverage.lock();
        coverage.adopt(claims);
        self.recall_guard(&former, config, now);
        recorded.fill(&self.parts.sets);
        self.parts.guard.seeded(&coverage, config);
        tracing::info!(active = coverage.len(), due, outdated, "loaded the blocks");
        Ok(began)
    }

    fn claims(&self) -> usize {
        self.parts.coverage.lock().len()
    }

    pub(super) fn seeded_at(&self) -> Option<Timestamp> {
        self.seeded.get().copied()
    }

    async fn lock(&self, block: &IPBlock) -> Vec<Guard<Target>> {
        let mut guards = Vec::new();
        // In the order of the targets, so that two blocks never wait for each other.
        for target in targets(block) {
            guards.push(self.parts.locks.lock(target).await);
        }
        guards
    }

    /// Lifts what this process claims for a block that is gone or about to go, because another client removed its finalizer or it
    /// never had one, or that records nothing: see [`Self::unrecorded`].
    async fn orphan(
        &self,
        ctx: &Context,
        request: &Request,
        config: Option<&Config>,
    ) -> Result<Outcome, reconcile::Error> {
        let key = request.to_string();
        let standing = self.parts.coverage.lock().claim(&key).map(Claim::standing);
        let Some(standing) = standing else {
            return Ok(Outcome::done());
        };
        if self.parts.record.withdraws(&standing.place) {
            tracing::info!(target = %standing.target, place = %standing.place,
                "block is gone, and its gateway is withdrawn: its ban counts as lifted");
            let removed = self.parts.coverage.lock().remove(&key);
            removed.iter().for_each(|claim| self.freed(&key, claim));
            self.leave(&standing.target);
            return Ok(Outcome::done());
        }
        let _guard = self.parts.locks.lock(standing.target).await;
        let neighbours = {
            let coverage = self.parts.coverage.lock();
            coverage.neighbours(&[standing.target], &key)
        };
        let wanted = [standing.target];
        if self.any_outdated(&ctx.lister()?, request, &wanted, &neighbours, config)? {
            return Ok(Outcome::retry());
        }
        let run = Run::orphan(&standing, &neighbours, self.parts.time.now());
        let act = Act::new(self, ctx, request, &key, config);
        let wake = act.perform(run).await?;
        if wake == Wake::OnChange {
            tracing::info!(target = %standing.target, "lifted a ban that no block records any more");
        }
        Ok(conclude(wake, ctx.attempt(), self.claims()))
    }

    /// A block that records no ban while this process claims one: an old copy of it was asserted, as a new leader may read
    /// it from an API server that is behind. Lifts that ban. `Some`: it could not be lifted yet.
    async fn unrecorded(
        &self,
        ctx: &Context,
        request: &Request,
        block: &IPBlock,
        config: Option<&Config>,
    ) -> Result<Option<Outcome>, reconcile::Error> {
        let key = request.to_string();
        let claims = || self.parts.coverage.lock().claims_ban(&key);
        let place = config.and_then(|config| config.place().ok());
        let records = |block: &IPBlock| {
            let standings = recorded_standings(block, place);
            standings.is_none_or(|standings| !standings.is_empty())
        };
        if !claims() || records(block) {
            return Ok(None);
        }
        // The cache may be behind the writes of this process.
        let live = optional(ctx.client().get::<IPBlock>(request).await)?;
        let live = live.map(|live| self.parts.record.believe(&Arc::new(live)).0);
        if live.is_some_and(|live| records(&live)) {
            return Ok(None);
        }
        let outcome = self.orphan(ctx, request, config).await?;
        Ok(claims().then_some(outcome))
    }

    /// Whether the cache had an old copy until now of a block that overlaps with `wanted`, the targets of `own`: what it
    /// claims may have changed since `neighbours` were read.
    fn any_outdated(
        &self,
        lister: &Lister<IPBlock>,
        own: &Request,
        wanted: &[Target],
        neighbours: &[Neighbour],
        config: Option<&Config>,
    ) -> Result<bool, ReadError> {
        if self.outdated.len() == 0 {
            return Ok(false);
        }
        let claiming = neighbours.iter().filter_map(|it| request_named(&it.key));
        let mut any = false;
        for request in claiming.chain(self.outdated.overlapping(wanted)) {
            any |= request != *own && self.look(lister, &request, config)? != Freshness::Settled;
        }
        Ok(any)
    }

    /// What is known of the copy of `request`. The claim of a new one takes the place of that of the old one in the coverage. If
    /// the block is gone or records nothing, the old claim is over, and its next run lifts it: that the former leader did is not
    /// certain, as another client may have removed the finalizer. A ban that was begun meanwhile is admitted like a new one.
    fn look(
        &self,
        lister: &Lister<IPBlock>,
        request: &Request,
        config: Option<&Config>,
    ) -> Result<Freshness, ReadError> {
        self.outdated.look(lister, request, |block| {
            let key = request.to_string();
            let place = config.and_then(|config| config.place().ok());
            let believed = block.map(|block| self.parts.record.believe(block).0);
            let claim = believed.as_ref().and_then(|block| {
                let (standing, until) = recorded_claim(block, place)?;
                Some((standing, until, source_of(block).to_owned()))
            });
            let standings = believed.map(|block| recorded_standings(&block, place));
            let begun = standings.is_some_and(|it| it.is_none_or(|it| !it.is_empty()));
            let mut coverage = self.parts.coverage.lock();
            let former = coverage.claim(&key).map(Claim::standing);
            match (claim, former) {
                (Some((standing, until, source)), former) => {
                    coverage.recall(&key, standing, until);
                    coverage.attribute(&key, &source);
                    drop(coverage);
                    former.iter().for_each(|it| self.leave(&it.target));
                }
                (None, Some(former)) if begun => {
                    let removed = coverage.remove(&key);
                    drop(coverage);
                    removed.iter().for_each(|claim| self.freed(&key, claim));
                    self.leave(&former.target);
                }
                (None, Some(former)) => {
                    coverage.recall(&key, former, Some(self.parts.time.now()));
                    coverage.report(&key, false);
                }
                (None, None) => {}
            }
        })
    }

    /// After a block has dropped its claim: the set keeps `target` only where another block claims it. Not every such block
    /// had its ban lifted by a call: its gateway may be withdrawn, or its annotation released it.
    pub(super) fn leave(&self, target: &Target) {
        let coverage = self.parts.coverage.lock();
        let others = coverage.neighbours(&[*target], "");
        let others = others.iter().map(|other| &other.standing);
        let places: Vec<&Place> = others
            .filter(|standing| standing.target == *target)
            .map(|standing| &standing.place)
            .collect();
        self.parts
            .sets
            .keep(*target, |place| places.contains(&place));
    }

    /// Requests the blocks that overlap with a lift, whatever the engine does about overlaps.
    pub(super) fn request(&self, overlapping: Vec<Arc<str>>) {
        let mut rest = overlapping;
        rest.retain(|key| {
            request_named(key).is_some_and(|request| self.parts.again.try_send(request).is_err())
        });
        if !rest.is_empty() {
            // The channel is full. They wait for room there, where a run must not.
            self.parts.losses.request(rest);
        }
    }

    /// Whether bans at `place` wait for the record of gateways. An edit that was taken back while this run waited is not
    /// held any more, and nothing names its gateway.
    fn is_unrecorded(&self, place: &Place) -> bool {
        let Dependencies { record, live, .. } = &self.parts;
        let is_latest = || {
            live.config()
                .is_some_and(|config| config.place() == Ok(place))
        };
        record.holds(place) || (!record.names(place) && !is_latest())
    }

    async fn run(&self, ctx: &Context, request: &Request) -> Result<Outcome, reconcile::Error> {
        // The brake is engaged before a policy is in force and released after it is not any more: it is read before and
        // after the policy.
        let braked = self.parts.guard.lifts();
        let state = tokio::time::timeout(PATIENCE, self.parts.live.state()).await;
        let state = state
            .unwrap_or_else(|_| State::Missing("the configuration could not be read yet".into()));
        let (config, missing) = match state {
            State::Loaded(config) => (Some(config), None),
            State::Missing(why) => (None, Some(why)),
        };
        self.recall(ctx).await?;
        self.parts.time.compared().await;
        self.seed(ctx, config.as_deref()).await?;
        let lister = ctx.lister::<IPBlock>()?;
        if self.look(&lister, request, config.as_deref())? == Freshness::Old {
            return Ok(Outcome::retry());
        }
        let cached = lister.get(request)?;
        if self.released.is_behind(request, cached.as_deref()) {
            return Ok(Outcome::done());
        }
        let Some(block) = cached.filter(|block| !block.is_released()) else {
            self.parts.guard.forget(&request.to_string());
            return self.orphan(ctx, request, config.as_deref()).await;
        };
        let (block, _) = self.parts.record.believe(&block);
        if let Some(outcome) = self
            .unrecorded(ctx, request, &block, config.as_deref())
            .await?
        {
            return Ok(outcome);
        }
        let _guards = self.lock(&block).await;
        // A run for another block may have changed the coverage meanwhile, and this block may have changed.
        let latest = lister.get(request)?;
        let Some(block) = latest.filter(|block| !block.is_released()) else {
            return self.orphan(ctx, request, config.as_deref()).await;
        };
        let block = self.believe(ctx, &block);
        let key = block.key();
        // Without a configuration nothing is banned, and no rule lifts a standing ban.
        let fallback = Policy {
            min_prefix_v4: policy::FLOOR_V4,
            min_prefix_v6: policy::FLOOR_V6,
            ..Policy::default()
        };
        let place = match (&config, &missing) {
            (Some(config), _) => match config.place() {
                Ok(place) if self.is_unrecorded(place) => Err(UNRECORDED),
                place => place,
            },
            (None, Some(why)) => Err(&**why),
            (None, None) => Err("no configuration"),
        };
        let resync = config
            .as_ref()
            .map_or(RESYNC, |config| config.resync_interval);
        let (neighbours, assert, untouched, resync) = {
            let coverage = self.parts.coverage.lock();
            let resync = spread(resync, place.ok(), coverage.len());
            let assert = coverage.assert(&key, place.ok(), resync, Instant::now());
            let neighbours = coverage.neighbours(&targets(&block), &key);
            let untouched = coverage.untouched_places(&key).to_vec();
            (neighbours, assert, untouched, resync)
        };
        let wanted = targets(&block);
        if self.any_outdated(&lister, request, &wanted, &neighbours, config.as_deref())? {
            return Ok(Outcome::retry());
        }
        let followers = self.parts.sets.capabilities();
        let lifts = self.parts.guard.lifts().or(braked);
        let lifts = lifts.map(|lifts| lifts.to_string());
        let world = World {
            policy: config.as_ref().map_or(&fallback, |config| &config.policy),
            place,
            gateway: config.as_ref().and_then(|config| config.place().ok()),
            followers: &followers,
            max_duration: config.as_ref().and_then(|config| config.max_duration),
            retention: config.as_ref().and_then(|config| config.retention),
            unblock_grace: config.as_ref().map_or(GRACE, |config| config.unblock_grace),
            neighbours: &neighbours,
            assert,
            resync,
            untouched: &untouched,
            rails: Self::rails(source_of(&block), config.as_deref(), lifts.as_deref()),
        };
        let run = self.decide(&block, &key, &world, config.as_deref());
        let act = Act::new(self, ctx, request, &key, config.as_deref());
        let holds = run.holds();
        let wake = act.perform(run).await?;
        if holds && matches!(wake, Wake::After(_)) {
            self.parts.guard.cleaned(&key);
        }
        Ok(conclude(wake, ctx.attempt(), self.claims()))
    }

    /// Counts, logs and announces what a run did.
    pub(super) fn report(&self, ctx: &Context, block: &IPBlock, report: &Report) {
        let metrics = &self.parts.metrics;
        let source = block.spec.source.as_deref();
        match report.effect {
            Effect::Banned => metrics.banned(source, true),
            Effect::BanFailed => metrics.banned(source, false),
            Effect::Lifted(cause, late) => metrics.lifted(cause, late),
            Effect::Skipped(kind) => metrics.skipped(kind),
            Effect::Shadowed => metrics.guard().shadowed(source_of(block)),
            Effect::None
            | Effect::Kept
            | Effect::Rejected
            | Effect::LiftFailed
            | Effect::KeepFailed => {}
        }
        for announcement in &report.announcements {
            if announcement.reason == "Released" {
                metrics.released();
            }
            let now = self.parts.time.now();
            let audit = &self.parts.audit;
            audit.record(block, report.effect, announcement, now);
            self.announce(ctx, block, announcement);
        }
    }

    fn announce(&self, ctx: &Context, block: &IPBlock, announcement: &Announcement) {
        let Announcement { reason, note, .. } = announcement;
        let kind = if announcement.warning {
            tracing::warn!(reason, "{note}");
            EventType::Warning
        } else {
            tracing::info!(reason, "{note}");
            EventType::Normal
        };
        ctx.events()
            .event(block, kind, reason, "Reconcile", note.as_str());
        if announcement.notice.is_some() {
            let now = self.parts.time.now();
            self.parts.announcer.announce(block, announcement, now);
        }
    }
}

impl Reconciler for BlockReconciler {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, reconcile::Error> {
        self.run(&ctx, &request).await
    }
}

/// How often each of `claims` standing bans at `place` is asserted.
fn spread(resync: Duration, place: Option<&Place>, claims: usize) -> Duration {
    if place.is_some_and(|place| place.engine == Kind::Sets.name()) {
        return resync.max(RESYNC_OF_SETS);
    }
    resync.max(pace(claims))
}

/// The shortest time in which so many standing bans are asserted once.
fn pace(claims: usize) -> Duration {
    let claims = u32::try_from(claims).unwrap_or(u32::MAX);
    Duration::from_secs(1) * claims / ASSERTIONS_A_SECOND
}

/// What the queue does after a run that was tried `attempt` times before. An active block is requested in front of new
/// ones by its alarm when its ban ends, so its own wake is behind them. Once the back-off has grown, a gateway that refuses
/// every assertion of `claims` standing bans is called no more often than one that accepts them.
fn conclude(wake: Wake, attempt: u32, claims: usize) -> Outcome {
    let (outcome, priority) = match wake {
        Wake::OnChange => return Outcome::done(),
        // Zero would be "done" to the queue.
        Wake::After(wake) => (
            Outcome::requeue_after(wake.max(Duration::from_millis(1))),
            Some(LOW_PRIORITY),
        ),
        Wake::Retry {
            priority,
            at_latest,
        } => {
            let back_off = back_off(attempt);
            // A pause of its own ends the count of attempts, so a shorter one would be kept for good.
            let pace = Some(pace(claims))
                .filter(|pace| priority == Some(LOW_PRIORITY) && *pace > LONGEST_RETRY);
            let sooner = at_latest.filter(|wake| *wake < pace.unwrap_or(back_off));
            let outcome = sooner
                .or(pace)
                .map_or_else(Outcome::retry, Outcome::requeue_after);
            (outcome, priority)
        }
    };
    match priority {
        Some(priority) => outcome.with_priority(priority),
        None => outcome,
    }
}

fn back_off(attempt: u32) -> Duration {
    FIRST_RETRY
        .saturating_mul(2_u32.saturating_pow(attempt))
        .min(LONGEST_RETRY)
}

#[cfg(test)]
mod tests;
