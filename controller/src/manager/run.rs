//! One run of a manager: the order of the start, the wait for failures, the order of the stop.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::supervisor::{Ended, PATIENCE, Supervisor};
use super::{Error, Manager, Shared, Stage};
use crate::cache::Caches;
use crate::leader_election::Elector;
use crate::lifecycle::{Group, Planned, Runnable};

/// The shortest time for dropping tasks in a stop, however short the grace: each task must be polled once.
const LEAST_PATIENCE: Duration = Duration::from_millis(250);

impl Manager {
    /// Starts everything in order, and returns on a stop or a failure.
    pub(super) async fn drive(
        &self,
        supervisor: &mut Supervisor,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let shared = &self.shared;
        shared.start_added(supervisor, Group::Events);
        shared.start_caches();
        {
            let settled = shared.caches_settled();
            tokio::pin!(settled);
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok(()),
                    error = failure(supervisor) => return Err(error),
                    () = &mut settled => break,
                    () = shared.added.notified() => {
                        shared.start_added(supervisor, Group::Events);
                        shared.start_caches();
                    }
                }
            }
        }
        if shared.election.is_none() {
            // Before any runnable that may check it.
            shared.leading.send_replace(true);
        }
        // Runnables of the leader wait for leadership by themselves.
        shared.start_added(supervisor, Group::Leader);
        self.start_election(supervisor);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                error = failure(supervisor) => return Err(error),
                () = shared.added.notified() => {
                    shared.start_caches();
                    shared.start_added(supervisor, Group::Leader);
                }
            }
        }
    }

    fn start_election(&self, supervisor: &mut Supervisor) {
        let shared = &self.shared;
        let (Some(options), Some(fence), Some(candidate)) = (
            shared.election.clone(),
            shared.fence.clone(),
            shared.candidate.as_ref(),
        ) else {
            return;
        };
        let metrics = shared.metrics.election(options.name());
        let (client, clock) = ((*shared.client).clone(), shared.clock.clone());
        let elector = Elector::with_fence(client, options, clock, fence)
            .expect("the builder has validated the options")
            .with_metrics(metrics)
            .with_status(candidate.status().clone())
            .releasing_by(Arc::clone(&shared.release_by));
        let leading = shared.leading.clone();
        let election = Runnable::new("leader election", move |stop| elector.lead(stop, leading));
        supervisor.start(shared.plan(election.in_group(Group::Election)));
    }

    /// Stops the groups one after the other within the grace period.
    pub(super) async fn stop(
        &self,
        supervisor: &mut Supervisor,
        cause: &Result<(), Error>,
    ) -> Result<(), Error> {
        let shared = &self.shared;
        let begin = Instant::now();
        let by = |part| begin + share(shared.grace, part);
        // A controller that ends early, or is dropped with the lease, releases its own lease then.
        let _ = shared.release_by.set(by(Part::of(&[Group::Election])));
        let mut names = Vec::new();
        let mut errors = Vec::new();
        if matches!(cause, Err(Error::LeadershipLost(_))) {
            let aborted = supervisor.abort(&[Group::Leader], PATIENCE).await;
            record(&mut errors, aborted.failed);
            let dropped = aborted.names.join(", ");
            tracing::warn!(dropped, "dropped with the lease");
        }
        // With a short grace, time is left for the later parts.
        let patience = (shared.grace / 24).clamp(LEAST_PATIENCE, PATIENCE);
        for &groups in Group::STOP {
            if groups.contains(&Group::Servers) {
                let stopped = timeout_at(by(Part::Caches), shared.stop_caches()).await;
                if stopped.is_err() {
                    shared.abort_caches();
                    names.push("caches".to_owned());
                }
            }
            let deadline = by(Part::of(groups));
            record(&mut errors, supervisor.stop(groups, deadline).await);
            let workers = groups.contains(&Group::Leader);
            let lost = workers && errors.iter().any(Error::is_leadership_lost);
            let aborted = supervisor.abort(groups, patience).await;
            record(&mut errors, aborted.failed);
            if lost && !aborted.names.is_empty() {
                let dropped = aborted.names.join(", ");
                tracing::warn!(dropped, "dropped with the lease");
            } else {
                names.extend(aborted.names);
            }
        }
        if !names.is_empty() {
            errors.push(Error::GraceExpired {
                grace: shared.grace,
                names,
            });
        }
        Error::all(errors)
    }
}

/// A part of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Workers,
    /// The leases and the runnables of every replica.
    Release,
    /// Webhook servers, which go on for their linger time from the begin of the stop.
    #[cfg(feature = "webhook")]
    Webhooks,
    Events,
    Caches,
    Servers,
}

// === impl Part ===

impl Part {
    /// The part in which `groups` stop together.
    fn of(groups: &[Group]) -> Self {
        match groups.first() {
            Some(Group::Leader) => Self::Workers,
            Some(Group::Election | Group::Lease | Group::Others) => Self::Release,
            #[cfg(feature = "webhook")]
            Some(Group::Webhooks) => Self::Webhooks,
            Some(Group::Events) => Self::Events,
            Some(Group::Servers) | None => Self::Servers,
        }
    }
}

/// The limit of a part, counted from the begin of the stop. A part that hangs leaves time for the later ones: the
/// release of a lease waits for writes that may still land, 5 s by default, and the last events must be written.
fn share(grace: Duration, part: Part) -> Duration {
    let of_48 = match part {
        Part::Workers => 32,
        Part::Release => 42,
        #[cfg(feature = "webhook")]
        Part::Webhooks => 44,
        Part::Events => 46,
        Part::Caches => 47,
        Part::Servers => 48,
    };
    grace * of_48 / 48
}

/// The time in which a webhook server ends by itself, from the begin of the stop. Its part has a little more, so that the
/// tasks of a server that used its time are not dropped.
#[cfg(feature = "webhook")]
pub(super) fn time_of_webhooks(grace: Duration) -> Duration {
    let end = share(grace, Part::Webhooks);
    end - end / 44
}

/// Logs the failures of a stop and keeps them.
fn record(errors: &mut Vec<Error>, failed: Vec<Ended>) {
    for ended in failed {
        if let Err(error) = outcome(ended) {
            tracing::error!(%error, "failed while stopping");
            errors.push(error);
        }
    }
}

/// Ends a run when it is dropped: on a return, an error or a dropped future.
pub(super) struct End<'a>(pub(super) &'a Shared);

// === impl End ===

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.close();
        if let Some(fence) = &self.0.fence {
            fence.close();
        }
        self.0.leading.send_replace(false);
        self.0.abort_caches();
    }
}

// === impl Shared ===

impl Shared {
    /// Starts the runnables added since the last call, in the order of the groups up to `last`.
    fn start_added(&self, supervisor: &mut Supervisor, last: Group) {
        let mut added = match &mut *self.state.lock() {
            Stage::Running(added) => {
                let due = |planned: &mut Planned| planned.runnable.group <= last;
                added.extract_if(.., due).collect::<Vec<_>>()
            }
            Stage::Building(_) | Stage::Stopped => Vec::new(),
        };
        added.sort_by_key(|planned| planned.runnable.group);
        for planned in added {
            supervisor.start(planned);
        }
    }

    /// Refuses additions, and drops the runnables that have not started.
    pub(super) fn close(&self) {
        let last = std::mem::replace(&mut *self.state.lock(), Stage::Stopped);
        // Outside of the lock: a dropped runnable may take it.
        drop(last);
    }

    fn start_caches(&self) {
        for caches in self.all_caches() {
            caches.start();
        }
    }

    async fn caches_settled(&self) {
        let all = self.all_caches();
        join_all(all.iter().map(|caches| caches.settled(self.cache_timeout))).await;
    }

    async fn stop_caches(&self) {
        join_all(self.all_caches().iter().map(Caches::stop)).await;
    }

    fn abort_caches(&self) {
        for caches in self.all_caches() {
            caches.abort();
        }
    }

    /// The caches of the manager and of its clusters.
    fn all_caches(&self) -> Vec<Caches> {
        let clusters = self.clusters.lock();
        let others = clusters.iter().map(|cluster| cluster.caches().clone());
        std::iter::once(self.caches.clone()).chain(others).collect()
    }
}

/// The first failure among the tasks. Tasks that end without an error are ignored.
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
