//! Time that passes for the store alone: Events and history become older at once.

use std::time::Duration;

use tokio::time::Instant;

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

/// `by` before `at`. A machine that runs for a shorter time may have no such instant: the oldest one is the same then.
pub(super) fn earlier(at: Instant, by: Duration) -> Instant {
    at.checked_sub(by).unwrap_or(at)
}
