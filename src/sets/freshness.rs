//! Whether a replica follows the blocks: one that cannot must not serve its old list as the present one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How often the cache is looked at.
pub(super) const LOOK: Duration = Duration::from_secs(5);

/// A cache that fails for so long is out of date. Readers go on with what they have, or ask another replica.
const LONGEST_FAILURE: Duration = Duration::from_secs(30);

/// Whether the list of this replica is up to date. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Freshness(Arc<watch::Sender<bool>>);

/// For how long the cache has failed.
#[derive(Debug, Default)]
pub(super) struct Failing(Option<Instant>);

// === impl Freshness ===

impl Freshness {
    pub(super) fn is_stale(&self) -> bool {
        *self.0.borrow()
    }

    /// Notified when that changes.
    pub(super) fn changes(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }

    /// Sets whether the list is out of date. Returns whether that is news.
    pub(super) fn set_stale(&self, stale: bool) -> bool {
        self.0
            .send_if_modified(|present| std::mem::replace(present, stale) != stale)
    }
}

// === impl Failing ===

impl Failing {
    /// Takes in whether the cache fails now. Returns whether it has failed for too long.
    pub(super) fn look(&mut self, fails: bool) -> bool {
        self.0 = fails.then(|| self.0.unwrap_or_else(Instant::now));
        self.0
            .is_some_and(|since| since.elapsed() >= LONGEST_FAILURE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_failure_without_a_break_makes_a_list_stale() {
        let mut failing = Failing::default();
        for (after, fails, stale) in [
            (0, true, false),
            (29, true, false),
            (0, false, false),
            (1, true, false),
            (29, true, false),
            (1, true, true),
            (60, true, true),
            (0, false, false),
        ] {
            tokio::time::advance(Duration::from_secs(after)).await;
            assert_eq!(failing.look(fails), stale);
        }
    }
}
