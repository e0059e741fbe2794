//! Workers: take a key from the queue, hold it back while its own writes are unseen, reconcile it, settle it.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use reeve_workqueue::{AddOptions, Cause, Item, Queue, Reason};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::settle::{Action, Label, Settlement, settle};
use crate::client::Client;
use crate::client::writes::{Effect, Notes, Write};
use crate::context::{Context, Inner, ReconcileId, Surroundings};
use crate::metrics::ControllerMetrics;
use crate::reconcile::{Error, Outcome, Reconciler, RequestKey};

/// The first pause before a key that waits for its own writes is looked at again; it doubles.
const FIRST_LOOK: Duration = Duration::from_millis(2);
/// The longest such pause.
const LAST_LOOK: Duration = Duration::from_millis(250);

/// From how many keys with unseen writes on those are looked for that never came back.
const MANY: usize = 1024;

/// A reconciler with its types erased.
pub(crate) trait AnyReconciler<R>: Send + Sync {
    fn reconcile(&self, ctx: Context, request: R) -> BoxFuture<'_, Result<Outcome, Error>>;
}

/// Any [`Reconciler`] as an [`AnyReconciler`].
pub(crate) struct Erased<T>(pub(crate) T);

impl<R: RequestKey, T: Reconciler<R>> AnyReconciler<R> for Erased<T> {
    fn reconcile(&self, ctx: Context, request: R) -> BoxFuture<'_, Result<Outcome, Error>> {
        // The call itself is inside too: it may panic before it returns a future.
        Box::pin(async move { self.0.reconcile(ctx, request).await.map_err(Into::into) })
    }
}

/// What the workers of one controller share.
pub(crate) struct Workshop<R: RequestKey> {
    pub(crate) around: Arc<Surroundings>,
    pub(crate) queue: Queue<R>,
    pub(crate) reconciler: Arc<dyn AnyReconciler<R>>,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) client: Client,
    pub(crate) timeout: Option<Duration>,
    /// How long a key waits for its own writes; `None` does not wait.
    pub(crate) own_writes: Option<Duration>,
    pub(crate) unseen: Mutex<HashMap<R, Unseen>>,
}

/// The writes of a key that its caches have not shown yet.
#[derive(Debug)]
pub(crate) struct Unseen {
    writes: Vec<Write>,
    since: Instant,
    look: Duration,
}

/// Counts one up while it lives.
struct Active(Gauge);

// === impl Active ===

impl Active {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
    }
}

// === impl Workshop ===

impl<R: RequestKey> Workshop<R> {
    /// Runs `workers` until the stop, and then lets each end what it is at. Dropped, it drops what they are at;
    /// those keys are counted as to be retried.
    pub(crate) async fn run(self: Arc<Self>, workers: usize) {
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            let workshop = Arc::clone(&self);
            tasks.spawn(async move { workshop.work().await });
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn work(&self) {
        loop {
            let item = tokio::select! {
                biased;
                () = self.around.stopping.cancelled() => return,
                item = self.queue.get() => item,
            };
            match item {
                Some(item) => self.process(item).await,
                None => return,
            }
        }
    }

    async fn process(&self, item: Item<R>) {
        let key = R::clone(&item);
        if let Some(pause) = self.hold(&key).await {
            // Back in the queue as it came: neither a success nor a failure.
            let priority = Some(item.priority());
            item.done();
            let options = AddOptions {
                after: Some(pause),
                priority,
                reason: Some(Reason::Custom("own writes unseen")),
                ..AddOptions::default()
            };
            self.queue.add_with(key, options);
            return;
        }
        let id = ReconcileId::new(&self.around.clock);
        let span = tracing::info_span!("reconcile", controller = %self.around.controller, key = %key, reconcile_id = %id);
        self.reconcile(item, key, id).instrument(span).await;
    }

    async fn reconcile(&self, item: Item<R>, key: R, id: ReconcileId) {
        let notes = Arc::new(Notes::default());
        let client = match self.own_writes {
            Some(_) => self.client.clone().with_notes(Arc::clone(&notes)),
            None => self.client.clone(),
        };
        let context = Context::new(Inner {
            around: Arc::clone(&self.around),
            client,
            id,
            attempt: item.attempts(),
            priority: item.priority(),
            reasons: item.reasons(),
        });
        let started = Instant::now();
        let active = Active::new(&self.metrics.active);
        let result = self.run_once(context, key.clone()).await;
        drop(active);
        self.metrics.time.observe(started.elapsed().as_secs_f64());
        // Before the item is settled: the key may be handed out the moment it is.
        self.remember(&key, notes.take());
        self.finish(item, settle(result));
    }

    /// One call of the reconciler: cut off at the time-out, and a panic made an error.
    async fn run_once(&self, context: Context, key: R) -> Result<Outcome, Error> {
        let call = AssertUnwindSafe(self.reconciler.reconcile(context, key)).catch_unwind();
        let caught = match self.timeout {
            None => call.await,
            Some(limit) => match timeout(limit, call).await {
                Ok(caught) => caught,
                Err(_) => {
                    self.metrics.timeouts.inc();
                    let text = format!("the reconcile was cut off after {limit:?}");
                    return Err(Error::message(text));
                }
            },
        };
        caught.unwrap_or_else(|panic| {
            self.metrics.panics.inc();
            Err(Error::message(format!(
                "panic: {} [recovered]",
                text_of(&*panic)
            )))
        })
    }

    fn finish(&self, mut item: Item<R>, settled: Settlement) {
        let metrics = &self.metrics;
        match settled.label {
            Label::Success => metrics.success.inc(),
            Label::Error => metrics.error.inc(),
            Label::Requeue => metrics.requeue.inc(),
            Label::RequeueAfter => metrics.requeue_after.inc(),
        };
        if settled.error.is_some() {
            metrics.errors.inc();
        }
        if let Some(priority) = settled.priority {
            item.set_priority(priority);
        }
        match settled.action {
            Action::Forget => {
                if let Some(error) = &settled.error {
                    metrics.terminal_errors.inc();
                    tracing::error!(%error, "reconciling failed; not tried again until something changes");
                }
                item.forget();
            }
            Action::RequeueAfter(delay) => {
                tracing::trace!(?delay, "reconciled; wanted again later");
                item.requeue_after(delay);
            }
            Action::Retry => {
                let attempt = item.attempts();
                let delay = match &settled.error {
                    Some(error) => item.retry_because(Cause::new(error)),
                    None => item.retry(),
                };
                if let Some(error) = &settled.error {
                    tracing::error!(%error, ?delay, attempt, "reconciling failed; will be tried again");
                }
            }
        }
    }

    fn remember(&self, key: &R, mut writes: Vec<Write>) {
        if self.own_writes.is_none() {
            return;
        }
        writes.retain(|write| self.around.caches.covers(write));
        if writes.is_empty() {
            return;
        }
        let unseen = Unseen {
            writes,
            since: Instant::now(),
            look: FIRST_LOOK,
        };
        let mut all = self.unseen.lock();
        if all.len() >= MANY && all.len().is_power_of_two() {
            // Keys that never came back: past the time-out nothing waits for them any more.
            let limit = self.own_writes.unwrap_or_default();
            all.retain(|_, unseen| unseen.since.elapsed() < limit);
        }
        all.insert(key.clone(), unseen);
    }

    /// How long to put `key` back for, because its own writes are not in the caches yet.
    async fn hold(&self, key: &R) -> Option<Duration> {
        let limit = self.own_writes?;
        let mut unseen = self.unseen.lock().remove(key)?;
        for write in &mut unseen.writes {
            if write.effect == Effect::Unknown
                && let Some(effect) = self.around.caches.ask(&self.client, write, limit).await
            {
                write.effect = effect;
            }
        }
        unseen
            .writes
            .retain(|write| !self.around.caches.has_seen(write));
        let first = unseen.writes.first()?;
        if unseen.since.elapsed() >= limit {
            self.metrics.own_write_timeouts.inc();
            tracing::warn!(
                controller = %self.around.controller, key = %key, written = %first.key, waited = ?limit,
                "the cache does not show an own write in time; reconciling all the same"
            );
            return None;
        }
        self.metrics.own_write_waits.inc();
        let pause = unseen
            .look
            .min(limit.saturating_sub(unseen.since.elapsed()));
        unseen.look = (unseen.look * 2).min(LAST_LOOK);
        self.unseen.lock().insert(key.clone(), unseen);
        Some(pause)
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}
