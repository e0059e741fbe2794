//! Metrics of the guard.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::audit::Record;

/// Counters of decisions and of production objects that disappeared. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    decisions: Family<Vec<(&'static str, String)>, Counter>,
    gone: Counter,
}

// === impl Metrics ===

impl Metrics {
    /// Adds the counters to `registry`: `preguard_decisions_total` and `preguard_production_objects_gone_total`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "preguard_decisions",
            "Decisions about requests, and recorded deletions",
            self.decisions.clone(),
        );
        registry.register(
            "preguard_production_objects_gone",
            "Production objects that disappeared without a record of their deletion",
            self.gone.clone(),
        );
    }

    /// Counts a decision.
    pub fn count(&self, record: &Record) {
        let rule = serde_json::json!(record.rule);
        let labels = vec![
            ("decision", record.decision.to_owned()),
            ("rule", rule.as_str().unwrap_or_default().to_owned()),
        ];
        self.decisions.get_or_create(&labels).inc();
    }

    /// Counts an object that disappeared.
    pub(crate) fn count_gone(&self) {
        self.gone.inc();
    }
}
