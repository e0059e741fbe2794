//! The metrics of controllers, queues, requests and elections, under controller-runtime's names and labels, so
//! that dashboards carry over.
//!
//! One [`Metrics`] belongs to one manager; there is no global registry. A program adds its own with
//! [`Metrics::register`], and `/metrics` shows them all.
//!
//! A controller that is stopped while its manager goes on takes its series with it, those of its lease too, and so does a queue that is gone;
//! one that is added again under the same name begins at zero.
//!
//! Beyond controller-runtime's: `reeve_read_your_writes_waits_total` and `…_timeouts_total` (how often a key
//! was held back for its own writes, and how often in vain), `reeve_events_dropped_total`, and those of the informers
//! and reflectors ([`reeve_informer::prometheus`]).

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use http::{Method, StatusCode};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use reeve_workqueue::{Gauges, MetricsProvider, QueueMetrics};

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

/// Priorities told apart in `workqueue_depth`; the rest are summed up under
/// `exceeded_cardinality_limit` (controller-runtime#3419).
const PRIORITIES: usize = 25;

/// What the label `result` of a reconcile may be.
const RESULTS: [&str; 4] = ["success", "error", "requeue", "requeue_after"];

/// The metrics of one manager. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    families: Arc<Families>,
    queues: Arc<Queues>,
    informers: Arc<reeve_informer::prometheus::Metrics>,
    /// What runs, of each manager that counts into this set.
    boards: Arc<Mutex<Vec<WeakBoard>>>,
}

/// The queues whose gauges are read at a scrape.
struct Queues {
    families: Arc<Families>,
    gauges: Mutex<Vec<(QueueLabels, Weak<dyn Gauges>)>>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct QueueLabels {
    name: String,
    controller: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DepthLabels {
    name: String,
    controller: String,
    priority: String,
}

/// The pushed metrics of one queue.
struct QueueCounters {
    adds: Counter,
    retries: Counter,
    queued: Histogram,
    worked: Histogram,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct ControllerLabel {
    controller: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct UnavailableLabels {
    controller: String,
    informer: String,
    cause: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    controller: String,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    method: String,
    host: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NameLabel {
    name: String,
}

/// The metrics of certificates that are read again.
#[derive(Clone, Debug, Default)]
pub(crate) struct CertificateMetrics {
    pub(crate) reads: Counter,
    pub(crate) errors: Counter,
}

type HistogramFamily<L> = Family<L, Histogram, fn() -> Histogram>;

struct Families {
    reconciles: Family<ResultLabels, Counter>,
    errors: Family<ControllerLabel, Counter>,
    terminal_errors: Family<ControllerLabel, Counter>,
    panics: Family<ControllerLabel, Counter>,
    timeouts: Family<ControllerLabel, Counter>,
    given_up: Family<ControllerLabel, Counter>,
    unavailable: Family<UnavailableLabels, Gauge>,
    time: HistogramFamily<ControllerLabel>,
    workers: Family<ControllerLabel, Gauge>,
    active: Family<ControllerLabel, Gauge>,
    own_write_waits: Family<ControllerLabel, Counter>,
    own_write_timeouts: Family<ControllerLabel, Counter>,
    requests: Family<RequestLabels, Counter>,
    request_histograms: OnceLock<Histograms>,
    leader: Family<NameLabel, Gauge>,
    leader_slow_path: Family<NameLabel, Counter>,
    events_dropped: Family<ControllerLabel, Counter>,
    certificates: CertificateMetrics,
    depth: Family<DepthLabels, Gauge>,
    adds: Family<QueueLabels, Counter>,
    retries: Family<QueueLabels, Counter>,
    queued: HistogramFamily<QueueLabels>,
    worked: HistogramFamily<QueueLabels>,
    unfinished: Family<QueueLabels, FloatGauge>,
    longest: Family<QueueLabels, FloatGauge>,
}

/// The metrics of one controller.
#[derive(Clone, Debug)]
pub(crate) struct ControllerMetrics {
    pub(crate) success: Counter,
    pub(crate) error: Counter,
    pub(crate) requeue: Counter,
    pub(crate) requeue_after: Counter,
    pub(crate) errors: Counter,
    pub(crate) terminal_errors: Counter,
    pub(crate) panics: Counter,
    pub(crate) timeouts: Counter,
    pub(crate) given_up: Counter,
    pub(crate) time: Histogram,
    pub(crate) workers: Gauge,
    pub(crate) active: Gauge,
    pub(crate) own_write_waits: Counter,
    pub(crate) own_write_timeouts: Counter,
}

/// The series of one controller or lease, which end when that is removed: names may be made up at run time.
pub(crate) struct Series {
    families: Arc<Families>,
    of: Option<Whose>,
}

/// Whose series end.
enum Whose {
    Controller(String),
    Lease(String),
}

// === impl Series ===

impl Series {
    /// Leaves them as they are, to be scraped once more.
    pub(crate) fn keep(&mut self) {
        self.of = None;
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        match &self.of {
            Some(Whose::Controller(name)) => self.families.forget_controller(name),
            Some(Whose::Lease(name)) => self.families.forget_lease(name),
            None => {}
        }
    }
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
        let informers = reeve_informer::prometheus::Metrics::register(&mut registry);
        let families = Arc::new(families);
        let queues = Queues {
            families: Arc::clone(&families),
            gauges: Mutex::default(),
        };
        Self {
            registry: Arc::new(Mutex::new(registry)),
            families,
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
        self.queues.refresh();
        self.refresh_controllers();
        let mut text = String::new();
        // Writing to a String does not fail; a collector that does leaves the text short, and scrapes say so.
        if prometheus_client::encoding::text::encode(&mut text, &registry).is_err() {
            tracing::warn!("a metrics collector failed; the scrape is incomplete");
        }
        text
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
        let families = &self.families;
        let label = ControllerLabel {
            controller: name.to_owned(),
        };
        let [success, error, requeue, requeue_after] = RESULTS.map(|result| {
            let labels = ResultLabels {
                controller: name.to_owned(),
                result,
            };
            families.reconciles.get_or_create_owned(&labels)
        });
        ControllerMetrics {
            success,
            error,
            requeue,
            requeue_after,
            errors: families.errors.get_or_create_owned(&label),
            terminal_errors: families.terminal_errors.get_or_create_owned(&label),
            panics: families.panics.get_or_create_owned(&label),
            timeouts: families.timeouts.get_or_create_owned(&label),
            given_up: families.given_up.get_or_create_owned(&label),
            time: families.time.get_or_create_owned(&label),
            workers: families.workers.get_or_create_owned(&label),
            active: families.active.get_or_create_owned(&label),
            own_write_waits: families.own_write_waits.get_or_create_owned(&label),
            own_write_timeouts: families.own_write_timeouts.get_or_create_owned(&label),
        }
    }

    /// Removes the series of the controller `name` when it is dropped. Those of its queue go with that.
    pub(crate) fn series(&self, name: &str) -> Series {
        Series {
            families: Arc::clone(&self.families),
            of: Some(Whose::Controller(name.to_owned())),
        }
    }

    /// Removes the series of the lease `name` when it is dropped.
    pub(crate) fn lease_series(&self, name: &str) -> Series {
        Series {
            families: Arc::clone(&self.families),
            of: Some(Whose::Lease(name.to_owned())),
        }
    }

    /// Counts a read or a key that waits for own writes of `controller`, or waited in vain.
    pub(crate) fn own_writes(&self, controller: &str, in_vain: bool) {
        let label = ControllerLabel {
            controller: controller.to_owned(),
        };
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
        let label = NameLabel {
            name: name.to_owned(),
        };
        Marks {
            leads: self.families.leader.get_or_create_owned(&label),
            slow_path: self.families.leader_slow_path.get_or_create_owned(&label),
        }
    }

    /// Measures queues into this set: those of controllers do; one made by hand takes this.
    #[must_use]
    pub fn queues(&self) -> Arc<dyn MetricsProvider> {
        Arc::<Queues>::clone(&self.queues)
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
        let label = ControllerLabel {
            controller: controller.to_owned(),
        };
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

// === impl Families ===

impl Families {
    fn new() -> Self {
        Self {
            reconciles: Family::default(),
            errors: Family::default(),
            terminal_errors: Family::default(),
            panics: Family::default(),
            timeouts: Family::default(),
            given_up: Family::default(),
            unavailable: Family::default(),
            time: Family::new_with_constructor(|| Histogram::new(RECONCILE_TIME_BUCKETS)),
            workers: Family::default(),
            active: Family::default(),
            own_write_waits: Family::default(),
            own_write_timeouts: Family::default(),
            requests: Family::default(),
            request_histograms: OnceLock::new(),
            leader: Family::default(),
            leader_slow_path: Family::default(),
            events_dropped: Family::default(),
            certificates: CertificateMetrics::default(),
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            queued: Family::new_with_constructor(queue_histogram),
            worked: Family::new_with_constructor(queue_histogram),
            unfinished: Family::default(),
            longest: Family::default(),
        }
    }

    /// Registers each; the encoder adds `_total` to counters.
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "controller_runtime_reconcile",
            "Reconciles per controller and result",
            self.reconciles.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Reconciles per controller that failed, terminal failures included",
            self.errors.clone(),
        );
        registry.register(
            "controller_runtime_terminal_reconcile_errors",
            "Reconciles per controller that failed and are not retried",
            self.terminal_errors.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_panics",
            "Reconciles per controller that panicked",
            self.panics.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_timeouts",
            "Reconciles per controller that were cut off by the controller's time-out",
            self.timeouts.clone(),
        );
        registry.register(
            "reeve_reconcile_given_up",
            "Keys per controller that failed more often than they are retried",
            self.given_up.clone(),
        );
        registry.register(
            "reeve_controller_informer_unavailable",
            "1 for each informer or source of which a controller has no news, with the cause",
            self.unavailable.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "How long a reconcile took, per controller",
            self.time.clone(),
        );
        registry.register(
            "controller_runtime_max_concurrent_reconciles",
            "Workers per controller",
            self.workers.clone(),
        );
        registry.register(
            "controller_runtime_active_workers",
            "Workers per controller that reconcile right now",
            self.active.clone(),
        );
        registry.register(
            "reeve_read_your_writes_waits",
            "Times a key was held back until the caches showed its own writes",
            self.own_write_waits.clone(),
        );
        registry.register(
            "reeve_read_your_writes_timeouts",
            "Times a key was reconciled though the caches did not show its own writes in time",
            self.own_write_timeouts.clone(),
        );
        registry.register(
            "rest_client_requests",
            "Requests to the API server per status code, method and host",
            self.requests.clone(),
        );
        registry.register(
            "leader_election_master_status",
            "1 while this process holds the lease, else 0",
            self.leader.clone(),
        );
        registry.register(
            "leader_election_slowpath",
            "Renewals of the lease that had to read it first, because writing it at once failed",
            self.leader_slow_path.clone(),
        );
        registry.register(
            "reeve_events_dropped",
            "Events that were not recorded, per reporting controller: queue full, spam, or the server refused",
            self.events_dropped.clone(),
        );
        registry.register(
            "certwatcher_read_certificate",
            "Times certificates of servers were read",
            self.certificates.reads.clone(),
        );
        registry.register(
            "certwatcher_read_certificate_errors",
            "Times certificates of servers could not be read, or not be used",
            self.certificates.errors.clone(),
        );
        self.register_queues(registry);
    }

    fn forget_queue(&self, labels: &QueueLabels) {
        self.adds.remove(labels);
        self.retries.remove(labels);
        self.queued.remove(labels);
        self.worked.remove(labels);
        self.unfinished.remove(labels);
        self.longest.remove(labels);
    }

    fn forget_lease(&self, name: &str) {
        let label = NameLabel {
            name: name.to_owned(),
        };
        self.leader.remove(&label);
        self.leader_slow_path.remove(&label);
    }

    fn forget_controller(&self, name: &str) {
        for result in RESULTS {
            let controller = name.to_owned();
            self.reconciles.remove(&ResultLabels { controller, result });
        }
        let label = ControllerLabel {
            controller: name.to_owned(),
        };
        self.errors.remove(&label);
        self.terminal_errors.remove(&label);
        self.panics.remove(&label);
        self.timeouts.remove(&label);
        self.given_up.remove(&label);
        self.time.remove(&label);
        self.workers.remove(&label);
        self.active.remove(&label);
        self.own_write_waits.remove(&label);
        self.own_write_timeouts.remove(&label);
        self.events_dropped.remove(&label);
    }

    fn register_queues(&self, registry: &mut Registry) {
        registry.register(
            "workqueue_depth",
            "Items that are ready, per queue and priority",
            self.depth.clone(),
        );
        registry.register(
            "workqueue_adds",
            "Items that became ready, per queue",
            self.adds.clone(),
        );
        registry.register(
            "workqueue_retries",
            "Adds that had to wait, per queue",
            self.retries.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long an item was ready before it was handed out, per queue",
            self.queued.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "How long work on an item took, per queue",
            self.worked.clone(),
        );
        registry.register(
            "workqueue_unfinished_work_seconds",
            "How long the items being worked on have been, summed up, per queue",
            self.unfinished.clone(),
        );
        registry.register(
            "workqueue_longest_running_processor_seconds",
            "How long the item worked on longest has been, per queue",
            self.longest.clone(),
        );
    }
}

/// 10 ns to 1000 s by tens, as controller-runtime has them.
fn queue_histogram() -> Histogram {
    Histogram::new(exponential_buckets(10e-9, 10.0, 12))
}

// === impl Queues ===

impl Queues {
    /// Reads the gauges of every queue that still lives.
    fn refresh(&self) {
        let families = &self.families;
        families.depth.clear();
        let mut queues = self.gauges.lock();
        let mut gone = Vec::new();
        queues.retain(|(labels, gauges)| {
            let Some(gauges) = gauges.upgrade() else {
                gone.push(labels.clone());
                return false;
            };
            let readings = gauges.read();
            let seconds = readings.unfinished.as_secs_f64();
            families.unfinished.get_or_create(labels).set(seconds);
            let seconds = readings.longest_running.as_secs_f64();
            families.longest.get_or_create(labels).set(seconds);
            let mut depth = readings.depth;
            if depth.is_empty() {
                depth.push((0, 0));
            }
            // The highest priorities keep their names.
            depth.sort_unstable_by_key(|(priority, _)| std::cmp::Reverse(*priority));
            for (place, (priority, items)) in depth.into_iter().enumerate() {
                let priority = if place < PRIORITIES {
                    priority.to_string()
                } else {
                    "exceeded_cardinality_limit".to_owned()
                };
                let labels = DepthLabels {
                    name: labels.name.clone(),
                    controller: labels.controller.clone(),
                    priority,
                };
                let items = i64::try_from(items).unwrap_or(i64::MAX);
                families.depth.get_or_create(&labels).inc_by(items);
            }
            true
        });
        // A queue of the same name that came after it counts on.
        gone.retain(|labels| queues.iter().all(|(others, _)| others != labels));
        for labels in &gone {
            families.forget_queue(labels);
        }
    }
}

impl MetricsProvider for Queues {
    fn queue(
        &self,
        name: &str,
        controller: &str,
        gauges: Weak<dyn Gauges>,
    ) -> Box<dyn QueueMetrics> {
        let labels = QueueLabels {
            name: name.to_owned(),
            controller: controller.to_owned(),
        };
        let counters = QueueCounters {
            adds: self.families.adds.get_or_create_owned(&labels),
            retries: self.families.retries.get_or_create_owned(&labels),
            queued: self.families.queued.get_or_create_owned(&labels),
            worked: self.families.worked.get_or_create_owned(&labels),
        };
        self.gauges.lock().push((labels, gauges));
        Box::new(counters)
    }
}

impl QueueMetrics for QueueCounters {
    fn added(&self, items: u64) {
        self.adds.inc_by(items);
    }

    fn retried(&self, adds: u64) {
        self.retries.inc_by(adds);
    }

    fn started(&self, waited: Duration) {
        self.queued.observe(waited.as_secs_f64());
    }

    fn finished(&self, worked: Duration) {
        self.worked.observe(worked.as_secs_f64());
    }
}

/// A gauge that holds a fraction.
type FloatGauge = Gauge<f64, AtomicU64>;

#[cfg(test)]
mod tests {
    use reeve_workqueue::Queue;

    use super::*;

    /// Everything a scrape shows but values and help, sorted: the contract with dashboards.
    fn shape(metrics: &Metrics) -> Vec<String> {
        let text = metrics.encode();
        let lines = text.lines().filter(|line| !line.starts_with("# HELP"));
        let mut shape: Vec<String> = lines
            .map(|line| match line.rsplit_once(' ') {
                Some((series, _)) if !line.starts_with('#') => series.to_owned(),
                _ => line.to_owned(),
            })
            .filter(|line| !line.contains("_bucket{"))
            .collect();
        shape.sort();
        shape
    }

    #[tokio::test(start_paused = true)]
    #[cfg(target_os = "linux")]
    async fn names_and_labels_are_controller_runtimes() {
        let metrics = Metrics::new();
        let controller = metrics.controller("web");
        controller.time.observe(0.5);
        metrics.request("200", "GET", "cluster:6443");
        metrics.leader("lock").leads.set(1);
        metrics.events_dropped("web");
        let queue = Queue::<u32>::builder()
            .name("web")
            .metrics(metrics.queues())
            .build();
        queue.add(1);
        queue.add_with(
            2,
            reeve_workqueue::AddOptions {
                priority: Some(-100),
                ..Default::default()
            },
        );
        let expected = include_str!("../testdata/metrics.txt");
        let found = shape(&metrics).join("\n") + "\n";
        assert_eq!(found, expected, "found:\n{found}");
        let text = metrics.encode();
        let buckets = |name: &str| {
            let start = format!("{name}_bucket{{");
            text.lines().filter(|line| line.starts_with(&start)).count()
        };
        assert_eq!(buckets("controller_runtime_reconcile_time_seconds"), 40 + 1);
        assert_eq!(buckets("workqueue_queue_duration_seconds"), 12 + 1);
        assert_eq!(buckets("workqueue_work_duration_seconds"), 12 + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_is_gone_leaves_no_gauge() {
        let metrics = Metrics::new();
        let queue = Queue::<u32>::builder()
            .name("web")
            .metrics(metrics.queues())
            .build();
        assert!(metrics.encode().contains("workqueue_depth{name=\"web\""));
        drop(queue);
        let text = metrics.encode();
        assert!(
            !text.contains("workqueue_depth{")
                && !text.contains("workqueue_unfinished_work_seconds{")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_is_gone_leaves_no_series_unless_another_has_its_name() {
        let metrics = Metrics::new();
        let queue = || {
            Queue::<u32>::builder()
                .name("web")
                .metrics(metrics.queues())
                .build()
        };
        let (first, second) = (queue(), queue());
        first.add(1);
        second.add(1);
        let adds = "workqueue_adds_total{name=\"web\",controller=\"web\"} 2";
        drop(first);
        let text = metrics.encode();
        assert!(text.contains(adds), "{text}");
        second.add(2);
        assert!(!metrics.encode().contains(adds), "it counts on");
        drop(second);
        let text = metrics.encode();
        let left: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("{name="))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn scrapes_at_once_each_show_every_queue_once() {
        const QUEUES: usize = 30;
        let metrics = Metrics::new();
        let queue = |number: usize| {
            let queue = Queue::<usize>::builder()
                .name(format!("queue-{number}"))
                .metrics(metrics.queues())
                .build();
            queue.add(1);
            queue.add(2);
            queue
        };
        let _queues: Vec<Queue<usize>> = (0..QUEUES).map(queue).collect();
        let together = std::sync::Barrier::new(2);
        let scrape = || {
            let mut wrong = 0;
            for _ in 0..200 {
                together.wait();
                let text = metrics.encode();
                let depths = text
                    .lines()
                    .filter(|line| line.starts_with("workqueue_depth{") && line.ends_with(" 2"));
                wrong += usize::from(depths.count() != QUEUES);
            }
            wrong
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(scrape);
            assert_eq!((scrape(), other.join().unwrap()), (0, 0));
        });
    }

    #[tokio::test(start_paused = true)]
    async fn priorities_beyond_the_limit_share_a_label() {
        let metrics = Metrics::new();
        let queue = Queue::<u32>::builder()
            .name("web")
            .metrics(metrics.queues())
            .build();
        for priority in 0..40u32 {
            let options = reeve_workqueue::AddOptions {
                priority: Some(priority as i32),
                ..Default::default()
            };
            queue.add_with(priority, options);
        }
        let text = metrics.encode();
        let depths: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("workqueue_depth{"))
            .collect();
        assert_eq!(depths.len(), PRIORITIES + 1);
        let rest = depths
            .iter()
            .find(|line| line.contains("exceeded_cardinality_limit"));
        assert!(rest.unwrap().ends_with(" 15"), "{rest:?}");
    }
}
