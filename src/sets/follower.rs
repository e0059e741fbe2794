//! One set engine, kept in step with the desired set by a task of its own.
//!
//! ```text
//! taking stock ─▶ following ─▶ batch ─▶ following …
//!       ▲                        │ failure: back-off
//!       └────────────────────────┘ and each resync interval
//! ```
//!
//! A batch holds every change since the last one, so a burst costs a few batches, and a target that comes and goes
//! between two of them costs nothing. After a failure the engine's own list says where to go on from.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::desired::{Changed, Desired, View};
use super::kind::{Capabilities, Change, Error, SetEngine};
use super::metrics::{Counts, Metrics};
use super::select::select;
use super::set::TargetSet;
use crate::api::EngineStatus;
use crate::target::Target;

/// First and longest wait after a batch that failed.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// A batch or a list that takes longer has failed.
const LONGEST_CALL: Duration = Duration::from_secs(60);

/// A set engine and the task that drives it. The task ends with the follower.
#[derive(Debug)]
pub(super) struct Follower {
    name: Arc<str>,
    engine: Arc<dyn SetEngine>,
    state: watch::Receiver<State>,
    resync: watch::Sender<Duration>,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// What a follower works with.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) desired: Desired,
    pub(super) metrics: Metrics,
    pub(super) counts: crate::metrics::Metrics,
    /// Set for an engine that only the leader drives.
    pub(super) leading: Option<watch::Receiver<bool>>,
}

/// How much of a list one engine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// The engine's name.
    pub(crate) name: Arc<str>,
    /// Targets of the list that it has.
    pub(crate) has: usize,
    /// Targets of the list that it cannot express.
    pub(crate) unsupported: usize,
    /// Why it has not applied the list.
    pub(crate) error: Option<String>,
}

/// Where a follower stands.
#[derive(Clone, Debug, Default)]
struct State {
    /// Every change of the desired set up to this one is applied, as far as the engine takes it; `None`: it has not
    /// applied anything yet.
    seen: Option<u64>,
    applied: TargetSet,
    /// What the batch in work leads to.
    next: Option<TargetSet>,
    /// Why the last attempt failed.
    error: Option<Error>,
}

/// The task of a follower.
struct Task {
    name: Arc<str>,
    engine: Arc<dyn SetEngine>,
    parts: Parts,
    state: watch::Sender<State>,
    resync: watch::Receiver<Duration>,
    counts: Counts,
}

// === impl Follower ===

impl Follower {
    /// Starts to drive `engine`, which is compared with its own list every `resync`.
    pub(super) fn start(
        name: &str,
        engine: Arc<dyn SetEngine>,
        parts: Parts,
        resync: Duration,
    ) -> Self {
        let name: Arc<str> = name.into();
        // Present from the start, so that a rate over them is zero and not missing.
        parts.counts.drift_repaired(&name, 0);
        parts.metrics.counted(&name, Counts::default());
        let (sender, state) = watch::channel(State::default());
        let resync = watch::Sender::new(resync);
        let task = Task {
            name: Arc::clone(&name),
            engine: Arc::clone(&engine),
            parts,
            state: sender,
            resync: resync.subscribe(),
            counts: Counts::default(),
        };
        Self {
            name,
            engine,
            state,
            resync,
            task: Mutex::new(Some(AbortOnDropHandle::new(tokio::spawn(task.run())))),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Compares with the engine's own list every `resync` from now on.
    pub(super) fn set_resync(&self, resync: Duration) {
        self.resync.send_if_modified(|present| {
            let news = *present != resync;
            *present = resync;
            news
        });
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    /// What the engine does about `target` after it failed: it has what it applied last.
    pub(super) fn failed(&self, target: &Target, why: String) -> EngineStatus {
        EngineStatus {
            name: self.name.to_string(),
            enforced: self.state.borrow().applied.get(target).is_some(),
            message: Some(why),
        }
    }

    /// Has the engine count its readers.
    pub(super) fn look(&self) {
        self.engine.look();
    }

    /// Answers the waiting readers of the engine.
    pub(super) fn close(&self) {
        self.engine.close();
    }

    /// Ends the task, and returns when it has ended: it counts nothing any more.
    pub(super) async fn end(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
            // An error: it was aborted.
            let _ = task.await;
        }
    }

    /// Why the engine does not have its set; `None`: it has, or was not tried yet.
    pub(super) fn problem(&self) -> Option<String> {
        let state = self.state.borrow();
        let error = state.error.as_ref()?;
        Some(format!("set engine {}: {error}", self.name))
    }

    /// How much of `entries` the engine has; an error before it has seen the change `change`.
    pub(super) fn share(&self, entries: &TargetSet, change: u64) -> Result<Share, Share> {
        let capabilities = self.engine.capabilities();
        let state = self.state.borrow();
        let share = Share {
            name: Arc::clone(&self.name),
            has: entries
                .iter()
                .filter(|it| state.applied.get(&it.target).is_some())
                .count(),
            unsupported: entries
                .iter()
                .filter(|it| !capabilities.takes(&it.target))
                .count(),
            error: state.error.as_ref().map(ToString::to_string),
        };
        if share.error.is_none() && state.seen.is_some_and(|seen| seen >= change) {
            Ok(share)
        } else {
            Err(share)
        }
    }

    /// Waits until the engine has applied a change. A change that it cannot express, or that is beyond its limit, is not
    /// waited for.
    ///
    /// # Errors
    /// When the engine fails. It is tried again without the caller.
    pub(super) async fn confirm(&self, changed: &Changed) -> Result<EngineStatus, Error> {
        let status = |enforced, message| EngineStatus {
            name: self.name.to_string(),
            enforced,
            message,
        };
        let capabilities = self.engine.capabilities();
        if let Some(refusal) = capabilities.refusal(&self.name, &changed.target) {
            return Ok(status(false, Some(refusal)));
        }
        let mut state = self.state.clone();
        let ttl = capabilities.ttl;
        let settled = |state: &State| state.error.is_some() || state.has(changed, ttl);
        let Ok(state) = state.wait_for(settled).await else {
            return Err(Error("is being replaced".into()));
        };
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        let enforced = state.applied.get(&changed.target).is_some();
        let left_out = (changed.until.is_some() && !enforced).then(|| match capabilities.most {
            Some(most) => format!("beyond the limit of {most} targets"),
            // A later lift took it out again.
            None => "lifted meanwhile".to_owned(),
        });
        Ok(status(enforced, left_out))
    }
}

// === impl State ===

impl State {
    fn has(&self, changed: &Changed, ttl: bool) -> bool {
        if self.seen.is_some_and(|seen| seen >= changed.change) {
            return true;
        }
        let same = |set: &TargetSet| {
            let until = set.get(&changed.target);
            until == changed.until || (!ttl && until.is_some() == changed.until.is_some())
        };
        self.seen.is_some() && same(&self.applied) && self.next.as_ref().is_none_or(same)
    }
}

// === impl Task ===

impl Task {
    async fn run(mut self) {
        self.ready().await;
        let mut changes = self.parts.desired.changes();
        let mut failures = 0;
        // When the engine's own list was read; `None`: what it has is not known.
        let mut compared: Option<Instant> = None;
        loop {
            let began = Instant::now();
            let resync = *self.resync.borrow_and_update();
            changes.borrow_and_update();
            let due = compared.is_none_or(|at| at.elapsed() >= resync);
            let result = self.step(due, compared.is_none()).await;
            match result {
                Ok(()) => {
                    if due {
                        compared = Some(Instant::now());
                    }
                    if failures > 0 {
                        tracing::info!(engine = %self.name, "set engine works again");
                    }
                    failures = 0;
                    let compared = compared.unwrap_or(began);
                    tokio::select! {
                        biased;
                        _ = changes.changed() => {}
                        _ = self.resync.changed() => {}
                        () = tokio::time::sleep_until(compared + resync) => {}
                    }
                    // The first change of a burst goes at once, the others together.
                    tokio::time::sleep_until(began + self.engine.collect()).await;
                }
                Err(error) => {
                    compared = None;
                    self.failed(error);
                    let wait = FIRST_RETRY.saturating_mul(2_u32.saturating_pow(failures));
                    failures = failures.saturating_add(1);
                    tokio::time::sleep(wait.min(LONGEST_RETRY)).await;
                }
            }
        }
    }

    /// Returns once this replica drives the engine and the desired set was read.
    async fn ready(&mut self) {
        if let Some(leading) = &mut self.parts.leading
            && leading.wait_for(|leads| *leads).await.is_err()
        {
            std::future::pending::<()>().await;
        }
        let mut changes = self.parts.desired.changes();
        if changes.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Compares if it is due, and applies what differs.
    async fn step(&mut self, compare: bool, doubt: bool) -> Result<(), Error> {
        let mut view = View::default();
        // Under the lock of the state: a change that the view does not have is confirmed against `next`.
        self.state.send_modify(|state| {
            view = self.parts.desired.view();
            state.next = Some(view.set.clone());
        });
        let selection = select(&view.set, &self.engine.capabilities());
        self.state
            .send_modify(|state| state.next = Some(selection.set.clone()));
        let mut from = self.state.borrow().applied.clone();
        if compare && let Some(actual) = limited(self.engine.snapshot()).await? {
            let differing = from.differences(&actual).count() as u64;
            if differing > 0 && !doubt {
                tracing::warn!(engine = %self.name, differing, "set engine had lost or gained targets; repairing it");
                self.parts.counts.drift_repaired(&self.name, differing);
            }
            from = actual;
        }
        let change = Change {
            from,
            to: selection.set,
        };
        if !change.is_empty() {
            let applied = limited(self.engine.apply(&change)).await;
            self.parts.metrics.batch(&self.name, applied.is_ok());
            applied?;
        }
        let counts = Counts {
            desired: view.set.len(),
            enforced: change.to.len(),
            unsupported: selection.unsupported,
            overflow: selection.overflow,
        };
        self.engine.ready();
        self.count(counts);
        self.state.send_modify(|state| {
            *state = State {
                seen: Some(view.change),
                applied: change.to,
                next: None,
                error: None,
            };
        });
        Ok(())
    }

    fn count(&mut self, counts: Counts) {
        let before = std::mem::replace(&mut self.counts, counts);
        if counts.overflow > 0 && before.overflow == 0 {
            let most = self.engine.capabilities().most;
            tracing::warn!(engine = %self.name, overflow = counts.overflow, most,
                "set engine is full: the bans that end first are left out");
        }
        if counts.unsupported > 0 && before.unsupported == 0 {
            tracing::warn!(engine = %self.name, unsupported = counts.unsupported,
                "set engine cannot express some targets: they are left out");
        }
        self.parts.metrics.counted(&self.name, counts);
    }

    fn failed(&mut self, error: Error) {
        self.state.send_modify(|state| {
            if state.error.as_ref() != Some(&error) {
                tracing::warn!(engine = %self.name, %error, "set engine failed; trying again");
            }
            state.error = Some(error);
        });
    }
}

async fn limited<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let answer = tokio::time::timeout(LONGEST_CALL, call).await;
    answer.unwrap_or_else(|_| Err(Error("no answer in time".into())))
}

#[cfg(test)]
#[path = "follower_tests.rs"]
mod tests;
