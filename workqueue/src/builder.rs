//! Configuration of a queue.

use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;

use reeve_clock::Clock;
use tokio::time::Instant;

use crate::fairness::{FairBy, Tenant};
use crate::limiter::{RateLimiter, default_controller_rate_limiter};
use crate::metrics::{Gauges, MetricsProvider};
use crate::now::nanoseconds;
use crate::options::OnDrop;
use crate::queue::Queue;
use crate::shared::Shared;
use crate::state::{Rules, State};

/// Configures a queue; made by [`Queue::builder`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<T> {
    name: String,
    controller: Option<String>,
    clock: Clock,
    limiter: Arc<dyn RateLimiter<T>>,
    on_drop: OnDrop,
    metrics: Option<Arc<dyn MetricsProvider>>,
    record_limit: usize,
    record_expiry: Duration,
    ageing: Option<Duration>,
    fair_by: Option<Arc<FairBy<T>>>,
    min_interval: Duration,
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
            record_expiry: Duration::from_secs(3600),
            ageing: Some(Duration::from_secs(60)),
            fair_by: None,
            min_interval: Duration::ZERO,
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

    /// Source of randomness for jitter. Default: [`Clock::system`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Limiter of failed items. Default: [`default_controller_rate_limiter`].
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<T>) -> Self {
        self.limiter = Arc::new(limiter);
        self
    }

    /// Outcome of an item that is dropped unsettled. Default: [`OnDrop::Done`].
    pub fn on_drop(mut self, on_drop: OnDrop) -> Self {
        self.on_drop = on_drop;
        self
    }

    /// Provider of metrics. Default: none, at no cost.
    pub fn metrics(mut self, provider: Arc<dyn MetricsProvider>) -> Self {
        self.metrics = Some(provider);
        self
    }

    /// Maximum number of failure records of keys that are neither pending nor in flight. Beyond it the oldest
    /// record is dropped. Default: 100,000.
    ///
    /// Such a record remains when a key that failed ends with [`Item::done`](crate::Item::done) or is
    /// cancelled.
    pub fn failure_records(mut self, limit: usize) -> Self {
        self.record_limit = limit;
        self
    }

    /// Age at which such a record is dropped. Default: 1 hour.
    ///
    /// Choose it longer than the longest back-off of the limiter (1000 s by default). Otherwise a key that
    /// fails, is dropped and is added again starts with a short back-off each time.
    pub fn failure_expiry(mut self, expiry: Duration) -> Self {
        self.record_expiry = expiry;
        self
    }

    /// Age at which a ready item is overdue. `None`: never. Default: 60 s.
    ///
    /// While an item of a lower priority is overdue, every second hand-out goes to the overdue item that has
    /// been ready longest. Urgent work still gets half, and nothing starves: urgent items overtake an overdue
    /// item at most once for each overdue item before it, and once more. Only the next item of each priority
    /// is compared; with tenants, the next item of the tenant whose turn it is. Short times favour order over
    /// urgency.
    pub fn ageing(mut self, after: Option<Duration>) -> Self {
        self.ageing = after;
        self
    }

    /// Lets tenants take turns among the items of one priority. Default: first come first served, at no cost.
    ///
    /// `tenant` returns the tenant of an item. A tenant of weight w gets w items a turn; a tenant without items
    /// is skipped and costs nothing. The queue calls `tenant` while it is locked, once for each new key:
    /// `tenant` must not block and must not use the queue.
    ///
    /// ```
    /// use reeve_workqueue::{Queue, Tenant};
    /// let queue = Queue::builder()
    ///     .fair_by(|(namespace, _): &(&str, u32)| Tenant::of(namespace))
    ///     .build();
    /// for item in [("noisy", 1), ("noisy", 2), ("noisy", 3), ("quiet", 1)] {
    ///     queue.add(item);
    /// }
    /// let order = std::iter::from_fn(|| queue.try_get().map(|item| *item));
    /// assert_eq!(order.collect::<Vec<_>>(), [("noisy", 1), ("quiet", 1), ("noisy", 2), ("noisy", 3)]);
    /// ```
    pub fn fair_by(mut self, tenant: impl Fn(&T) -> Tenant + Send + Sync + 'static) -> Self {
        self.fair_by = Some(Arc::new(tenant));
        self
    }

    /// Minimum time between two hand-outs of an item: an add meanwhile is delayed for the rest of it. An item
    /// that was [put back](crate::Item::put_back) does not count as handed out. Default: none.
    ///
    /// Such an item is delayed, not queued: a drain of queued items drops it
    /// ([`Drain::Delayed`](crate::Drain::Delayed) does not). Costs a slot and 40 bytes for each key that was
    /// handed out within the interval.
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval = interval;
        self
    }

    /// Builds the queue.
    #[must_use]
    pub fn build(self) -> Queue<T> {
        let origin = Instant::now();
        let state = State::new(Rules {
            limiter: self.limiter,
            clock: self.clock,
            origin,
            record_limit: self.record_limit,
            record_expiry: nanoseconds(self.record_expiry),
            ageing: self.ageing.map(nanoseconds),
            fair_by: self.fair_by,
            min_interval: nanoseconds(self.min_interval),
            stamped: self.ageing.is_some() || self.metrics.is_some(),
        });
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
