//! How a queue is made.

use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use reeve_clock::Clock;
use tokio::time::Instant;

use crate::limiter::{RateLimiter, default_controller_rate_limiter};
use crate::metrics::{Gauges, MetricsProvider};
use crate::queue::Queue;
use crate::shared::Shared;
use crate::state::State;

/// What becomes of an [`Item`](crate::Item) that is dropped without an outcome: its worker panicked,
/// or the future that worked on it was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDrop {
    /// As [`Item::done`](crate::Item::done): it is not looked at again unless it is added again.
    #[default]
    Done,
    /// As [`Item::retry`](crate::Item::retry): counted as a failure, back after the limiter's delay.
    Retry,
}

/// How a queue is to be; made by [`Queue::builder`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<T> {
    name: String,
    controller: Option<String>,
    clock: Clock,
    limiter: Arc<dyn RateLimiter<T>>,
    on_drop: OnDrop,
    metrics: Option<Arc<dyn MetricsProvider>>,
    record_limit: usize,
}

// === impl Builder ===

impl<T: Hash + Eq + Clone + Send + Sync + 'static> Builder<T> {
    pub(crate) fn new() -> Self {
        Self {
            name: String::new(),
            controller: None,
            clock: Clock::system(),
            limiter: Arc::new(default_controller_rate_limiter()),
            on_drop: OnDrop::default(),
            metrics: None,
            record_limit: 100_000,
        }
    }

    /// Names the queue, in metrics and snapshots. Default: no name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The label `controller` of the metrics. Default: the name of the queue.
    pub fn controller(mut self, controller: impl Into<String>) -> Self {
        self.controller = Some(controller.into());
        self
    }

    /// Where randomness (for jitter) comes from. Default: [`Clock::system`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// How long failed items wait. Default: [`default_controller_rate_limiter`].
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<T>) -> Self {
        self.limiter = Arc::new(limiter);
        self
    }

    /// What becomes of an item that is dropped without an outcome. Default: [`OnDrop::Done`].
    pub fn on_drop(mut self, on_drop: OnDrop) -> Self {
        self.on_drop = on_drop;
        self
    }

    /// Who counts. Default: nobody, at no cost.
    pub fn metrics(mut self, provider: Arc<dyn MetricsProvider>) -> Self {
        self.metrics = Some(provider);
        self
    }

    /// How many failure records are kept of keys that are neither wanted nor worked on; beyond
    /// that the oldest is forgotten. Default: 100,000.
    ///
    /// Such a record stays behind when a key that failed ends with
    /// [`Item::done`](crate::Item::done) or is cancelled.
    pub fn failure_records(mut self, limit: usize) -> Self {
        self.record_limit = limit;
        self
    }

    /// Makes the queue.
    #[must_use]
    pub fn build(self) -> Queue<T> {
        let origin = Instant::now();
        let state = State::new(self.limiter, self.clock, origin, self.record_limit);
        Queue(Arc::new_cyclic(|weak: &Weak<Shared<T>>| {
            let metrics = self.metrics.map(|provider| {
                let gauges: Weak<dyn Gauges> = weak.clone();
                let controller = self.controller.as_deref().unwrap_or(&self.name);
                provider.queue(&self.name, controller, gauges)
            });
            Shared::new(state, origin, self.name, self.on_drop, metrics)
        }))
    }
}

impl<T> fmt::Debug for Builder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("on_drop", &self.on_drop)
            .field("failure_records", &self.record_limit)
            .finish_non_exhaustive()
    }
}
