//! The figures of one controller, for `/debug/controllers`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use reeve_clock::Clock;
use reeve_workqueue::{ItemStatus, Queue};

use crate::cache::Kind;
use crate::debug::{ControllerReport, ReconcileCounts, RunReport, WritesReport, before};
use crate::metrics::ControllerMetrics;
use crate::own_writes::tracker::OwnWrites;
use crate::reconcile::RequestKey;

/// The keys in flight that are compared for the longest run.
const RUNS: usize = 1_000;

/// The figures of one controller, shared by its workers and its inspection.
pub(super) struct Figures<R> {
    pub(super) kind: Option<Kind>,
    pub(super) clock: Clock,
    pub(super) metrics: ControllerMetrics,
    pub(super) last_success: Arc<LastSuccess>,
    /// `None` if keys do not wait for their writes.
    pub(super) own_writes: Option<Arc<OwnWrites<R>>>,
}

/// The time of the last reconcile without an error, in milliseconds; `i64::MIN` before the first.
#[derive(Debug)]
pub(super) struct LastSuccess(AtomicI64);

// === impl Figures ===

impl<R: RequestKey> Figures<R> {
    /// The report of the controller `name`, without its state and its sources.
    pub(super) fn report(&self, name: &str, queue: &Queue<R>) -> ControllerReport {
        let metrics = &self.metrics;
        let count = |gauge: i64| usize::try_from(gauge).unwrap_or_default();
        ControllerReport {
            name: name.to_owned(),
            kind: self.kind.as_ref().map(ToString::to_string),
            workers: count(metrics.workers.get()),
            busy: count(metrics.active.get()),
            reconciles: ReconcileCounts::new(
                metrics.success.get(),
                metrics.error.get(),
                metrics.requeue.get(),
                metrics.requeue_after.get(),
            ),
            panics: metrics.panics.get(),
            timeouts: metrics.timeouts.get(),
            given_up: metrics.given_up.get(),
            watch_panics: metrics.watch_panics.get(),
            last_success: self.last_success.get(),
            longest_run: self.longest_run(queue),
            ..ControllerReport::default()
        }
    }

    pub(super) fn writes(&self, name: &str) -> Option<WritesReport> {
        let own_writes = self.own_writes.as_ref()?;
        Some(own_writes.report(name, self.clock.now()))
    }

    fn longest_run(&self, queue: &Queue<R>) -> Option<RunReport> {
        let snapshot = queue.snapshot_of(RUNS);
        let runs = snapshot.items.iter().filter_map(|item| match item.status {
            ItemStatus::InFlight { running, .. } => Some((running, &item.item)),
            _ => None,
        });
        let (running, key) = runs.max_by_key(|(running, _)| *running)?;
        let since = before(self.clock.now(), running);
        Some(RunReport::new(key.to_string(), since))
    }
}

#[cfg(test)]
impl<R> Figures<R> {
    /// Those of a controller without a manager.
    pub(super) fn of_test() -> Self {
        Self {
            kind: None,
            clock: crate::fake::clock(),
            metrics: crate::metrics::Metrics::new().controller("test"),
            last_success: Arc::default(),
            own_writes: None,
        }
    }
}

// === impl LastSuccess ===

impl LastSuccess {
    pub(super) fn at(&self, now: Timestamp) {
        self.0.store(now.as_millisecond(), Ordering::Relaxed);
    }

    fn get(&self) -> Option<Timestamp> {
        Timestamp::from_millisecond(self.0.load(Ordering::Relaxed)).ok()
    }
}

impl Default for LastSuccess {
    fn default() -> Self {
        // Outside of the range of timestamps.
        Self(AtomicI64::new(i64::MIN))
    }
}
