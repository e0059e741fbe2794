//! Counters of the reads of certificates.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Reads of certificates, under controller-runtime's names: `certwatcher_read_certificate_total` and
/// `certwatcher_read_certificate_errors_total`. Clones count into the same series.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub(super) reads: Counter,
    pub(super) errors: Counter,
}

// === impl Metrics ===

impl Metrics {
    /// Adds the counters to `registry`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // The encoder adds `_total`.
        registry.register(
            "certwatcher_read_certificate",
            "Times certificates of servers were read",
            metrics.reads.clone(),
        );
        registry.register(
            "certwatcher_read_certificate_errors",
            "Times certificates of servers could not be read, or not be used",
            metrics.errors.clone(),
        );
        metrics
    }
}
