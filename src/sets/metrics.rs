//! The metrics of set engines. The label `engine` has the names of the configuration.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::metrics::EngineLabel;

/// What set engines count. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    desired: Family<EngineLabel, Gauge>,
    enforced: Family<EngineLabel, Gauge>,
    unsupported: Family<EngineLabel, Gauge>,
    overflow: Family<EngineLabel, Gauge>,
    batches: Family<BatchLabels, Counter>,
    agents: Family<AgentLabels, Gauge>,
    unbound: Gauge,
    stale: Gauge,
    readers: Family<EngineLabel, Gauge>,
    refused: Family<EngineLabel, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BatchLabels {
    engine: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AgentLabels {
    engine: String,
    state: &'static str,
}

/// How much of the desired set one engine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) desired: usize,
    pub(crate) enforced: usize,
    pub(crate) unsupported: usize,
    pub(crate) overflow: usize,
}

// === impl Metrics ===

impl Metrics {
    /// Shows these metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "ipblock_engine_desired",
            "Targets that a set engine should block",
            self.desired.clone(),
        );
        registry.register(
            "ipblock_engine_enforced",
            "Targets that a set engine has taken",
            self.enforced.clone(),
        );
        registry.register(
            "ipblock_engine_unsupported",
            "Targets that a set engine cannot express",
            self.unsupported.clone(),
        );
        registry.register(
            "ipblock_engine_overflow",
            "Targets beyond the limit of a set engine",
            self.overflow.clone(),
        );
        registry.register(
            "ipblock_engine_batches",
            "Batches of changes sent to a set engine, by outcome",
            self.batches.clone(),
        );
        registry.register(
            "ipblock_agents",
            "Agents that reported to this replica lately, by state",
            self.agents.clone(),
        );
        registry.register(
            "ipblock_engines_unbound",
            "Addresses of set engines that cannot be listened at",
            self.unbound.clone(),
        );
        registry.register(
            "ipblock_lists_stale",
            "1 while this replica does not serve its lists, because it cannot follow the blocks",
            self.stale.clone(),
        );
        registry.register(
            "ipblock_engine_readers",
            "Requests that a served engine answers or that wait for a change",
            self.readers.clone(),
        );
        registry.register(
            "ipblock_engine_refused_readers",
            "Requests that a served engine refused because there were too many",
            self.refused.clone(),
        );
    }

    pub(crate) fn counted(&self, engine: &Arc<str>, counts: Counts) {
        let label = EngineLabel::new(engine);
        let set = |family: &Family<EngineLabel, Gauge>, count: usize| {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            family.get_or_create(&label).set(count);
        };
        set(&self.desired, counts.desired);
        set(&self.enforced, counts.enforced);
        set(&self.unsupported, counts.unsupported);
        set(&self.overflow, counts.overflow);
    }

    pub(crate) fn batch(&self, engine: &str, success: bool) {
        for (outcome, one) in [("ok", success), ("failed", !success)] {
            let labels = BatchLabels {
                engine: engine.to_owned(),
                outcome,
            };
            self.batches.get_or_create(&labels).inc_by(u64::from(one));
        }
    }

    pub(crate) fn agents(&self, engine: &str, state: &'static str, count: usize) {
        let labels = AgentLabels {
            engine: engine.to_owned(),
            state,
        };
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.agents.get_or_create(&labels).set(count);
    }

    /// How many readers of an engine are current, behind and failed.
    #[cfg(test)]
    pub(super) fn agents_of(&self, engine: &str) -> [i64; 3] {
        super::list::STATES.map(|state| {
            let engine = engine.to_owned();
            let gauge = self.agents.get(&AgentLabels { engine, state });
            gauge.map_or(0, |it| it.get())
        })
    }

    pub(crate) fn readers(&self, engine: &str, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let readers = self.readers.get_or_create(&EngineLabel::new(engine));
        readers.set(count);
    }

    /// How many readers an engine shows; `None`: it has no gauge.
    #[cfg(test)]
    pub(super) fn readers_of(&self, engine: &str) -> Option<i64> {
        let gauge = self.readers.get(&EngineLabel::new(engine));
        gauge.map(|it| it.get())
    }

    pub(crate) fn refused(&self, engine: &str) {
        self.refused.get_or_create(&EngineLabel::new(engine)).inc();
    }

    pub(crate) fn stale(&self, stale: bool) {
        self.stale.set(i64::from(stale));
    }

    pub(crate) fn unbound(&self, count: usize) {
        self.unbound.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Drops the gauges of an engine that is not configured any more.
    pub(crate) fn forget(&self, engine: &str) {
        let label = EngineLabel::new(engine);
        for family in [
            &self.desired,
            &self.enforced,
            &self.unsupported,
            &self.overflow,
            &self.readers,
        ] {
            family.remove(&label);
        }
        self.forget_agents(engine);
    }

    /// Drops the numbers of readers of an engine that has another type now.
    pub(crate) fn forget_agents(&self, engine: &str) {
        for state in super::list::STATES {
            self.agents.remove(&AgentLabels {
                engine: engine.to_owned(),
                state,
            });
        }
    }
}
