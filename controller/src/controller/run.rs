//! A controller at work: its sources, its handlers, its queue, and its workers when it may.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use reeve_workqueue::{OnDrop, Queue};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::Parts;
use super::builder::Settings;
use super::own_writes::{OwnWrites, Place};
use super::sync::Wait;
use super::watch::{AnyWatch, Filters};
use super::watching::Watching;
use super::worker::{AnyReconciler, End, Workshop};
use crate::cache::{CacheError, Kind};
use crate::context::Surroundings;
use crate::leader_election::Term;
use crate::manager::names::Name;
use crate::manager::{Inspect, Runnable, State, Ticket};
use crate::metrics::Series;
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
    /// Sources are read from the start, on a standby too. Handlers are registered when this replica leads, and are
    /// told of every object there is then: a standby keeps its caches warm and its queue empty. With
    /// [`Builder::warm_up`](super::Builder::warm_up) they are registered at the start. When a lease of its own is lost
    /// the workers end, the handlers go, and it waits to lead again; the queue and the caches stay.
    ///
    /// # Errors
    /// When a kind cannot be cached as the controller wants it.
    pub(super) fn prepare(self, parts: Parts) -> Result<Runnable, CacheError> {
        let mut queue = Queue::builder()
            .name(self.name.as_str())
            .clock(parts.clock.clone())
            .on_drop(OnDrop::Retry)
            .min_interval(self.settings.min_interval)
            .metrics(parts.metrics.queues());
        let Self {
            name,
            kind,
            watches,
            filters,
            sources,
            mut settings,
            reconciler,
        } = self;
        let defaults = parts.defaults;
        if let Some(limit) = settings.limit.take() {
            queue = limit(queue);
        }
        let queue = queue.build();
        let shown = parts.queues.add_at(&queue, parts.clock.clone());
        let watching = Watching::new(&name, queue.clone(), parts.caches.clone(), filters);
        let watching = Arc::new(watching);
        for watch in watches {
            watching.add(watch)?;
        }
        for source in sources {
            watching.add_source(source);
        }
        let inspect: Arc<dyn Inspect> = Arc::<Watching<R>>::clone(&watching);
        let named = name.clone();
        let workers = defaults.workers_of(settings.workers, kind.as_ref());
        let metrics = parts.metrics.controller(&name);
        let held = Held {
            series: parts.metrics.series(&name),
            _name: parts.name,
        };
        metrics
            .workers
            .set(i64::try_from(workers).unwrap_or(i64::MAX));
        let run = move |ticket: Arc<Ticket>, stop: CancellationToken| async move {
            let alone = Arc::clone(&ticket);
            let (mut held, _shown) = (held, shown);
            let place = Place::new(&parts.caches, &parts.client);
            let workshop = Arc::new(Workshop {
                around: Arc::new(Surroundings {
                    controller: name.into(),
                    clock: parts.clock,
                    caches: parts.caches,
                    client: parts.client,
                    waits: settings.own_writes.is_some(),
                    recorder: parts.recorder,
                    stopping: stop.clone(),
                }),
                queue: queue.clone(),
                reconciler,
                metrics,
                timeout: settings.timeout.or(defaults.reconcile_timeout),
                recover_panic: !settings
                    .propagate_panics
                    .unwrap_or(defaults.propagate_panics),
                give_up: settings.give_up,
                place,
                own_writes: settings.own_writes.map(OwnWrites::new),
            });
            let around = Arc::clone(&workshop.around);
            let run = Run {
                ticket,
                watching: Arc::clone(&watching),
                term: parts.term,
                warm_up: settings.warm_up.unwrap_or(defaults.warm_up),
                sync_timeout: settings.sync_timeout.or(defaults.cache_sync_timeout),
                stop,
            };
            let result = tokio::select! {
                biased;
                result = run.work(&workshop, workers) => {
                    workshop.metrics.workers.set(0);
                    result
                }
                never = pump(&watching, &around.controller, &queue, &around.stopping) => match never {},
            };
            if !alone.is_asked_to_stop() {
                // The manager stops, too.
                held.series.keep();
            }
            result
        };
        Ok(Runnable::told(named, run).inspected_by(Some(inspect)))
    }
}

/// What ends with a controller, in this order: who has its name next begins its own series.
struct Held {
    series: Series,
    _name: Name,
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
        let cut = async {
            tokio::select! {
                biased;
                () = lost => Ok(End::Lost),
                late = wait.for_late() => Err(late),
            }
        };
        workshop.run(workers, cut).await
    }
}

/// Reads the sources, also those that are added, for ever.
async fn pump<R: RequestKey>(
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
                readings.extend(added.into_iter().map(|reading| reading.run(controller, queue, stop)));
            }
            Some(()) = readings.next() => {}
        }
    }
}
