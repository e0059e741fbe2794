//! Puts blocks in front of the queue at the moment their bans end.
//!
//! A block's own wake waits among all others: after a restart or an edit of the policy every block is queued, at the
//! lowest priority. What is due must not stand behind them, nor behind new bans.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reeve_controller::Request;
use reeve_controller::source::{Sender, Wanted};
use tokio_util::sync::CancellationToken;

use crate::decide::Coverage;
use crate::decide::run::DUE_FIRST;
use crate::time::Time;

/// A wall clock that is set is noticed after this long at the latest.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Requests blocks by the ends that `coverage` has, until `stop`.
pub(crate) async fn run(
    coverage: Arc<Mutex<Coverage>>,
    time: Time,
    again: Sender<Request>,
    stop: CancellationToken,
) {
    loop {
        let (next, changed) = coverage.lock().next_due();
        let wait = next.map_or(LONGEST_SLEEP, |at| time.until(at).min(LONGEST_SLEEP));
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = changed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
        let due = coverage.lock().take_due(time.now());
        for key in due {
            let Some((namespace, name)) = key.split_once('/') else {
                continue;
            };
            let request = Request::namespaced(namespace, name);
            // Waits for room: what is due is never left out.
            if again
                .send(Wanted::with_priority(request, DUE_FIRST))
                .await
                .is_err()
            {
                return;
            }
        }
    }
}
