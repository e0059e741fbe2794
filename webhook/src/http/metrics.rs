//! Metrics of a webhook server, under controller-runtime's names.

use std::time::Duration;

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The bounds of the latency histogram in seconds: those of controller-runtime, and four below them.
const BUCKETS: [f64; 15] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0,
];

/// The metrics of a webhook server. `webhook` is the path. Clones count into the same series.
///
/// | name | labels |
/// |---|---|
/// | `controller_runtime_webhook_requests_total` | `webhook`, `code` |
/// | `controller_runtime_webhook_latency_seconds` | `webhook` |
/// | `controller_runtime_webhook_requests_in_flight` | `webhook` |
/// | `controller_runtime_webhook_panics_total` | |
/// | `controller_runtime_conversion_webhook_panics_total` | |
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<Request, Counter>,
    latency: Family<Path, Histogram, fn() -> Histogram>,
    in_flight: Family<Path, Gauge>,
    pub(super) panics: Counter,
    pub(super) conversion_panics: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    webhook: String,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Path {
    webhook: String,
}

/// A call in work. Counts its end when it is dropped.
pub(super) struct InFlight(Gauge);

// === impl Metrics ===

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            in_flight: Family::default(),
            panics: Counter::default(),
            conversion_panics: Counter::default(),
        }
    }
}

impl Metrics {
    /// Adds the metrics to `registry`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // The encoder adds `_total`.
        registry.register(
            "controller_runtime_webhook_requests",
            "Total number of admission requests by HTTP status code",
            metrics.requests.clone(),
        );
        registry.register(
            "controller_runtime_webhook_latency_seconds",
            "Histogram of the latency of processing admission requests",
            metrics.latency.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests_in_flight",
            "Current number of admission requests being served",
            metrics.in_flight.clone(),
        );
        registry.register(
            "controller_runtime_webhook_panics",
            "Total number of webhook panics",
            metrics.panics.clone(),
        );
        registry.register(
            "controller_runtime_conversion_webhook_panics",
            "Total number of conversion webhook panics",
            metrics.conversion_panics.clone(),
        );
        metrics
    }

    /// Shows the series of `path` with zeros (controller-runtime: codes 200 and 500).
    pub(super) fn begin_with(&self, path: &str) {
        for code in [StatusCode::OK, StatusCode::INTERNAL_SERVER_ERROR] {
            let _ = self.requests.get_or_create(&request(path, code));
        }
        let _ = self.in_flight.get_or_create(&labels(path));
    }

    pub(super) fn begin(&self, path: &str) -> InFlight {
        let gauge = self.in_flight.get_or_create(&labels(path)).clone();
        gauge.inc();
        InFlight(gauge)
    }

    pub(super) fn answered(&self, path: &str, code: StatusCode, took: Duration) {
        self.requests.get_or_create(&request(path, code)).inc();
        let latency = self.latency.get_or_create(&labels(path));
        latency.observe(took.as_secs_f64());
    }
}

fn labels(path: &str) -> Path {
    Path {
        webhook: path.to_owned(),
    }
}

fn request(path: &str, code: StatusCode) -> Request {
    Request {
        webhook: path.to_owned(),
        code: code.as_str().to_owned(),
    }
}

// === impl InFlight ===

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
