//! Requests for lists whose entries have to be checked again: after an edit of the configuration, when the time goes back,
//! and when this replica begins to lead.

use std::sync::Arc;
use std::time::Duration;

use reeve_controller::Request;
use reeve_controller::source::Sender;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::reconciler::{List, ListReconciler};
use crate::prefix::Prefixes;
use crate::reconcile::Affected;
use crate::sets::TargetSet;

/// A replica that begins to lead reads the lists again that it read longer ago: their statuses are from then.
const RECENT: Duration = Duration::from_secs(60);

/// How often all lists are read because the time went back.
const REREAD: Duration = Duration::from_secs(300);

// === impl ListReconciler ===

impl ListReconciler {
    /// Requests lists through `again` until `stop`.
    pub(crate) async fn follow(self, again: Sender<Request>, stop: CancellationToken) {
        let mut states = self.parts.live.changes();
        let mut leading = self.parts.leading.clone();
        let mut braked = self.parts.guard.holds();
        let mut set_back = self.parts.time.set_backs();
        // When the time went back: lists are read again then, and `None` since.
        let mut reread: Option<Instant> = None;
        let mut latest: Option<Instant> = None;
        loop {
            let due = reread.unwrap_or_else(Instant::now);
            // How long ago lists have to have been read to be read again; `None`: only what an edit is about.
            let (changed, all) = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = states.changed() => (changed, None),
                changed = braked.changed() => (changed, None),
                changed = set_back.changed() => {
                    // Clocks that differ now and then must not have all lists read each time.
                    let earliest = latest.map(|latest| latest + REREAD);
                    reread = reread.or(Some(earliest.unwrap_or_else(Instant::now)));
                    (changed, None)
                }
                () = tokio::time::sleep_until(due), if reread.is_some() => {
                    (reread, latest) = (None, Some(Instant::now()));
                    (Ok(()), Some(Duration::ZERO))
                }
                changed = leading.changed() => (changed, leading.borrow_and_update().then_some(RECENT)),
            };
            if changed.is_err() {
                return;
            }
            if !*braked.borrow_and_update() {
                self.release();
            }
            let mut requests = self.affected();
            if let Some(recent) = all {
                requests = self.all(recent);
            }
            for request in requests {
                let sent = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    sent = again.send(request) => sent,
                };
                if sent.is_err() {
                    return;
                }
            }
        }
    }

    /// Marks the lists that the configuration in force is about, and returns them with those that had none.
    fn affected(&self) -> Vec<Request> {
        let Some(config) = self.parts.live.config() else {
            return Vec::new();
        };
        let mut known = self.known.lock();
        let affected = match known.config.replace(Arc::clone(&config)) {
            Some(before) if !config.changes(&before).blocks => {
                Affected::meeting(&before.policy, &config.policy)
            }
            Some(_) => Affected::All,
            None => Affected::Meeting(Prefixes::new()),
        };
        let lists = known.lists.iter_mut().filter_map(|(request, list)| {
            let entries = || self.parts.sets.list(&request.to_string());
            list.stale |= is_about(&affected, list, entries);
            (list.stale || list.read_at.is_none()).then(|| request.clone())
        });
        lists.collect()
    }

    /// Marks the lists that were read longer ago than `recent`, and returns all.
    fn all(&self, recent: Duration) -> Vec<Request> {
        let mut known = self.known.lock();
        for list in known.lists.values_mut() {
            list.stale |= list.read_at.is_some_and(|at| at.elapsed() >= recent);
        }
        known.lists.keys().cloned().collect()
    }
}

/// Whether entries of a list may be refused or accepted now that were not before.
fn is_about(affected: &Affected, list: &List, entries: impl FnOnce() -> TargetSet) -> bool {
    match affected {
        Affected::All => true,
        nothing if nothing.is_none() => false,
        ranges => {
            list.counts.ruled > 0
                || list.counts.held > 0
                || entries().iter().any(|entry| ranges.has(&[entry.target]))
        }
    }
}
