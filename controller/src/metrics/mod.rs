//! The metrics of controllers, queues, requests and elections, under controller-runtime's names and labels, so
//! that dashboards carry over.
//!
//! One [`Metrics`] belongs to one manager; there is no global registry. A program adds its own with
//! [`Metrics::register`], and `/metrics` serves them all.
//!
//! A controller that is stopped while its manager continues removes its series, including those of its lease; so do a
//! queue and an informer that end. One that returns under the same name begins at zero.
//!
//! Beyond controller-runtime's:
//!
//! | metric | meaning |
//! |---|---|
//! | `reeve_read_your_writes_waits_total`, `reeve_read_your_writes_timeouts_total` | number of times a key was held back for its own writes, and of time-outs of that |
//! | `reeve_reconcile_given_up_total` | keys that exceeded their retries |
//! | `reeve_controller_informer_unavailable` | 1 for each informer or source without news for a controller; `informer`, `cause` |
//! | `reeve_controller_watch_panics_total` | panics of the handlers and predicates of a controller's watches |
//! | `reeve_events_dropped_total` | Events, and counts of their series, that were not recorded |
//! | `informer_…`, `reflector_…` | the informers and their reflectors: [`reeve_informer::prometheus`] |

mod families;
mod series;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use reeve_client::RequestMetrics;

pub use families::RECONCILE_TIME_BUCKETS;
use families::{ControllerLabel, Families, UnavailableLabels};
pub(crate) use series::{ControllerMetrics, Series};

use crate::lifecycle::{Board, WeakBoard};
use crate::process::Process;
use crate::server::Handler;
use reeve_election::ElectionMetrics;
pub use reeve_serve::metrics::CONTENT_TYPE;
use reeve_serve::metrics::encode;

/// The metrics of one manager. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    families: Arc<Families>,
    #[cfg(feature = "tls")]
    certificates: reeve_serve::certificates::Metrics,
    queues: Arc<reeve_workqueue::prometheus::Metrics>,
    informers: Arc<reeve_informer::prometheus::Metrics>,
    /// The boards of each manager that counts into this set.
    boards: Arc<Mutex<Vec<WeakBoard>>>,
}

// === impl Metrics ===

impl Metrics {
    /// An empty set with controller-runtime's families registered.
    #[must_use]
    pub fn new() -> Self {
        let families = Families::new();
        let mut registry = Registry::default();
        families.register(&mut registry);
        #[cfg(feature = "tls")]
        let certificates = reeve_serve::certificates::Metrics::register(&mut registry);
        registry.register_collector(Box::new(Process));
        let queues = reeve_workqueue::prometheus::Metrics::register(&mut registry);
        let informers = reeve_informer::prometheus::Metrics::register(&mut registry);
        Self {
            registry: Arc::new(Mutex::new(registry)),
            families: Arc::new(families),
            #[cfg(feature = "tls")]
            certificates,
            queues: Arc::new(queues),
            informers: Arc::new(informers),
            boards: Arc::default(),
        }
    }

    /// Adds metrics of your own.
    pub fn register<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.registry.lock())
    }

    /// All metrics, in the OpenMetrics text format ([`CONTENT_TYPE`]).
    #[must_use]
    pub fn encode(&self) -> String {
        // From here on: another scrape would clear the series of this one, or add to them.
        let registry = self.registry.lock();
        self.refresh_controllers();
        encode(&registry)
    }

    /// Reads the board at each scrape.
    pub(crate) fn observe(&self, board: &Board) {
        self.boards.lock().push(board.downgrade());
    }

    fn refresh_controllers(&self) {
        self.families.unavailable.clear();
        let boards: Vec<Board> = {
            let mut boards = self.boards.lock();
            boards.retain(|board| board.upgrade().is_some());
            boards.iter().filter_map(WeakBoard::upgrade).collect()
        };
        for runnable in boards.iter().flat_map(Board::runnables) {
            for kind in runnable.unavailable.iter().filter(|kind| !kind.optional) {
                let labels = UnavailableLabels {
                    controller: runnable.name.clone(),
                    informer: kind.informer.to_string(),
                    cause: kind.cause,
                };
                self.families.unavailable.get_or_create(&labels).set(1);
            }
        }
    }

    /// Measures informers into this set: those of the manager's caches do; pass it to one made by hand.
    #[must_use]
    pub fn informers(&self) -> Arc<dyn reeve_informer::MetricsProvider> {
        Arc::clone(&self.informers) as _
    }

    /// The metrics of the controller `name`, each present from now on, at zero.
    pub(crate) fn controller(&self, name: &str) -> ControllerMetrics {
        ControllerMetrics::new(&self.families, name)
    }

    /// The reconciles that panicked, of all controllers that counted into this set.
    #[cfg(feature = "testing")]
    pub(crate) fn reconcile_panics(&self) -> u64 {
        self.families.all_panics.get()
    }

    /// Removes the series of the controller `name` when it is dropped. Those of its queue end with the queue.
    pub(crate) fn series(&self, name: &str) -> Series {
        Series::of_controller(&self.families, name)
    }

    /// Removes the series of the lease `name` when it is dropped.
    pub(crate) fn lease_series(&self, name: &str) -> Series {
        Series::of_lease(&self.families, name)
    }

    /// Counts a read or a key that waits for own writes of `controller`, or whose wait timed out.
    pub(crate) fn own_writes(&self, controller: &str, in_vain: bool) {
        let label = ControllerLabel::new(controller);
        let families = &self.families;
        let family = if in_vain {
            &families.own_write_timeouts
        } else {
            &families.own_write_waits
        };
        family.get_or_create(&label).inc();
    }

    /// Measures requests to the API server from now on, beside counting them: see
    /// [`RequestMetrics::measure`](reeve_client::RequestMetrics::measure).
    pub fn measure_requests(&self) {
        self.families.requests.measure(&mut self.registry.lock());
    }

    /// The metrics of requests to the API server, which are part of this set.
    #[must_use]
    pub fn requests(&self) -> &RequestMetrics {
        &self.families.requests
    }

    /// The metrics of the elector of the lease `name`.
    pub(crate) fn election(&self, name: &str) -> ElectionMetrics {
        self.families.elections.of(name)
    }

    /// Measures queues into this set: those of controllers do; pass it to one made by hand.
    #[must_use]
    pub fn queues(&self) -> Arc<dyn reeve_workqueue::MetricsProvider> {
        Arc::clone(&self.queues) as _
    }

    /// Answers a scrape.
    pub(crate) fn handler(&self) -> Handler {
        let metrics = self.clone();
        reeve_serve::metrics::handler(move || metrics.encode())
    }

    /// Counts reads of certificates into this set: a metrics server's do; pass it to another server
    /// ([`Certificates::counted_in`](crate::certificates::Certificates::counted_in)).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificates(&self) -> reeve_serve::certificates::Metrics {
        self.certificates.clone()
    }

    pub(crate) fn events_dropped(&self, controller: &str) -> Counter {
        let label = ControllerLabel::new(controller);
        self.families.events_dropped.get_or_create_owned(&label)
    }
}

impl AsRef<RequestMetrics> for Metrics {
    fn as_ref(&self) -> &RequestMetrics {
        self.requests()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
