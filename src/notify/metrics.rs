//! The metrics of notifications.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// `ipblock_notifications_total{channel,outcome}`. Cloning is cheap; clones count together.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    notifications: Family<Labels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    channel: String,
    outcome: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// Shows these metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "ipblock_notifications",
            "Notifications by outcome: sent, retried, failed, dropped, digested",
            self.notifications.clone(),
        );
    }

    pub(crate) fn count(&self, channel: &str, outcome: &'static str, by: u64) {
        let channel = channel.to_owned();
        let labels = Labels { channel, outcome };
        self.notifications.get_or_create(&labels).inc_by(by);
    }

    #[cfg(test)]
    pub(super) fn get(&self, channel: &str, outcome: &'static str) -> u64 {
        let channel = channel.to_owned();
        let labels = Labels { channel, outcome };
        self.notifications.get_or_create(&labels).get()
    }
}
