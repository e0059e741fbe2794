//! The tasks of a manager: started by group, stopped by group, none left behind.

use std::collections::HashMap;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::runnable::{Group, Runnable};

/// Every task of one manager.
#[derive(Debug, Default)]
pub(super) struct Supervisor {
    tasks: JoinSet<Result<(), BoxError>>,
    known: HashMap<Id, Known>,
    stops: HashMap<Group, CancellationToken>,
    sequence: u64,
}

#[derive(Debug)]
struct Known {
    name: String,
    group: Group,
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
    pub(super) fn start(&mut self, runnable: Runnable) {
        let Runnable { name, group, run } = runnable;
        tracing::debug!(name, ?group, "starting");
        let stop = self.stops.entry(group).or_default().child_token();
        let abort = self.tasks.spawn(async move { run(stop).await });
        self.sequence += 1;
        let known = Known {
            name,
            group,
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

    /// Drops what still runs in `group`, and returns the names, once it is dropped.
    pub(super) async fn abort(&mut self, group: Group) -> Vec<String> {
        let chosen = |task: &Known| task.group == group;
        let mut names: Vec<(u64, String)> = Vec::new();
        for task in self.known.values().filter(|task| chosen(task)) {
            task.abort.abort();
            names.push((task.sequence, task.name.clone()));
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
