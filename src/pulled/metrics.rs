//! The metrics of sources.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// `ipblock_source_pulls_total{source,outcome}`, `ipblock_source_entries{source,state}`, `ipblock_source_lists{source}` and
/// `ipblock_source_list_writes_total{source,outcome}`. Cloning is cheap; clones count together.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pulls: Family<Pull, Counter>,
    entries: Family<State, Gauge>,
    lists: Family<Name, Gauge>,
    writes: Family<Pull, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pull {
    source: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    source: String,
    state: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// Shows these metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "ipblock_source_pulls",
            "Pulls of sources by outcome: changed, unchanged, failed, unwritten",
            self.pulls.clone(),
        );
        registry.register(
            "ipblock_source_entries",
            "Entries of sources: listed, left_out because they are wrong or too many, and held: not listed any more, and not lifted because of the brake",
            self.entries.clone(),
        );
        registry.register(
            "ipblock_source_lists",
            "BlockLists of sources with objects: BlockList",
            self.lists.clone(),
        );
        registry.register(
            "ipblock_source_list_writes",
            "Writes of BlockLists of sources by outcome: written, deleted, failed",
            self.writes.clone(),
        );
    }

    pub(crate) fn pulled(&self, source: &str, outcome: &'static str) {
        let source = source.to_owned();
        let labels = Pull { source, outcome };
        self.pulls.get_or_create(&labels).inc();
    }

    pub(crate) fn lists(&self, source: &str, listed: usize, left_out: usize) {
        for (state, count) in [("listed", listed), ("left_out", left_out)] {
            let source = source.to_owned();
            let labels = State { source, state };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.entries.get_or_create(&labels).set(count);
        }
    }

    pub(crate) fn held(&self, source: &str, held: usize) {
        let (source, state) = (source.to_owned(), "held");
        let held = i64::try_from(held).unwrap_or(i64::MAX);
        self.entries
            .get_or_create(&State { source, state })
            .set(held);
    }

    /// The source has so many BlockLists.
    pub(crate) fn kept(&self, source: &str, lists: usize) {
        let source = source.to_owned();
        let lists = i64::try_from(lists).unwrap_or(i64::MAX);
        self.lists.get_or_create(&Name { source }).set(lists);
    }

    pub(crate) fn wrote(&self, source: &str, outcome: &'static str) {
        let source = source.to_owned();
        let labels = Pull { source, outcome };
        self.writes.get_or_create(&labels).inc();
    }

    /// A source that is not pulled any more lists nothing.
    pub(super) fn forget(&self, source: &str) {
        for state in ["listed", "left_out", "held"] {
            let source = source.to_owned();
            self.entries.remove(&State { source, state });
        }
        let source = source.to_owned();
        self.lists.remove(&Name { source });
    }

    #[cfg(test)]
    pub(super) fn held_now(&self, source: &str) -> i64 {
        let (source, state) = (source.to_owned(), "held");
        self.entries.get_or_create(&State { source, state }).get()
    }

    #[cfg(test)]
    pub(super) fn writes(&self, source: &str, outcome: &'static str) -> u64 {
        let source = source.to_owned();
        self.writes.get_or_create(&Pull { source, outcome }).get()
    }

    #[cfg(test)]
    pub(super) fn pulls(&self, source: &str, outcome: &'static str) -> u64 {
        let source = source.to_owned();
        self.pulls.get_or_create(&Pull { source, outcome }).get()
    }
}
