//! The manager: starts the parts of a program in order, watches over them, and stops them in the reverse.
//!
//! Start: HTTP servers, so that probes are answered; caches, until each is filled or known to be failing; what runs
//! on every replica; the election; on the leader the workers. Stop, on a signal or the first failure: workers (each
//! ends what it is at); then the leases are released while what runs on every replica ends; then the last events are
//! written, the caches stop, and HTTP servers last. Whatever still runs
//! when its part of the grace period ends ([`GRACE_PERIOD`]) is dropped, and named in the error.
//!
//! When the lease is lost there is no grace: the workers' reconciles are dropped at their next await, before another
//! replica may take the lease, and [`Manager::run`] returns an error. The process should exit then, by
//! [`std::process::exit`] ([`Error::is_leadership_lost`]): what blocks its thread has no next await, so it cannot be
//! dropped. It is named in the log after a second, [`Manager::run`] returns all the same, and a runtime that is dropped
//! at the end of `main` would wait for it. The same holds at a stop for what outlives its grace: a lease under which
//! something still blocks its thread is not released, and ends by itself.
//!
//! Runnables and controllers are added at any time before the stop, and [`Handle::stop`] ends one of them while the
//! others go on; a controller's handlers go with it, and its name is free again. [`Handle::watch`] and
//! [`Handle::watch_source`] add to what a controller watches. [`Manager::health`] names the state of each. A controller that cannot follow a kind it needs starts no worker and says why, there, in the readiness check
//! `controllers` and in its log; the others are not touched. Nothing is global: several managers run in one process.

mod builder;
mod error;
pub(crate) mod names;
mod run;
mod runnable;
mod signals;
pub(crate) mod status;
mod supervisor;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

pub use builder::Builder;
pub use error::Error;
pub(crate) use runnable::Group;
pub use runnable::Runnable;
pub use status::{Handle, RunnableHealth, State, Unavailable};
pub(crate) use status::{Inspect, Ticket};

use crate::cache::Caches;
use crate::client::{Client, Reading};
use crate::cluster::{self, Cluster};
use crate::controller::{Controller, Defaults, Parts};
use crate::debug::Queues;
use crate::events::Recorder;
use crate::health::Health;
use crate::leader_election::{Fence, Options as ElectionOptions, Own, Term};
use crate::metrics::Metrics;
use names::Names;
use run::End;
use runnable::Planned;
use signals::Signals;
use status::Ending;
use supervisor::Supervisor;

/// How long a stop may take, unless the builder says otherwise. Workers get two thirds of it. By seven eighths the
/// leases are released, when nothing that was sent can arrive any more, and what runs on every replica has ended. What
/// is left is, a twelfth at least, for the last events, and then for caches and servers.
pub const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// How long the last events of a cluster that is removed may take.
const LAST_EVENTS: Duration = Duration::from_secs(5);

/// As long as anybody waits: 30 years, which can be multiplied and added to a time.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// Runs controllers and what they need. Cheap to clone; clones are one manager.
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
    fence: Option<Fence>,
    election: Option<ElectionOptions>,
    grace: Duration,
    cache_timeout: Duration,
    addresses: Addresses,
    events: mpsc::Sender<crate::events::Recorded>,
    state: Mutex<Stage>,
    /// Something was added while it runs.
    added: Notify,
    controllers: Names,
    leases: Names,
    defaults: Defaults,
    clusters: Arc<Mutex<Vec<Cluster>>>,
    /// This replica in events.
    instance: String,
    cluster_names: Names,
    leading: watch::Sender<bool>,
    /// Until when the leases are to be released, known when it stops.
    release_by: Arc<OnceLock<Instant>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Addresses {
    health: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

enum Stage {
    /// What was added so far.
    Building(Vec<Planned>),
    /// What was added and is to be started.
    Running(Vec<Planned>),
    Stopped,
}

// === impl Manager ===

impl Manager {
    /// Begins a manager whose parts talk to the API server through `client`.
    ///
    /// With leader election, make it with [`client::connect`](crate::client::connect): only such a client asks for the
    /// lease once more when a write goes out. kube-client's own (`Client::try_default`) may send a write again, or hold
    /// it up, after the lease is lost; the log says so at the first write.
    pub fn builder(client: kube_client::Client) -> Builder {
        Builder::new(client)
    }

    /// A client for what is not done in a reconcile. It may write on a standby, too. Its reads from the caches
    /// ([`Client::cached`]) wait for what it wrote; clones share that.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// A client for a runnable that works on the leader only: its writes are refused once the lease is not ours, as
    /// those of a controller are. Without election it is [`Manager::client`].
    #[must_use]
    pub fn leader_client(&self) -> Client {
        let shared = &self.shared;
        shared.client.clone().with_fence(shared.fence.clone())
    }

    /// Wall time and randomness.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// The caches: to configure a kind before it is watched, or read it outside of a controller.
    #[must_use]
    pub fn caches(&self) -> &Caches {
        &self.shared.caches
    }

    /// The metrics, to add more.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// The queues that `/debug/queues` shows: those of the controllers, and what a program adds.
    #[must_use]
    pub fn queues(&self) -> &Queues {
        &self.shared.queues
    }

    /// The health checks, to add more.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.shared.health
    }

    /// Where health is served, with the real port.
    #[must_use]
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.shared.addresses.health
    }

    /// Where metrics are served, with the real port.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.shared.addresses.metrics
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

    /// Whether this replica leads: becomes true when it does, or at the start without election.
    #[must_use]
    pub fn leading(&self) -> watch::Receiver<bool> {
        self.shared.leading.subscribe()
    }

    /// Adds a runnable; to a running manager, it starts at once (on a standby, when it leads; while the caches fill for
    /// the first time, only servers do, and what writes the events of a cluster).
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
        shared.health.board().add(&ticket);
        shared.added.notify_one();
        Ok(Handle {
            ticket,
            manager: Arc::downgrade(shared),
        })
    }

    /// Adds a controller, at any time: it asks for its caches now, and runs when the manager lets it. The handle
    /// stops and removes it while the manager goes on; its name is free then.
    ///
    /// # Errors
    /// When there is one of its name or of its lease, a kind cannot be cached as it wants it, or the manager stops.
    pub fn add_controller(&self, controller: Controller) -> Result<Handle, Error> {
        let shared = &self.shared;
        if matches!(*shared.state.lock(), Stage::Stopped) {
            return Err(Error::Stopping(controller.name));
        }
        let Some(name) = shared.controllers.take(&controller.name) else {
            return Err(Error::DuplicateController(controller.name));
        };
        // A lease is of use only to who elects; what the controller says itself goes before the defaults.
        let elects = controller.needs_leader_election.unwrap_or_else(|| {
            controller.lease.is_some() || shared.defaults.needs_leader_election()
        });
        let own = controller
            .lease
            .map(|options| shared.contend(options))
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
                .with_fence(fence.clone()),
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
    /// When there is one of its name, its cache options cannot be read, or the manager stops.
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

    /// Removes a cluster, and returns when its caches have stopped and its last events are written. Those that take
    /// more than 5 s are dropped, which is logged and counted (`reeve_events_dropped_total`); so are all that are left
    /// if the future is dropped then. Controllers lose their watches in it and go on with their others; requests that are
    /// queued stay queued. Its name is free again when every handle of it is dropped.
    pub async fn remove_cluster(&self, cluster: Cluster) {
        let shared = &self.shared;
        shared
            .clusters
            .lock()
            .retain(|known| known.name() != cluster.name());
        shared.health.ready().remove(&cluster.check_name());
        shared.health.board().leave_caches(cluster.caches()).await;
        cluster.caches().stop().await;
        if let Some(writing) = cluster.writing() {
            // What a server that does not answer is owed must not hold up the stop of the manager later.
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

    /// Runs until `stop` is cancelled or something fails, and stops everything.
    ///
    /// # Errors
    /// What failed, and what did not stop in time.
    pub async fn run(&self, stop: CancellationToken) -> Result<(), Error> {
        let shared = &self.shared;
        {
            let mut stage = shared.state.lock();
            match &mut *stage {
                Stage::Building(planned) => *stage = Stage::Running(std::mem::take(planned)),
                Stage::Running(_) | Stage::Stopped => return Err(Error::AlreadyRun),
            }
        }
        // If this future is dropped, so is everything it runs.
        let end = End(shared);
        let mut supervisor = Supervisor::new(shared.leading.subscribe());
        let cause = self.drive(&mut supervisor, &stop).await;
        shared.close();
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

impl Shared {
    /// An elector for a controller's own lease.
    fn contend(&self, options: ElectionOptions) -> Result<Own, Error> {
        options.validate()?;
        let key = options.key();
        // The checks and the metric of a lease have its name, and not its namespace.
        let own = self.election.as_ref();
        let taken = own.is_some_and(|own| own.name == options.name);
        let name = self.leases.take(&options.name).filter(|_| !taken);
        let Some(name) = name else {
            return Err(Error::DuplicateLease(key));
        };
        let (client, clock) = (self.client.clone(), &self.clock);
        Ok(Own::new(
            options,
            name,
            client,
            clock,
            &self.metrics,
            &self.health,
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

    /// Forgets what was added, if it was not started yet.
    fn discard(&self, ticket: &Arc<Ticket>) {
        let discarded = match &mut *self.state.lock() {
            Stage::Building(all) | Stage::Running(all) => all
                .iter()
                .position(|planned| Arc::ptr_eq(planned.ending.ticket(), ticket))
                .map(|place| all.remove(place)),
            Stage::Stopped => None,
        };
        // Outside of the lock: what is dropped there may take it.
        drop(discarded);
    }
}
