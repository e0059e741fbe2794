//! The reconciler of lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube_core::PartialObjectMeta;
use parking_lot::Mutex;
use reeve_controller::cache::{Lister, ReadError, View};
use reeve_controller::client::patch::difference;
use reeve_controller::client::{Patch, optional};
use reeve_controller::events::EventType;
use reeve_controller::{Context, Outcome, Reconciler, Request, reconcile};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::evaluate::{Counts, Evaluated, Rules, evaluate};
use super::metrics::Metrics;
use super::status::{Facts, Off, status, unconfigured};
use crate::api::{BlockList, BlockListStatus, EntryRefusal};
use crate::config::Config;
use crate::guard::Guard;
use crate::reconcile::{Live, State};
use crate::sets::{Sets, Share};
use crate::time::Time;

/// How soon the counts in a status follow the ends of entries and what engines have.
const REFRESH: Duration = Duration::from_secs(15 * 60);

/// The status of one list is written at most this often.
const WRITE_AGAIN: Duration = Duration::from_secs(5);

/// How soon an engine that has not applied the list yet is looked at again, and for how long before the status says so.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(10);

/// When a list that was edited meanwhile is read again.
const SOON: Duration = Duration::from_millis(10);

/// What lists are followed with.
#[derive(Clone, Debug)]
pub(crate) struct Dependencies {
    pub(crate) live: Live,
    pub(crate) sets: Arc<Sets>,
    pub(crate) time: Time,
    /// Whether this replica leads, and so writes statuses.
    pub(crate) leading: watch::Receiver<bool>,
    pub(crate) metrics: Metrics,
    /// The brake on lifts.
    pub(crate) guard: Guard,
}

/// Brings the desired set in line with lists. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct ListReconciler {
    pub(super) parts: Dependencies,
    pub(super) known: Arc<Mutex<Known>>,
}

/// All lists of the cache.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) lists: BTreeMap<Request, List>,
    /// The configuration that all of them were checked against, but for those that are stale.
    pub(super) config: Option<Arc<Config>>,
    /// Lists of the start that were not read yet; `None`: before the start.
    unread: Option<BTreeSet<Request>>,
}

/// One list, without its entries.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    /// Another object may have its name and its generation.
    uid: Option<Box<str>>,
    generation: Option<i64>,
    /// Its entries have to be read again, whatever its generation.
    pub(super) stale: bool,
    pub(super) read_at: Option<Instant>,
    /// Its last change, and its source.
    pub(super) since: Option<Timestamp>,
    pub(super) source: Option<Box<str>>,
    /// Why nothing of it is enforced.
    off: Option<Off>,
    pub(super) counts: Counts,
    refusals: Vec<EntryRefusal>,
    accepted: usize,
    /// The change of the desired set that has its entries.
    change: u64,
    /// The status as the server has it, as far as this process knows.
    shown: BlockListStatus,
    written: Option<Instant>,
    /// The number of refused entries that an Event reported last.
    reported: usize,
}

// === impl ListReconciler ===

impl ListReconciler {
    /// No list is known yet.
    pub(crate) fn new(parts: Dependencies) -> Self {
        Self {
            parts,
            known: Arc::default(),
        }
    }

    /// Notes the lists that there are at the start: the set counts as read once each of them was.
    fn begin(&self, lister: &Lister<PartialObjectMeta<BlockList>>) -> Result<(), reconcile::Error> {
        let mut known = self.known.lock();
        if known.unread.is_some() {
            return Ok(());
        }
        let lists = match lister.list() {
            Ok(lists) => lists,
            Err(ReadError::NotSynced { .. }) => {
                tracing::info!("the server has no lists: their kind is not installed");
                Vec::new()
            }
            Err(error) => return Err(error.into()),
        };
        let unread: BTreeSet<Request> = lists.iter().map(Request::of).collect();
        tracing::info!(lists = unread.len(), "following the lists");
        if unread.is_empty() {
            self.parts.sets.read_lists();
        }
        known.unread = Some(unread);
        Ok(())
    }

    /// The entries of a list are in the set, or there are none.
    fn read(&self, request: &Request) {
        let mut known = self.known.lock();
        if let Some(unread) = &mut known.unread
            && unread.remove(request)
            && unread.is_empty()
        {
            tracing::info!("every list was read");
            self.parts.sets.read_lists();
        }
        let sum = |count: fn(&List) -> usize| known.lists.values().map(count).sum();
        let states = [
            ("accepted", sum(|list| list.accepted)),
            ("refused", sum(|list| list.counts.refused)),
            ("ended", sum(|list| list.counts.ended)),
            ("held", sum(|list| list.counts.held)),
        ];
        self.parts.metrics.counted(known.lists.len(), states);
    }

    fn gone(&self, request: &Request) -> Outcome {
        self.known.lock().lists.remove(request);
        self.parts.sets.drop_list(&request.to_string());
        self.read(request);
        Outcome::done()
    }

    /// Reads the entries of a list into the set. Returns `None` when the list is gone.
    async fn load(
        &self,
        ctx: &Context,
        request: &Request,
        config: &Config,
        braked: bool,
    ) -> Result<Option<List>, reconcile::Error> {
        let got = ctx.client().get::<BlockList>(request).await;
        let Some(list) = optional(got)?.filter(|list| list.metadata.deletion_timestamp.is_none())
        else {
            return Ok(None);
        };
        let name = request.to_string();
        let kept = braked.then(|| self.parts.sets.list(&name));
        let rules = Rules {
            kept: kept.as_ref(),
            ..Rules::of(config)
        };
        let mut evaluated = evaluate(&list, rules, self.parts.time.now());
        let mut off = off(&list, config);
        if let (Some(Off::Shadow(_)), Some(kept)) = (&off, &kept)
            && !kept.is_empty()
        {
            evaluated.keep_only(kept);
            off = None;
        }
        let Evaluated {
            accepted,
            counts,
            refusals,
        } = evaluated;
        let before = self.known.lock().lists.get(request).cloned();
        let uid: Option<Box<str>> = list.metadata.uid.as_deref().map(Into::into);
        let before = before.filter(|before| before.uid == uid);
        let before = before.unwrap_or_default();
        let mut loaded = List {
            uid,
            generation: list.metadata.generation,
            stale: false,
            read_at: Some(Instant::now()),
            since: list.changed_at(),
            source: list.spec.source.as_deref().map(Into::into),
            off,
            counts,
            refusals,
            accepted: accepted.len(),
            change: 0,
            shown: list.status.clone().unwrap_or_default(),
            ..before
        };
        loaded.change = if loaded.off.is_some() {
            self.parts.sets.drop_list(&name)
        } else {
            self.parts.sets.replace_list(&name, accepted)
        };
        if *self.parts.leading.borrow() && loaded.reported != counts.refused {
            self.report(ctx, &list, &loaded);
            loaded.reported = counts.refused;
        }
        Ok(Some(loaded))
    }

    /// Reports refused entries by an Event, once a number of them.
    fn report(&self, ctx: &Context, list: &BlockList, loaded: &List) {
        // What an earlier process wrote to the status, it has reported too.
        let shown = usize::try_from(loaded.shown.refused).unwrap_or_default();
        let Some(first) = loaded.refusals.first() else {
            return;
        };
        if loaded.shown.observed_generation.is_some() && shown == loaded.counts.refused {
            return;
        }
        let note = format!(
            "{} of {} entries are refused; the first is {} ({}): {}",
            loaded.counts.refused, loaded.counts.entries, first.target, first.reason, first.message
        );
        ctx.events().event(
            list,
            EventType::Warning,
            "EntriesRefused",
            "Reconcile",
            note,
        );
    }

    /// Writes the status if it changed. Returns when to come again.
    async fn show(&self, ctx: &Context, request: &Request) -> Result<Duration, reconcile::Error> {
        let Some(list) = self.known.lock().lists.get(request).cloned() else {
            return Ok(REFRESH);
        };
        let sets = &self.parts.sets;
        let standing = sets.list(&request.to_string());
        let Some(shares) = self.shares(&list, sets.shares(&standing, list.change)) else {
            return Ok(LOOK_AGAIN);
        };
        let failing = shares.iter().any(|share| share.error.is_some());
        let held = (list.counts.held > 0).then(|| self.parts.guard.lifts());
        let held = held.flatten().map(|lifts| lifts.to_string());
        let facts = Facts {
            generation: list.generation,
            off: list.off.as_ref(),
            counts: list.counts,
            refusals: &list.refusals,
            accepted: if list.off.is_some() { 0 } else { list.accepted },
            standing: standing.len(),
            next_end: sets.next_end(&standing),
            shares: &shares,
            held: held.as_deref(),
        };
        let wanted = status(&facts, &list.shown, self.parts.time.now());
        let left = self.write(ctx, request, &list, wanted).await?;
        Ok(left.unwrap_or(if failing { PATIENCE } else { REFRESH }))
    }

    /// What the engines have; `None`: one of them has not applied the list, and is waited for.
    fn shares(&self, list: &List, shares: Vec<Result<Share, Share>>) -> Option<Vec<Share>> {
        let waited = list.read_at.is_none_or(|at| at.elapsed() >= PATIENCE);
        let ready = shares.into_iter().map(|share| match share {
            Err(mut behind) if waited => {
                let error = behind.error.take();
                behind.error = error.or_else(|| Some("has not applied the list yet".into()));
                Some(behind)
            }
            Err(behind) => behind.error.is_some().then_some(behind),
            Ok(share) => Some(share),
        });
        ready.collect()
    }

    /// Returns how long to wait before the next write; `None`: nothing is left to write.
    async fn write(
        &self,
        ctx: &Context,
        request: &Request,
        list: &List,
        wanted: BlockListStatus,
    ) -> Result<Option<Duration>, reconcile::Error> {
        if wanted == list.shown || !*self.parts.leading.borrow() {
            return Ok(None);
        }
        let since = list.written.map(|at| at.elapsed());
        if let Some(left) = since.and_then(|since| WRITE_AGAIN.checked_sub(since)) {
            return Ok(Some(left.max(Duration::from_millis(1))));
        }
        let body = json!({"status": difference(&json!(list.shown), &json!(wanted))});
        let patched = ctx
            .client()
            .patch_status::<BlockList>(request, Patch::merge(body))
            .await;
        optional(patched)?;
        if let Some(known) = self.known.lock().lists.get_mut(request) {
            known.shown = wanted;
            known.written = Some(Instant::now());
        }
        Ok(None)
    }

    fn is_stale(&self, request: &Request) -> bool {
        let known = self.known.lock();
        known.lists.get(request).is_some_and(|list| list.stale)
    }

    fn keep(&self, request: &Request, mut list: List, config: &Arc<Config>) {
        let mut known = self.known.lock();
        known.config.get_or_insert_with(|| Arc::clone(config));
        // An edit while the list was read is not missed: from here on it marks the list.
        let in_force = self.parts.live.config();
        list.stale = in_force.is_none_or(|in_force| !Arc::ptr_eq(&in_force, config));
        // Neither is the end of the brake.
        list.stale |= list.counts.held > 0 && !self.holds();
        known.lists.insert(request.clone(), list);
    }

    /// Whether the brake on lifts is engaged.
    fn holds(&self) -> bool {
        self.parts.guard.lifts().is_some()
    }

    async fn without_configuration(
        &self,
        ctx: &Context,
        request: &Request,
        generation: Option<i64>,
        why: &str,
    ) -> Result<Outcome, reconcile::Error> {
        let list = {
            let mut known = self.known.lock();
            known.lists.entry(request.clone()).or_default().clone()
        };
        let wanted = unconfigured(&list.shown, generation, why, self.parts.time.now());
        let left = self.write(ctx, request, &list, wanted).await?;
        Ok(left.map_or_else(Outcome::done, Outcome::requeue_after))
    }
}

/// Why nothing of a list is enforced by `config`.
fn off(list: &BlockList, config: &Config) -> Option<Off> {
    if list.spec.suspended == Some(true) {
        return Some(Off::Suspended);
    }
    let source = list.spec.source.as_deref();
    let shadow = source.filter(|source| config.guard.is_shadow(Some(source)));
    shadow.map(|source| Off::Shadow(source.into()))
}

impl Reconciler for ListReconciler {
    type Error = reconcile::Error;

    async fn reconcile(&self, ctx: Context, request: Request) -> Result<Outcome, reconcile::Error> {
        let lister = ctx.view(&View::<PartialObjectMeta<BlockList>>::metadata())?;
        self.begin(&lister)?;
        if request.namespace.is_none() {
            // The request of the start.
            return Ok(Outcome::done());
        }
        let Some(meta) = lister.get(&request)? else {
            return Ok(self.gone(&request));
        };
        // The brake is engaged before a policy is in force, and released after it is not any more: it is read before and
        // after the policy.
        let braked = self.holds();
        let config = match self.parts.live.state().await {
            State::Loaded(config) => config,
            State::Missing(why) => {
                let generation = meta.metadata.generation;
                return self
                    .without_configuration(&ctx, &request, generation, &why)
                    .await;
            }
        };
        self.parts.time.compared().await;
        let current = {
            let known = self.known.lock();
            let (uid, generation) = (meta.metadata.uid.as_deref(), meta.metadata.generation);
            known.lists.get(&request).is_some_and(|list| {
                let same = list.uid.as_deref() == uid && list.generation == generation;
                same && !list.stale && list.read_at.is_some()
            })
        };
        if !current {
            let braked = braked || self.holds();
            match self.load(&ctx, &request, &config, braked).await? {
                Some(list) => self.keep(&request, list, &config),
                None => return Ok(self.gone(&request)),
            }
        }
        self.read(&request);
        if self.is_stale(&request) {
            return Ok(Outcome::requeue_after(SOON));
        }
        let again = self.show(&ctx, &request).await?;
        Ok(Outcome::requeue_after(again))
    }
}
