//! Metrics of a queue: events are pushed as they happen, gauges are read on request.
//!
//! No task polls: what client-go and controller-runtime refresh every 500 ms (unfinished work, the
//! longest running worker) is computed at the scrape. The depth is read, not counted, so it cannot
//! drift or go below zero.

use std::sync::Weak;
use std::time::Duration;

/// Makes the metrics of queues; passed to [`Builder::metrics`](crate::Builder::metrics).
pub trait MetricsProvider: Send + Sync {
    /// Called once when a queue is built. `gauges` can be upgraded as long as the queue lives.
    ///
    /// `name` and `controller` are the labels of the queue; they are equal unless the builder sets
    /// [`controller`](crate::Builder::controller).
    fn queue(
        &self,
        name: &str,
        controller: &str,
        gauges: Weak<dyn Gauges>,
    ) -> Box<dyn QueueMetrics>;
}

/// Events of one queue, called as they happen and without the queue's lock.
pub trait QueueMetrics: Send + Sync {
    /// `items` became ready. Adds of items that were ready already are not counted.
    fn added(&self, items: u64);
    /// `adds` were delayed, by a delay or a limiter.
    fn retried(&self, adds: u64);
    /// An item was handed out, `waited` after it became ready.
    fn started(&self, waited: Duration);
    /// Work on an item ended after `worked`.
    fn finished(&self, worked: Duration);
}

/// Counts of one operation, reported after the lock is released.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Number of items that became ready (or dirty).
    pub(crate) adds: u64,
    /// Number of adds with a delay.
    pub(crate) retries: u64,
}

/// The gauges of a queue, readable at any time.
pub trait Gauges: Send + Sync {
    /// Reads the gauges, in one short operation under the queue's lock.
    fn read(&self) -> Readings;
}

/// The gauges of a queue at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// Number of items to hand out, by priority. Includes items in flight that were added again. A
    /// priority that was in use before may be there with 0.
    pub depth: Vec<(i32, usize)>,
    /// Sum of the times of all unfinished runs.
    pub unfinished: Duration,
    /// Time of the longest unfinished run.
    pub longest_running: Duration,
}

// === impl Counts ===

impl Counts {
    #[inline]
    pub(crate) fn report(self, metrics: &dyn QueueMetrics) {
        if self.adds > 0 {
            metrics.added(self.adds);
        }
        if self.retries > 0 {
            metrics.retried(self.retries);
        }
    }
}

// === impl Readings ===

impl Readings {
    pub(crate) fn count(&mut self, priority: i32) {
        match self.depth.iter_mut().find(|(known, _)| *known == priority) {
            Some((_, depth)) => *depth += 1,
            None => self.depth.push((priority, 1)),
        }
    }
}
