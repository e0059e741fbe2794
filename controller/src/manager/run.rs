//! One run of a manager: the order of the start, the watch over what runs, the order of the stop.

use futures::future::join_all;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::runnable::Planned;
use super::supervisor::{Ended, Supervisor};
use super::{Error, Group, Manager, Runnable, Shared, Stage};
use crate::cache::Caches;
use crate::leader_election::Elector;

impl Manager {
    /// Starts everything in order, and returns when it is to stop.
    pub(super) async fn drive(
        &self,
        supervisor: &mut Supervisor,
        planned: Vec<Planned>,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let shared = &self.shared;
        let (early, mut later): (Vec<_>, Vec<_>) = planned
            .into_iter()
            .partition(|planned| planned.runnable.group <= Group::Events);
        for planned in early {
            supervisor.start(planned);
        }
        shared.start_caches();
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            error = failure(supervisor) => return Err(error),
            () = shared.caches_settled() => {}
        }
        // What is for the leader waits for that by itself.
        later.sort_by_key(|planned| planned.runnable.group);
        for planned in later {
            supervisor.start(planned);
        }
        self.start_election(supervisor);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                error = failure(supervisor) => return Err(error),
                () = shared.added.notified() => {
                    shared.start_caches();
                    for planned in shared.take_added() {
                        supervisor.start(planned);
                    }
                }
            }
        }
    }

    fn start_election(&self, supervisor: &mut Supervisor) {
        let shared = &self.shared;
        let (Some(options), Some(fence)) = (shared.election.clone(), shared.fence.clone()) else {
            shared.leading.send_replace(true);
            return;
        };
        let marks = shared.metrics.leader(&options.name);
        let elector = Elector::new(
            shared.client.clone(),
            options,
            shared.clock.clone(),
            fence,
            marks,
        );
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
        let mut names = Vec::new();
        let mut errors = Vec::new();
        if matches!(cause, Err(Error::LeadershipLost(_))) {
            let dropped = supervisor.abort(Group::Leader).await;
            tracing::warn!(dropped = dropped.join(", "), "dropped with the lease");
        }
        for group in Group::STOP {
            // Stubborn workers must leave time to release the lease and to write events.
            let share = if group == Group::Leader { 5 } else { 6 };
            let deadline = begin + shared.grace * share / 6;
            if group == Group::Servers {
                let late = timeout_at(deadline, shared.stop_caches()).await.is_err();
                if late {
                    shared.abort_caches();
                    names.push("caches".to_owned());
                }
            }
            for ended in supervisor.stop(group, deadline).await {
                if let Err(error) = outcome(ended) {
                    tracing::error!(%error, "failed while stopping");
                    errors.push(error);
                }
            }
            let dropped = supervisor.abort(group).await;
            let lost = errors
                .iter()
                .any(|error| matches!(error, Error::LeadershipLost(_)));
            if lost && !dropped.is_empty() {
                tracing::warn!(dropped = dropped.join(", "), "dropped with the lease");
            } else {
                names.extend(dropped);
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

/// The end of a run, however it comes.
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
    /// What was added since the last look.
    fn take_added(&self) -> Vec<Planned> {
        match &mut *self.state.lock() {
            Stage::Running(added) => std::mem::take(added),
            Stage::Building(_) | Stage::Stopped => Vec::new(),
        }
    }

    /// Takes nothing more, and forgets what was not started.
    pub(super) fn close(&self) {
        let last = std::mem::replace(&mut *self.state.lock(), Stage::Stopped);
        // Outside of the lock: what is dropped there may take it.
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

    /// The manager's own, and those of its clusters.
    fn all_caches(&self) -> Vec<Caches> {
        let clusters = self.clusters.lock();
        let others = clusters.iter().map(|cluster| cluster.caches().clone());
        std::iter::once(self.caches.clone()).chain(others).collect()
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
