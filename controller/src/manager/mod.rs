//! The manager: starts the parts of a program in order, supervises them, and stops them in the reverse order.
//!
//! Start: HTTP servers, so that probes are answered; caches, until each is filled or reported as failing; runnables of
//! every replica; the election; on the leader the workers. Stop, on a signal or the first failure: workers (each ends
//! its reconcile); then the leases are released while the runnables of every replica end; then the last events are
//! written, the caches stop, and HTTP servers last. A runnable that outlives its part of the grace period
//! ([`GRACE_PERIOD`]) is dropped, and named in the error.
//!
//! When the lease is lost there is no grace: the workers' reconciles are dropped at their next await, before another
//! replica may take the lease, and [`Manager::run`] returns an error. The process should exit then, by
//! [`std::process::exit`] ([`Error::is_leadership_lost`]), as `options::Program::run` does. A task that blocks its thread has no next await, so it
//! cannot be dropped: the log names it after a second, [`Manager::run`] returns all the same, and a runtime that is
//! dropped at the end of `main` would wait for it. The same holds at a stop for a task that outlives its grace: while
//! it blocks its thread, its lease is not released, and expires.
//!
//! Runnables and controllers can be added at any time before the stop. [`Handle::stop`] ends one of them while the
//! others go on, removes a controller's handlers and frees its name. [`Handle::watch`] and [`Handle::watch_source`]
//! extend a controller. A controller that cannot follow a kind it needs starts no worker and reports the cause in
//! [`Manager::runnables`], in the readiness check `controllers` and in its log. Several managers run in one process.

mod builder;
mod error;
mod run;
mod signals;
mod supervisor;
#[cfg(test)]
mod tests;
#[cfg(feature = "webhook")]
mod webhooks;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

pub use crate::lifecycle::{Handle, Runnable, RunnableHealth, State, Unavailable};
pub use builder::Builder;
pub use error::Error;

use crate::cache::Caches;
use crate::client::Client;
use crate::cluster::{self, Cluster};
use crate::controller::{Controller, Defaults, Parts};
use crate::debug::{Candidate, Elections, Queues};
use crate::events::Recorder;
use crate::health::Health;
use crate::leader_election::{Fence, Options as ElectionOptions, Own, Term};
use crate::lifecycle::{Board, Ending, Group, Names, Owner, Planned, Ticket};
use crate::metrics::Metrics;
use crate::own_writes::Reading;
use run::End;
use signals::Signals;
use supervisor::Supervisor;

/// The default limit of a stop. Workers get two thirds of it. By seven eighths the leases are released, when no sent
/// write can land any more, and the runnables of every replica have ended. At least a twelfth is left for the last
/// events, or half of that after webhook servers that use all of theirs; caches and servers get the rest.
pub const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// The time to write the last events of a removed cluster.
const LAST_EVENTS: Duration = Duration::from_secs(5);

/// Runs controllers and the parts that they share. Cheap to clone; clones are one manager.
#[derive(Clone)]
pub struct Manager {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    client: Client,
    caches: Caches,
    metrics: Metrics,
    queues: Queues,
    health: Health,
    board: Board,
    fence: Option<Fence>,
    election: Option<ElectionOptions>,
    grace: Duration,
    cache_timeout: Duration,
    addresses: Addresses,
    events: mpsc::Sender<crate::events::Recorded>,
    state: Mutex<Stage>,
    /// Notified when a runnable or a cluster is added.
    added: Notify,
    controllers: Names,
    leases: Names,
    defaults: Defaults,
    clusters: Arc<Mutex<Vec<Cluster>>>,
    /// The name of this replica in events.
    instance: String,
    cluster_names: Names,
    leading: watch::Sender<bool>,
    elections: Elections,
    /// The manager's lease, as `/debug/election` shows it.
    candidate: Option<Arc<Candidate>>,
    /// Cancelled when the manager begins to stop.
    stopping: CancellationToken,
    /// The deadline for releasing the leases, set when the manager stops.
    release_by: Arc<OnceLock<Instant>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Addresses {
    health: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    #[cfg(feature = "webhook")]
    webhooks: Option<SocketAddr>,
}

enum Stage {
    /// Runnables added before the run.
    Building(Vec<Planned>),
    /// Runnables added and not started.
    Running(Vec<Planned>),
    Stopped,
}

// === impl Manager ===

impl Manager {
    /// A builder of a manager whose parts use `client` for the API server.
    ///
    /// With leader election, make it with [`client::connect`](crate::client::connect): only such a client checks the
    /// lease again when a write is sent. kube-client's own (`Client::try_default`) may repeat or delay a write after
    /// the lease is lost; the log reports this at the first write.
    pub fn builder(client: kube_client::Client) -> Builder {
        Builder::new(client)
    }

    /// A client for work outside of reconciles. It may write on a standby, too. Its reads from the caches
    /// ([`Client::cached`]) wait for its own writes; clones share them.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// A client for a runnable of the leader: like a controller's, it refuses writes once the lease is not held.
    /// Without election it is [`Manager::client`].
    #[must_use]
    pub fn leader_client(&self) -> Client {
        let shared = &self.shared;
        shared
            .client
            .clone()
            .with_gate(shared.fence.as_ref().map(Fence::gate))
    }

    /// Wall time and randomness.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// The caches: configure a kind before it is watched, or read it outside of a controller.
    #[must_use]
    pub fn caches(&self) -> &Caches {
        &self.shared.caches
    }

    /// The metrics, to add more.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// The queues that `/debug/queues` shows: those of the controllers and those that a program adds.
    #[must_use]
    pub fn queues(&self) -> &Queues {
        &self.shared.queues
    }

    /// The health checks, to add more.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.shared.health
    }

    /// The health of the runnables that are not `Stopped`, in the order in which they were added: the state, and for a
    /// controller also the kinds that it cannot follow and the keys that it reconciles.
    #[must_use]
    pub fn runnables(&self) -> Vec<RunnableHealth> {
        self.shared.board.runnables()
    }

    /// The address of the health server, with the real port.
    #[must_use]
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.shared.addresses.health
    }

    /// The address of the metrics server, with the real port.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.shared.addresses.metrics
    }

    /// The address of the webhook server, with the real port.
    #[cfg(feature = "webhook")]
    #[must_use]
    pub fn webhook_address(&self) -> Option<SocketAddr> {
        self.shared.addresses.webhooks
    }

    /// A recorder of events that names `controller` as their reporter.
    #[must_use]
    pub fn recorder(&self, controller: &str) -> Recorder {
        Recorder::new(
            controller,
            self.shared.events.clone(),
            self.shared.metrics.events_dropped(controller),
            self.shared.clock.clone(),
        )
    }

    /// Whether this replica leads. Without election it becomes true at the start.
    #[must_use]
    pub fn leading(&self) -> watch::Receiver<bool> {
        self.shared.leading.subscribe()
    }

    /// Adds a runnable. In a running manager it starts at once (on a standby, when that leads; while the caches fill
    /// for the first time, only servers and the event writers of clusters start).
    ///
    /// # Errors
    /// When the manager stops.
    pub fn add(&self, runnable: Runnable) -> Result<Handle, Error> {
        let shared = &self.shared;
        let planned = shared.plan(runnable);
        let ticket = Arc::clone(planned.ending.ticket());
        {
            let mut stage = shared.state.lock();
            match &mut *stage {
                Stage::Building(all) | Stage::Running(all) => all.push(planned),
                Stage::Stopped => {
                    drop(stage);
                    return Err(Error::Stopping(planned.runnable.name));
                }
            }
        }
        shared.board.add(&ticket);
        // A cluster may have been removed before this controller was on the board.
        ticket.leave_removed();
        shared.added.notify_one();
        let owner: Arc<dyn Owner> = shared.clone();
        Ok(Handle::new(ticket, Arc::downgrade(&owner)))
    }

    /// Adds a controller, at any time. Its caches begin to fill now, and it starts with the runnables of its group. The
    /// handle stops and removes it while the manager goes on; its name is free then.
    ///
    /// # Errors
    /// When its name or its lease is taken, a kind cannot be cached as it requires, or the manager stops.
    pub fn add_controller(&self, controller: Controller) -> Result<Handle, Error> {
        let shared = &self.shared;
        if matches!(*shared.state.lock(), Stage::Stopped) {
            return Err(Error::Stopping(controller.name));
        }
        let Some(name) = shared.controllers.take(&controller.name) else {
            return Err(Error::DuplicateController(controller.name));
        };
        // A lease has an effect only with election. The controller's own setting overrides the defaults.
        let elects = controller.needs_leader_election.unwrap_or_else(|| {
            controller.lease.is_some() || shared.defaults.needs_leader_election()
        });
        let own = controller
            .lease
            .map(|options| shared.contend(options, &controller.name))
            .transpose()?;
        let (fence, term) = match &own {
            _ if !elects => (None, None),
            Some(own) => (Some(own.fence().clone()), Some(own.term())),
            None => {
                let leading = shared.leading.subscribe();
                (shared.fence.clone(), Some(Term::shared(leading)))
            }
        };
        let parts = Parts {
            clock: shared.clock.clone(),
            client: shared
                .client
                .clone()
                .without_read_your_writes()
                .with_reading(Reading::new(
                    &shared.caches,
                    &shared.metrics,
                    &controller.name,
                ))
                .with_gate(fence.as_ref().map(Fence::gate)),
            fence,
            caches: shared.caches.clone(),
            metrics: shared.metrics.clone(),
            queues: shared.queues.clone(),
            recorder: self.recorder(&controller.name),
            defaults: shared.defaults.clone(),
            term,
            name,
        };
        let runnable = (controller.prepare)(parts).map_err(|source| Error::Cache {
            controller: controller.name,
            source,
        })?;
        self.add(match own {
            _ if !elects => runnable.without_leader_election(),
            Some(own) => own.around(runnable),
            None => runnable,
        })
    }

    /// Adds another cluster, at any time before the stop: its caches start with the manager's, or now.
    ///
    /// # Errors
    /// When its name is taken, its cache options cannot be read, or the manager stops.
    pub fn add_cluster(&self, cluster: cluster::Builder) -> Result<Cluster, Error> {
        let shared = &self.shared;
        let Some(taken) = shared.cluster_names.take(&cluster.name) else {
            return Err(Error::DuplicateCluster(cluster.name));
        };
        let (clock, metrics) = (shared.clock.clone(), &shared.metrics);
        let (cluster, writer) = cluster.build(clock, metrics, &shared.instance, taken)?;
        let stopping = || Error::Stopping(cluster.name().to_owned());
        let events = writer.runnable(format!("events of {}", cluster.name()));
        let events = self.add(events).map_err(|_| stopping())?;
        cluster.is_written_by(events);
        {
            let stage = shared.state.lock();
            if matches!(*stage, Stage::Stopped) {
                drop(stage);
                return Err(stopping());
            }
            shared.clusters.lock().push(cluster.clone());
        }
        let checked = cluster.caches().clone();
        let ready = shared.health.ready();
        ready.add(cluster.check_name(), move || checked.check());
        shared.added.notify_one();
        Ok(cluster)
    }

    /// Removes a cluster, and returns when its caches have stopped and its last events are written. Events that take
    /// more than 5 s are dropped, logged and counted (`reeve_events_dropped_total`); so are the events that are left if
    /// the future is dropped then. Controllers lose their watches in it and go on with their others; queued requests
    /// stay queued. Its name is free again when every handle of it is dropped.
    pub async fn remove_cluster(&self, cluster: Cluster) {
        let shared = &self.shared;
        shared
            .clusters
            .lock()
            .retain(|known| known.name() != cluster.name());
        shared.health.ready().remove(&cluster.check_name());
        // Before `leave_caches`: a watch that is added meanwhile either sees the mark or is removed with the others.
        cluster.caches().mark_removed();
        shared.board.leave_caches(cluster.caches()).await;
        cluster.caches().stop().await;
        if let Some(writing) = cluster.writing() {
            // Events for a server that does not answer must not delay the stop of the manager later.
            let late = cluster.giving_up().clone().drop_guard();
            if timeout(LAST_EVENTS, writing.stop()).await.is_err() {
                drop(late);
                writing.ended().await;
            }
        }
    }

    /// Runs until SIGTERM or SIGINT, then stops. A second signal exits the process with status 1 at once.
    ///
    /// # Errors
    /// As [`Manager::run`].
    pub async fn run_until_signal(&self) -> Result<(), Error> {
        let stop = CancellationToken::new();
        let signals = async {
            let mut signals = Signals::new()?;
            signals.next().await;
            tracing::info!("stopping; a second signal exits at once");
            stop.cancel();
            signals.next().await;
            tracing::error!("a second signal; exiting");
            std::process::exit(1);
        };
        let run = self.run(stop.clone());
        tokio::pin!(run);
        tokio::select! {
            biased;
            result = &mut run => result,
            handled = signals => {
                let Err::<std::convert::Infallible, std::io::Error>(error) = handled;
                tracing::error!(%error, "signals are not handled; only a kill stops this process");
                run.await
            }
        }
    }

    /// Runs until `stop` is cancelled or a runnable fails, and stops everything.
    ///
    /// # Errors
    /// The runnable that failed, and those that did not stop in time.
    pub async fn run(&self, stop: CancellationToken) -> Result<(), Error> {
        let shared = &self.shared;
        {
            let mut stage = shared.state.lock();
            match &mut *stage {
                Stage::Building(planned) => *stage = Stage::Running(std::mem::take(planned)),
                Stage::Running(_) | Stage::Stopped => return Err(Error::AlreadyRun),
            }
        }
        // When this future is dropped, all its tasks are dropped.
        let end = End(shared);
        let mut supervisor = Supervisor::new(shared.leading.subscribe());
        let cause = self.drive(&mut supervisor, &stop).await;
        shared.close();
        shared.stopping.cancel();
        shared
            .health
            .ready()
            .add("stopping", || Err("the process is stopping".to_owned()));
        let stopped = self.stop(&mut supervisor, &cause).await;
        drop(end);
        match (cause, stopped) {
            (Ok(()), stopped) => stopped,
            (cause, Ok(())) => cause,
            (Err(cause), Err(stop)) => Err(Error::Both {
                cause: Box::new(cause),
                stop: Box::new(stop),
            }),
        }
    }
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager")
            .field("addresses", &self.shared.addresses)
            .field("election", &self.shared.election)
            .finish_non_exhaustive()
    }
}

// === impl Shared ===

impl Owner for Shared {
    fn discard(&self, ticket: &Arc<Ticket>) {
        let discarded = match &mut *self.state.lock() {
            Stage::Building(all) | Stage::Running(all) => all
                .iter()
                .position(|planned| Arc::ptr_eq(planned.ending.ticket(), ticket))
                .map(|place| all.remove(place)),
            Stage::Stopped => None,
        };
        // Outside of the lock: the dropped runnable may take it.
        drop(discarded);
    }
}

impl Shared {
    /// An elector for a controller's own lease.
    fn contend(&self, options: ElectionOptions, controller: &str) -> Result<Own, Error> {
        options.validate()?;
        let key = options.key();
        // The checks and the metric of a lease have its name, not its namespace.
        let own = self.election.as_ref();
        let taken = own.is_some_and(|own| own.name() == options.name());
        let name = self.leases.take(options.name()).filter(|_| !taken);
        let Some(name) = name else {
            return Err(Error::DuplicateLease(key));
        };
        let (client, clock) = (self.client.clone(), &self.clock);
        Ok(Own::new(
            options,
            name,
            (*client).clone(),
            clock,
            &self.metrics,
            &self.health,
            (&self.elections, controller),
            Arc::clone(&self.release_by),
        ))
    }

    fn plan(&self, runnable: Runnable) -> Planned {
        let ticket = Ticket::new(runnable.name.clone(), self.clock.clone());
        if let Some(inspect) = runnable.inspect.clone() {
            ticket.inspected_by(inspect);
        }
        let leads = runnable.group == Group::Leader && runnable.waits_to_lead;
        Planned {
            fence: self.fence.clone().filter(|_| leads),
            runnable,
            ending: Ending::new(ticket),
        }
    }
}
