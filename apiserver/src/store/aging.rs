//! Time that passes for the store alone: Events and history become older at once.

use std::time::Duration;

use tokio::time::Instant;

use super::history::earlier;
use super::objects::Store;

// === impl Store ===

impl Store {
    /// Makes history and Events older by this time. The background task removes those that are too old.
    pub(crate) fn age(&self, by: Duration) {
        {
            let mut state = self.state.write();
            for table in state.tables.values_mut() {
                table.age(by);
            }
            for (since, table) in state.retired.values_mut() {
                *since = earlier(*since, by);
                table.age(by);
            }
            state.ages.age(by);
            state.upkeep_at = Some(Instant::now());
        }
        self.chores.notify_one();
    }
}
