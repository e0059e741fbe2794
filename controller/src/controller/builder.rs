//! How a controller is put together.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, Stream};
use reeve_workqueue::{RateLimiter, Reason};

use super::run::Plan;
use super::watch::Watch;
use super::worker::Erased;
use super::{Controller, OWN_WRITES_TIMEOUT};
use crate::client::Object;
use crate::handler::{ForObject, ForOwner, Handler, for_object, for_owner};
use crate::leader_election;
use crate::predicate::Predicate;
use crate::reconcile::{Reconciler, Request, RequestKey};
use crate::source::{self, Wanted};

/// What is wrong with a controller.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// It has no name.
    #[error("a controller needs a name")]
    NoName,
    /// Nothing would ever ask it to reconcile.
    #[error(
        "the controller {0} watches nothing: say for_kind, owns, watches or watches_source before complete"
    )]
    NoWatch(String),
    /// It has no workers.
    #[error("the controller {0} needs at least one worker")]
    NoWorkers(String),
}

/// The type of a builder that has no watch yet.
#[derive(Clone, Copy, Debug)]
pub enum NoWatch {}

/// The last watch, to which predicates may still be added, and whether it is optional.
type Open<R, K> = Box<dyn FnOnce(Vec<Box<dyn Predicate<K>>>, bool) -> Watch<R> + Send>;
/// Sets up the queue's limiter.
type Limit<R> = Box<dyn FnOnce(reeve_workqueue::Builder<R>) -> reeve_workqueue::Builder<R> + Send>;

/// Puts a controller together. `K` is the kind of the last watch, to which [`Builder::with_predicate`] applies; `F`
/// is the kind of [`Builder::for_kind`].
#[must_use = "a builder does nothing until `complete` is called and the controller is added to a manager"]
pub struct Builder<R: RequestKey, K = NoWatch, F = NoWatch> {
    name: String,
    watches: Vec<Watch<R>>,
    open: Option<Open<R, K>>,
    predicates: Vec<Box<dyn Predicate<K>>>,
    optional: bool,
    streams: Vec<BoxStream<'static, Wanted<R>>>,
    settings: Settings<R>,
    kind: PhantomData<fn() -> F>,
}

pub(super) struct Settings<R> {
    pub(super) workers: usize,
    pub(super) timeout: Option<Duration>,
    pub(super) own_writes: Option<Duration>,
    pub(super) needs_leader_election: bool,
    pub(super) warm_up: bool,
    pub(super) lease: Option<leader_election::Options>,
    pub(super) limit: Option<Limit<R>>,
}

// === impl Builder ===

impl<R: RequestKey> Builder<R> {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            watches: Vec::new(),
            open: None,
            predicates: Vec::new(),
            optional: false,
            streams: Vec::new(),
            settings: Settings {
                workers: 1,
                timeout: None,
                own_writes: Some(OWN_WRITES_TIMEOUT),
                needs_leader_election: true,
                warm_up: false,
                lease: None,
                limit: None,
            },
            kind: PhantomData,
        }
    }
}

impl<K: 'static> Builder<Request, K, NoWatch> {
    /// Watches the objects of kind `N` and requests each that changes (controller-runtime: `For`).
    pub fn for_kind<N: Object>(self) -> Builder<Request, N, N> {
        self.watches_with::<N, ForObject, N>(for_object(), Reason::Changed)
    }
}

impl<K: 'static, F: Object> Builder<Request, K, F> {
    /// Watches the objects of kind `N` and requests the object of the kind of [`Builder::for_kind`] that controls each
    /// (controller-runtime: `Owns`).
    pub fn owns<N: Object>(self) -> Builder<Request, N, F> {
        self.watches_with::<N, ForOwner<F>, F>(for_owner::<F>(), Reason::Owner)
    }
}

impl<R: RequestKey, K: 'static, F: 'static> Builder<R, K, F> {
    /// Watches the objects of kind `N` and requests what `handler` names (controller-runtime: `Watches`).
    pub fn watches<N: Object>(self, handler: impl Handler<N, R>) -> Builder<R, N, F> {
        self.watches_with::<N, _, F>(handler, Reason::Changed)
    }

    /// Takes requests from a stream, too: a [`source::channel`], a timer. Predicates do not apply to it. It is read
    /// from the start, on standbys too; the queue holds each request once.
    pub fn watches_source<S>(mut self, stream: S) -> Self
    where
        S: Stream + Send + 'static,
        S::Item: Into<Wanted<R>>,
    {
        self.streams.push(source::boxed(stream));
        self
    }

    /// Handles only events of the last named kind that `predicate` allows. Several must all allow it.
    pub fn with_predicate(mut self, predicate: impl Predicate<K>) -> Self {
        self.predicates.push(Box::new(predicate));
        self
    }

    /// Starts without the last named kind while the server does not have it, as before its CRD is installed, and takes
    /// its objects up when it appears. A kind that is there and cannot be read is waited for all the same.
    ///
    /// A server that lacks the kind is asked again with growing delays, half a minute at most.
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Registers the handlers at the start and not when this replica leads, so that a standby has its queue filled when
    /// it takes over (controller-runtime: `EnableWarmup`). Without leader election it changes nothing.
    ///
    /// The queue of a standby then grows with the number of objects, each once.
    pub fn warm_up(mut self) -> Self {
        self.settings.warm_up = true;
        self
    }

    /// Reconciles this many requests at once; 1 unless said. One request is never reconciled twice at once.
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.workers = workers;
        self
    }

    /// Cuts a reconcile off after this long, and tries it again; no limit unless said.
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = Some(timeout);
        self
    }

    /// How long a request waits for the caches to show what its last reconcile wrote, [`OWN_WRITES_TIMEOUT`] unless
    /// said; after that it is reconciled all the same, and counted. Zero does not wait at all.
    pub fn own_writes_timeout(mut self, timeout: Duration) -> Self {
        self.settings.own_writes = (!timeout.is_zero()).then_some(timeout);
        self
    }

    /// Runs on every replica, not on the leader only.
    pub fn without_leader_election(mut self) -> Self {
        self.settings.needs_leader_election = false;
        self
    }

    /// Leads by a lease of its own instead of the manager's, so that replicas share the work: one leads this
    /// controller, another that. No two controllers of a manager may have the same lease.
    ///
    /// Stopped alone, the controller gives its lease up, and another replica leads it. Losing the lease brings the
    /// manager down, as losing the manager's does; the others of its controllers end first.
    pub fn lease(mut self, options: leader_election::Options) -> Self {
        self.settings.lease = Some(options);
        self
    }

    /// How long failed requests wait; [`reeve_workqueue::default_controller_rate_limiter`] unless said.
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<R>) -> Self {
        self.settings.limit = Some(Box::new(move |queue| queue.rate_limiter(limiter)));
        self
    }

    /// Finishes the controller.
    ///
    /// # Errors
    /// When it has no name, no worker, or nothing to watch.
    pub fn complete(self, reconciler: impl Reconciler<R>) -> Result<Controller, BuildError> {
        let Builder {
            name,
            watches,
            streams,
            mut settings,
            ..
        } = self.seal::<NoWatch, F>(None);
        if name.is_empty() {
            return Err(BuildError::NoName);
        }
        if watches.is_empty() && streams.is_empty() {
            return Err(BuildError::NoWatch(name));
        }
        if settings.workers == 0 {
            return Err(BuildError::NoWorkers(name));
        }
        let needs_leader_election = settings.needs_leader_election;
        let lease = settings.lease.take();
        let plan = Plan {
            name: name.clone(),
            watches,
            streams,
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

    fn watches_with<N, H, G>(self, handler: H, changed: Reason) -> Builder<R, N, G>
    where
        N: Object,
        H: Handler<N, R>,
    {
        self.seal(Some(Box::new(move |predicates, optional| {
            Watch::new::<N, H>(handler, predicates, changed, optional)
        })))
    }

    /// Closes the last watch and opens the next.
    fn seal<N, G>(mut self, open: Option<Open<R, N>>) -> Builder<R, N, G> {
        if let Some(last) = self.open {
            self.watches.push(last(self.predicates, self.optional));
        }
        Builder {
            name: self.name,
            watches: self.watches,
            open,
            predicates: Vec::new(),
            optional: false,
            streams: self.streams,
            settings: self.settings,
            kind: PhantomData,
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
