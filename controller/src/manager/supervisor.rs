//! The tasks of a manager: started by group, stopped by group, none left behind.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::runnable::{Group, Planned};
use super::status::{State, Ticket};

/// Every task of one manager.
#[derive(Debug)]
pub(super) struct Supervisor {
    tasks: JoinSet<Result<(), BoxError>>,
    known: HashMap<Id, Known>,
    stops: HashMap<Group, CancellationToken>,
    leads: watch::Receiver<bool>,
    sequence: u64,
}

#[derive(Debug)]
struct Known {
    name: String,
    group: Group,
    ticket: Arc<Ticket>,
    abort: AbortHandle,
    sequence: u64,
}

/// A task that ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) name: String,
    pub(super) group: Group,
    pub(super) result: Result<(), BoxError>,
}

// === impl Supervisor ===

impl Supervisor {
    /// None yet. What waits to lead starts when `leads` says so.
    pub(super) fn new(leads: watch::Receiver<bool>) -> Self {
        Self {
            tasks: JoinSet::new(),
            known: HashMap::new(),
            stops: HashMap::new(),
            leads,
            sequence: 0,
        }
    }

    pub(super) fn start(&mut self, planned: Planned) {
        let (name, group) = (planned.runnable.name.clone(), planned.runnable.group);
        let ticket = Arc::clone(&planned.ending.0);
        tracing::debug!(name, ?group, "starting");
        let stop = self.stops.entry(group).or_default().child_token();
        let abort = self.tasks.spawn(run(planned, stop, self.leads.clone()));
        self.sequence += 1;
        let known = Known {
            name,
            group,
            ticket,
            abort: abort.clone(),
            sequence: self.sequence,
        };
        self.known.insert(abort.id(), known);
    }

    /// The next task that ends; pends for ever when there is none. Cancel-safe.
    pub(super) async fn next(&mut self) -> Ended {
        match self.tasks.join_next_with_id().await {
            Some(joined) => self.ended(joined),
            None => std::future::pending().await,
        }
    }

    /// Tells a group to stop and waits until it has. What ends with an error meanwhile is returned. At `deadline`,
    /// or when the lease is lost under the workers, it gives up; see [`Supervisor::abort`].
    pub(super) async fn stop(&mut self, group: Group, deadline: Instant) -> Vec<Ended> {
        self.stops.entry(group).or_default().cancel();
        let mut failed = Vec::new();
        while self.known.values().any(|task| task.group == group) {
            let next = self.tasks.join_next_with_id();
            let Ok(Some(joined)) = timeout_at(deadline, next).await else {
                break;
            };
            let ended = self.ended(joined);
            if ended.result.is_err() {
                // Without the lease there is no grace for what needs it.
                let over = ended.group == Group::Election && group == Group::Leader;
                failed.push(ended);
                if over {
                    break;
                }
            }
        }
        failed
    }

    /// Drops what still runs in `group`, and returns the names and what they were at, once it is dropped.
    pub(super) async fn abort(&mut self, group: Group) -> Vec<String> {
        let chosen = |task: &Known| task.group == group;
        let mut names: Vec<(u64, String)> = Vec::new();
        for task in self.known.values().filter(|task| chosen(task)) {
            names.push((task.sequence, task.ticket.described()));
            task.abort.abort();
        }
        names.sort();
        while self.known.values().any(chosen) {
            let Some(joined) = self.tasks.join_next_with_id().await else {
                break;
            };
            self.ended(joined);
        }
        names.into_iter().map(|(_, name)| name).collect()
    }

    fn ended(&mut self, joined: Result<(Id, Result<(), BoxError>), JoinError>) -> Ended {
        let (id, result) = match joined {
            Ok((id, result)) => (id, result),
            Err(error) => {
                let result = if error.is_cancelled() {
                    Ok(())
                } else {
                    Err(BoxError::from(error.to_string()))
                };
                (error.id(), result)
            }
        };
        let known = self.known.remove(&id);
        let (name, group) = known.map_or_else(
            || (String::new(), Group::Others),
            |known| (known.name, known.group),
        );
        tracing::debug!(name, ?group, failed = result.is_err(), "ended");
        Ended {
            name,
            group,
            result,
        }
    }
}

/// The task of a runnable: waits until it may start, and passes on that it alone is to stop.
async fn run(
    planned: Planned,
    stop: CancellationToken,
    mut leads: watch::Receiver<bool>,
) -> Result<(), BoxError> {
    let Planned { runnable, ending } = planned;
    let ticket = &ending.0;
    if runnable.waits_to_lead {
        ticket.enter(State::Standby);
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = ticket.stop().cancelled() => return Ok(()),
            leads = leads.wait_for(|leads| *leads) => if leads.is_err() {
                return Ok(());
            },
        }
    }
    if ticket.stop().is_cancelled() {
        return Ok(());
    }
    ticket.enter(State::Running);
    let mut run = (runnable.run)(Arc::clone(ticket), stop.clone());
    let told = async {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = ticket.stop().cancelled() => stop.cancel(),
        }
        ticket.enter(State::Stopping);
        std::future::pending::<()>().await;
    };
    let result = tokio::select! {
        biased;
        result = &mut run => result,
        () = told => Ok(()),
    };
    // With what it holds, before anybody hears that it has ended.
    drop(run);
    if result.is_err() {
        ticket.enter(State::Failed);
    }
    result
}
