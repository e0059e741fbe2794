//! The builder of a controller.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use reeve_workqueue::{ItemExponentialFailure, RateLimiter, Tenant};

use super::back_off::BackOff;
use super::run::Plan;
use super::watch::AnyWatch;
use super::worker::{Erased, GiveUp};
use super::{Controller, OWN_WRITES_TIMEOUT};
use crate::cache::{Caches, Kind, View};
use crate::client::Object;
use crate::cluster::Cluster;
use crate::handler::{ForOwner, Handler, Watched, for_object, for_owner_of};
use crate::leader_election;
use crate::predicate::{Filter, Predicate};
use crate::reconcile::{Error, Reconciler, Request, RequestKey};
use crate::source::Source;

/// An error of building a controller.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// It has no name.
    #[error("controller has no name")]
    NoName,
    /// Without a watch or a source it would never reconcile.
    #[error(
        "controller {0} watches nothing; call for_kind, owns, watches or watches_source before complete"
    )]
    NoWatch(String),
    /// It has no workers.
    #[error("controller {0} has no workers; set at least one")]
    NoWorkers(String),
    /// A lease of its own contradicts a run on every replica.
    #[error("controller {0} has a lease but no leader election; set one of them only")]
    LeaseWithoutElection(String),
}

/// The type of a builder that has no watch yet.
#[derive(Clone, Copy, Debug)]
pub enum NoWatch {}

/// The type of a builder for a kind, of which there is one at most.
#[derive(Clone, Copy, Debug)]
pub enum OneKind {}

/// The last watch, to which predicates may still be added, and whether it is optional.
type Open<R, K> = Box<dyn FnOnce(Vec<Box<dyn Predicate<K>>>, bool) -> AnyWatch<R> + Send>;
/// Sets up the queue.
type Configure<R> =
    Box<dyn FnOnce(reeve_workqueue::Builder<R>) -> reeve_workqueue::Builder<R> + Send>;

/// Sets the back-off with these pauses.
fn with_pauses<R: RequestKey>(pauses: ItemExponentialFailure) -> Configure<R> {
    Box::new(move |queue| queue.rate_limiter(BackOff::new(pauses)))
}

/// Builds a controller. `K` is the type of the last watch, to which [`Builder::with_predicate`] applies; `F` is
/// [`OneKind`] if it is for a kind ([`Builder::for_kind`]).
///
/// Invalid combinations do not compile: a second [`Builder::for_kind`], [`Builder::owns`] without one, either of them
/// with requests that are not object keys, a predicate of another type than the watch, options of a watch before the
/// first watch, two reconcilers or none.
#[must_use = "a builder does nothing until `complete` is called and the controller is added to a manager"]
pub struct Builder<R: RequestKey, K = NoWatch, F = NoWatch> {
    name: String,
    kind: Option<Kind>,
    watches: Vec<AnyWatch<R>>,
    open: Option<Open<R, K>>,
    predicates: Vec<Box<dyn Predicate<K>>>,
    optional: bool,
    filters: Vec<Box<dyn Filter>>,
    sources: Vec<Source<R>>,
    settings: Settings<R>,
    marker: PhantomData<fn() -> F>,
}

/// The settings of the builder; `None` where the manager's [`Defaults`](super::Defaults) apply.
pub(super) struct Settings<R> {
    pub(super) workers: Option<usize>,
    pub(super) timeout: Option<Duration>,
    pub(super) own_writes: Option<Duration>,
    pub(super) needs_leader_election: Option<bool>,
    pub(super) warm_up: Option<bool>,
    pub(super) lease: Option<leader_election::Options>,
    pub(super) sync_timeout: Option<Duration>,
    pub(super) propagate_panics: Option<bool>,
    pub(super) give_up: Option<GiveUp<R>>,
    pub(super) limit: Option<Configure<R>>,
    /// Whether keys are tried again when an outage of the API server ends.
    pub(super) wakes_after_outages: bool,
    pub(super) queue: Vec<Configure<R>>,
    pub(super) min_interval: Duration,
}

// === impl Builder ===

impl<R: RequestKey> Builder<R> {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            kind: None,
            watches: Vec::new(),
            open: None,
            predicates: Vec::new(),
            optional: false,
            filters: Vec::new(),
            sources: Vec::new(),
            settings: Settings {
                workers: None,
                timeout: None,
                own_writes: Some(OWN_WRITES_TIMEOUT),
                needs_leader_election: None,
                warm_up: None,
                lease: None,
                sync_timeout: None,
                propagate_panics: None,
                give_up: None,
                limit: Some(with_pauses(ItemExponentialFailure::default())),
                wakes_after_outages: true,
                queue: Vec::new(),
                min_interval: Duration::ZERO,
            },
            marker: PhantomData,
        }
    }
}

impl<K: 'static> Builder<Request, K, NoWatch> {
    /// Watches the objects of kind `N` and requests each that changes (controller-runtime: `For`).
    pub fn for_kind<N: Object>(self) -> Builder<Request, N, OneKind> {
        self.for_view(View::<N>::typed())
    }

    /// As [`Builder::for_kind`], through a view: no more than the metadata ([`View::metadata`]; controller-runtime:
    /// `OnlyMetadata`), or a kind that is known only when the program runs ([`View::dynamic`]).
    pub fn for_view<V: Watched>(mut self, view: View<V>) -> Builder<Request, V, OneKind> {
        self.kind = Some(view.kind().clone());
        self.watches_with(view, for_object(), None)
    }
}

impl<K: 'static> Builder<Request, K, OneKind> {
    /// Watches the objects of kind `N` and requests each one's controller of the kind of [`Builder::for_kind`]
    /// (controller-runtime: `Owns`).
    pub fn owns<N: Object>(self) -> Builder<Request, N, OneKind> {
        self.owns_view(View::<N>::typed())
    }

    /// As [`Builder::owns`], through a view.
    pub fn owns_view<V: Watched>(self, view: View<V>) -> Builder<Request, V, OneKind> {
        let owner = self.owner();
        self.watches_with(view, owner, None)
    }

    /// Watches the objects of kind `N` and requests every object of the kind of [`Builder::for_kind`] that owns each,
    /// whether or not it controls it (controller-runtime: `Owns` with `MatchEveryOwner`).
    pub fn owns_every<N: Object>(self) -> Builder<Request, N, OneKind> {
        let owner = self.owner().every_owner();
        self.watches_with(View::<N>::typed(), owner, None)
    }

    fn owner(&self) -> ForOwner {
        // The type `OneKind` guarantees a kind.
        match &self.kind {
            Some(kind) => for_owner_of(kind),
            None => unreachable!("a builder of type OneKind has a kind"),
        }
    }
}

/// Options of the last watch.
impl<R: RequestKey, K, F> Builder<R, K, F> {
    /// Handles only events of the last watch that `predicate` allows. With several predicates, all must allow an event.
    pub fn with_predicate(mut self, predicate: impl Predicate<K>) -> Self
    where
        K: Watched,
    {
        self.predicates.push(Box::new(predicate));
        self
    }

    /// Starts without the kind of the last watch while the server does not have it, as before its CRD is installed, and
    /// follows its objects when it appears. The start still waits for a kind that exists and cannot be read.
    ///
    /// The kind is checked again with growing delays, a minute at most.
    pub fn optional(mut self) -> Self
    where
        K: Watched,
    {
        self.optional = true;
        self
    }
}

impl<R: RequestKey, K: 'static, F: 'static> Builder<R, K, F> {
    /// Watches the objects of kind `N` and requests what `handler` names (controller-runtime: `Watches`).
    pub fn watches<N: Object>(self, handler: impl Handler<N, R>) -> Builder<R, N, F> {
        self.watches_view(View::<N>::typed(), handler)
    }

    /// As [`Builder::watches`], through a view: no more than the metadata ([`View::metadata`]; controller-runtime:
    /// `WatchesMetadata`), or a kind that is known only when the program runs ([`View::dynamic`]).
    pub fn watches_view<V: Watched>(
        self,
        view: View<V>,
        handler: impl Handler<V, R>,
    ) -> Builder<R, V, F> {
        self.watches_with(view, handler, None)
    }

    /// As [`Builder::watches_view`], in another cluster
    /// ([`Manager::add_cluster`](crate::Manager::add_cluster)). Requests do not distinguish clusters unless their type
    /// does.
    pub fn watches_in<V: Watched>(
        self,
        cluster: &Cluster,
        view: View<V>,
        handler: impl Handler<V, R>,
    ) -> Builder<R, V, F> {
        let caches = cluster.caches().clone();
        self.watches_with(view, handler, Some(caches))
    }

    /// Handles only events that `filter` allows, of all watches, added before or after; it does not apply to
    /// [`Builder::watches_source`]. All filters and the predicates of the watch must allow an event
    /// (controller-runtime: `WithEventFilter`).
    pub fn with_event_filter(mut self, filter: impl Filter) -> Self {
        self.filters.push(Box::new(filter));
        self
    }

    /// Takes requests from a source, too: a [`source::channel`](crate::source::channel), a timer, any stream, or a
    /// [`Source`] that may fail. Predicates do not apply to it, and the queue holds each request once.
    ///
    /// The source is read while this replica leads, or from the start with [`Builder::warm_up`]. A standby does not
    /// read it, so a full channel blocks its sender ([more](crate::source#on-a-standby)).
    ///
    /// A stream that ends, fails or panics degrades this controller, which readiness reports
    /// ([how](crate::source#when-a-source-fails)). If its end is not a fault, use `Source::from(stream).finite()`.
    pub fn watches_source(mut self, source: impl Into<Source<R>>) -> Self {
        self.sources.push(source.into());
        self
    }

    /// Registers the handlers and reads the sources at the start and not when this replica leads, so that the queue of
    /// a standby is filled when it takes over (controller-runtime: `EnableWarmup`). Default: that of the manager's
    /// [`Defaults`](super::Defaults), else off. Without leader election it has no effect.
    ///
    /// The queue of a standby then grows with the number of objects, each once, and with every distinct request of a
    /// source: not for a source of messages that only one replica gets.
    pub fn warm_up(mut self, warm_up: bool) -> Self {
        self.settings.warm_up = Some(warm_up);
        self
    }

    /// Reconciles this many requests at once, never one request twice. Default: the manager's
    /// [`Defaults`](super::Defaults), else 1.
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.workers = Some(workers);
        self
    }

    /// Drops a reconcile after this time, and tries it again. Default: the manager's [`Defaults`](super::Defaults),
    /// else no limit.
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = Some(timeout);
        self
    }

    /// Limits the wait of a request for the caches to show the writes of its last reconcile. Default:
    /// [`OWN_WRITES_TIMEOUT`]. After that it is reconciled all the same, and counted. Zero does not wait at all. Writes
    /// to [another cluster](crate::Context::client_of) are awaited in its caches.
    ///
    /// An object that a reconcile created may be deleted before any watch shows it: after a new list, neither its
    /// creation nor its deletion is an event. So each written object that the cache does not hold, although the cache
    /// has reached the version of the write, is read from the server once. These reads and those after lost answers are
    /// queued, at most eight a second for each cluster. If the object is gone, the request is reconciled again, with
    /// the reason "own object gone". This needs the right to `get` the kind. A time-out of zero turns it off.
    pub fn own_writes_timeout(mut self, timeout: Duration) -> Self {
        self.settings.own_writes = (!timeout.is_zero()).then_some(timeout);
        self
    }

    /// Runs on every replica, not on the leader only.
    pub fn without_leader_election(mut self) -> Self {
        self.settings.needs_leader_election = Some(false);
        self
    }

    /// Runs on the leader only, also if the manager's [`Defaults`](super::Defaults) set every replica
    /// (controller-runtime: `NeedLeaderElection`). The last call of this and [`Builder::without_leader_election`]
    /// counts.
    pub fn with_leader_election(mut self) -> Self {
        self.settings.needs_leader_election = Some(true);
        self
    }

    /// Uses a lease of its own instead of the manager's, so that replicas share the work: one leads this controller,
    /// another that. No two controllers of a manager may have leases of one name. It then runs on the leader only,
    /// regardless of the manager's [`Defaults`](super::Defaults).
    ///
    /// Stopped alone, the controller releases its lease, and another replica leads it. When it loses the lease, its
    /// running reconciles are dropped at once, and it stands by and contends again, its caches warm, while the other
    /// controllers go on; losing the manager's lease ends the manager. Meanwhile its sources are not read, unless it
    /// [warms up](Builder::warm_up). When it leads again, its handlers receive every object.
    /// Its queue keeps the open requests meanwhile, because no watch delivers those of sources and timers again; so
    /// `workqueue_depth` of a standby counts the requests that it would begin with.
    pub fn lease(mut self, options: leader_election::Options) -> Self {
        self.settings.lease = Some(options);
        self
    }

    /// Sets the pauses of the back-off of failed requests. The default is 5 ms · 2ⁿ for each request by itself, up to
    /// 1000 s after its own errors (controller-runtime with its priority queue).
    ///
    /// After [outages](Error::outage) the longest pause is [`OUTAGE_BACK_OFF`](super::OUTAGE_BACK_OFF), a minute, so
    /// that a server that recovers after hours is used again within a minute. Outages do not lengthen the back-off of
    /// later errors.
    ///
    /// While the API server cannot be reached, one of the requests that failed by it is tried every two seconds, in turn.
    /// When one of them has an answer, the others are tried at once. An answer may be about one object only, so this
    /// happens again only after a pause, which grows up to a minute while requests are left that fail. In
    /// controller-runtime and kube-rs each request waits for the end of its own back-off, for up to the time that the
    /// outage lasted.
    pub fn back_off(mut self, pauses: ItemExponentialFailure) -> Self {
        self.settings.limit = Some(with_pauses(pauses));
        self.settings.wakes_after_outages = true;
        self
    }

    /// Replaces the [back-off](Builder::back_off) of failed requests. Nothing shortens the delays of this limiter, also
    /// not the end of an outage. [`Failure::cause`](reeve_workqueue::Failure::cause)
    /// distinguishes `outage` and `rate limited` from other errors.
    /// [`reeve_workqueue::default_controller_rate_limiter`] adds client-go's bucket of ten retries a second for all
    /// requests together, for reconciles that must not overrun a common service.
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<R>) -> Self {
        self.settings.limit = Some(Box::new(move |queue| queue.rate_limiter(limiter)));
        self.settings.wakes_after_outages = false;
        self
    }

    /// Reconciles one request at most once every `interval`, from any source: the first change is handled at once,
    /// changes within `interval` of that together at its end. Default: zero, no interval. For work that is expensive,
    /// not for work that is urgent.
    ///
    /// The interval counts from the begin of one reconcile to that of the next, so retries and
    /// [`Outcome::requeue_after`](crate::Outcome::requeue_after) wait that long at least, too
    /// ([`reeve_workqueue::Builder::min_interval`]). A request that is held back because its
    /// [own writes](Builder::own_writes_timeout) are not shown yet waits for those alone when the interval is over.
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.settings.min_interval = interval;
        self
    }

    /// Lets tenants take turns among the requests of one priority, so that a namespace with many changes does not hold up
    /// the others: `fair_by(|request| Tenant::of(request.namespace.as_deref().unwrap_or_default()))`. Default: first come
    /// first served ([`reeve_workqueue::Builder::fair_by`]). The queue calls `tenant` while it is locked.
    pub fn fair_by(mut self, tenant: impl Fn(&R) -> Tenant + Send + Sync + 'static) -> Self {
        let configure: Configure<R> = Box::new(move |queue| queue.fair_by(tenant));
        self.settings.queue.push(configure);
        self
    }

    /// Sets the age at which a waiting request is overdue and takes turns with requests of higher priorities; `None`:
    /// never. Default: 60 s ([`reeve_workqueue::Builder::ageing`]).
    pub fn ageing(mut self, after: Option<Duration>) -> Self {
        let configure: Configure<R> = Box::new(move |queue| queue.ageing(after));
        self.settings.queue.push(configure);
        self
    }

    /// Gives up a request that has failed more than `retries` times in a row: it is not tried again until something
    /// changes, its failures are forgotten, and `on_give_up` is called with it and the last error. Default: never. An
    /// [`Outcome::retry`](crate::Outcome::retry) counts as a failure, but is never the last.
    ///
    /// Only failures that may be the request's fault count. An [outage](Error::outage) does not: the API server cannot
    /// be reached, does not answer in time, answers 408, 429 or 5xx, or sets a retry delay; a cache is not filled; the
    /// lease is lost. Such a request is tried without limit, with a back-off of up to a minute, because no event would
    /// requeue it when the server is back. A [time-out of the reconcile](Builder::reconcile_timeout) always counts.
    ///
    /// `on_give_up` runs on the worker: it must not block.
    pub fn max_retries(
        mut self,
        retries: u32,
        on_give_up: impl Fn(&R, &Error) + Send + Sync + 'static,
    ) -> Self {
        self.settings.give_up = Some(GiveUp::new(retries, Box::new(on_give_up)));
        self
    }

    /// Fails, and the manager with it, when its caches are not filled this long after it could have started its workers
    /// (controller-runtime: `CacheSyncTimeout`, 2 minutes there). By default it waits and logs the cause, and the other
    /// controllers go on.
    pub fn cache_sync_timeout(mut self, timeout: Duration) -> Self {
        self.settings.sync_timeout = Some(timeout);
        self
    }

    /// With `true`, a panic in a reconcile stops the manager (controller-runtime: `RecoverPanic` false); with `false`
    /// it costs one try of one request. Default: that of the manager's [`Defaults`](super::Defaults), else `false`.
    pub fn propagate_panics(mut self, propagate: bool) -> Self {
        self.settings.propagate_panics = Some(propagate);
        self
    }

    /// Builds the controller.
    ///
    /// # Errors
    /// When it has no name, no worker, no watch and no source, or a lease without leader election.
    pub fn complete(self, reconciler: impl Reconciler<R>) -> Result<Controller, BuildError> {
        let Builder {
            name,
            kind,
            watches,
            filters,
            sources,
            mut settings,
            ..
        } = self.seal::<NoWatch, F>(None);
        if name.is_empty() {
            return Err(BuildError::NoName);
        }
        if watches.is_empty() && sources.is_empty() {
            return Err(BuildError::NoWatch(name));
        }
        if settings.workers == Some(0) {
            return Err(BuildError::NoWorkers(name));
        }
        if settings.lease.is_some() && settings.needs_leader_election == Some(false) {
            return Err(BuildError::LeaseWithoutElection(name));
        }
        let needs_leader_election = settings.needs_leader_election;
        let lease = settings.lease.take();
        let plan = Plan {
            name: name.clone(),
            kind,
            watches,
            filters: filters.into(),
            sources,
            settings,
            reconciler: Arc::new(Erased(reconciler)),
        };
        Ok(Controller {
            name,
            needs_leader_election,
            lease,
            prepare: Box::new(move |parts| plan.prepare(parts)),
        })
    }

    fn watches_with<V, H, G>(
        self,
        view: View<V>,
        handler: H,
        others: Option<Caches>,
    ) -> Builder<R, V, G>
    where
        V: Watched,
        H: Handler<V, R>,
    {
        self.seal(Some(Box::new(move |predicates, optional| {
            AnyWatch::new(view, handler, predicates, others, optional)
        })))
    }

    /// Closes the last watch and opens the next.
    fn seal<N, G>(mut self, open: Option<Open<R, N>>) -> Builder<R, N, G> {
        if let Some(last) = self.open {
            self.watches.push(last(self.predicates, self.optional));
        }
        Builder {
            name: self.name,
            kind: self.kind,
            watches: self.watches,
            open,
            predicates: Vec::new(),
            optional: false,
            filters: self.filters,
            sources: self.sources,
            settings: self.settings,
            marker: PhantomData,
        }
    }
}

impl<R: RequestKey, K, F> fmt::Debug for Builder<R, K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
