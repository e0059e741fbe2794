//! The metrics of the operator. No label holds an address or a text of users.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::decide::{Cause, Coverage};
use crate::engine::Kind;
use crate::guard;
use crate::policy::RefusalKind;
use crate::trigger;

/// The operator's own metrics. Clones count together.
#[derive(Clone, Debug)]
pub struct Metrics {
    bans: Family<BanLabels, Counter>,
    unbans: Family<CauseLabel, Counter>,
    expiry_lag: Histogram,
    drift_repaired: Family<EngineLabel, Counter>,
    skipped: Family<ReasonLabel, Counter>,
    released: Counter,
    collected: Counter,
    collections_refused: Counter,
    clock_ahead: Gauge,
    config_reloads: Family<ResultLabel, Counter>,
    guard: guard::Metrics,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BanLabels {
    source: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// The name of an engine, as configured.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct EngineLabel {
    engine: String,
}

// === impl EngineLabel ===

impl EngineLabel {
    pub(crate) fn new(engine: &str) -> Self {
        Self {
            engine: engine.to_owned(),
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// Counts from zero, not yet registered.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bans: Family::default(),
            unbans: Family::default(),
            expiry_lag: Histogram::new([
                0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0,
                300.0, 3600.0,
            ]),
            drift_repaired: Family::default(),
            skipped: Family::default(),
            released: Counter::default(),
            collected: Counter::default(),
            collections_refused: Counter::default(),
            clock_ahead: Gauge::default(),
            config_reloads: Family::default(),
            guard: guard::Metrics::default(),
        }
    }

    /// Those of the guard rails.
    #[must_use]
    pub fn guard(&self) -> &guard::Metrics {
        &self.guard
    }

    /// Shows these metrics, and the number of bans in `coverage`, in `registry`.
    pub fn register(&self, registry: &mut Registry, coverage: &Arc<Mutex<Coverage>>) {
        registry.register(
            "ipblock_bans",
            "Bans by an engine, by the block's source and by result",
            self.bans.clone(),
        );
        registry.register(
            "ipblock_unbans",
            "Bans lifted, by cause",
            self.unbans.clone(),
        );
        registry.register(
            "ipblock_expiry_lag_seconds",
            "How long after it was due a ban was lifted",
            self.expiry_lag.clone(),
        );
        registry.register(
            "ipblock_drift_repaired",
            "Bans that an engine had lost and took again, and targets that it had gained, by engine",
            self.drift_repaired.clone(),
        );
        registry.register(
            "ipblock_skipped",
            "Blocks that were refused, by the kind of rule",
            self.skipped.clone(),
        );
        registry.register(
            "ipblock_released",
            "Deleted blocks released without lifting their ban, by annotation",
            self.released.clone(),
        );
        registry.register(
            "ipblock_collected",
            "Blocks deleted because their ban ended long ago",
            self.collected.clone(),
        );
        registry.register(
            "ipblock_collections_refused",
            "Deletions of blocks whose ban ended long ago that the API server refused because the right is missing",
            self.collections_refused.clone(),
        );
        registry.register(
            "ipblock_clock_ahead_seconds",
            "How far the node's clock is ahead of the API server's (negative: behind), when bans end by the latter",
            self.clock_ahead.clone(),
        );
        registry.register(
            "ipblock_config_reloads",
            "Configurations read, by result",
            self.config_reloads.clone(),
        );
        self.guard.register(registry);
        registry.register_collector(Box::new(Active(Arc::clone(coverage))));
        // Present from the start, so that a rate over them is zero and not missing.
        for cause in [
            Cause::Expired,
            Cause::Unblocked,
            Cause::Deleted,
            Cause::Refused,
            Cause::Rejected,
        ] {
            drop(self.unbans.get_or_create(&CauseLabel {
                cause: cause_label(cause),
            }));
        }
        for kind in [Kind::Iptables, Kind::Xdp, Kind::DryRun] {
            self.drift_repaired(kind.name(), 0);
        }
        for result in ["success", "refused"] {
            drop(self.config_reloads.get_or_create(&ResultLabel { result }));
        }
        for result in ["success", "failed"] {
            drop(self.bans.get_or_create(&BanLabels {
                source: "manual",
                result,
            }));
        }
    }

    pub(crate) fn banned(&self, source: Option<&str>, success: bool) {
        let labels = BanLabels {
            source: source_label(source),
            result: if success { "success" } else { "failed" },
        };
        self.bans.get_or_create(&labels).inc();
    }

    pub(crate) fn lifted(&self, cause: Cause, late: Option<Duration>) {
        self.unbans
            .get_or_create(&CauseLabel {
                cause: cause_label(cause),
            })
            .inc();
        if let Some(late) = late {
            self.expiry_lag.observe(late.as_secs_f64());
        }
    }

    pub(crate) fn skipped(&self, kind: RefusalKind) {
        let reason = match kind {
            RefusalKind::Allowlisted => "allowlisted",
            RefusalKind::Protected => "protected",
            RefusalKind::TooWide => "range_too_wide",
        };
        self.skipped.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// `count` bans that `engine` had lost, or targets that it had gained.
    pub(crate) fn drift_repaired(&self, engine: &str, count: u64) {
        let label = EngineLabel::new(engine);
        self.drift_repaired.get_or_create(&label).inc_by(count);
    }

    pub(crate) fn released(&self) {
        self.released.inc();
    }

    pub(crate) fn collected(&self) {
        self.collected.inc();
    }

    pub(crate) fn collection_refused(&self) {
        self.collections_refused.inc();
    }

    pub(crate) fn clock_ahead(&self, ahead: SignedDuration) {
        self.clock_ahead.set(ahead.as_secs());
        self.guard.brake("clock", !ahead.is_zero());
    }

    pub(crate) fn config_read(&self, success: bool) {
        let result = if success { "success" } else { "refused" };
        self.config_reloads
            .get_or_create(&ResultLabel { result })
            .inc();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn cause_label(cause: Cause) -> &'static str {
    match cause {
        Cause::Expired => "expired",
        Cause::Unblocked => "unblocked",
        Cause::Deleted => "deleted",
        Cause::Refused => "refused",
        Cause::Rejected => "rejected",
    }
}

/// Sources are texts of users; only well-known ones become a label: the types of triggers, and these.
fn source_label(source: Option<&str>) -> &'static str {
    const OTHERS: [&str; 5] = ["manual", "webhook", "kubectl", "crowdsec", "feed"];
    let Some(source) = source.filter(|source| !source.is_empty()) else {
        return "none";
    };
    let triggers = trigger::Kind::ALL.iter().map(|kind| kind.name());
    let mut known = triggers.chain(OTHERS);
    known.find(|name| *name == source).unwrap_or("other")
}

/// `ipblock_active{engine}`, counted at a scrape.
struct Active(Arc<Mutex<Coverage>>);

impl Collector for Active {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts: BTreeMap<String, i64> = self.0.lock().by_engine();
        let mut active = encoder.encode_descriptor(
            "ipblock_active",
            "Bans that stand, by engine",
            None,
            prometheus_client::metrics::MetricType::Gauge,
        )?;
        for (engine, count) in counts {
            let labels = [("engine", engine)];
            let gauge = ConstGauge::new(count);
            gauge.encode(active.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Active {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Active").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Place, Standing};
    use jiff::Timestamp;

    #[test]
    fn a_ban_counts_as_active_after_its_first_success_and_not_while_it_is_tried() {
        let coverage = Arc::new(Mutex::new(Coverage::default()));
        let mut registry = Registry::default();
        Metrics::new().register(&mut registry, &coverage);
        let active = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text.contains("ipblock_active{engine=\"xdp\"} 1")
        };
        let standing = Standing {
            target: "192.0.2.7".parse().unwrap(),
            place: Place::new("xdp", "g:1"),
        };
        coverage.lock().set("default/a", standing.clone(), None);
        assert!(!active(), "no engine was called yet");
        let now = tokio::time::Instant::now();
        coverage.lock().asserted("default/a", now);
        assert!(active());
        coverage
            .lock()
            .set("default/a", standing, Some(Timestamp::MAX));
        coverage
            .lock()
            .recheck(&"192.0.2.7".parse().unwrap(), "other/b");
        assert!(active(), "an assertion that is due does not end a ban");
    }

    #[test]
    fn the_names_are_the_documented_ones_and_no_label_holds_users_text() {
        let metrics = Metrics::new();
        let coverage = Arc::new(Mutex::new(Coverage::default()));
        let mut registry = Registry::default();
        metrics.register(&mut registry, &coverage);
        let standing = Standing {
            target: "192.0.2.7".parse().unwrap(),
            place: Place::new("xdp", "g:1"),
        };
        coverage.lock().recall("default/a", standing, None);
        metrics.banned(Some("192.0.2.7"), true);
        metrics.lifted(Cause::Expired, Some(Duration::from_millis(2)));
        metrics.skipped(RefusalKind::Allowlisted);
        metrics.drift_repaired("xdp", 1);
        metrics.config_read(false);
        metrics.collected();
        metrics.collection_refused();
        metrics.clock_ahead(SignedDuration::from_secs(-90));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "ipblock_active{engine=\"xdp\"} 1",
            "ipblock_bans_total{source=\"other\",result=\"success\"} 1",
            "ipblock_unbans_total{cause=\"expired\"} 1",
            "ipblock_expiry_lag_seconds_count 1",
            "ipblock_drift_repaired_total{engine=\"xdp\"} 1",
            "ipblock_skipped_total{reason=\"allowlisted\"} 1",
            "ipblock_config_reloads_total{result=\"refused\"} 1",
            "ipblock_collected_total 1",
            "ipblock_collections_refused_total 1",
            "ipblock_clock_ahead_seconds -90",
        ] {
            assert!(text.contains(line), "{line} is missing in:\n{text}");
        }
        assert!(!text.contains("192.0.2.7"));
    }
}
