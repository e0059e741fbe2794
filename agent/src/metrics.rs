//! The metrics of the agent, as Prometheus scrapes them. No label holds an address.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use crate::guard::Refusal;
use crate::interval;
use crate::nft;

/// The metrics. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub(crate) entries: Family<FamilyLabel, Gauge>,
    pub(crate) applied: Counter,
    pub(crate) errors: Family<KindLabel, Counter>,
    pub(crate) drift_repaired: Counter,
    pub(crate) table_restored: Counter,
    pub(crate) refused: Family<ReasonLabel, Gauge>,
    pub(crate) held: Gauge,
    dropped_packets: Family<FamilyLabel, Counter>,
    dropped_bytes: Family<FamilyLabel, Counter>,
    age: Gauge<f64, AtomicU64>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FamilyLabel {
    family: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Default)]
struct Kept {
    /// When the operator last answered.
    answered: Option<Instant>,
    /// When the agent started.
    started: Option<Instant>,
    /// The kernel's counters at the last look, which begin at zero with each new table.
    counters: [nft::Counter; 2],
}

// === impl Metrics ===

impl Metrics {
    /// Metrics that start now.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Self::default();
        metrics.kept.lock().started = Some(Instant::now());
        for family in interval::Family::ALL {
            metrics.set_entries(family, 0);
        }
        metrics.count([nft::Counter::default(); 2]);
        for reason in Refusal::ALL {
            metrics.refuse(reason, 0);
        }
        metrics
    }

    /// Registers everything.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "ipblock_agent_entries",
            "Elements in the kernel's sets; a range, or several entries side by side, are one",
            self.entries.clone(),
        );
        registry.register(
            "ipblock_agent_applied",
            "Changes that the kernel took",
            self.applied.clone(),
        );
        registry.register(
            "ipblock_agent_errors",
            "Errors, of the list (connect, timeout, credentials, status, list) and of the kernel (netlink, netlink_refused, netlink_interrupted, panic)",
            self.errors.clone(),
        );
        registry.register(
            "ipblock_agent_drift_repaired",
            "Elements that were not as the list has them, and were repaired without a change of the list",
            self.drift_repaired.clone(),
        );
        registry.register(
            "ipblock_agent_table_restored",
            "How often the table was missing or damaged, and it or its chain was made again",
            self.table_restored.clone(),
        );
        registry.register(
            "ipblock_agent_refused",
            "Entries of the list that this node does not ban",
            self.refused.clone(),
        );
        registry.register(
            "ipblock_agent_held_lifts",
            "Elements that stay although the list lifts them, until an answer after a pause confirms it",
            self.held.clone(),
        );
        registry.register(
            "ipblock_agent_dropped_packets",
            "Packets that were dropped since the agent started",
            self.dropped_packets.clone(),
        );
        registry.register_with_unit(
            "ipblock_agent_dropped",
            "Bytes that were dropped since the agent started",
            Unit::Bytes,
            self.dropped_bytes.clone(),
        );
        registry.register_with_unit(
            "ipblock_agent_list_age",
            "Time since the operator last sent or confirmed the list; since the start before its first answer",
            Unit::Seconds,
            self.age.clone(),
        );
    }

    /// The text of a scrape.
    #[must_use]
    pub fn scrape(&self, registry: &Registry) -> String {
        let since = {
            let kept = self.kept.lock();
            kept.answered.or(kept.started)
        };
        self.age
            .set(since.map_or(0.0, |since| since.elapsed().as_secs_f64()));
        reeve_serve::metrics::encode(registry)
    }

    pub(crate) fn answered(&self) {
        self.kept.lock().answered = Some(Instant::now());
    }

    pub(crate) fn error(&self, kind: &'static str) {
        self.errors.get_or_create(&KindLabel { kind }).inc();
    }

    pub(crate) fn refuse(&self, reason: Refusal, count: usize) {
        let reason = reason.name();
        self.refused
            .get_or_create(&ReasonLabel { reason })
            .set(count.try_into().unwrap_or(i64::MAX));
    }

    pub(crate) fn set_entries(&self, family: interval::Family, count: usize) {
        self.entries
            .get_or_create(&label(family))
            .set(count.try_into().unwrap_or(i64::MAX));
    }

    /// Takes the kernel's counters at the start: what was dropped before is not counted.
    pub(crate) fn start_counters(&self, counters: [nft::Counter; 2]) {
        self.kept.lock().counters = counters;
    }

    /// Adds what was dropped since the last look.
    pub(crate) fn count(&self, counters: [nft::Counter; 2]) {
        let mut kept = self.kept.lock();
        for (family, (now, before)) in interval::Family::ALL
            .into_iter()
            .zip(counters.into_iter().zip(kept.counters))
        {
            // A counter that went back is one of a new table.
            let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
            self.dropped_packets
                .get_or_create(&label(family))
                .inc_by(since(now.packets, before.packets));
            self.dropped_bytes
                .get_or_create(&label(family))
                .inc_by(since(now.bytes, before.bytes));
        }
        kept.counters = counters;
    }
}

fn label(family: interval::Family) -> FamilyLabel {
    FamilyLabel {
        family: family.name(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn counters_go_on_when_the_table_is_made_again() {
        let metrics = Metrics::new();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let counters = |packets| {
            let counter = nft::Counter {
                packets,
                bytes: packets * 60,
            };
            [counter, nft::Counter::default()]
        };
        metrics.start_counters(counters(100));
        for packets in [103, 110, 2] {
            metrics.count(counters(packets));
        }
        tokio::time::advance(Duration::from_secs(7)).await;
        let text = metrics.scrape(&registry);
        for line in [
            "ipblock_agent_dropped_packets_total{family=\"v4\"} 12",
            "ipblock_agent_dropped_bytes_total{family=\"v4\"} 720",
            "ipblock_agent_dropped_packets_total{family=\"v6\"} 0",
            "ipblock_agent_refused{reason=\"node\"} 0",
            "ipblock_agent_list_age_seconds 7.0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        metrics.answered();
        assert!(
            metrics
                .scrape(&registry)
                .contains("ipblock_agent_list_age_seconds 0.0")
        );
    }
}
