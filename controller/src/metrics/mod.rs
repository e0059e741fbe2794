//! The metrics of controllers, queues, requests and elections, under controller-runtime's names and labels, so
//! that dashboards carry over.
//!
//! One [`Metrics`] belongs to one manager; there is no global registry. A program adds its own with
//! [`Metrics::register`], and `/metrics` shows them all.
//!
//! A controller that is stopped while its manager goes on takes its series with it, those of its lease too; so do a
//! queue and an informer that are gone. One that comes again under the same name begins at zero.
//!
//! Beyond controller-runtime's:
//!
//! | metric | what it tells |
//! |---|---|
//! | `reeve_read_your_writes_waits_total`, `reeve_read_your_writes_timeouts_total` | how often a key was held back for its own writes, and how often in vain |
//! | `reeve_reconcile_given_up_total` | keys that failed more often than they are retried |
//! | `reeve_controller_informer_unavailable` | 1 for each informer or source of which a controller has no news; `informer`, `cause` |
//! | `reeve_events_dropped_total` | Events that were not recorded |
//! | `informer_…`, `reflector_…` | the informers and their reflectors: [`reeve_informer::prometheus`] |

mod families;
mod series;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use http::{Method, StatusCode};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

pub(crate) use families::CertificateMetrics;
use families::{ControllerLabel, Families, NameLabel, RequestLabels, UnavailableLabels};
pub(crate) use series::{ControllerMetrics, Series};

use crate::client::measure::Histograms;
use crate::leader_election::Marks;
use crate::manager::status::{Board, WeakBoard};
use crate::process::Process;
use crate::server::{Handler, answer, text};

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Bounds of `controller_runtime_reconcile_time_seconds`, as controller-runtime has them.
pub const RECONCILE_TIME_BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];

/// The metrics of one manager. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    families: Arc<Families>,
    queues: Arc<reeve_workqueue::prometheus::Metrics>,
    informers: Arc<reeve_informer::prometheus::Metrics>,
    /// What runs, of each manager that counts into this set.
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
        registry.register_collector(Box::new(Process));
        let queues = reeve_workqueue::prometheus::Metrics::register(&mut registry);
        let informers = reeve_informer::prometheus::Metrics::register(&mut registry);
        Self {
            registry: Arc::new(Mutex::new(registry)),
            families: Arc::new(families),
            queues: Arc::new(queues),
            informers: Arc::new(informers),
            boards: Arc::default(),
        }
    }

    /// Adds metrics of your own.
    pub fn register<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.registry.lock())
    }

    /// Everything, in the OpenMetrics text format ([`CONTENT_TYPE`]).
    #[must_use]
    pub fn encode(&self) -> String {
        // From here on: another scrape would clear what this one is about to show, or add to it.
        let registry = self.registry.lock();
        self.refresh_controllers();
        encode(&registry)
    }

    /// Asks what runs there at each scrape.
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

    /// Measures informers into this set: those of the manager's caches do; one made by hand takes this.
    #[must_use]
    pub fn informers(&self) -> Arc<dyn reeve_informer::MetricsProvider> {
        Arc::clone(&self.informers) as _
    }

    /// The metrics of the controller `name`, each present from now on, at zero.
    pub(crate) fn controller(&self, name: &str) -> ControllerMetrics {
        ControllerMetrics::new(&self.families, name)
    }

    /// Removes the series of the controller `name` when it is dropped. Those of its queue go with that.
    pub(crate) fn series(&self, name: &str) -> Series {
        Series::of_controller(&self.families, name)
    }

    /// Removes the series of the lease `name` when it is dropped.
    pub(crate) fn lease_series(&self, name: &str) -> Series {
        Series::of_lease(&self.families, name)
    }

    /// Counts a read or a key that waits for own writes of `controller`, or waited in vain.
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

    /// Measures requests to the API server from now on, beside counting them: how long they take
    /// (`rest_client_request_duration_seconds`), and the sizes of what is sent and answered
    /// (`rest_client_request_size_bytes`, `…_response_size_bytes`), per verb and host. Not by default: it is three
    /// histograms for each verb (controller-runtime: opt-in, too).
    pub fn measure_requests(&self) {
        let registered = || Histograms::register(&mut self.registry.lock());
        self.families.request_histograms.get_or_init(registered);
    }

    pub(crate) fn request_histograms(&self) -> Option<&Histograms> {
        self.families.request_histograms.get()
    }

    /// Whether both are the same set.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.families, &other.families)
    }

    /// Counts one request to the API server.
    pub(crate) fn request(&self, code: &str, method: &str, host: &str) {
        let labels = RequestLabels {
            code: code.to_owned(),
            method: method.to_owned(),
            host: host.to_owned(),
        };
        self.families.requests.get_or_create(&labels).inc();
    }

    /// What the elector of the lease `name` shows.
    pub(crate) fn leader(&self, name: &str) -> Marks {
        let label = NameLabel::new(name);
        Marks {
            leads: self.families.leader.get_or_create_owned(&label),
            slow_path: self.families.leader_slow_path.get_or_create_owned(&label),
        }
    }

    /// Measures queues into this set: those of controllers do; one made by hand takes this.
    #[must_use]
    pub fn queues(&self) -> Arc<dyn reeve_workqueue::MetricsProvider> {
        Arc::clone(&self.queues) as _
    }

    /// Answers a scrape.
    pub(crate) fn handler(&self) -> Handler {
        let metrics = self.clone();
        Arc::new(move |request| {
            let response = match (request.method(), request.uri().path()) {
                (&Method::GET | &Method::HEAD, "/metrics") => {
                    answer(StatusCode::OK, CONTENT_TYPE, metrics.encode())
                }
                (_, "/metrics") => text(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed\n"),
                _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
            };
            Box::pin(std::future::ready(response))
        })
    }

    /// Where reads of certificates are counted.
    pub(crate) fn certificates(&self) -> CertificateMetrics {
        self.families.certificates.clone()
    }

    pub(crate) fn events_dropped(&self, controller: &str) -> Counter {
        let label = ControllerLabel::new(controller);
        self.families.events_dropped.get_or_create_owned(&label)
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

fn encode(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a String does not fail; a collector that does leaves the text short, and scrapes say so.
    if prometheus_client::encoding::text::encode(&mut text, registry).is_err() {
        tracing::warn!("a metrics collector failed; the scrape is incomplete");
    }
    text
}
