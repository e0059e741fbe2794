//! The health of caches, and whether it is good enough.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reeve_informer::{Activity, CacheHealth, WatchHealth};
use tokio::time::{sleep, timeout};

use super::{Caches, LOOK};

/// The time that a filled cache may fail before readiness fails.
const TOLERATED: SignedDuration = SignedDuration::from_secs(30);

// === impl Caches ===

impl Caches {
    /// The health of each cache, in the order of first use.
    #[must_use]
    pub fn health(&self) -> Vec<CacheHealth> {
        let slots = self.slots();
        slots
            .iter()
            .filter_map(|slot| Some(slot.bare()?.health()))
            .collect()
    }

    /// Whether every cache is filled and kept up to date. It tolerates a failure shorter than 30 s, a namespace that
    /// came to a filled cache less than 30 s ago, and a kind that the server does not have, if no watch requires it.
    ///
    /// # Errors
    /// A line for each that is not, with the cause.
    pub fn check(&self) -> Result<(), String> {
        let now = self.shared.clock.now();
        let mut problems = Vec::new();
        for slot in self.slots() {
            let Some(store) = slot.bare() else {
                problems.push(format!("{}: not started", slot.kind));
                continue;
            };
            let health = store.health();
            if health.activity == Activity::Missing && !slot.is_required() {
                continue;
            }
            if health.activity == Activity::Stopped {
                // The store keeps its last report after any end of the informer.
                problems.push(format!("{}: stopped", health.name));
                continue;
            }
            let failure = health.failure.as_ref();
            if is_late(&health, now)
                || failure.is_some_and(|failure| now.duration_since(failure.since) > TOLERATED)
            {
                problems.extend(health.trouble());
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("; "))
        }
    }

    /// Waits until every cache is filled, or known to be failing, or `limit` is over. A kind that cannot be listed
    /// stops the controllers that read it, not the others.
    pub(crate) async fn settled(&self, limit: Duration) {
        let settled = async {
            loop {
                let slots = self.slots();
                let mut filling = slots.iter().filter_map(|slot| slot.bare()).filter(|store| {
                    let health = store.health();
                    !health.synced && health.failure.is_none()
                });
                let Some(store) = filling.next() else { return };
                // One after the other, with repeated checks, because it may begin to fail.
                if timeout(LOOK, store.synced()).await == Ok(false) {
                    sleep(LOOK).await;
                }
            }
        };
        let in_time = timeout(limit, settled).await.is_ok();
        if let Err(problems) = self.check() {
            tracing::warn!(
                in_time,
                problems,
                "could not fill all caches; starting without them"
            );
        }
    }
}

/// Whether a cache is not filled that should be. A filled one that lists a later namespace has some time.
fn is_late(health: &CacheHealth, now: Timestamp) -> bool {
    let since = |watch: &WatchHealth| watch.failure.as_ref().map_or(watch.since, |it| it.since);
    let mut unfilled = health.watches.iter().filter(|watch| !watch.synced);
    let late =
        !health.was_synced || unfilled.any(|watch| now.duration_since(since(watch)) > TOLERATED);
    !health.synced && late
}
