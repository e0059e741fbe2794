//! What the audit log counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Lines by what became of them. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    lines: Family<OutcomeLabel, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// Shows these metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "ipblock_audit_lines",
            "Lines of the audit log: written, dropped because the queue was full",
            self.lines.clone(),
        );
    }

    pub(crate) fn written(&self, count: u64) {
        self.count("written", count);
    }

    pub(crate) fn dropped(&self, count: u64) {
        self.count("dropped", count);
    }

    fn count(&self, outcome: &'static str, count: u64) {
        let labels = OutcomeLabel { outcome };
        self.lines.get_or_create(&labels).inc_by(count);
    }

    #[cfg(test)]
    pub(crate) fn counts(&self) -> [u64; 2] {
        ["written", "dropped"]
            .map(|outcome| self.lines.get_or_create(&OutcomeLabel { outcome }).get())
    }
}
