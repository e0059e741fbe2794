//! The metrics of calls to gateways.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// `ipblock_engine_request_seconds{engine,op,outcome}`. Cloning is cheap; clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<Labels, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    engine: &'static str,
    op: &'static str,
    outcome: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// Counts from zero, not yet registered.
    #[must_use]
    pub fn new() -> Self {
        Self {
            requests: Family::new_with_constructor(|| {
                Histogram::new([
                    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
                ])
            }),
        }
    }

    /// Shows these metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "ipblock_engine_request_seconds",
            "Time of calls to the engine, without their wait for a turn, by outcome",
            self.requests.clone(),
        );
    }

    pub(crate) fn called(
        &self,
        engine: &'static str,
        op: &'static str,
        outcome: &'static str,
        took: Duration,
    ) {
        let labels = Labels {
            engine,
            op,
            outcome,
        };
        self.requests
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
