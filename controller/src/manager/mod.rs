//! The manager: starts the parts of a program in order, watches over them, and stops them in the reverse.
//!
//! Start: HTTP servers, so that probes are answered; caches, until each is filled or known to be failing; what runs
//! on every replica; the election; on the leader the workers. Stop, on a signal or the first failure: workers (each
//! ends what it is at), then the lease is released, then the rest in reverse, HTTP servers last. Whatever still runs
//! when the grace period ends is dropped, and named in the error.
//!
//! When the lease is lost there is no grace: the workers' reconciles are dropped at their next await, before another
//! replica may take the lease, and [`Manager::run`] returns an error. The process should exit then.

mod builder;
mod error;
mod runnable;
mod signals;
mod supervisor;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

pub use builder::Builder;
pub use error::Error;
pub(crate) use runnable::Group;
pub use runnable::Runnable;

use crate::cache::Caches;
use crate::client::Client;
use crate::controller::{Controller, Parts};
use crate::events::Recorder;
use crate::health::Health;
use crate::leader_election::{Elector, Fence, Options as ElectionOptions};
use crate::metrics::Metrics;
use signals::Signals;
use supervisor::{Ended, Supervisor};

/// How long a stop may take, unless the builder says otherwise. Workers get five sixths of it.
pub const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// How many runnables may be on their way to a running manager.
const ADDED: usize = 64;

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
    health: Health,
    fence: Option<Fence>,
    election: Option<ElectionOptions>,
    grace: Duration,
    cache_timeout: Duration,
    addresses: Addresses,
    events: mpsc::Sender<crate::events::Recorded>,
    state: Mutex<State>,
    leading: watch::Sender<bool>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Addresses {
    health: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

struct State {
    stage: Stage,
    controllers: Vec<String>,
}

enum Stage {
    /// What was added so far.
    Building(Vec<Runnable>),
    /// To where more is sent.
    Running(mpsc::Sender<Runnable>),
    Stopped,
}

// === impl Manager ===

impl Manager {
    /// Begins a manager whose parts talk to the API server through `client`.
    pub fn builder(client: kube_client::Client) -> Builder {
        Builder::new(client)
    }

    /// A client for what is not done in a reconcile. It may write on a standby, too.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.shared.client
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

    /// Adds a runnable; to a running manager, it starts at once (on a standby, when it leads).
    ///
    /// # Errors
    /// When the manager stops.
    pub fn add(&self, runnable: Runnable) -> Result<(), Error> {
        let mut state = self.shared.state.lock();
        match &mut state.stage {
            Stage::Building(runnables) => runnables.push(runnable),
            Stage::Running(sender) => {
                sender.try_send(runnable).map_err(|error| match error {
                    mpsc::error::TrySendError::Full(runnable) => Error::Busy(runnable.name),
                    mpsc::error::TrySendError::Closed(runnable) => Error::Stopping(runnable.name),
                })?;
            }
            Stage::Stopped => return Err(Error::Stopping(runnable.name)),
        }
        Ok(())
    }

    /// Adds a controller: its handlers are registered now, its workers start when the manager lets them.
    ///
    /// # Errors
    /// When there is one of its name, a kind cannot be cached as it wants it, or the manager stops.
    pub fn add_controller(&self, controller: Controller) -> Result<(), Error> {
        let shared = &self.shared;
        {
            let mut state = shared.state.lock();
            if matches!(state.stage, Stage::Stopped) {
                return Err(Error::Stopping(controller.name));
            }
            if state.controllers.contains(&controller.name) {
                return Err(Error::DuplicateController(controller.name));
            }
            state.controllers.push(controller.name.clone());
        }
        let fence = shared
            .fence
            .clone()
            .filter(|_| controller.needs_leader_election);
        let parts = Parts {
            clock: shared.clock.clone(),
            client: shared.client.clone().with_fence(fence),
            caches: shared.caches.clone(),
            metrics: shared.metrics.clone(),
            recorder: self.recorder(&controller.name),
        };
        let needs_leader_election = controller.needs_leader_election;
        let prepared = (controller.prepare)(parts).map_err(|source| {
            let mut state = shared.state.lock();
            state.controllers.retain(|name| *name != controller.name);
            Error::Cache {
                controller: controller.name,
                source,
            }
        })?;
        if let Some(sources) = prepared.sources {
            self.add(sources)?;
        }
        self.add(if needs_leader_election {
            prepared.workers
        } else {
            prepared.workers.without_leader_election()
        })
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
        let (sender, added) = mpsc::channel(ADDED);
        let runnables = {
            let mut state = shared.state.lock();
            match std::mem::replace(&mut state.stage, Stage::Running(sender)) {
                Stage::Building(runnables) => runnables,
                other => {
                    state.stage = other;
                    return Err(Error::AlreadyRun);
                }
            }
        };
        // If this future is dropped, so is everything it runs.
        let end = End(shared);
        let mut supervisor = Supervisor::default();
        let cause = self.drive(&mut supervisor, runnables, added, &stop).await;
        shared.state.lock().stage = Stage::Stopped;
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

    /// Starts everything in order, and returns when it is to stop.
    async fn drive(
        &self,
        supervisor: &mut Supervisor,
        runnables: Vec<Runnable>,
        mut added: mpsc::Receiver<Runnable>,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let shared = &self.shared;
        let (early, later): (Vec<_>, Vec<_>) = runnables
            .into_iter()
            .partition(|runnable| runnable.group <= Group::Events);
        let (others, mut leaders): (Vec<_>, Vec<_>) = later
            .into_iter()
            .partition(|runnable| runnable.group == Group::Others);
        for runnable in early {
            supervisor.start(runnable);
        }
        shared.caches.start();
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            error = failure(supervisor) => return Err(error),
            () = shared.caches.settled(shared.cache_timeout) => {}
        }
        for runnable in others {
            supervisor.start(runnable);
        }
        let mut leading = self.start_election(supervisor);
        loop {
            let leads = *leading.borrow_and_update();
            if leads {
                for runnable in leaders.drain(..) {
                    supervisor.start(runnable);
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                error = failure(supervisor) => return Err(error),
                Ok(()) = leading.changed() => {}
                Some(runnable) = added.recv() => {
                    shared.caches.start();
                    if runnable.group == Group::Leader && !leads {
                        leaders.push(runnable);
                    } else {
                        supervisor.start(runnable);
                    }
                }
            }
        }
    }

    fn start_election(&self, supervisor: &mut Supervisor) -> watch::Receiver<bool> {
        let shared = &self.shared;
        let receiver = shared.leading.subscribe();
        let (Some(options), Some(fence)) = (shared.election.clone(), shared.fence.clone()) else {
            shared.leading.send_replace(true);
            return receiver;
        };
        let metric = shared.metrics.leader(&options.name);
        let mut elector = Elector::new(
            shared.client.clone(),
            options,
            shared.clock.clone(),
            fence,
            metric,
        );
        let leading = shared.leading.clone();
        let election = Runnable::new("leader election", move |stop| async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = elector.acquire() => {}
            }
            leading.send_replace(true);
            let lost = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                lost = elector.keep() => Some(lost),
            };
            leading.send_replace(false);
            match lost {
                Some(lost) => Err(lost),
                None => {
                    elector.release().await;
                    Ok(())
                }
            }
        });
        supervisor.start(election.in_group(Group::Election));
        receiver
    }

    /// Stops the groups one after the other within the grace period.
    async fn stop(
        &self,
        supervisor: &mut Supervisor,
        cause: &Result<(), Error>,
    ) -> Result<(), Error> {
        let shared = &self.shared;
        let begin = Instant::now();
        let mut names = Vec::new();
        if matches!(cause, Err(Error::LeadershipLost(_))) {
            let dropped = supervisor.abort(Group::Leader).await;
            tracing::warn!(dropped = dropped.join(", "), "dropped with the lease");
        }
        let mut first: Option<Error> = None;
        for group in Group::STOP {
            // Stubborn workers must leave time to release the lease and to write events.
            let share = if group == Group::Leader { 5 } else { 6 };
            let deadline = begin + shared.grace * share / 6;
            if group == Group::Servers && timeout_at(deadline, shared.caches.stop()).await.is_err()
            {
                shared.caches.abort();
                names.push("caches".to_owned());
            }
            for ended in supervisor.stop(group, deadline).await {
                if let Err(error) = outcome(ended) {
                    tracing::error!(%error, "failed while stopping");
                    first.get_or_insert(error);
                }
            }
            let dropped = supervisor.abort(group).await;
            if matches!(first, Some(Error::LeadershipLost(_))) && !dropped.is_empty() {
                tracing::warn!(dropped = dropped.join(", "), "dropped with the lease");
            } else {
                names.extend(dropped);
            }
        }
        let expired = (!names.is_empty()).then_some(Error::GraceExpired {
            grace: shared.grace,
            names,
        });
        match (first, expired) {
            (None, None) => Ok(()),
            (Some(error), None) | (None, Some(error)) => Err(error),
            (Some(cause), Some(stop)) => Err(Error::Both {
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

/// The end of a run, however it comes.
struct End<'a>(&'a Shared);

// === impl End ===

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.state.lock().stage = Stage::Stopped;
        if let Some(fence) = &self.0.fence {
            fence.close();
        }
        self.0.leading.send_replace(false);
        self.0.caches.abort();
    }
}

/// The first failure among the tasks; those that end well are let go.
async fn failure(supervisor: &mut Supervisor) -> Error {
    loop {
        if let Err(error) = outcome(supervisor.next().await) {
            return error;
        }
    }
}

fn outcome(ended: Ended) -> Result<(), Error> {
    let Ended {
        name,
        group,
        result,
    } = ended;
    result.map_err(|source| match group {
        Group::Election => Error::LeadershipLost(source),
        _ => Error::Runnable { name, source },
    })
}
