//! The run of a controller: its sources, handlers and queue, and its workers while it leads.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use reeve_clock::Clock;
use reeve_workqueue::{OnDrop, Queue};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::builder::Settings;
use super::figures::{Figures, LastSuccess};
use super::outage::Outages;
use super::sync::Wait;
use super::watch::{AnyWatch, Filters};
use super::watching::Watching;
use super::worker::{AnyReconciler, End, WorkerPool};
use super::{Defaults, Parts};
use crate::cache::{CacheError, Caches, Kind};
use crate::client::Client;
use crate::context::Surroundings;
use crate::debug::Registration;
use crate::events::Recorder;
use crate::leader_election::{Fence, Term};
use crate::lifecycle::Name;
use crate::lifecycle::{Inspect, Runnable, State, Ticket};
use crate::metrics::{ControllerMetrics, Series};
use crate::own_writes::tracker::{OwnWrites, Place};
use crate::reconcile::RequestKey;
use crate::source::Source;

/// All parts of a controller before its run.
pub(super) struct Plan<R: RequestKey> {
    pub(super) name: String,
    /// The kind of the objects that it reconciles, if it is for one.
    pub(super) kind: Option<Kind>,
    pub(super) watches: Vec<AnyWatch<R>>,
    pub(super) filters: Filters,
    pub(super) sources: Vec<Source<R>>,
    pub(super) settings: Settings<R>,
    pub(super) reconciler: Arc<dyn AnyReconciler<R>>,
}

// === impl Plan ===

impl<R: RequestKey> Plan<R> {
    /// Builds the queue, starts to fill the caches, and returns the runnable.
    ///
    /// Handlers are registered and sources are read when this replica leads, and handlers then receive every object: a
    /// standby keeps its caches warm and its queue empty. With [`Builder::warm_up`](super::Builder::warm_up) both
    /// happen at the start. When its own lease is lost, the workers end, the handlers are removed, no source is read,
    /// and it waits to lead again; the queue and the caches stay.
    ///
    /// # Errors
    /// When a kind cannot be cached as the controller requires.
    pub(super) fn prepare(mut self, parts: Parts) -> Result<Runnable, CacheError> {
        let queue = self.queue(&parts);
        // From here on, an error leaves no series behind.
        let held = Held {
            _shown: parts.queues.add_at(&queue, parts.clock.clone()),
            series: parts.metrics.series(&self.name),
            _name: parts.name,
        };
        let workers = self.settings.workers;
        let workers = parts.defaults.workers_of(workers, self.kind.as_ref());
        let metrics = parts.metrics.controller(&self.name);
        metrics
            .workers
            .set(i64::try_from(workers).unwrap_or(i64::MAX));
        let own_writes = self.settings.own_writes.map(OwnWrites::new).map(Arc::new);
        let last_success = Arc::<LastSuccess>::default();
        let figures = Figures {
            kind: self.kind,
            clock: parts.clock.clone(),
            metrics: metrics.clone(),
            last_success: Arc::clone(&last_success),
            own_writes: own_writes.clone(),
        };
        let watching = Watching::new(
            &self.name,
            queue.clone(),
            parts.caches.clone(),
            self.filters,
            figures,
        );
        for watch in self.watches {
            watching.add(watch)?;
        }
        for source in self.sources {
            watching.add_source(source);
        }
        let watching = Arc::new(watching);
        let inspect: Arc<dyn Inspect> = Arc::<Watching<R>>::clone(&watching);
        let named = self.name.clone();
        let prepared = Prepared {
            workers,
            held,
            settings: self.settings,
            defaults: parts.defaults,
            reconciler: self.reconciler,
            clock: parts.clock,
            caches: parts.caches,
            client: parts.client,
            fence: parts.fence,
            recorder: parts.recorder,
            term: parts.term,
            name: self.name,
            queue,
            watching,
            metrics,
            own_writes,
            last_success,
        };
        let run = move |ticket, stop| prepared.run(ticket, stop);
        Ok(Runnable::reporting(named, run).inspected_by(Some(inspect)))
    }

    fn queue(&mut self, parts: &Parts) -> Queue<R> {
        let queue = Queue::builder()
            .name(self.name.as_str())
            .clock(parts.clock.clone())
            .on_drop(OnDrop::PutBack)
            .min_interval(self.settings.min_interval)
            .metrics(parts.metrics.queues());
        let limit = self.settings.limit.take();
        let configured = limit.into_iter().chain(self.settings.queue.drain(..));
        configured
            .fold(queue, |queue, configure| configure(queue))
            .build()
    }
}

/// A controller whose caches fill and that has not started.
struct Prepared<R: RequestKey> {
    name: String,
    workers: usize,
    settings: Settings<R>,
    defaults: Defaults,
    reconciler: Arc<dyn AnyReconciler<R>>,
    clock: Clock,
    caches: Caches,
    client: Client,
    fence: Option<Fence>,
    recorder: Recorder,
    term: Option<Term>,
    queue: Queue<R>,
    watching: Arc<Watching<R>>,
    metrics: ControllerMetrics,
    own_writes: Option<Arc<OwnWrites<R>>>,
    last_success: Arc<LastSuccess>,
    held: Held,
}

/// Registrations that end with a controller, in this order: the next controller of its name begins its own series.
struct Held {
    _shown: Registration,
    series: Series,
    _name: Name,
}

// === impl Prepared ===

impl<R: RequestKey> Prepared<R> {
    /// Runs the controller from its start to its end.
    async fn run(self, ticket: Arc<Ticket>, stop: CancellationToken) -> Result<(), BoxError> {
        let alone = Arc::clone(&ticket);
        let Self {
            settings, defaults, ..
        } = &self;
        let warm_up = settings.warm_up.unwrap_or(defaults.warm_up);
        let sync_timeout = settings.sync_timeout.or(defaults.cache_sync_timeout);
        let (workers, watching) = (self.workers, Arc::clone(&self.watching));
        let (mut held, term, pool) = self.into_pool(stop.clone());
        let run = Run {
            ticket,
            watching: Arc::clone(&watching),
            term,
            warm_up,
            sync_timeout,
            stop,
        };
        let around = Arc::clone(&pool.around);
        let result = tokio::select! {
            biased;
            result = run.work(&pool, workers) => {
                pool.metrics.workers.set(0);
                result
            }
            never = pump(&watching, &around.controller, &pool.queue, &around.stopping) => match never {},
            never = watching.handle_again() => match never {},
        };
        if !alone.is_asked_to_stop() {
            // The manager stops, too, so the series stay.
            held.series.keep();
        }
        result
    }

    /// Splits off the state that the workers share.
    fn into_pool(self, stopping: CancellationToken) -> (Held, Option<Term>, Arc<WorkerPool<R>>) {
        let (settings, defaults) = (self.settings, self.defaults);
        let place = Place::new(&self.caches, &self.client);
        let propagates = settings.propagate_panics;
        let pool = WorkerPool {
            around: Arc::new(Surroundings {
                controller: self.name.into(),
                clock: self.clock,
                caches: self.caches,
                client: self.client,
                waits: settings.own_writes.is_some(),
                recorder: self.recorder,
                stopping,
            }),
            queue: self.queue,
            reconciler: self.reconciler,
            fence: self.fence,
            metrics: self.metrics,
            timeout: settings.timeout.or(defaults.reconcile_timeout),
            recover_panic: !propagates.unwrap_or(defaults.propagate_panics),
            give_up: settings.give_up,
            place,
            outages: settings.wakes_after_outages.then(Outages::new),
            own_writes: self.own_writes,
            last_success: self.last_success,
        };
        (self.held, self.term, Arc::new(pool))
    }
}

/// A controller that was started.
struct Run<R: RequestKey> {
    ticket: Arc<Ticket>,
    watching: Arc<Watching<R>>,
    /// The terms of leading; `None` without election.
    term: Option<Term>,
    warm_up: bool,
    /// The limit of the wait for the first objects.
    sync_timeout: Option<Duration>,
    stop: CancellationToken,
}

// === impl Run ===

impl<R: RequestKey> Run<R> {
    /// Runs the controller from its start to its end.
    async fn work(mut self, pool: &Arc<WorkerPool<R>>, workers: usize) -> Result<(), BoxError> {
        if self.warm_up {
            self.watching.attach();
        }
        let mut result = Ok(());
        while self.leads().await {
            if !self.warm_up {
                self.watching.attach();
            }
            let end = self.serve(pool, workers).await;
            if !matches!(end, Ok(End::Lost)) {
                result = end.map(drop);
                break;
            }
            // Another replica may handle these objects next. The handlers of the next term receive every object.
            self.watching.detach().await;
            if self.warm_up {
                self.watching.attach();
            }
            if let Some(term) = &mut self.term {
                term.rest();
            }
        }
        pool.queue.shut_down();
        self.watching.end().await;
        result
    }

    /// Waits until this replica leads; false on a stop.
    async fn leads(&mut self) -> bool {
        let Some(term) = &mut self.term else {
            return true;
        };
        if !term.leads() {
            self.ticket.enter(State::Standby);
        }
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            leads = term.begin() => leads,
        }
    }

    /// Starts the workers when the caches are filled, and returns when they have ended.
    async fn serve(&self, pool: &Arc<WorkerPool<R>>, workers: usize) -> Result<End, BoxError> {
        let name = &*pool.around.controller;
        let lost = async {
            match &self.term {
                Some(term) => term.lost().await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(lost);
        let wait = Wait {
            name,
            watching: &self.watching,
            limit: self.sync_timeout,
            stop: &self.stop,
        };
        self.ticket.enter(State::Syncing);
        // No reconcile before every handler has seen its first objects.
        let synced = tokio::select! {
            biased;
            () = &mut lost => return Ok(End::Lost),
            synced = wait.at_start() => synced?,
        };
        if !synced {
            return Ok(End::Stopped);
        }
        tracing::info!(controller = name, workers, "starting workers");
        self.ticket.enter(State::Running);
        let mut detached = None;
        let cut = async {
            tokio::select! {
                biased;
                () = lost => {
                    // At once, because workers that block their threads may end late.
                    detached = Some(self.watching.detach());
                    self.ticket.enter(State::Standby);
                    Ok(End::Lost)
                }
                late = wait.for_late() => Err(late),
            }
        };
        let end = pool.run(workers, &self.ticket, cut).await;
        if let Some(detached) = detached {
            detached.await;
        }
        end
    }
}

/// Reads all sources, also those added later, while the handlers are registered, until it is dropped.
pub(super) async fn pump<R: RequestKey>(
    watching: &Watching<R>,
    controller: &str,
    queue: &Queue<R>,
    stop: &CancellationToken,
) -> Infallible {
    let mut readings = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            added = watching.next_sources() => {
                let reads = || watching.reads();
                readings.extend(added.into_iter().map(|reading| reading.run(controller, queue, reads(), stop)));
            }
            Some(ended) = readings.next() => if let Some(gauge) = ended {
                watching.forget(&gauge);
            }
        }
    }
}
