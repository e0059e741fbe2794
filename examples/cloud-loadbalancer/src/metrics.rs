//! The metrics of the cloud's calls and of orphans. Labels never hold an address or a name of a Service.
//!
//! | metric | meaning |
//! |---|---|
//! | `ccm_provider_calls_total` | calls to the cloud; `call`, `result` (`ok` or the kind of the error) |
//! | `ccm_provider_call_duration_seconds` | their time, at `--provider=slb` with the waits of its requests for their turns; `call` |
//! | `ccm_failed_changes_total` | changes of load balancers that failed; `call` |
//! | `ccm_orphans` | load balancers of this cluster without a Service, at the last search |

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::provider::Kind;

const BUCKETS: [f64; 8] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    call: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    call: &'static str,
}

/// The metrics of one program. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    calls: Family<Result, Counter>,
    durations: Family<Call, Histogram, fn() -> Histogram>,
    failed: Family<Call, Counter>,
    orphans: Gauge,
}

// === impl Metrics ===

impl Metrics {
    /// Registers the metrics in `into`.
    #[must_use]
    pub(crate) fn register(into: &reeve_controller::Metrics) -> Self {
        let metrics = Self {
            calls: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            failed: Family::default(),
            orphans: Gauge::default(),
        };
        into.register(|registry| {
            registry.register(
                "ccm_provider_calls",
                "Calls to the cloud",
                metrics.calls.clone(),
            );
            registry.register(
                "ccm_provider_call_duration_seconds",
                "Time of calls to the cloud",
                metrics.durations.clone(),
            );
            registry.register(
                "ccm_failed_changes",
                "Changes of load balancers that failed",
                metrics.failed.clone(),
            );
            registry.register(
                "ccm_orphans",
                "Load balancers of this cluster without a Service",
                metrics.orphans.clone(),
            );
        });
        metrics
    }

    pub(crate) fn called(&self, call: &'static str, time: Duration, error: Option<Kind>) {
        let result = error.map_or("ok", Kind::as_str);
        self.calls.get_or_create(&Result { call, result }).inc();
        let duration = self.durations.get_or_create(&Call { call });
        duration.observe(time.as_secs_f64());
    }

    pub(crate) fn failed(&self, call: &'static str) {
        self.failed.get_or_create(&Call { call }).inc();
    }

    pub(crate) fn orphans(&self, number: usize) {
        self.orphans.set(i64::try_from(number).unwrap_or(i64::MAX));
    }
}
