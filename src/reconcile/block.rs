//! The reconciler of blocks.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use reeve_controller::events::EventType;
use reeve_controller::source::Sender;
use reeve_controller::{Context, Outcome, Reconciler, Request, reconcile};
use reeve_workqueue::LOW_PRIORITY;
use tokio::time::Instant;

use super::act::{Act, Done};
use super::engines::Engines;
use super::live::{Live, State};
use super::pages::Pages;
use super::record::{Record, is_forbidden};
use crate::api::{INTENT, IPBlock, Place};
use crate::config::Config;
use crate::decide::{
    Announcement, Assert, Coverage, Effect, Operation, Settled, World, decide, lift_orphan,
    recorded_claim, targets,
};
use crate::lock::{Guard, KeyedLocks};
use crate::metrics::Metrics;
use crate::policy::{self, Policy};
use crate::sampled::Sampled;
use crate::target::Target;
use crate::time::Time;

/// How often a standing ban is asserted again while no configuration says so.
const RESYNC: Duration = Duration::from_secs(300);

/// How long blocks wait for the first look at the configuration. After that what is due is lifted where the
/// objects say it was banned; nothing new is banned.
const PATIENCE: Duration = Duration::from_secs(10);

/// First and longest wait of a block whose run failed. The longest bounds how late a gateway's return is noticed.
pub(crate) const FIRST_RETRY: Duration = Duration::from_millis(200);
pub(crate) const LONGEST_RETRY: Duration = Duration::from_secs(15);

/// Before what changes now: a flood of new blocks delays bans, not lifts.
pub(super) const DUE_FIRST: i32 = 10;

/// How long an object stays that the operator may not delete, before it is tried again.
const COLLECT_AGAIN: Duration = Duration::from_secs(3600);

/// One line about blocks that the operator may not delete within this time.
const COLLECT_REFUSALS: Duration = Duration::from_secs(600);

/// How long a block that was unblocked is kept at least while no configuration says so.
const GRACE: Duration = Duration::from_secs(24 * 3600);

/// Tells people outside of the cluster. Never waits.
pub trait Voice: Send + Sync + std::fmt::Debug {
    /// `announcement` is about `block` as it is now.
    fn tell(&self, block: &IPBlock, announcement: &Announcement, at: Timestamp);
}

/// What the reconciler works with.
#[derive(Clone, Debug)]
pub struct Dependencies {
    /// The configuration in force.
    pub live: Live,
    /// The engines.
    pub engines: Arc<Engines>,
    /// Which block stands for what.
    pub coverage: Arc<Mutex<Coverage>>,
    /// One lock a target: two blocks on one address take turns.
    pub locks: KeyedLocks<Target>,
    /// The time that bans end by.
    pub time: Time,
    /// Requests for blocks whose enforcement is in doubt.
    pub again: Sender<Request>,
    /// Notifications.
    pub voice: Arc<dyn Voice>,
    /// What is counted.
    pub metrics: Metrics,
    /// The gateways that intents are followed to.
    pub record: Arc<Record>,
}

/// Brings one block's ban in line with what it says.
#[derive(Debug)]
pub struct BlockReconciler {
    pub(super) parts: Dependencies,
    seeded: Mutex<bool>,
    /// What is logged of blocks that may not be deleted: it is one right that lacks for all of them.
    pub(super) refusals: Sampled,
}

// === impl BlockReconciler ===

impl BlockReconciler {
    /// Nothing is known yet; the first request reads every block's own records.
    #[must_use]
    pub fn new(parts: Dependencies) -> Self {
        Self {
            parts,
            seeded: Mutex::new(false),
            refusals: Sampled::every(COLLECT_REFUSALS),
        }
    }

    /// Reads the gateways that earlier leaders used, once, before their intents are followed.
    async fn recall(&self, ctx: &Context) -> Result<(), reconcile::Error> {
        if *self.seeded.lock() {
            return Ok(());
        }
        match self.parts.record.read(ctx.client()).await {
            // Without the right to read it, what this process knows has to do; the configuration says so.
            Err(error) if !is_forbidden(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The block as far as it is believed: a user may write its intent.
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
    fn seed(&self, ctx: &Context, config: Option<&Config>) -> Result<(), reconcile::Error> {
        let mut seeded = self.seeded.lock();
        if *seeded {
            return Ok(());
        }
        let place = config.and_then(|config| config.place().ok());
        let now = self.parts.time.now();
        let mut due = 0;
        let mut coverage = self.parts.coverage.lock();
        let mut pages = Pages::new(ctx.lister::<IPBlock>()?);
        loop {
            let page = pages.next()?;
            if page.is_empty() {
                break;
            }
            for block in page {
                let (block, _) = self.parts.record.believe(&block);
                let key = block.key();
                let claim = recorded_claim(&block, place);
                let over = claim
                    .as_ref()
                    .is_some_and(|(_, until)| until.is_some_and(|until| until <= now));
                if over || (block.is_held() && block.is_deleting()) {
                    due += 1;
                }
                if let Some((standing, until)) = claim {
                    coverage.set(&key, standing, until);
                    // Its status says so; the first assertion shows whether it is true.
                    coverage.enforced(&key);
                }
            }
        }
        tracing::info!(active = coverage.len(), due, "took stock of the blocks");
        *seeded = true;
        Ok(())
    }

    async fn lock(&self, block: &IPBlock) -> Vec<Guard<Target>> {
        let mut guards = Vec::new();
        // In the order of the targets, so that two blocks never wait for each other.
        for target in targets(block) {
            guards.push(self.parts.locks.lock(target).await);
        }
        guards
    }

    /// When the ban of a block is due to be asserted at `place`, the configured gateway.
    fn assert(&self, key: &str, place: Option<&Place>, resync: Duration) -> Assert {
        let coverage = self.parts.coverage.lock();
        let claim = coverage.claim(key);
        // What was asserted at an earlier gateway is not asserted here, though the intent may name this one already.
        let asserted = claim
            .filter(|claim| place.is_none_or(|place| claim.standing.place == *place))
            .and_then(|claim| claim.asserted);
        drop(coverage);
        let Some(asserted) = asserted else {
            return Assert::Due;
        };
        // A tenth early or late by key, or a burst of bans would be asserted as one burst for ever.
        let spread = f64::from(fingerprint(key) % 200) / 1000.0 + 0.9;
        let due = asserted + resync.mul_f64(spread);
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Assert::Due
        } else {
            Assert::In(left)
        }
    }

    /// A block that is gone while this process still has a claim for it: its finalizer was removed by somebody
    /// else, or it never had one.
    async fn orphan(
        &self,
        ctx: &Context,
        request: &Request,
        config: Option<&Config>,
    ) -> Result<Outcome, reconcile::Error> {
        let key = request.to_string();
        let standing = self
            .parts
            .coverage
            .lock()
            .claim(&key)
            .map(|claim| claim.standing.clone());
        let Some(standing) = standing else {
            return Ok(Outcome::done());
        };
        if self.parts.record.withdraws(&standing.place) {
            tracing::info!(target = %standing.target, place = %standing.place,
                "the block is gone, and its gateway is withdrawn: its ban counts as lifted");
            self.parts.coverage.lock().remove(&key);
            return Ok(Outcome::done());
        }
        let _guard = self.parts.locks.lock(standing.target).await;
        let neighbours = self
            .parts
            .coverage
            .lock()
            .neighbours(&standing.target, &key);
        let call = lift_orphan(&standing, &neighbours, self.parts.time.now());
        ctx.check_fence("engine call")?;
        if let Err(failure) = self.call(&call, config).await {
            tracing::warn!(target = %standing.target, reason = failure.reason, message = failure.message,
                "the block is gone, and its ban could not be lifted; trying again");
            return Ok(Outcome::retry());
        }
        tracing::info!(target = %standing.target, "the block is gone without having been let go; its ban is lifted");
        self.parts.coverage.lock().remove(&key);
        if call.operation == Operation::Unban {
            self.doubt(&standing.target, &key);
        }
        Ok(Outcome::done())
    }

    /// After a lift: blocks that overlap are asserted again, whatever the engine makes of overlaps.
    pub(super) fn doubt(&self, target: &Target, key: &str) {
        let doubtful = self.parts.coverage.lock().doubt(target, key);
        for key in doubtful {
            let Some((namespace, name)) = key.split_once('/') else {
                continue;
            };
            let request = Request::namespaced(namespace, name);
            if self.parts.again.try_send(request).is_err() {
                // The channel is full: the next lift names the block again.
                self.parts.coverage.lock().unnamed(&key);
            }
        }
    }

    async fn look(&self, ctx: &Context, request: &Request) -> Result<Outcome, reconcile::Error> {
        let state = tokio::time::timeout(PATIENCE, self.parts.live.state()).await;
        let state = state
            .unwrap_or_else(|_| State::Missing("the configuration could not be read yet".into()));
        let (config, missing) = match state {
            State::Loaded(config) => (Some(config), None),
            State::Missing(why) => (None, Some(why)),
        };
        self.recall(ctx).await?;
        self.parts.time.compared().await;
        self.seed(ctx, config.as_deref())?;
        let lister = ctx.lister::<IPBlock>()?;
        let Some(block) = lister.get(request)? else {
            return self.orphan(ctx, request, config.as_deref()).await;
        };
        let (block, _) = self.parts.record.believe(&block);
        let _guards = self.lock(&block).await;
        // Another block may have been worked on meanwhile, and this one may have changed.
        let Some(block) = lister.get(request)? else {
            return self.orphan(ctx, request, config.as_deref()).await;
        };
        let block = self.believe(ctx, &block);
        let key = block.key();
        let resync = config
            .as_ref()
            .map_or(RESYNC, |config| config.resync_interval);
        let neighbours = {
            let coverage = self.parts.coverage.lock();
            let mut all = Vec::new();
            for target in targets(&block) {
                for neighbour in coverage.neighbours(&target, &key) {
                    if !all.contains(&neighbour) {
                        all.push(neighbour);
                    }
                }
            }
            all
        };
        // Without a configuration nothing is banned anew, and what stands is not lifted by rules nobody wrote.
        let fallback = Policy {
            min_prefix_v4: policy::FLOOR_V4,
            min_prefix_v6: policy::FLOOR_V6,
            ..Policy::default()
        };
        let place = match (&config, &missing) {
            (Some(config), _) => config.place(),
            (None, Some(why)) => Err(&**why),
            (None, None) => Err("no configuration"),
        };
        let world = World {
            policy: config.as_ref().map_or(&fallback, |config| &config.policy),
            place,
            max_duration: config.as_ref().and_then(|config| config.max_duration),
            retention: config.as_ref().and_then(|config| config.retention),
            unblock_grace: config.as_ref().map_or(GRACE, |config| config.unblock_grace),
            neighbours: &neighbours,
            assert: self.assert(&key, place.ok(), resync),
            resync,
        };
        let now = self.parts.time.now();
        let plan = decide(&block, &world, now);
        let act = Act {
            reconciler: self,
            ctx,
            request,
            key: &key,
            block: &block,
            plan: &plan,
            config: config.as_deref(),
        };
        let done = act.run().await?;
        Ok(Self::conclude(ctx, &done))
    }

    /// Tells the queue when to look again. Only lifts come back before new blocks; a block that is active is looked
    /// at in front when its end is there, by its alarm.
    fn conclude(ctx: &Context, done: &Done) -> Outcome {
        match done {
            Done::Settled(settled) => match settled.wake {
                // Zero would be "done" to the queue.
                Some(wake) => Outcome::requeue_after(wake.max(Duration::from_millis(1)))
                    .with_priority(LOW_PRIORITY),
                None => Outcome::done(),
            },
            Done::Failed(settled) => {
                let priority = match settled.effect {
                    Effect::LiftFailed => DUE_FIRST,
                    Effect::KeepFailed => LOW_PRIORITY,
                    _ => 0,
                };
                let outcome = match due_first(settled, ctx.attempt()) {
                    Some(wake) => Outcome::requeue_after(wake),
                    None => Outcome::retry(),
                };
                outcome.with_priority(priority)
            }
            Done::Refused => Outcome::requeue_after(COLLECT_AGAIN).with_priority(LOW_PRIORITY),
            Done::Again => Outcome::retry(),
            Done::Gone => Outcome::done(),
        }
    }

    /// Counts and says what `settled` did.
    pub(super) fn announce(&self, ctx: &Context, block: &IPBlock, settled: &Settled) {
        self.count(block, settled.effect, &settled.announcements);
        for said in &settled.announcements {
            self.say(ctx, block, said);
        }
    }

    fn count(&self, block: &IPBlock, effect: Effect, announcements: &[Announcement]) {
        let metrics = &self.parts.metrics;
        let source = block.spec.source.as_deref();
        match effect {
            Effect::Banned => metrics.banned(source, true),
            Effect::BanFailed => metrics.banned(source, false),
            Effect::Lifted(cause, late) => metrics.lifted(cause, late),
            Effect::Skipped(kind) => metrics.skipped(kind),
            Effect::None
            | Effect::Kept
            | Effect::Rejected
            | Effect::LiftFailed
            | Effect::KeepFailed => {}
        }
        if announcements.iter().any(|said| said.reason == "Released") {
            metrics.released();
        }
    }

    fn say(&self, ctx: &Context, block: &IPBlock, said: &Announcement) {
        if said.warning {
            tracing::warn!(reason = said.reason, "{}", said.note);
        } else {
            tracing::info!(reason = said.reason, "{}", said.note);
        }
        let kind = if said.warning {
            EventType::Warning
        } else {
            EventType::Normal
        };
        ctx.events()
            .event(block, kind, said.reason, "Reconcile", said.note.as_str());
        if said.notice.is_some() {
            self.parts.voice.tell(block, said, self.parts.time.now());
        }
    }
}

impl Reconciler for BlockReconciler {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, reconcile::Error> {
        self.look(&ctx, &request).await
    }
}

pub(crate) fn request_of(block: &IPBlock) -> Request {
    Request::namespaced(
        block.metadata.namespace.as_deref().unwrap_or_default(),
        block.metadata.name.as_deref().unwrap_or_default(),
    )
}

/// When an assertion failed and its ban is due before the queue would try again: until then. A due ban must not
/// be lifted late because of a call that no longer matters.
fn due_first(settled: &Settled, attempt: u32) -> Option<Duration> {
    let wake = settled.wake.filter(|wake| !wake.is_zero())?;
    let retry = FIRST_RETRY
        .saturating_mul(2_u32.saturating_pow(attempt))
        .min(LONGEST_RETRY);
    (settled.effect == Effect::KeepFailed && wake < retry).then_some(wake)
}

/// A number that is the same for a key in every process.
fn fingerprint(key: &str) -> u32 {
    key.bytes().fold(2_166_136_261, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    })
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;
    use crate::decide::Cause;

    fn failed(effect: Effect, wake: Duration) -> Settled {
        Settled {
            status: None,
            announcements: Vec::new(),
            wake: Some(wake),
            effect,
        }
    }

    #[derive(Debug)]
    struct Silent;

    impl Voice for Silent {
        fn tell(&self, _: &IPBlock, _: &Announcement, _: Timestamp) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_block_that_found_no_room_in_the_queue_is_named_again_by_the_next_lift() {
        let (again, mut requests) = reeve_controller::source::channel::<Request>(1);
        let connector = super::super::Gateways {
            allow_loopback: false,
            guard: crate::engine::GuardSettings::default(),
            metrics: crate::engine::Metrics::new(),
        };
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let coverage = Arc::<Mutex<Coverage>>::default();
        let reconciler = BlockReconciler::new(Dependencies {
            live: Live::new(),
            engines: Arc::new(Engines::new(Arc::new(connector))),
            coverage: Arc::clone(&coverage),
            locks: KeyedLocks::new(),
            time: Time::new(reeve_clock::Clock::simulated(start, 1)),
            again: again.clone(),
            voice: Arc::new(Silent),
            metrics: Metrics::new(),
            record: Arc::new(Record::new("default")),
        });
        let standing = crate::api::Standing {
            target: "192.0.2.0/24".parse().unwrap(),
            place: crate::api::Place::new("dry-run", ""),
        };
        coverage.lock().set("ns/range", standing, None);
        let lifted = "192.0.2.7".parse().unwrap();
        let other = Request::namespaced("ns", "other");
        again.try_send(other.clone()).unwrap();
        reconciler.doubt(&lifted, "ns/lifted");
        let mut next = async || requests.next().await.unwrap().request;
        assert_eq!(next().await, other);
        for _ in 0..2 {
            reconciler.doubt(&lifted, "ns/lifted");
        }
        assert_eq!(next().await, Request::namespaced("ns", "range"));
        again.try_send(other).expect("it was named once");
    }

    #[test]
    fn a_ban_that_is_due_before_the_next_try_to_assert_it_is_looked_at_when_it_is_due() {
        let soon = Duration::from_secs(3);
        let keep = failed(Effect::KeepFailed, soon);
        assert_eq!(due_first(&keep, 0), None, "the try comes first");
        assert_eq!(due_first(&keep, 10), Some(soon));
        assert_eq!(
            due_first(&failed(Effect::KeepFailed, LONGEST_RETRY), u32::MAX),
            None
        );
        for other in [Effect::LiftFailed, Effect::Lifted(Cause::Expired, None)] {
            assert_eq!(due_first(&failed(other, soon), 10), None);
        }
        assert_eq!(
            due_first(&failed(Effect::KeepFailed, Duration::ZERO), 10),
            None,
            "due already: backs off"
        );
    }
}
