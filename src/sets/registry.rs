//! All set engines of the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::crowdsec::{CrowdSecEngine, CrowdSecSurface};
use super::definition::{Definition, Kind};
use super::desired::{Changed, Desired, Group, Source};
use super::follower::{Follower, Parts, Share};
use super::freshness::{Failing, Freshness, LOOK};
use super::kind::{Capabilities, SetEngine};
use super::list::{ListEngine, ListSurface};
use super::metrics::Metrics;
use super::objects::{Keeper, ObjectEngine, Settings};
use super::serve::{Listeners, Site, Surface};
use super::set::{Entry, TargetSet, Until};
use crate::api::{EngineStatus, Place, Standing};
use crate::decide::{Call, Failure, Operation};
use crate::sampled::Sampled;
use crate::target::Target;
use crate::time::Time;

/// At most this often the ends of entries are looked at.
const EXPIRE_AGAIN: Duration = Duration::from_millis(100);

/// How soon a former engine that could not be emptied is tried again.
const CLEAR_AGAIN: Duration = Duration::from_secs(10);

/// How often it is logged that a former engine cannot be emptied.
const CLEAR_FAILED: Duration = Duration::from_secs(600);

const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// What set engines work with.
#[derive(Clone)]
pub struct Dependencies {
    /// The time that bans end by.
    pub time: Time,
    /// Whether this replica leads.
    pub leading: watch::Receiver<bool>,
    /// What is counted.
    pub metrics: Metrics,
    /// What the operator counts.
    pub counts: crate::metrics::Metrics,
    /// The API server, for engines that keep objects there.
    pub client: kube_client::Client,
}

/// All set engines, and the set that they follow.
#[derive(Debug)]
pub struct Sets {
    desired: Desired,
    parts: Dependencies,
    engines: RwLock<Vec<Arc<Running>>>,
    /// Engines that were replaced, until they have ended.
    ending: parking_lot::Mutex<Vec<Arc<Running>>>,
    listeners: Mutex<Listeners>,
    fresh: Freshness,
    /// The tasks that empty former engines.
    retiring: parking_lot::Mutex<BTreeMap<Keeper, AbortOnDropHandle<()>>>,
    cleared: Arc<parking_lot::Mutex<BTreeSet<Keeper>>>,
}

#[derive(Debug)]
struct Running {
    definition: Definition,
    follower: Follower,
    surface: Option<Arc<dyn Surface>>,
}

impl Running {
    fn is_of_the_type_of(&self, other: &Self) -> bool {
        let kind = |running: &Self| std::mem::discriminant(&running.definition.kind);
        kind(self) == kind(other)
    }
}

impl std::fmt::Debug for Dependencies {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Dependencies")
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

// === impl Sets ===

impl Sets {
    /// No engine yet.
    #[must_use]
    pub fn new(parts: Dependencies) -> Self {
        Self {
            desired: Desired::new([Group::Blocks, Group::Lists]),
            engines: RwLock::default(),
            ending: parking_lot::Mutex::default(),
            listeners: Mutex::new(Listeners::new(parts.metrics.clone())),
            fresh: Freshness::default(),
            parts,
            retiring: parking_lot::Mutex::default(),
            cleared: Arc::default(),
        }
    }

    /// The set that the engines follow.
    #[must_use]
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// Runs exactly `definitions` from now on, see [`replace`](Self::replace) and [`serve`](Self::serve).
    pub async fn apply(&self, definitions: &[Definition], resync: Duration) -> Vec<String> {
        self.replace(definitions, resync);
        self.serve().await
    }

    /// Has exactly `definitions` follow the set, and calls confirmed by them. Unchanged ones run on. Does not wait, so
    /// that a configuration is put in force with its engines; [`serve`](Self::serve) does the rest.
    pub fn replace(&self, definitions: &[Definition], resync: Duration) {
        let before = self.engines.read().clone();
        let keepers: BTreeSet<Keeper> = definitions.iter().filter_map(Definition::keeper).collect();
        self.cleared.lock().retain(|it| !keepers.contains(it));
        // An engine that comes back is not cleared any more.
        self.retiring.lock().retain(|it, _| !keepers.contains(it));
        let mut engines = Vec::with_capacity(definitions.len());
        for definition in definitions {
            let same = |running: &&Arc<Running>| running.definition == *definition;
            if let Some(running) = before.iter().find(same) {
                running.follower.set_resync(resync);
                engines.push(Arc::clone(running));
            } else {
                tracing::info!(engine = %definition.name, "starting set engine");
                engines.push(Arc::new(self.start(definition, resync)));
            }
        }
        *self.engines.write() = engines.clone();
        let gone = before.into_iter().filter(|running| {
            let kept = engines.iter().any(|it| Arc::ptr_eq(it, running));
            !kept
        });
        self.ending.lock().extend(gone);
    }

    /// Serves the engines that run, and ends those that were replaced.
    ///
    /// Returns what does not work: listeners that cannot be bound, which the next call tries again, and engines that
    /// fail, which try again by themselves.
    pub async fn serve(&self) -> Vec<String> {
        let mut listeners = self.listeners.lock().await;
        let engines = self.engines.read().clone();
        let ending = std::mem::take(&mut *self.ending.lock());
        for running in &ending {
            running.follower.close();
            running.follower.end().await;
        }
        let served = engines.iter().filter_map(|running| {
            let serve = running.definition.serve()?;
            let surface = Arc::clone(running.surface.as_ref()?);
            Some(Site {
                name: running.definition.name.clone(),
                surface,
                serve: serve.clone(),
            })
        });
        let mut problems = listeners.apply(served.collect::<Vec<_>>()).await;
        // After the listeners: their requests count until then.
        for running in ending {
            let name = running.follower.name();
            match engines.iter().find(|it| it.follower.name() == name) {
                None => {
                    tracing::info!(engine = name, "set engine is not configured any more");
                    self.parts.metrics.forget(name);
                }
                Some(next) if next.is_of_the_type_of(&running) => {}
                Some(_) => self.parts.metrics.forget_agents(name),
            }
        }
        self.parts.metrics.unbound(problems.len());
        problems.extend(engines.iter().filter_map(|it| it.follower.problem()));
        problems
    }

    /// What the engines can do, in the order of the configuration.
    pub(crate) fn capabilities(&self) -> Vec<Capabilities> {
        let engines = self.engines.read();
        let engines = engines.iter();
        engines.map(|it| it.follower.capabilities()).collect()
    }

    /// Where engines are served, with the ports that were taken.
    pub async fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.lock().await.addresses()
    }

    /// Stops all of them, after answering the requests in work.
    pub async fn stop(&self) {
        self.apply(&[], Duration::MAX).await;
    }

    fn start(&self, definition: &Definition, resync: Duration) -> Running {
        let Dependencies {
            metrics, counts, ..
        } = &self.parts;
        let (engine, surface): (Arc<dyn SetEngine>, Option<Arc<dyn Surface>>) = match &definition
            .kind
        {
            Kind::List(serve) => {
                let time = self.parts.time.clone();
                let list = ListEngine::new(&definition.name, time, metrics.clone());
                let list = Arc::new(list.while_fresh(self.fresh.clone()));
                let surface = ListSurface::new(Arc::clone(&list), serve.access.clone());
                (list, Some(Arc::new(surface)))
            }
            Kind::CrowdSec(serve, ranges) => {
                let time = self.parts.time.clone();
                let name = &definition.name;
                let desired = self.desired.clone();
                let lapi = CrowdSecEngine::new(name, time, desired, metrics.clone());
                let lapi = Arc::new(lapi.with_ranges(ranges.0).while_fresh(self.fresh.clone()));
                let surface = CrowdSecSurface::new(Arc::clone(&lapi), serve.access.clone());
                (lapi, Some(Arc::new(surface)))
            }
            Kind::Objects(settings) => (Arc::new(self.objects(&definition.name, settings)), None),
        };
        let parts = Parts {
            desired: self.desired.clone(),
            metrics: metrics.clone(),
            counts: counts.clone(),
            leading: matches!(definition.kind, Kind::Objects(_))
                .then(|| self.parts.leading.clone()),
        };
        Running {
            definition: definition.clone(),
            follower: Follower::start(&definition.name, engine, parts, resync),
            surface,
        }
    }

    fn objects(&self, name: &str, settings: &Settings) -> ObjectEngine {
        let Dependencies {
            client, leading, ..
        } = &self.parts;
        ObjectEngine::new(name, settings.clone(), client.clone(), leading.clone())
    }

    /// Empties engines that keep objects and are not configured any more, by the leader. They are tried again until they
    /// are [`cleared`](Self::cleared).
    pub(crate) fn retire(&self, former: &BTreeSet<Keeper>) {
        let mut retiring = self.retiring.lock();
        retiring.retain(|keeper, _| former.contains(keeper));
        for keeper in former {
            if retiring.contains_key(keeper) {
                continue;
            }
            let engine = self.objects(&keeper.name, &Settings::former(keeper.plugin));
            let mut leading = self.parts.leading.clone();
            let (cleared, own) = (Arc::clone(&self.cleared), keeper.clone());
            let task = async move {
                if leading.wait_for(|leads| *leads).await.is_err() {
                    return;
                }
                let failed = Sampled::every(CLEAR_FAILED);
                while let Err(error) = engine.clear().await {
                    if let Some(unlogged) = failed.pass() {
                        tracing::warn!(engine = %own, %error, unlogged, "could not empty a former set engine; trying again");
                    }
                    tokio::time::sleep(CLEAR_AGAIN).await;
                }
                tracing::info!(engine = %own, "emptied a former set engine");
                cleared.lock().insert(own);
            };
            let task = AbortOnDropHandle::new(tokio::spawn(task));
            retiring.insert(keeper.clone(), task);
        }
    }

    /// The former engines that were emptied.
    pub(crate) fn cleared(&self) -> BTreeSet<Keeper> {
        self.cleared.lock().clone()
    }

    /// Takes a call of an engine into the desired set.
    pub(crate) fn record(&self, call: &Call) -> Changed {
        let standing = &call.standing;
        let source = Source::Place(standing.place.clone());
        match call.operation {
            Operation::Ban(left) => {
                let until = left.map(|left| end(self.parts.time.now(), left));
                self.desired
                    .insert(&source, standing.target, Until::new(until))
            }
            Operation::Unban => self.desired.remove(&source, standing.target),
        }
    }

    /// Waits until every engine has applied a change, for `limit` at most. The engines in the order of the configuration.
    ///
    /// # Errors
    /// The first engine that fails, or does not apply it in time, with the statuses of all.
    pub(crate) async fn confirm(
        &self,
        changed: &Changed,
        limit: Duration,
    ) -> Result<Vec<EngineStatus>, Failure> {
        let engines = self.engines.read().clone();
        let confirmations = engines.iter().map(|running| async move {
            let follower = &running.follower;
            let confirmed = tokio::time::timeout(limit, follower.confirm(changed)).await;
            let why = match confirmed {
                Ok(Ok(status)) => return (status, None),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            let message = format!("set engine {}: {why}", follower.name());
            (follower.failed(&changed.target, why), Some(message))
        });
        let confirmed = futures::future::join_all(confirmations).await;
        let (engines, failures): (Vec<EngineStatus>, Vec<_>) = confirmed.into_iter().unzip();
        match failures.into_iter().flatten().next() {
            None => Ok(engines),
            Some(message) => Err(Failure {
                reason: "SetEngineFailed".into(),
                message,
                may_have_happened: true,
                engines,
            }),
        }
    }

    /// Drops what stands nowhere any more: no claim backs `target` at the places that `stands` refuses.
    pub(crate) fn keep(&self, target: Target, stands: impl Fn(&Place) -> bool) {
        self.desired.keep(target, stands);
    }

    /// Sets the end of a ban as the records of blocks show it.
    pub(crate) fn insert(&self, standing: &Standing, until: Until) {
        let source = Source::Place(standing.place.clone());
        self.desired.set(&source, standing.target, until);
    }

    /// Sets the end of a ban as its record has it, if the ban stands: replicas that read the records have that end.
    pub(crate) fn set_end(&self, standing: &Standing, until: Until) {
        let source = Source::Place(standing.place.clone());
        self.desired.set_end(&source, standing.target, until);
    }

    /// Removes a ban that no record shows any more.
    pub(crate) fn remove(&self, standing: &Standing) {
        let source = Source::Place(standing.place.clone());
        self.desired.remove(&source, standing.target);
    }

    /// Replaces the bans of blocks by what their records show.
    pub(crate) fn fill(&self, blocks: BTreeMap<Place, Vec<Entry>>) {
        self.desired.replace_blocks(blocks);
    }

    /// Replaces the entries of a list. Returns the change from which on every view has them.
    pub(crate) fn replace_list(&self, name: &str, entries: TargetSet) -> u64 {
        self.desired.replace(&Source::List(name.into()), entries);
        self.desired.view().change
    }

    /// Removes the entries of a list. Returns the change from which on no view has them.
    pub(crate) fn drop_list(&self, name: &str) -> u64 {
        self.replace_list(name, TargetSet::default())
    }

    /// Counts the lists as read.
    pub(crate) fn read_lists(&self) {
        self.desired.read(Group::Lists);
    }

    /// The entries of a list that did not end yet.
    pub(crate) fn list(&self, name: &str) -> TargetSet {
        self.desired.entries(&Source::List(name.into()))
    }

    /// The earliest end of `entries`.
    pub(crate) fn next_end(&self, entries: &TargetSet) -> Option<Timestamp> {
        entries.earliest().and_then(Until::at)
    }

    /// How much of `entries` each engine has, in the order of the configuration; an error for one that has not applied
    /// the change `change`.
    pub(crate) fn shares(&self, entries: &TargetSet, change: u64) -> Vec<Result<Share, Share>> {
        let engines = self.engines.read().clone();
        let shares = engines.iter().map(|it| it.follower.share(entries, change));
        shares.collect()
    }

    /// Takes in lifts of an earlier run, which count for so long.
    pub(crate) fn add_lifted(&self, targets: &[Target], kept: SignedDuration) {
        let until = self.parts.time.now().checked_add(kept).ok();
        self.desired.add_lifted(targets, Until::new(until));
    }

    /// Stops serving while this replica does not lead and its cache of blocks fails, and has the engines count their
    /// readers, until `stop`.
    pub async fn watch_cache(&self, fails: impl Fn() -> bool, stop: CancellationToken) {
        let mut failing = Failing::default();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            // The leader knows its own calls, and ends when it loses the API server.
            let stale = failing.look(fails()) && !*self.parts.leading.borrow();
            if self.fresh.set_stale(stale) {
                self.parts.metrics.stale(stale);
                if stale {
                    tracing::warn!(
                        "blocks cannot be followed: the lists of this replica are not served"
                    );
                } else {
                    tracing::info!(
                        "blocks are followed again: the lists of this replica are served"
                    );
                }
            }
            let engines = self.engines.read().clone();
            for running in engines {
                running.follower.look();
            }
        }
    }

    /// Removes entries at their ends, until `stop`.
    pub async fn expire(&self, stop: CancellationToken) {
        let mut changes = self.desired.changes();
        loop {
            changes.borrow_and_update();
            let next = self.desired.next_end();
            let due = async {
                match next {
                    // The wall clock may be set meanwhile.
                    Some(at) => {
                        let left = self.parts.time.until(at).min(LONGEST_SLEEP);
                        tokio::time::sleep(left).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = due => self.desired.expire(self.parts.time.now()),
                _ = changes.changed() => {}
            }
            tokio::time::sleep(EXPIRE_AGAIN).await;
        }
    }
}

fn end(now: Timestamp, left: Duration) -> Timestamp {
    SignedDuration::try_from(left)
        .ok()
        .and_then(|left| now.checked_add(left).ok())
        .unwrap_or(Timestamp::MAX)
}
