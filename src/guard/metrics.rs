//! What the guard rails count.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::held::Held;

/// The kind of addresses that are found by the names of load balancers.
pub(super) const NAMES: &str = "names";

/// The metrics of the guard rails. Clones count together. Labels hold sources only that the configuration names.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    limited: Family<LimitLabels, Counter>,
    waiting: Family<ReasonLabel, Gauge>,
    brake: Family<KindLabel, Gauge>,
    shadow: Family<SourceLabel, Counter>,
    ranges: Family<KindLabel, Gauge>,
    discovery_failing: Family<KindLabel, Gauge>,
    losses: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
    scope: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SourceLabel {
    source: String,
}

// === impl Metrics ===

impl Metrics {
    /// Shows these metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "ipblock_limited",
            "Blocks that had to wait for a cap or the brake, by cap and scope",
            self.limited.clone(),
        );
        registry.register(
            "ipblock_waiting",
            "Blocks that wait for a cap or the brake",
            self.waiting.clone(),
        );
        registry.register(
            "ipblock_brake",
            "Whether a brake is engaged: bans, lifts, alerts, sources, or the clock",
            self.brake.clone(),
        );
        registry.register(
            "ipblock_shadow",
            "Bans that were not made because their source is in shadow mode",
            self.shadow.clone(),
        );
        registry.register(
            "ipblock_protected_ranges",
            "Ranges of the cluster that are protected, by kind",
            self.ranges.clone(),
        );
        registry.register(
            "ipblock_discovery_failing",
            "Whether a kind whose addresses are protected cannot be read, or a name of a load balancer cannot be resolved",
            self.discovery_failing.clone(),
        );
        registry.register(
            "ipblock_gateway_losses",
            "Times that a gateway was found without bans that it had taken",
            self.losses.clone(),
        );
        for kind in ["bans", "lifts", "alerts", "sources", "clock"] {
            self.brake(kind, false);
        }
        for reason in ["active", "rate", "brake"] {
            self.waiting(reason, 0);
            let labels = LimitLabels {
                limit: reason,
                scope: "all",
            };
            drop(self.limited.get_or_create(&labels));
        }
        for kind in ["nodes", "services", "servicecidrs", NAMES] {
            self.ranges(kind, 0);
            self.discovery(kind, false);
        }
    }

    pub(crate) fn limited(&self, held: &Held) {
        let labels = LimitLabels {
            limit: held.kind(),
            scope: held.scope().kind(),
        };
        self.limited.get_or_create(&labels).inc();
    }

    pub(crate) fn waiting(&self, reason: &'static str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.waiting
            .get_or_create(&ReasonLabel { reason })
            .set(count);
    }

    pub(crate) fn brake(&self, kind: &'static str, engaged: bool) {
        self.brake
            .get_or_create(&KindLabel { kind })
            .set(engaged.into());
    }

    pub(crate) fn shadowed(&self, source: &str) {
        let source = source.to_owned();
        self.shadow.get_or_create(&SourceLabel { source }).inc();
    }

    pub(crate) fn ranges(&self, kind: &'static str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.ranges.get_or_create(&KindLabel { kind }).set(count);
    }

    pub(crate) fn discovery(&self, kind: &'static str, failing: bool) {
        self.discovery_failing
            .get_or_create(&KindLabel { kind })
            .set(failing.into());
    }

    pub(crate) fn gateway_lost(&self) {
        self.losses.inc();
    }
}
