//! Metrics of a rotation.

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics of a rotation. Clones count into the same series.
///
/// | name | is |
/// |---|---|
/// | `reeve_webhook_certificate_not_after_seconds` | the end of the certificate in use, in seconds since 1970 |
/// | `reeve_webhook_authority_not_after_seconds` | the end of the authority that signs |
/// | `reeve_webhook_rotation_errors_total` | failed looks at the Secret and the configurations |
#[derive(Clone, Debug, Default)]
pub struct RotationMetrics {
    certificate: Gauge,
    authority: Gauge,
    pub(super) errors: Counter,
}

// === impl RotationMetrics ===

impl RotationMetrics {
    /// Adds the metrics to `registry`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "reeve_webhook_certificate_not_after_seconds",
            "End of the certificate of the webhook server, in seconds since 1970",
            metrics.certificate.clone(),
        );
        registry.register(
            "reeve_webhook_authority_not_after_seconds",
            "End of the authority that signs certificates of the webhook server, in seconds since 1970",
            metrics.authority.clone(),
        );
        // The encoder adds `_total`.
        registry.register(
            "reeve_webhook_rotation_errors",
            "Times the Secret of the webhook server or a configuration could not be read or written",
            metrics.errors.clone(),
        );
        metrics
    }

    pub(super) fn show(&self, certificate: Timestamp, authority: Timestamp) {
        self.certificate.set(certificate.as_second());
        self.authority.set(authority.as_second());
    }
}
