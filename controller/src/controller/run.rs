//! A controller at work: its sources, its handlers, its queue, and its workers when it may.

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
use super::own_writes::{OwnWrites, Place};
use super::sync::Wait;
use super::watch::{AnyWatch, Filters};
use super::watching::Watching;
use super::worker::{AnyReconciler, End, Workshop};
use super::{Defaults, Parts};
use crate::cache::{CacheError, Caches, Kind};
use crate::client::Client;
use crate::context::Surroundings;
use crate::debug::Registration;
use crate::events::Recorder;
use crate::leader_election::{Fence, Term};
use crate::manager::names::Name;
use crate::manager::{Inspect, Runnable, State, Ticket};
use crate::metrics::{ControllerMetrics, Series};
use crate::reconcile::RequestKey;
use crate::source::Source;

/// Everything a controller is made of.
pub(super) struct Plan<R: RequestKey> {
    pub(super) name: String,
    /// The kind of which it reconciles the objects, if it is for one.
    pub(super) kind: Option<Kind>,
    pub(super) watches: Vec<AnyWatch<R>>,
    pub(super) filters: Filters,
    pub(super) sources: Vec<Source<R>>,
    pub(super) settings: Settings<R>,
    pub(super) reconciler: Arc<dyn AnyReconciler<R>>,
}

// === impl Plan ===

impl<R: RequestKey> Plan<R> {
    /// Makes the queue, asks for the caches, and hands back what is to run.
    ///
    /// Handlers are registered and sources are read when this replica leads, and handlers are told of every object there
    /// is then: a standby keeps its caches warm and its queue empty. With
    /// [`Builder::warm_up`](super::Builder::warm_up) that is at the start. When a lease of its own is lost the workers
    /// end, the handlers go, no source is read, and it waits to lead again; the queue and the caches stay.
    ///
    /// # Errors
    /// When a kind cannot be cached as the controller wants it.
    pub(super) fn prepare(mut self, parts: Parts) -> Result<Runnable, CacheError> {
        let queue = self.queue(&parts);
        // Also what goes wrong from here on leaves no series.
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
        let watching = Watching::new(
            &self.name,
            queue.clone(),
            parts.caches.clone(),
            self.filters,
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
        };
        let run = move |ticket, stop| prepared.run(ticket, stop);
        Ok(Runnable::told(named, run).inspected_by(Some(inspect)))
    }

    fn queue(&mut self, parts: &Parts) -> Queue<R> {
        let queue = Queue::builder()
            .name(self.name.as_str())
            .clock(parts.clock.clone())
            .on_drop(OnDrop::Retry)
            .min_interval(self.settings.min_interval)
            .metrics(parts.metrics.queues());
        match self.settings.limit.take() {
            Some(limit) => limit(queue).build(),
            None => queue.build(),
        }
    }
}

/// A controller that is to run.
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
    held: Held,
}

/// What ends with a controller, in this order: who has its name next begins its own series.
struct Held {
    _shown: Registration,
    series: Series,
    _name: Name,
}

// === impl Prepared ===

impl<R: RequestKey> Prepared<R> {
    /// From the start of the controller to its end.
    async fn run(self, ticket: Arc<Ticket>, stop: CancellationToken) -> Result<(), BoxError> {
        let alone = Arc::clone(&ticket);
        let Self {
            settings, defaults, ..
        } = &self;
        let warm_up = settings.warm_up.unwrap_or(defaults.warm_up);
        let sync_timeout = settings.sync_timeout.or(defaults.cache_sync_timeout);
        let (workers, watching) = (self.workers, Arc::clone(&self.watching));
        let (mut held, term, workshop) = self.into_workshop(stop.clone());
        let run = Run {
            ticket,
            watching: Arc::clone(&watching),
            term,
            warm_up,
            sync_timeout,
            stop,
        };
        let around = Arc::clone(&workshop.around);
        let result = tokio::select! {
            biased;
            result = run.work(&workshop, workers) => {
                workshop.metrics.workers.set(0);
                result
            }
            never = pump(&watching, &around.controller, &workshop.queue, &around.stopping) => match never {},
        };
        if !alone.is_asked_to_stop() {
            // The manager stops, too.
            held.series.keep();
        }
        result
    }

    /// What its workers share, and what is left.
    fn into_workshop(self, stopping: CancellationToken) -> (Held, Option<Term>, Arc<Workshop<R>>) {
        let (settings, defaults) = (self.settings, self.defaults);
        let place = Place::new(&self.caches, &self.client);
        let propagates = settings.propagate_panics;
        let workshop = Workshop {
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
            own_writes: settings.own_writes.map(OwnWrites::new),
        };
        (self.held, self.term, Arc::new(workshop))
    }
}

/// A controller that was started.
struct Run<R: RequestKey> {
    ticket: Arc<Ticket>,
    watching: Arc<Watching<R>>,
    /// Whether this replica leads; `None` without election.
    term: Option<Term>,
    warm_up: bool,
    /// After how long without the first objects it gives up.
    sync_timeout: Option<Duration>,
    stop: CancellationToken,
}

// === impl Run ===

impl<R: RequestKey> Run<R> {
    /// From the start of the controller to its end.
    async fn work(mut self, workshop: &Arc<Workshop<R>>, workers: usize) -> Result<(), BoxError> {
        if self.warm_up {
            self.watching.attach();
        }
        let mut result = Ok(());
        while self.leads().await {
            if !self.warm_up {
                self.watching.attach();
            }
            let end = self.serve(workshop, workers).await;
            if !matches!(end, Ok(End::Lost)) {
                result = end.map(drop);
                break;
            }
            // Another may see to all that was seen here: whoever leads next, and be it this one, is told of every object.
            self.watching.detach().await;
            if self.warm_up {
                self.watching.attach();
            }
            if let Some(term) = &mut self.term {
                term.rest();
            }
        }
        workshop.queue.shut_down();
        self.watching.end().await;
        result
    }

    /// Waits until this replica leads; false if the stop came first.
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
    async fn serve(&self, workshop: &Arc<Workshop<R>>, workers: usize) -> Result<End, BoxError> {
        let name = &*workshop.around.controller;
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
        // No reconcile before every handler has seen the objects that were there at the start.
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
                    // At once: workers that block their threads may take their time to end.
                    detached = Some(self.watching.detach());
                    self.ticket.enter(State::Standby);
                    Ok(End::Lost)
                }
                late = wait.for_late() => Err(late),
            }
        };
        let end = workshop.run(workers, &self.ticket, cut).await;
        if let Some(detached) = detached {
            detached.await;
        }
        end
    }
}

/// Reads the sources while the handlers are registered, also those that are added, until it is dropped.
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
