//! Tickets: the shared state of one runnable, for its task, its handles and the board of all runnables.

use std::fmt;
use std::sync::{Arc, Weak};

use futures::future::join_all;
use jiff::Timestamp;
use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::inspect::Inspect;
use super::state::{RunnableHealth, State};
use crate::cache::Caches;
use crate::debug::{ControllerReport, WritesReport};

/// The state of one runnable, shared by the manager, its task and its handles.
pub(crate) struct Ticket {
    name: String,
    clock: Clock,
    stop: CancellationToken,
    state: watch::Sender<(State, Timestamp)>,
    inspect: Mutex<Option<Arc<dyn Inspect>>>,
    /// Further tasks of the runnable: the workers of a controller.
    workers: TaskTracker,
}

/// Marks the runnable as ended when the last clone is dropped, also on a panic or an abort.
#[derive(Clone)]
pub(crate) struct Ending(Arc<Last>);

struct Last(Arc<Ticket>);

/// The runnables of a manager. Clones are one board.
#[derive(Clone, Default)]
pub(crate) struct Board(Arc<Mutex<Vec<Weak<Ticket>>>>);

/// A board, if it is still there.
#[derive(Clone)]
pub(crate) struct WeakBoard(Weak<Mutex<Vec<Weak<Ticket>>>>);

// === impl Ticket ===

impl Ticket {
    pub(crate) fn new(name: String, clock: Clock) -> Arc<Self> {
        let state = watch::Sender::new((State::Waiting, clock.now()));
        Arc::new(Self {
            name,
            clock,
            stop: CancellationToken::new(),
            state,
            inspect: Mutex::default(),
            workers: TaskTracker::new(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The ticket of its elector, which is not on the board.
    pub(crate) fn of_its_lease(&self) -> Arc<Self> {
        Self::new(format!("the lease of {}", self.name), self.clock.clone())
    }

    /// Cancelled when a handle stops this runnable alone.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Whether a handle stops this runnable alone.
    pub(crate) fn is_asked_to_stop(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Enters `state`. A stopping runnable does not run again, and a final state does not change.
    pub(crate) fn enter(&self, state: State) {
        let now = self.clock.now();
        self.state.send_if_modified(|(current, since)| {
            let late = current.is_over() || (*current == State::Stopping && !state.is_over());
            if late || *current == state {
                return false;
            }
            (*current, *since) = (state, now);
            true
        });
    }

    /// The tracker of its further tasks.
    pub(crate) fn workers(&self) -> &TaskTracker {
        &self.workers
    }

    /// Returns when every worker has ended. No worker starts after this call.
    pub(crate) async fn idle(&self) {
        self.workers.close();
        self.workers.wait().await;
    }

    /// Sets the inspection of the controller.
    pub(crate) fn inspected_by(&self, inspect: Arc<dyn Inspect>) {
        *self.inspect.lock() = Some(inspect);
    }

    /// The inspection of the controller, until it ends. `None` for other runnables.
    pub(crate) fn inspect(&self) -> Option<Arc<dyn Inspect>> {
        self.inspect.lock().clone()
    }

    /// Returns when it has stopped or failed.
    pub(crate) async fn ended(&self) {
        let mut state = self.state.subscribe();
        // The sender lives in the ticket.
        let _ = state.wait_for(|(state, _)| state.is_over()).await;
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().0
    }

    pub(crate) fn health(&self) -> RunnableHealth {
        let (state, since) = *self.state.borrow();
        let inspect = self.inspect.lock().clone();
        RunnableHealth {
            name: self.name.clone(),
            state,
            since,
            unavailable: inspect
                .as_ref()
                .map_or_else(Vec::new, |inspect| inspect.unavailable()),
            at_work: inspect.map_or_else(Vec::new, |inspect| inspect.at_work()),
        }
    }

    /// The report of the controller, until it ends. `None` for other runnables.
    fn report(&self) -> Option<ControllerReport> {
        let inspect = self.inspect()?;
        let (state, since) = *self.state.borrow();
        Some(ControllerReport {
            state: state.to_string(),
            since,
            ..inspect.report()
        })
    }

    /// Removes every watch in clusters that were removed.
    pub(crate) fn leave_removed(&self) {
        let inspect = self.inspect.lock().clone();
        if let Some(inspect) = inspect {
            inspect.leave_removed();
        }
    }

    /// The name, and the keys that it reconciles.
    pub(crate) fn described(&self) -> String {
        let inspect = self.inspect.lock().clone();
        let at_work = inspect.map_or_else(Vec::new, |inspect| inspect.at_work());
        if at_work.is_empty() {
            return self.name.clone();
        }
        format!("{} (reconciling {})", self.name, at_work.join(", "))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("name", &self.name)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

// === impl Ending ===

impl Ending {
    pub(crate) fn new(ticket: Arc<Ticket>) -> Self {
        Self(Arc::new(Last(ticket)))
    }

    pub(crate) fn ticket(&self) -> &Arc<Ticket> {
        &self.0.0
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.ticket().enter(State::Failed);
        }
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        self.0.enter(State::Stopped);
        // The inspection holds the controller's queue and watches.
        *self.0.inspect.lock() = None;
    }
}

// === impl Board ===

impl WeakBoard {
    pub(crate) fn upgrade(&self) -> Option<Board> {
        self.0.upgrade().map(Board)
    }
}

impl Board {
    pub(crate) fn downgrade(&self) -> WeakBoard {
        WeakBoard(Arc::downgrade(&self.0))
    }

    pub(crate) fn add(&self, ticket: &Arc<Ticket>) {
        let mut tickets = self.0.lock();
        tickets.retain(|ticket| {
            ticket
                .upgrade()
                .is_some_and(|ticket| !ticket.state().is_over())
        });
        tickets.push(Arc::downgrade(ticket));
    }

    /// Runnables that are not `Stopped`, in the order in which they were added.
    pub(crate) fn runnables(&self) -> Vec<RunnableHealth> {
        self.tickets()
            .iter()
            .map(|ticket| ticket.health())
            .filter(|health| health.state != State::Stopped)
            .collect()
    }

    /// The report of each controller, in the order in which they were added.
    pub(crate) fn controllers(&self) -> Vec<ControllerReport> {
        let tickets = self.tickets();
        tickets
            .iter()
            .filter_map(|ticket| ticket.report())
            .collect()
    }

    /// The own writes of each controller whose keys wait for them.
    pub(crate) fn own_writes(&self) -> Vec<WritesReport> {
        let inspections = self.tickets().into_iter();
        let inspections = inspections.filter_map(|ticket| ticket.inspect());
        inspections
            .filter_map(|inspect| inspect.own_writes())
            .collect()
    }

    fn tickets(&self) -> Vec<Arc<Ticket>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Removes the watches in these caches from every controller, and returns when none of their handlers runs.
    pub(crate) async fn leave_caches(&self, caches: &Caches) {
        let tickets = self.tickets().into_iter();
        let inspections = tickets.filter_map(|ticket| ticket.inspect.lock().clone());
        // All have lost their watches before the first wait, which the caller may give up.
        let leaving: Vec<_> = inspections
            .map(|inspect| inspect.leave_caches(caches))
            .collect();
        join_all(leaving).await;
    }

    /// Checks that every controller can follow the kinds it needs and reads its sources.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut problems = Vec::new();
        for RunnableHealth {
            name, unavailable, ..
        } in self.runnables()
        {
            let needed = unavailable.iter().filter(|kind| !kind.optional);
            problems.extend(needed.map(|kind| format!("{name} lacks {kind}")));
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("; "))
        }
    }
}
