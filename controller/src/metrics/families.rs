//! The families of the metrics, with their names, and the labels of their series.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use reeve_client::RequestMetrics;
use reeve_election::ElectionFamilies;

/// Bounds of `controller_runtime_reconcile_time_seconds`, those of controller-runtime.
pub const RECONCILE_TIME_BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];

/// The values of the label `result` of a reconcile.
pub(super) const RESULTS: [&str; 4] = ["success", "error", "requeue", "requeue_after"];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct ControllerLabel {
    pub(super) controller: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct UnavailableLabels {
    pub(super) controller: String,
    pub(super) informer: String,
    pub(super) cause: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(super) struct ResultLabels {
    pub(super) controller: String,
    pub(super) result: &'static str,
}

/// The metrics of a controller, beside its queue.
pub(super) struct Families {
    pub(super) reconciles: Family<ResultLabels, Counter>,
    pub(super) errors: Family<ControllerLabel, Counter>,
    pub(super) terminal_errors: Family<ControllerLabel, Counter>,
    pub(super) panics: Family<ControllerLabel, Counter>,
    /// The same of all controllers, also of those that ended. It is not registered.
    pub(super) all_panics: Counter,
    pub(super) timeouts: Family<ControllerLabel, Counter>,
    pub(super) given_up: Family<ControllerLabel, Counter>,
    pub(super) unavailable: Family<UnavailableLabels, Gauge>,
    pub(super) time: Family<ControllerLabel, Histogram, fn() -> Histogram>,
    pub(super) workers: Family<ControllerLabel, Gauge>,
    pub(super) active: Family<ControllerLabel, Gauge>,
    pub(super) own_write_waits: Family<ControllerLabel, Counter>,
    pub(super) own_write_timeouts: Family<ControllerLabel, Counter>,
    pub(super) watch_panics: Family<ControllerLabel, Counter>,
    pub(super) events_dropped: Family<ControllerLabel, Counter>,
    pub(super) requests: RequestMetrics,
    pub(super) elections: ElectionFamilies,
}

// === impl ControllerLabel ===

impl ControllerLabel {
    pub(super) fn new(controller: &str) -> Self {
        Self {
            controller: controller.to_owned(),
        }
    }
}

// === impl ResultLabels ===

impl ResultLabels {
    pub(super) fn new(controller: &str, result: &'static str) -> Self {
        Self {
            controller: controller.to_owned(),
            result,
        }
    }
}

// === impl Families ===

impl Families {
    pub(super) fn new() -> Self {
        Self {
            reconciles: Family::default(),
            errors: Family::default(),
            terminal_errors: Family::default(),
            panics: Family::default(),
            all_panics: Counter::default(),
            timeouts: Family::default(),
            given_up: Family::default(),
            unavailable: Family::default(),
            time: Family::new_with_constructor(|| Histogram::new(RECONCILE_TIME_BUCKETS)),
            workers: Family::default(),
            active: Family::default(),
            own_write_waits: Family::default(),
            own_write_timeouts: Family::default(),
            watch_panics: Family::default(),
            events_dropped: Family::default(),
            requests: RequestMetrics::default(),
            elections: ElectionFamilies::default(),
        }
    }

    /// Registers each; the encoder adds `_total` to counters.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "controller_runtime_reconcile",
            "Reconciles per controller and result",
            self.reconciles.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "How long a reconcile took, per controller",
            self.time.clone(),
        );
        registry.register(
            "reeve_controller_informer_unavailable",
            "1 for each informer or source of which a controller has no news, with the cause",
            self.unavailable.clone(),
        );
        self.requests.register(registry);
        self.elections.register(registry);
        for (name, help, family) in self.counters() {
            registry.register(name, help, family.clone());
        }
        for (name, help, family) in self.gauges() {
            registry.register(name, help, family.clone());
        }
    }

    /// The counters per controller, beside the results.
    fn counters(
        &self,
    ) -> [(
        &'static str,
        &'static str,
        &Family<ControllerLabel, Counter>,
    ); 9] {
        [
            (
                "controller_runtime_reconcile_errors",
                "Reconciles per controller that failed, terminal failures included",
                &self.errors,
            ),
            (
                "controller_runtime_terminal_reconcile_errors",
                "Reconciles per controller that failed and are not retried",
                &self.terminal_errors,
            ),
            (
                "controller_runtime_reconcile_panics",
                "Reconciles per controller that panicked",
                &self.panics,
            ),
            (
                "controller_runtime_reconcile_timeouts",
                "Reconciles per controller that were cut off by the controller's time-out",
                &self.timeouts,
            ),
            (
                "reeve_reconcile_given_up",
                "Keys per controller that failed more often than they are retried",
                &self.given_up,
            ),
            (
                "reeve_read_your_writes_waits",
                "Times a key was held back until the caches showed its own writes",
                &self.own_write_waits,
            ),
            (
                "reeve_read_your_writes_timeouts",
                "Times a key was reconciled though the caches did not show its own writes in time",
                &self.own_write_timeouts,
            ),
            (
                "reeve_controller_watch_panics",
                "Panics per controller of the handlers and predicates of its watches",
                &self.watch_panics,
            ),
            (
                "reeve_events_dropped",
                "Events, and counts of their series, that were not recorded, per reporting controller: queue full, spam, or the server refused or did not answer",
                &self.events_dropped,
            ),
        ]
    }

    fn gauges(&self) -> [(&'static str, &'static str, &Family<ControllerLabel, Gauge>); 2] {
        [
            (
                "controller_runtime_max_concurrent_reconciles",
                "Workers per controller",
                &self.workers,
            ),
            (
                "controller_runtime_active_workers",
                "Workers per controller that reconcile right now",
                &self.active,
            ),
        ]
    }

    pub(super) fn forget_controller(&self, name: &str) {
        for result in RESULTS {
            self.reconciles.remove(&ResultLabels::new(name, result));
        }
        let label = ControllerLabel::new(name);
        for (_, _, family) in self.counters() {
            family.remove(&label);
        }
        for (_, _, family) in self.gauges() {
            family.remove(&label);
        }
        self.time.remove(&label);
    }
}
