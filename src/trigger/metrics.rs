//! The metrics of the triggers.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// `ipblock_webhook_requests_total{trigger,code}`, `ipblock_alerts_missed_total{trigger,cause}`, `ipblock_debounced_total`,
/// `ipblock_graced_total` and `ipblock_triggers_unbound`. Cloning is cheap; clones count together.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    requests: Family<Request, Counter>,
    missed: Family<Missed, Counter>,
    pub(super) debounced: Counter,
    pub(super) graced: Counter,
    pub(super) unbound: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    trigger: String,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Missed {
    trigger: String,
    cause: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// Shows these metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "ipblock_webhook_requests",
            "Requests to the triggers, by the status of the answer",
            self.requests.clone(),
        );
        registry.register(
            "ipblock_alerts_missed",
            "Alerts that the sender left out of a request (truncated), and those past the limit of a request (limit)",
            self.missed.clone(),
        );
        registry.register(
            "ipblock_debounced",
            "Alerts left alone because their address was written a moment ago",
            self.debounced.clone(),
        );
        registry.register(
            "ipblock_graced",
            "Alerts that banned nothing because their address was lifted by hand a moment ago (unblockGrace)",
            self.graced.clone(),
        );
        registry.register(
            "ipblock_triggers_unbound",
            "Addresses of triggers that cannot be bound, tried again every ten seconds",
            self.unbound.clone(),
        );
    }

    pub(crate) fn answered(&self, trigger: &str, code: u16) {
        let labels = Request {
            trigger: trigger.to_owned(),
            code,
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts alerts of a request that were not read: those that the sender left out, and those past the limit. Zero of
    /// both serves the counters.
    pub(crate) fn missed(&self, trigger: &str, left_out: u64, not_read: u64) {
        for (cause, count) in [("truncated", left_out), ("limit", not_read)] {
            let trigger = trigger.to_owned();
            let missed = self.missed.get_or_create(&Missed { trigger, cause });
            missed.inc_by(count);
        }
    }

    #[cfg(test)]
    pub(super) fn answered_so_far(&self, trigger: &str, code: u16) -> u64 {
        let trigger = trigger.to_owned();
        self.requests
            .get_or_create(&Request { trigger, code })
            .get()
    }

    #[cfg(test)]
    pub(super) fn missed_so_far(&self, trigger: &str, cause: &'static str) -> u64 {
        let trigger = trigger.to_owned();
        self.missed.get_or_create(&Missed { trigger, cause }).get()
    }
}
