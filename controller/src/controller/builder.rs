//! How a controller is put together.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, Stream, select_all};
use parking_lot::Mutex;
use reeve_informer::Event;
use reeve_workqueue::{AddOptions, LOW_PRIORITY, OnDrop, Queue, RateLimiter, Reason};
use tokio::time::{Instant, interval_at};
use tokio_util::sync::CancellationToken;

use super::worker::{AnyReconciler, Erased, Workshop};
use super::{Controller, OWN_WRITES_TIMEOUT, Parts, Prepared};
use crate::cache::{CacheError, Caches, Registration, View};
use crate::client::Object;
use crate::context::Surroundings;
use crate::handler::{ForObject, ForOwner, Handler, for_object, for_owner, is_unchanged};
use crate::manager::Runnable;
use crate::predicate::Predicate;
use crate::reconcile::{Reconciler, Request, RequestKey};
use crate::source::{self, Wanted};

/// How often a controller says what its start waits for.
const REPORT: Duration = Duration::from_secs(10);

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

/// A watch with its kind erased: asks for the cache of the kind.
type Watch<R> = Box<dyn FnOnce(&Caches) -> Result<Attach<R>, CacheError> + Send>;
/// Registers the handler of a watch, which adds to the queue.
type Attach<R> = Box<dyn FnOnce(&str, &Caches, &Queue<R>) -> Registration + Send>;
/// The last watch, to which predicates may still be added.
type Open<R, K> = Box<dyn FnOnce(Vec<Box<dyn Predicate<K>>>) -> Watch<R> + Send>;
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
    streams: Vec<BoxStream<'static, Wanted<R>>>,
    settings: Settings<R>,
    kind: PhantomData<fn() -> F>,
}

struct Settings<R> {
    workers: usize,
    timeout: Option<Duration>,
    own_writes: Option<Duration>,
    needs_leader_election: bool,
    limit: Option<Limit<R>>,
}

// === impl Builder ===

impl<R: RequestKey> Builder<R> {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            watches: Vec::new(),
            open: None,
            predicates: Vec::new(),
            streams: Vec::new(),
            settings: Settings {
                workers: 1,
                timeout: None,
                own_writes: Some(OWN_WRITES_TIMEOUT),
                needs_leader_election: true,
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
            settings,
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
        let reconciler: Arc<dyn AnyReconciler<R>> = Arc::new(Erased(reconciler));
        let named = name.clone();
        Ok(Controller {
            name,
            needs_leader_election,
            prepare: Box::new(move |parts| {
                prepare(named, watches, streams, settings, reconciler, parts)
            }),
        })
    }

    fn watches_with<N, H, G>(self, handler: H, changed: Reason) -> Builder<R, N, G>
    where
        N: Object,
        H: Handler<N, R>,
    {
        self.seal(Some(Box::new(move |predicates| {
            Box::new(move |caches| {
                let view = View::<N>::typed();
                let interest = caches.watch(&view, true)?;
                let attach: Attach<R> = Box::new(move |name, caches, queue| {
                    let queue = queue.clone();
                    caches.register(interest, &view, name, move |event| {
                        if predicates.iter().all(|predicate| predicate.allows(&event)) {
                            enqueue(&queue, &handler, &event, changed);
                        }
                    })
                });
                Ok(attach)
            })
        })))
    }

    /// Closes the last watch and opens the next.
    fn seal<N, G>(mut self, open: Option<Open<R, N>>) -> Builder<R, N, G> {
        if let Some(last) = self.open {
            self.watches.push(last(self.predicates));
        }
        Builder {
            name: self.name,
            watches: self.watches,
            open,
            predicates: Vec::new(),
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

/// Adds what `handler` names for `event`; what is no news at low priority.
fn enqueue<K: Object, R: RequestKey>(
    queue: &Queue<R>,
    handler: &impl Handler<K, R>,
    event: &Event<K>,
    changed: Reason,
) {
    let unchanged = is_unchanged(event);
    let reason = match event {
        _ if matches!(changed, Reason::Owner) => Reason::Owner,
        Event::Added { .. } => Reason::Added,
        Event::Updated { .. } if unchanged => Reason::Resync,
        Event::Updated { .. } => changed,
        Event::Deleted { .. } => Reason::Deleted,
    };
    let options = AddOptions {
        priority: unchanged.then_some(LOW_PRIORITY),
        reason: Some(reason),
        ..AddOptions::default()
    };
    handler.requests(event, &mut |request| queue.add_with(request, options));
}

/// Makes the queue, asks for the caches, and hands back what is to run. The handlers are registered when the workers
/// start, which tells them of every object there is: a standby keeps its caches warm and its queue empty.
fn prepare<R: RequestKey>(
    name: String,
    watches: Vec<Watch<R>>,
    streams: Vec<BoxStream<'static, Wanted<R>>>,
    settings: Settings<R>,
    reconciler: Arc<dyn AnyReconciler<R>>,
    parts: Parts,
) -> Result<Prepared, CacheError> {
    let mut queue = Queue::builder()
        .name(name.as_str())
        .clock(parts.clock.clone())
        .on_drop(OnDrop::Retry)
        .metrics(parts.metrics.queues());
    if let Some(limit) = settings.limit {
        queue = limit(queue);
    }
    let queue = queue.build();
    let watches = watches.into_iter().map(|watch| watch(&parts.caches));
    let watches: Vec<Attach<R>> = watches.collect::<Result<_, _>>()?;
    let sources = (!streams.is_empty()).then(|| {
        let queue = queue.clone();
        Runnable::new(format!("{name} sources"), move |stop| {
            pump(streams, queue, stop)
        })
        .without_leader_election()
    });
    let metrics = parts.metrics.controller(&name);
    metrics
        .workers
        .set(i64::try_from(settings.workers).unwrap_or(i64::MAX));
    let workers = Runnable::new(name.clone(), move |stop| async move {
        let around = Arc::new(Surroundings {
            controller: name.into(),
            clock: parts.clock,
            caches: parts.caches,
            recorder: parts.recorder,
            stopping: stop.clone(),
        });
        let registrations: Vec<Registration> = watches
            .into_iter()
            .map(|attach| attach(&around.controller, &around.caches, &queue))
            .collect();
        let workshop = Arc::new(Workshop {
            around: Arc::clone(&around),
            queue,
            reconciler,
            metrics,
            client: parts.client,
            timeout: settings.timeout,
            own_writes: settings.own_writes,
            unseen: Mutex::new(HashMap::new()),
        });
        // No reconcile before every handler has seen the objects that were there at the start.
        if synced(&around.controller, &registrations, &stop).await {
            tracing::info!(controller = %around.controller, workers = settings.workers, "starting workers");
            workshop.run(settings.workers).await;
        }
        drop(registrations);
        Ok::<_, std::convert::Infallible>(())
    });
    Ok(Prepared { sources, workers })
}

/// Waits until every registration has seen its initial objects; false if the stop came first.
async fn synced(name: &str, registrations: &[Registration], stop: &CancellationToken) -> bool {
    let all = async {
        for registration in registrations {
            registration.synced().await;
        }
    };
    let mut all: BoxFuture<'_, ()> = Box::pin(all);
    let mut report = interval_at(Instant::now() + REPORT, REPORT);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return false,
            () = &mut all => return true,
            _ = report.tick() => {
                let missing: Vec<String> = registrations
                    .iter()
                    .filter_map(Registration::waits_for)
                    .collect();
                tracing::warn!(controller = name, missing = missing.join("; "), "waiting for caches");
            }
        }
    }
}

/// Moves requests from the streams into the queue.
async fn pump<R: RequestKey>(
    streams: Vec<BoxStream<'static, Wanted<R>>>,
    queue: Queue<R>,
    stop: CancellationToken,
) -> Result<(), std::convert::Infallible> {
    let mut streams = select_all(streams);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            wanted = streams.next() => match wanted {
                None => return Ok(()),
                Some(Wanted { request, priority }) => {
                    let options = AddOptions {
                        priority,
                        reason: Some(Reason::Custom("source")),
                        ..AddOptions::default()
                    };
                    queue.add_with(request, options);
                }
            },
        }
    }
}
