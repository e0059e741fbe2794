//! What a queue tells about itself: events pushed as they happen, gauges read when asked for.
//!
//! No task polls: what client-go and controller-runtime refresh every 500 ms (unfinished work, the
//! longest running worker) is computed at the scrape. The depth is read, not counted, so it cannot
//! drift or go below zero.

use std::sync::Weak;
use std::time::Duration;

/// Makes the metrics of queues; given to [`Builder::metrics`](crate::Builder::metrics).
pub trait MetricsProvider: Send + Sync {
    /// Called once when a queue is built. `gauges` can be upgraded as long as the queue lives.
    ///
    /// `name` and `controller` are the labels of the queue; they are the same unless the builder
    /// was told otherwise.
    fn queue(
        &self,
        name: &str,
        controller: &str,
        gauges: Weak<dyn Gauges>,
    ) -> Box<dyn QueueMetrics>;
}

/// Events of one queue, told as they happen. Called without the queue's lock.
pub trait QueueMetrics: Send + Sync {
    /// So many items became ready (adds that found their item ready already are not counted).
    fn added(&self, items: u64);
    /// So many adds had to wait, for a delay or a limiter.
    fn retried(&self, adds: u64);
    /// An item was handed out that had been ready for so long.
    fn started(&self, waited: Duration);
    /// Work on an item ended after so long.
    fn finished(&self, worked: Duration);
}

/// What can be read from a queue at any time.
pub trait Gauges: Send + Sync {
    /// Reads the gauges: one short look under the queue's lock.
    fn read(&self) -> Readings;
}

/// The gauges of a queue at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// How many items are to be handed out, by priority. Includes items that are being worked on
    /// and were added again. A priority that was in use before may be there with 0.
    pub depth: Vec<(i32, usize)>,
    /// How long all unfinished runs have taken, summed up.
    pub unfinished: Duration,
    /// How long the longest unfinished run has taken.
    pub longest_running: Duration,
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
