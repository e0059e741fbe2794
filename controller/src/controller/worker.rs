//! Workers: take a key from the queue, hold it back until the cache shows its own writes, reconcile it, settle it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use reeve_workqueue::{AddOptions, Item, Queue, Reason};
use tokio::task::JoinSet;
use tokio::task::coop::{consume_budget, has_budget_remaining};
use tokio::time::{Instant, timeout};
use tower::BoxError;
use tracing::Instrument;

use super::figures::LastSuccess;
use super::outage::Outages;
use super::panics::text_of;
use super::span::{self, Ending};
use crate::context::{Context, Elsewhere, Inner, ReconcileId, Surroundings};
use crate::leader_election::Fence;
use crate::lifecycle::Ticket;
use crate::metrics::ControllerMetrics;
use crate::own_writes::tracker::{Hold, OwnWrites, Place};
use crate::reconcile::{Error, Next, Outcome, Reconciler, RequestKey};

/// The time for dropping workers, after which they are logged as blocking their threads.
const PATIENCE: Duration = Duration::from_secs(1);

/// A reconciler with its types erased.
pub(crate) trait AnyReconciler<R>: Send + Sync {
    fn reconcile(&self, ctx: Context, request: R) -> BoxFuture<'_, Result<Outcome, Error>>;
}

/// Any [`Reconciler`] as an [`AnyReconciler`].
pub(crate) struct Erased<T>(pub(crate) T);

impl<R: RequestKey, T: Reconciler<R>> AnyReconciler<R> for Erased<T> {
    fn reconcile(&self, ctx: Context, request: R) -> BoxFuture<'_, Result<Outcome, Error>> {
        // The call itself is inside, too: it may panic before it returns a future.
        Box::pin(async move { self.0.reconcile(ctx, request).await.map_err(Into::into) })
    }
}

/// The shared state of the workers of one controller.
pub(crate) struct WorkerPool<R: RequestKey> {
    pub(crate) around: Arc<Surroundings>,
    pub(crate) queue: Queue<R>,
    pub(crate) reconciler: Arc<dyn AnyReconciler<R>>,
    /// The fence of their lease, which is not released while a worker runs.
    pub(super) fence: Option<Fence>,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) timeout: Option<Duration>,
    /// Whether a panic costs one try only; else it stops the manager.
    pub(crate) recover_panic: bool,
    pub(crate) give_up: Option<GiveUp<R>>,
    /// The cluster of the client in `around`.
    pub(super) place: Arc<Place>,
    /// The keys that wait for the API server; `None` if nothing but the limiter shortens their back-off.
    pub(super) outages: Option<Outages<R>>,
    /// The writes of the keys; `None` if keys do not wait for them.
    pub(super) own_writes: Option<Arc<OwnWrites<R>>>,
    pub(super) last_success: Arc<LastSuccess>,
}

/// The cause for which the workers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The controller stops.
    Stopped,
    /// The lease is lost.
    Lost,
}

/// The limit of retries of a key, and the callback for a key that is given up.
pub(crate) struct GiveUp<R> {
    retries: u32,
    callback: OnGiveUp<R>,
    /// Outages among a key's failures in a row, for keys that will be tried again.
    outages: Mutex<HashMap<R, u32>>,
}

pub(crate) type OnGiveUp<R> = Box<dyn Fn(&R, &Error) + Send + Sync>;

// === impl GiveUp ===

impl<R: RequestKey> GiveUp<R> {
    pub(crate) fn new(retries: u32, callback: OnGiveUp<R>) -> Self {
        Self {
            retries,
            callback,
            outages: Mutex::default(),
        }
    }

    /// Whether `key`, which had failed `attempts` times in a row, has failed for the last time.
    fn is_last(&self, key: &R, attempts: u32, error: &Error) -> bool {
        let mut outages = self.outages.lock();
        if error.is_outage() {
            let count = outages.entry(key.clone()).or_default();
            // At most the queue's count: the queue may have forgotten some failures.
            *count = (*count).min(attempts) + 1;
            return false;
        }
        let outages = outages.get(key).copied().unwrap_or(0);
        attempts.saturating_sub(outages) >= self.retries
    }

    fn forget(&self, key: &R) {
        self.outages.lock().remove(key);
    }
}

/// The action on the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Done; its failures are forgotten.
    Forget,
    /// Requeued after a time; its failures are forgotten.
    RequeueAfter(Duration),
    /// Failed once more; requeued after its back-off.
    Retry,
}

/// The label `result` of `controller_runtime_reconcile_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
    Success,
    Error,
    Requeue,
    RequeueAfter,
}

#[derive(Debug)]
pub(super) struct Settlement {
    action: Action,
    pub(super) label: Label,
    pub(super) error: Option<Error>,
    /// The new priority of the item; unset, it keeps its own.
    priority: Option<i32>,
}

/// Increments the gauge while it lives.
struct Active<'a>(&'a Gauge);

// === impl Active ===

impl<'a> Active<'a> {
    fn new(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Ends a reconcile when it is dropped, also on a cancellation, and records its writes.
struct Over<'a, R: RequestKey> {
    pool: &'a WorkerPool<R>,
    key: &'a R,
    context: Context,
}

// === impl Over ===

impl<R: RequestKey> Drop for Over<'_, R> {
    fn drop(&mut self) {
        let Self { pool, key, context } = self;
        context.end();
        let Some(own_writes) = &pool.own_writes else {
            return;
        };
        let mut writes = pool.place.own(context.take_writes());
        for (cluster, written) in context.take_writes_elsewhere() {
            let place = Place::new(cluster.caches(), cluster.client());
            writes.extend(place.own(written));
        }
        own_writes.remember(key, writes);
    }
}

/// Runs a worker. Not generic: tokio has about 250 functions for each type of future that is spawned.
fn spawn(workers: &mut JoinSet<()>, ticket: &Ticket, work: BoxFuture<'static, ()>) {
    // Tracker and fence see the end of each worker: dropping this future aborts the workers without a wait.
    workers.spawn(ticket.workers().track_future(work));
}

// === impl WorkerPool ===

impl<R: RequestKey> WorkerPool<R> {
    /// Runs `workers` until the stop, and then lets each finish its reconcile. On `cut` (the lease is lost) it drops
    /// their reconciles, and returns when they are dropped; those keys are put back.
    ///
    /// # Errors
    /// That of `cut`; and when a reconcile panics and `recover_panic` is false.
    pub(super) async fn run(
        self: &Arc<Self>,
        workers: usize,
        ticket: &Ticket,
        cut: impl Future<Output = Result<End, BoxError>>,
    ) -> Result<End, BoxError> {
        if let Some(own_writes) = &self.own_writes {
            own_writes.begin();
        }
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            let pool = Arc::clone(self);
            let working = self.fence.as_ref().map(Fence::work);
            let work = async move {
                let _working = working;
                pool.work().await;
            };
            spawn(&mut tasks, ticket, work.boxed());
        }
        let ended = async {
            while let Some(ended) = tasks.join_next().await {
                if let Err(panic) = ended {
                    return Err(format!("a worker panicked: {panic}").into());
                }
            }
            Ok(End::Stopped)
        };
        let end = tokio::select! {
            biased;
            end = cut => end,
            end = ended => end,
            never = self.sweep() => match never {},
            never = self.watch_outages() => match never {},
        };
        if timeout(PATIENCE, tasks.shutdown()).await.is_err() {
            tracing::error!(
                controller = %self.around.controller,
                workers = tasks.len(),
                "workers cannot be dropped: they block their threads; the controller does nothing until they end"
            );
            tasks.shutdown().await;
        }
        end
    }

    async fn work(&self) {
        let stopping = &self.around.stopping;
        let mut next = None;
        loop {
            // A worker must yield even if the queue is never empty.
            consume_budget().await;
            if stopping.is_cancelled() && next.is_none() {
                return;
            }
            let ready = next.take().or_else(|| self.queue.try_get());
            let item = match ready {
                // An item is ready, so there is no wait to cancel.
                Some(_) => ready,
                None => tokio::select! {
                    biased;
                    () = stopping.cancelled() => return,
                    item = self.queue.get() => item,
                },
            };
            match item {
                Some(item) => next = self.process(item).await,
                None => return,
            }
        }
    }

    /// Processes an item. Returns the next one, if it was taken with the end of this one.
    async fn process(&self, item: Item<R>) -> Option<Item<R>> {
        if let Some(pause) = self.hold(&item) {
            // Neither a success nor a failure.
            item.put_back(pause);
            return None;
        }
        let id = OnceLock::new();
        let named = || *id.get_or_init(|| ReconcileId::new(&self.around.clock));
        let span = span::of_reconcile(&self.around.controller, &*item, named);
        self.reconcile(item, id, span.clone())
            .instrument(span)
            .await
    }

    async fn reconcile(
        &self,
        item: Item<R>,
        id: OnceLock<ReconcileId>,
        span: tracing::Span,
    ) -> Option<Item<R>> {
        let started = Instant::now();
        let reasons = item.reasons();
        let ending = Ending::new(&span, item.attempts(), &reasons);
        let context = Context::new(Inner {
            around: Arc::clone(&self.around),
            client: OnceLock::new(),
            elsewhere: Elsewhere::default(),
            id,
            attempt: item.attempts(),
            priority: item.priority(),
            reasons,
            deadline: self.timeout.and_then(|limit| started.checked_add(limit)),
            cancelled: OnceLock::new(),
            span,
        });
        // Dropped before the item is settled: a settled key may be handed out at once.
        let over = Over {
            pool: self,
            key: &item,
            context: context.clone(),
        };
        let active = Active::new(&self.metrics.active);
        let result = self.run_once(context, R::clone(&item)).await;
        drop(active);
        self.metrics.time.observe(started.elapsed().as_secs_f64());
        drop(over);
        let settled = settle(result);
        let next = self.finish(item, &settled);
        ending.settled(&settled);
        next
    }

    /// Calls the reconciler once: dropped at the time-out, and with a panic turned into an error.
    async fn run_once(&self, context: Context, key: R) -> Result<Outcome, Error> {
        let call = AssertUnwindSafe(self.reconciler.reconcile(context, key)).catch_unwind();
        let caught = match self.timeout {
            None => call.await,
            Some(limit) => match timeout(limit, call).await {
                Ok(caught) => caught,
                Err(_) => {
                    self.metrics.timeouts.inc();
                    let text = format!("reconcile timed out after {limit:?}");
                    return Err(Error::message(text));
                }
            },
        };
        caught.unwrap_or_else(|panic| {
            self.metrics.panicked();
            if !self.recover_panic {
                // Unwinding drops the item, which counts as a failure.
                std::panic::resume_unwind(panic);
            }
            Err(Error::message(format!(
                "panic: {} [recovered]",
                text_of(&*panic)
            )))
        })
    }

    /// Settles the item. Returns the next one, if it was taken with it.
    fn finish(&self, mut item: Item<R>, settled: &Settlement) -> Option<Item<R>> {
        let metrics = &self.metrics;
        match settled.label {
            Label::Success => metrics.success.inc(),
            Label::Error => metrics.error.inc(),
            Label::Requeue => metrics.requeue.inc(),
            Label::RequeueAfter => metrics.requeue_after.inc(),
        };
        if settled.error.is_some() {
            metrics.errors.inc();
        } else {
            self.last_success.at(self.around.clock.now());
        }
        if let Some(priority) = settled.priority {
            item.set_priority(priority);
        }
        match settled.action {
            Action::Forget => {
                self.ended(&item, settled.error.as_ref());
                if let Some(error) = &settled.error {
                    metrics.terminal_errors.inc();
                    tracing::error!(%error, "reconciling failed; not tried again until something changes");
                }
                self.absolve(&item);
                return self.forget_and_try_get(item);
            }
            Action::RequeueAfter(delay) => {
                tracing::trace!(?delay, "reconciled; requeued after a delay");
                self.ended(&item, None);
                self.absolve(&item);
                item.requeue_after(delay);
            }
            Action::Retry if self.gives_up(&item, settled) => {
                let key = R::clone(&item);
                self.ended(&key, settled.error.as_ref());
                self.absolve(&key);
                item.forget();
                self.report_give_up(&key, settled.error.as_ref());
            }
            Action::Retry => {
                let attempt = item.attempts();
                let delay = self.retry(item, settled.error.as_ref());
                if let Some(error) = &settled.error {
                    tracing::error!(%error, ?delay, attempt, "reconciling failed; will be tried again");
                }
            }
        }
        None
    }

    /// Requeues a failed item. Returns the time until its next try.
    fn retry(&self, item: Item<R>, error: Option<&Error>) -> Duration {
        if let (Some(outages), Some(error)) = (&self.outages, error)
            && !error.is_answer_of_the_server()
        {
            return outages.retry(item, error.cause(), error.server_outage());
        }
        self.ended(&item, error);
        match error {
            Some(error) => item.retry_because(error.cause()),
            None => item.retry(),
        }
    }

    /// Notes that `key` ended otherwise than by an outage of the API server.
    fn ended(&self, key: &R, error: Option<&Error>) {
        if let Some(outages) = &self.outages {
            // An error of another system does not show that the server answers.
            outages.ended(key, error.is_none_or(Error::is_answer_of_the_server));
        }
    }

    /// Settles the item, and takes the next one under the same lock; none if the worker has to stop or to yield before.
    fn forget_and_try_get(&self, item: Item<R>) -> Option<Item<R>> {
        if self.around.stopping.is_cancelled() || !has_budget_remaining() {
            item.forget();
            return None;
        }
        item.forget_and_try_get()
    }

    /// Whether the key has failed for the last time.
    fn gives_up(&self, item: &Item<R>, settled: &Settlement) -> bool {
        match (&self.give_up, &settled.error) {
            (Some(give_up), Some(error)) => give_up.is_last(item, item.attempts(), error),
            _ => false,
        }
    }

    /// Clears the key's failures. Called before the item is settled: a settled key may be handed out at once.
    fn absolve(&self, key: &R) {
        if let Some(give_up) = &self.give_up {
            give_up.forget(key);
        }
    }

    /// Counts and logs a key that is given up, and calls the callback.
    fn report_give_up(&self, key: &R, error: Option<&Error>) {
        let (Some(give_up), Some(error)) = (&self.give_up, error) else {
            return;
        };
        self.metrics.given_up.inc();
        let retries = give_up.retries;
        tracing::error!(%error, retries, "reconciling failed; given up until something changes");
        let call = AssertUnwindSafe(|| (give_up.callback)(key, error));
        if let Err(panic) = std::panic::catch_unwind(call) {
            let text = text_of(&*panic);
            tracing::error!(text, "the max_retries callback panicked");
        }
    }

    /// The time to put `key` back for, while the caches do not show its own writes.
    fn hold(&self, key: &Item<R>) -> Option<Duration> {
        let own_writes = self.own_writes.as_ref()?;
        match own_writes.hold(key, key.attempts()) {
            Hold::Go => None,
            Hold::Wait(pause) => {
                self.metrics.own_write_waits.inc();
                Some(pause)
            }
            Hold::Late(written) => {
                self.metrics.own_write_timeouts.inc();
                tracing::warn!(
                    controller = %self.around.controller, key = %**key, %written,
                    "the cache does not show an own write in time; reconciling all the same"
                );
                None
            }
        }
    }

    /// Tries keys again when an outage of the API server ends, until it is dropped.
    async fn watch_outages(&self) -> Infallible {
        match &self.outages {
            Some(outages) => outages.watch(&self.queue).await,
            None => std::future::pending().await,
        }
    }

    /// Requeues keys whose objects are gone without an event, and reads the state of lost writes, until it is dropped.
    async fn sweep(&self) -> Infallible {
        let Some(own_writes) = &self.own_writes else {
            return std::future::pending().await;
        };
        let gone = |key| {
            let options = AddOptions::new().reason(Reason::Custom("own object gone"));
            self.queue.add_with(key, options);
        };
        // The key waits in the queue already: it keeps its priority and its reasons.
        let wake = |key| {
            let options = AddOptions::new().priority(i32::MIN);
            self.queue.add_with(key, options);
        };
        tokio::select! {
            never = own_writes.sweep(gone) => never,
            never = own_writes.ask_for_lost(wake) => never,
        }
    }
}

/// The action on an item after this result: the table in [`crate::reconcile`], as a function.
fn settle(result: Result<Outcome, Error>) -> Settlement {
    let (next, priority) = match result {
        Ok(Outcome { next, priority }) => (next, priority),
        Err(error) if error.is_terminal() => (Next::Terminal(error), None),
        Err(error) => {
            return Settlement {
                action: Action::Retry,
                label: Label::Error,
                priority: error.priority(),
                error: Some(error),
            };
        }
    };
    let (action, label, error) = match next {
        Next::Done => (Action::Forget, Label::Success, None),
        Next::RequeueAfter(delay) => (Action::RequeueAfter(delay), Label::RequeueAfter, None),
        Next::Retry => (Action::Retry, Label::Requeue, None),
        Next::Terminal(error) => (Action::Forget, Label::Error, Some(error.into_terminal())),
    };
    Settlement {
        action,
        label,
        error,
        priority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_table() {
        let second = Duration::from_secs(1);
        for (case, result, action, label, terminal, priority) in [
            (
                "done",
                Ok(Outcome::done()),
                Action::Forget,
                Label::Success,
                None,
                None,
            ),
            (
                "done, with a priority",
                Ok(Outcome::done().with_priority(5)),
                Action::Forget,
                Label::Success,
                None,
                Some(5),
            ),
            (
                "again after a delay",
                Ok(Outcome::requeue_after(second)),
                Action::RequeueAfter(second),
                Label::RequeueAfter,
                None,
                None,
            ),
            (
                "after no delay",
                Ok(Outcome::requeue_after(Duration::ZERO)),
                Action::Forget,
                Label::Success,
                None,
                None,
            ),
            (
                "retry, at another priority",
                Ok(Outcome::retry().with_priority(-7)),
                Action::Retry,
                Label::Requeue,
                None,
                Some(-7),
            ),
            (
                "failed",
                Err(Error::message("no")),
                Action::Retry,
                Label::Error,
                Some(false),
                None,
            ),
            (
                "failed, at another priority",
                Err(Error::message("no").with_priority(3)),
                Action::Retry,
                Label::Error,
                Some(false),
                Some(3),
            ),
            (
                "failed for good",
                Err(Error::terminal("no")),
                Action::Forget,
                Label::Error,
                Some(true),
                None,
            ),
            (
                "a terminal outcome",
                Ok(Outcome::terminal(Error::message("no"))),
                Action::Forget,
                Label::Error,
                Some(true),
                None,
            ),
        ] {
            let settled = settle(result);
            assert_eq!(settled.action, action, "{case}");
            assert_eq!(settled.label, label, "{case}");
            assert_eq!(settled.priority, priority, "{case}");
            let found = settled.error.as_ref().map(Error::is_terminal);
            assert_eq!(found, terminal, "{case}");
        }
    }
}
