//! What became of each runnable, and the handle that stops one while the manager runs.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Shared;
use crate::cache::Caches;
use crate::controller::{Id, Late, Watch, WatchError, WatchHandle};
use crate::handler::Watched;
use crate::reconcile::RequestKey;
use crate::source::Source;

/// Where a runnable is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// The manager has not come to it: it was not run yet, or waits for the caches.
    Waiting,
    /// It waits until this replica leads.
    Standby,
    /// A controller whose handlers have not seen every object there was: its workers have not started.
    Syncing,
    /// It runs.
    Running,
    /// It was told to stop, and has not ended.
    Stopping,
    /// It ended well.
    Stopped,
    /// It ended with an error, which brings the manager down.
    Failed,
}

/// How a runnable is doing, for [`Health::runnables`](crate::health::Health::runnables).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunnableHealth {
    /// Its name; a controller's is that of the controller.
    pub name: String,
    /// Where it is in its life.
    pub state: State,
    /// Since when.
    pub since: Timestamp,
    /// Of a controller: the kinds it cannot follow, and the sources that are not read, and why.
    pub unavailable: Vec<Unavailable>,
    /// Of a controller: what it reconciles right now, and for how long; up to ten.
    pub at_work: Vec<String>,
}

/// A kind that a controller needs and cannot follow, or a source that is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unavailable {
    /// The name of the informer, or of the source.
    pub informer: Arc<str>,
    /// The class of the failure: `forbidden`, `not found` for a kind the server does not have, `decode`,
    /// `connection`, …; `not synced` when there was none yet; of a source, see [there](crate::source#when-a-source-fails).
    pub cause: &'static str,
    /// What went wrong, for people.
    pub message: String,
    /// The controller does without it for now: the watch is optional, and the server does not have the kind.
    pub optional: bool,
}

/// What can be asked of a runnable that is a controller.
pub(crate) trait Inspect: Send + Sync {
    /// The kinds it cannot follow.
    fn unavailable(&self) -> Vec<Unavailable>;
    /// What it is at.
    fn at_work(&self) -> Vec<String>;
    /// Takes one more watch or source: a [`Late`] of its type of requests.
    fn take(&self, late: Box<dyn Any + Send>) -> Result<Id, WatchError>;
    /// Removes a watch or a source at once. The future ends when its handler does not run any more.
    fn remove(&self, id: Id) -> BoxFuture<'static, ()>;
    /// Removes every watch in these caches, as [`Inspect::remove`].
    fn leave_caches(&self, caches: &Caches) -> BoxFuture<'static, ()>;
}

/// One runnable, as the manager, its task and its handles know it.
pub(crate) struct Ticket {
    name: String,
    clock: Clock,
    stop: CancellationToken,
    state: watch::Sender<(State, Timestamp)>,
    inspect: Mutex<Option<Arc<dyn Inspect>>>,
    /// The tasks of the runnable besides its own: the workers of a controller.
    workers: TaskTracker,
}

/// Marks the runnable as ended when the last clone is dropped, however it comes to that.
#[derive(Clone)]
pub(super) struct Ending(Arc<Last>);

struct Last(Arc<Ticket>);

/// The runnables of a manager. Clones are one board.
#[derive(Clone, Default)]
pub(crate) struct Board(Arc<Mutex<Vec<Weak<Ticket>>>>);

/// A board, if it is still there.
#[derive(Clone)]
pub(crate) struct WeakBoard(Weak<Mutex<Vec<Weak<Ticket>>>>);

/// A runnable or a controller that was added to a manager. Dropping it changes nothing. Clones are handles to the
/// same.
#[derive(Clone)]
pub struct Handle {
    pub(super) ticket: Arc<Ticket>,
    pub(super) manager: Weak<Shared>,
}

// === impl State ===

impl State {
    /// Whether it has ended.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Stopped | Self::Failed)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "waiting",
            Self::Standby => "standby",
            Self::Syncing => "syncing",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        })
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.cause)
    }
}

// === impl Ticket ===

impl Ticket {
    pub(super) fn new(name: String, clock: Clock) -> Arc<Self> {
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

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// One for what contends for its lease, which is no runnable of its own.
    pub(super) fn of_its_lease(&self) -> Arc<Self> {
        Self::new(format!("the lease of {}", self.name), self.clock.clone())
    }

    /// Cancelled when somebody stops this one alone.
    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Whether somebody stops this one alone.
    pub(crate) fn is_asked_to_stop(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Notes a state; what stops does not run again, and what is over stays so.
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

    /// Tracks the tasks of the runnable besides its own.
    pub(crate) fn workers(&self) -> &TaskTracker {
        &self.workers
    }

    /// Returns when every worker has ended. No more are started.
    pub(super) async fn idle(&self) {
        self.workers.close();
        self.workers.wait().await;
    }

    /// What to ask about the controller from now on.
    pub(crate) fn inspected_by(&self, inspect: Arc<dyn Inspect>) {
        *self.inspect.lock() = Some(inspect);
    }

    fn state(&self) -> State {
        self.state.borrow().0
    }

    pub(super) fn health(&self) -> RunnableHealth {
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

    /// The name, and what it is at.
    pub(super) fn described(&self) -> String {
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
    pub(super) fn new(ticket: Arc<Ticket>) -> Self {
        Self(Arc::new(Last(ticket)))
    }

    pub(super) fn ticket(&self) -> &Arc<Ticket> {
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
        // It holds the controller's queue and watches.
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

    pub(super) fn add(&self, ticket: &Arc<Ticket>) {
        let mut tickets = self.0.lock();
        tickets.retain(|ticket| {
            ticket
                .upgrade()
                .is_some_and(|ticket| !ticket.state().is_over())
        });
        tickets.push(Arc::downgrade(ticket));
    }

    /// Those that have not ended well, in the order in which they were added.
    pub(crate) fn runnables(&self) -> Vec<RunnableHealth> {
        let tickets: Vec<Arc<Ticket>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        tickets
            .iter()
            .map(|ticket| ticket.health())
            .filter(|health| health.state != State::Stopped)
            .collect()
    }

    /// Takes the watches in these caches from every controller, and returns when no handler of them runs any more.
    pub(super) async fn leave_caches(&self, caches: &Caches) {
        let tickets: Vec<Arc<Ticket>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        for ticket in tickets {
            let inspect = ticket.inspect.lock().clone();
            if let Some(inspect) = inspect {
                inspect.leave_caches(caches).await;
            }
        }
    }

    /// Whether every controller can follow the kinds it needs, and reads its sources.
    pub(super) fn check(&self) -> Result<(), String> {
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

// === impl Handle ===

impl Handle {
    /// The name of the runnable or controller.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.ticket.name
    }

    /// Where it is in its life.
    #[must_use]
    pub fn state(&self) -> State {
        self.ticket.state()
    }

    /// How it is doing.
    #[must_use]
    pub fn health(&self) -> RunnableHealth {
        self.ticket.health()
    }

    /// Adds a watch to a controller, whether it runs yet or not (controller-runtime: `Controller.Watch`). One that runs
    /// is told at once of every object there is, and goes on with its work meanwhile; one that has not started its
    /// workers waits for this watch, too.
    ///
    /// From then on it is one of the controller's watches, whether or not the handle that is returned is kept: it is gone
    /// when the controller is, when [`WatchHandle::remove`] takes it away, or when its
    /// [cluster is removed](crate::Manager::remove_cluster). On a standby it is registered when that leads. Two watches of
    /// one kind are two: a reconcile that adds watches keeps their handles. A kind that cannot be followed fails readiness and is named there, in the log, in
    /// [`Handle::health`] and in the metric `reeve_controller_informer_unavailable`; the controller goes on with the
    /// others, unless it has a [`cache_sync_timeout`](crate::controller::Builder::cache_sync_timeout), which then brings the
    /// manager down. That counts from here for this watch if the workers run; before, it is one for all watches.
    ///
    /// # Errors
    /// When this is no controller or has stopped, its requests are of another type than `R`, or the kind cannot be
    /// cached as the watch wants it.
    pub fn watch<V: Watched, R: RequestKey>(
        &self,
        watch: Watch<V, R>,
    ) -> Result<WatchHandle, WatchError> {
        self.take(Late::Watch(watch.close()))
    }

    /// Adds a source of requests to a controller ([`Builder::watches_source`](crate::controller::Builder::watches_source));
    /// it is read from now on, or when the controller leads. One that fails is
    /// [named](crate::source#when-a-source-fails); one that has come to its [end](Source::finite) is forgotten.
    ///
    /// # Errors
    /// When this is no controller or has stopped, or its requests are of another type than `R`.
    pub fn watch_source<R: RequestKey>(
        &self,
        source: impl Into<Source<R>>,
    ) -> Result<WatchHandle, WatchError> {
        self.take(Late::Source(source.into()))
    }

    fn take<R: RequestKey>(&self, late: Late<R>) -> Result<WatchHandle, WatchError> {
        let inspect = self.ticket.inspect.lock().clone();
        match inspect {
            Some(inspect) if !self.ticket.is_asked_to_stop() => {
                let id = inspect.take(Box::new(late))?;
                Ok(WatchHandle::new(&inspect, id))
            }
            _ => Err(WatchError::NoController(self.name().to_owned())),
        }
    }

    /// Tells it to stop, and does not wait. What was not started yet never is.
    pub fn request_stop(&self) {
        self.ticket.stop.cancel();
        if let Some(manager) = self.manager.upgrade() {
            manager.discard(&self.ticket);
        }
    }

    /// Tells it to stop, and returns when it has: a controller when each worker has ended what it was at, its handlers
    /// are gone from the informers and its name is free again. The manager goes on.
    ///
    /// There is no limit to the wait; the future may be dropped, and the stop goes on.
    pub async fn stop(&self) {
        self.request_stop();
        self.ended().await;
    }

    /// Returns when it has ended, in whatever way.
    pub async fn ended(&self) {
        let mut state = self.ticket.state.subscribe();
        // The sender lives in the ticket.
        let _ = state.wait_for(|(state, _)| state.is_over()).await;
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.ticket).finish()
    }
}
