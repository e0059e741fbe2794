//! The background task: waits for the chores of the store, and works them off.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::chores::work_off;
use super::initial;
use super::retries::Retries;
use crate::core::Core;
use crate::definitions::serve_stored;

/// The wait after which chores whose write the disk refused are tried again.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Creates what every cluster has, and serves what was stored.
pub(crate) async fn start(core: &Core) {
    serve_stored(core);
    let mut retries = Retries::default();
    work_off(core, initial::chores(core), &mut retries).await;
    // The chores that the last run left, and those of the objects above, are worked off before the first request.
    loop {
        let chores = core.store.take_chores();
        if chores.is_empty() || !work_off(core, chores, &mut retries).await {
            break;
        }
    }
    for chore in retries.chores() {
        core.store.add_chore(chore);
    }
    core.store.finish_chores(std::iter::empty());
}

/// Works off the chores of the store until it is closed.
pub(crate) async fn run(core: Arc<Core>) {
    let mut retries = Retries::default();
    loop {
        let mut chores = tokio::select! {
            chores = core.store.next_chores() => chores,
            () = retries.wait() => Vec::new(),
        };
        chores.extend(retries.take_due(Instant::now()));
        if core.store.is_closed() {
            return;
        }
        let all = work_off(&core, chores, &mut retries).await;
        core.store.finish_chores(retries.chores());
        if !all {
            sleep(RETRY_AFTER).await;
        }
        core.store.upkeep_unblocked().await;
        // Other tasks run between two rounds, also on a runtime of one thread.
        tokio::task::yield_now().await;
    }
}
