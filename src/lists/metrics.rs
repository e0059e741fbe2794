//! The metrics of lists.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What is counted of all lists together. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    lists: Gauge,
    entries: Family<StateLabel, Gauge>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// Shows these metrics in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "ipblock_lists",
            "Objects of the kind BlockList",
            self.lists.clone(),
        );
        registry.register(
            "ipblock_list_entries",
            "Entries of BlockLists when each was last read, by state: accepted, refused, ended, or held by the brake on lifts (those are accepted too)",
            self.entries.clone(),
        );
    }

    /// There are so many lists and entries now.
    pub(crate) fn counted(&self, lists: usize, states: [(&'static str, usize); 4]) {
        self.lists.set(number(lists));
        for (state, count) in states {
            self.entries
                .get_or_create(&StateLabel { state })
                .set(number(count));
        }
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
