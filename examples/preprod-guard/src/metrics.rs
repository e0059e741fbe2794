//! Metrics of the guard.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::audit::Line;
use crate::detector::Change;

/// Counters of decisions, of changes without a record, and of what was dropped. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    decisions: Family<Vec<(&'static str, String)>, Counter>,
    gone: Counter,
    unmarked: Counter,
    dropped_records: Counter,
    dropped_lines: Counter,
}

// === impl Metrics ===

impl Metrics {
    /// Adds the counters to `registry`: `preguard_decisions_total`, `preguard_production_objects_gone_total`,
    /// `preguard_production_marks_lost_total`, `preguard_records_dropped_total` and `preguard_audit_lines_dropped_total`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "preguard_decisions",
            "Decisions about requests, and recorded deletions",
            self.decisions.clone(),
        );
        registry.register(
            "preguard_production_objects_gone",
            "Production objects whose deletion has no record",
            self.gone.clone(),
        );
        registry.register(
            "preguard_production_marks_lost",
            "Production objects that lost their label without a record",
            self.unmarked.clone(),
        );
        registry.register(
            "preguard_records_dropped",
            "Records that were dropped because too many waited to be written",
            self.dropped_records.clone(),
        );
        registry.register(
            "preguard_audit_lines_dropped",
            "Lines of the audit log that were dropped because too many waited to be written",
            self.dropped_lines.clone(),
        );
    }

    /// Counts a decision.
    pub fn count(&self, record: &Line) {
        let rule = serde_json::json!(record.rule);
        let labels = vec![
            ("decision", record.decision.to_owned()),
            ("rule", rule.as_str().unwrap_or_default().to_owned()),
        ];
        self.decisions.get_or_create(&labels).inc();
    }

    /// Counts a change without a record.
    pub(crate) fn count_gone(&self, change: Change) {
        match change {
            Change::Deletion => self.gone.inc(),
            Change::Unmarked => self.unmarked.inc(),
        };
    }

    /// Counts a record that was dropped.
    pub(crate) fn count_dropped_record(&self) {
        self.dropped_records.inc();
    }

    /// Counts a line of the audit log that was dropped.
    pub(crate) fn count_dropped_line(&self) {
        self.dropped_lines.inc();
    }
}
