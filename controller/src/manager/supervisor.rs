//! The tasks of a manager: started by group, stopped by group, none left behind.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use crate::leader_election::Fence;
use crate::lifecycle::{Contend, Ending, Group, Planned, State, Ticket};

/// The time for dropping tasks. A task that blocks its thread may take longer and is then left alone.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

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
    /// Aborted, but not dropped in time. No stop waits for it any more.
    stuck: bool,
}

/// The result of [`Supervisor::abort`].
#[derive(Debug, Default)]
pub(super) struct Aborted {
    /// Tasks that still ran, with the keys that they reconciled.
    pub(super) names: Vec<String>,
    /// Tasks of any group that ended with an error meanwhile.
    pub(super) failed: Vec<Ended>,
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
    /// A supervisor without tasks. Runnables that wait to lead start when `leads` is true.
    pub(super) fn new(leads: watch::Receiver<bool>) -> Self {
        Self {
            tasks: JoinSet::new(),
            known: HashMap::new(),
            stops: HashMap::new(),
            leads,
            sequence: 0,
        }
    }

    pub(super) fn start(&mut self, mut planned: Planned) {
        let group = planned.runnable.group;
        let ticket = Arc::clone(planned.ending.ticket());
        let contend = planned.runnable.contend.take();
        let ended = contend.map(|contend| self.contend(contend, &planned.ending).drop_guard());
        let stop = self.stops.entry(group).or_default().child_token();
        let leads = self.leads.clone();
        self.spawn(group, ticket, async move {
            // Dropped last: the lease is released when nothing needs it any more.
            let _ended = ended;
            run(planned, stop, leads).await
        });
    }

    /// Starts the elector of a runnable. The lease is released in its own part of a stop, or before that when the
    /// returned token is cancelled.
    fn contend(&mut self, contend: Contend, ending: &Ending) -> CancellationToken {
        let ended = self.stops.entry(Group::Lease).or_default().child_token();
        let (stop, ending) = (ended.clone(), ending.clone());
        let named = ending.ticket().of_its_lease();
        self.spawn(Group::Lease, named, async move {
            // `Handle::stop` waits for the release of the lease, too.
            let ending = ending;
            contend(Arc::clone(ending.ticket()), stop).await;
            Ok(())
        });
        ended
    }

    fn spawn(
        &mut self,
        group: Group,
        ticket: Arc<Ticket>,
        task: impl Future<Output = Result<(), BoxError>> + Send + 'static,
    ) {
        let name = ticket.name().to_owned();
        tracing::debug!(name, ?group, "starting");
        let abort = self.tasks.spawn(task);
        self.sequence += 1;
        let known = Known {
            name,
            group,
            ticket,
            abort: abort.clone(),
            sequence: self.sequence,
            stuck: false,
        };
        self.known.insert(abort.id(), known);
    }

    /// The next task that ends; pends indefinitely without tasks. Cancel-safe.
    pub(super) async fn next(&mut self) -> Ended {
        match self.tasks.join_next_with_id().await {
            Some(joined) => self.ended(joined),
            None => std::future::pending().await,
        }
    }

    /// Stops `groups` and waits until they have ended. Returns the tasks that end with an error meanwhile. Gives up at
    /// `deadline`, or when the lease is lost under the workers; see [`Supervisor::abort`].
    pub(super) async fn stop(&mut self, groups: &[Group], deadline: Instant) -> Vec<Ended> {
        for group in groups {
            self.stops.entry(*group).or_default().cancel();
        }
        // Without the lease there is no grace for the workers.
        let leads = groups.contains(&Group::Leader);
        let cut = |ended: &Ended| leads && ended.group == Group::Election;
        self.failures(groups, deadline, cut).await
    }

    /// Waits until `groups` have ended, until `deadline` at the latest, and returns the tasks that end with an error. The
    /// first of them that `cut` accepts ends the wait.
    async fn failures(
        &mut self,
        groups: &[Group],
        deadline: Instant,
        cut: impl Fn(&Ended) -> bool,
    ) -> Vec<Ended> {
        let mut failed = Vec::new();
        while self.awaits(groups) && !failed.last().is_some_and(&cut) {
            let next = self.tasks.join_next_with_id();
            let Ok(Some(joined)) = timeout_at(deadline, next).await else {
                break;
            };
            failed.extend(Some(self.ended(joined)).filter(|ended| ended.result.is_err()));
        }
        failed
    }

    /// Aborts the tasks of `groups`, with the workers of controllers, and returns once they are dropped. A task that
    /// blocks its thread cannot be dropped; after `patience` it is left alone. Its lease is not released before it has
    /// ended ([`Fence::work`](crate::leader_election::Fence)).
    pub(super) async fn abort(&mut self, groups: &[Group], patience: Duration) -> Aborted {
        let mut names: Vec<(u64, String)> = Vec::new();
        let mut tickets = Vec::new();
        for task in self.known.values().filter(|task| task.is_of(groups)) {
            names.push((task.sequence, task.ticket.described()));
            tickets.push(Arc::clone(&task.ticket));
            task.abort.abort();
        }
        names.sort();
        let deadline = Instant::now() + patience;
        let failed = self.failures(groups, deadline, |_| false).await;
        let mut stuck = Vec::new();
        for task in self.known.values_mut().filter(|task| task.is_of(groups)) {
            task.stuck = true;
            stuck.push(task.name.clone());
        }
        for ticket in tickets {
            let name = ticket.name();
            let ended = timeout_at(deadline, ticket.idle()).await;
            if ended.is_err() && !stuck.iter().any(|stuck| stuck == name) {
                stuck.push(name.to_owned());
            }
        }
        for name in &stuck {
            tracing::error!(
                name,
                "cannot be dropped: it blocks its thread; a lease that it works under is not released before it ends"
            );
        }
        let names = names.into_iter().map(|(_, name)| name).collect();
        Aborted { names, failed }
    }

    /// Whether a task of `groups` still runs and is not stuck.
    fn awaits(&self, groups: &[Group]) -> bool {
        self.known.values().any(|task| task.is_of(groups))
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

// === impl Known ===

impl Known {
    /// Whether the task is of `groups` and not stuck.
    fn is_of(&self, groups: &[Group]) -> bool {
        groups.contains(&self.group) && !self.stuck
    }
}

/// The task of a runnable: waits until it may start, and forwards a stop of this runnable alone.
async fn run(
    planned: Planned,
    stop: CancellationToken,
    mut leads: watch::Receiver<bool>,
) -> Result<(), BoxError> {
    // In this order, because locals drop in reverse: `ending` notifies last, when the runnable's name is free.
    let Planned {
        ending,
        runnable,
        fence,
    } = planned;
    let ticket = ending.ticket();
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
    // Dropped after `run`.
    let _working = fence.as_ref().map(Fence::work);
    let mut run = (runnable.run)(Arc::clone(ticket), stop.clone());
    let stopped = async {
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
        () = stopped => Ok(()),
    };
    // Dropped, with all that it holds, before the final state is set.
    drop(run);
    if result.is_err() {
        ticket.enter(State::Failed);
    }
    result
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use reeve_clock::Clock;
    use tokio::time::sleep;

    use super::*;
    use crate::lifecycle::Runnable;

    fn planned(runnable: Runnable) -> Planned {
        let ticket = Ticket::new(runnable.name().to_owned(), Clock::system());
        let ending = Ending::new(ticket);
        Planned {
            runnable,
            ending,
            fence: None,
        }
    }

    fn supervisor() -> (Supervisor, watch::Sender<bool>) {
        let (leading, leads) = watch::channel(true);
        (Supervisor::new(leads), leading)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_blocks_its_thread_is_named_and_not_waited_for() {
        let (mut supervisor, _leading) = supervisor();
        let patience = Duration::from_millis(20);
        let (unblock, blocked) = std::sync::mpsc::channel::<()>();
        let (started, mut starts) = tokio::sync::mpsc::channel(1);
        supervisor.start(planned(Runnable::new("blocking", move |_| async move {
            started.send(()).await?;
            let _ = blocked.recv();
            Ok::<_, BoxError>(())
        })));
        starts.recv().await.unwrap();
        let dropped = supervisor.abort(&[Group::Leader], patience).await;
        assert_eq!(dropped.names, ["blocking"]);
        // A later stop does not wait for it either.
        let far = Instant::now() + Duration::from_secs(3600);
        assert!(supervisor.stop(&[Group::Leader], far).await.is_empty());
        let again = supervisor.abort(&[Group::Leader], patience).await;
        assert!(again.names.is_empty());
        drop(unblock);
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_while_others_are_dropped_is_reported() {
        let (mut supervisor, _leading) = supervisor();
        let failing = Runnable::new("failing", |_| async { Err::<(), _>("it broke") });
        supervisor.start(planned(failing.in_group(Group::Election)));
        supervisor.start(planned(Runnable::new("stubborn", |_| async {
            sleep(Duration::from_secs(3600)).await;
            Ok::<_, BoxError>(())
        })));
        let dropped = supervisor.abort(&[Group::Leader], PATIENCE).await;
        assert_eq!(dropped.names, ["stubborn"]);
        let failed: Vec<&str> = dropped.failed.iter().map(|ended| &*ended.name).collect();
        assert_eq!(failed, ["failing"]);
    }

    /// A runnable that ends on a stop, beside `contends`, its elector.
    fn leased(contends: impl Future<Output = ()> + Send + 'static) -> Planned {
        let mut planned = planned(Runnable::new(
            "worker",
            |stop: CancellationToken| async move {
                stop.cancelled().await;
                Ok::<_, BoxError>(())
            },
        ));
        planned.runnable.contend = Some(Box::new(|_, ended| {
            Box::pin(async move {
                ended.cancelled().await;
                contends.await;
            })
        }));
        planned
    }

    #[tokio::test(start_paused = true)]
    async fn a_runnable_is_over_when_its_lease_is_given_up() {
        let (mut supervisor, _leading) = supervisor();
        let planned = leased(sleep(Duration::from_secs(5)));
        let ticket = Arc::clone(planned.ending.ticket());
        supervisor.start(planned);
        tokio::task::yield_now().await;
        ticket.stop().cancel();
        assert_eq!(supervisor.next().await.name, "worker");
        assert!(!ticket.health().state.is_over());
        let begin = Instant::now();
        assert_eq!(supervisor.next().await.name, "the lease of worker");
        assert_eq!(begin.elapsed(), Duration::from_secs(5));
        assert!(ticket.health().state.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn what_breaks_at_the_lease_of_a_runnable_is_no_loss_of_the_managers() {
        let (mut supervisor, _leading) = supervisor();
        supervisor.start(leased(async { panic!("out of order") }));
        supervisor.start(planned(Runnable::new(
            "slow",
            |stop: CancellationToken| async move {
                stop.cancelled().await;
                sleep(Duration::from_secs(5)).await;
                Ok::<_, BoxError>(())
            },
        )));
        tokio::task::yield_now().await;
        let begin = Instant::now();
        let far = begin + Duration::from_secs(3600);
        let failed = supervisor.stop(&[Group::Leader], far).await;
        assert_eq!(begin.elapsed(), Duration::from_secs(5), "no grace is lost");
        let failed: Vec<&str> = failed.iter().map(|ended| &*ended.name).collect();
        assert_eq!(failed, ["the lease of worker"]);
    }

    /// Records, when it is dropped, whether its runnable counts as ended already.
    struct Held(Arc<Ticket>, Arc<AtomicBool>);

    impl Drop for Held {
        fn drop(&mut self) {
            let over = self.0.health().state.is_over();
            self.1.store(over, Ordering::Release);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_is_not_announced_before_what_is_held_is_dropped() {
        let (mut supervisor, leading) = supervisor();
        leading.send_replace(false);
        let too_early = Arc::new(AtomicBool::new(false));
        for stopped in ["while it waits to lead", "before it starts"] {
            let mut planned = planned(Runnable::new("held", |_| async { Ok::<_, BoxError>(()) }));
            let ticket = Arc::clone(planned.ending.ticket());
            let held = Held(Arc::clone(&ticket), Arc::clone(&too_early));
            planned.runnable.run = Box::new(move |_, _| {
                drop(held);
                Box::pin(async { Ok(()) })
            });
            planned.runnable.waits_to_lead = stopped == "while it waits to lead";
            ticket.stop().cancel();
            supervisor.start(planned);
            supervisor.next().await;
            assert!(ticket.health().state.is_over());
            assert!(!too_early.load(Ordering::Acquire), "{stopped}");
        }
    }
}
