//! Lifts go before bans: the priority of changes, and the alarm at the end of each ban.
//!
//! A block's own wake waits among all others: after a restart or an edit of the policy every block is queued, at the
//! lowest priority. A due ban must not stand behind them, nor behind new bans.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reeve_controller::handler::{ForObject, Handler, for_object};
use reeve_controller::source::{Sender, Wanted};
use reeve_controller::{Event, Request};
use tokio_util::sync::CancellationToken;

use super::sweep::request_named;
use crate::api::IPBlock;
use crate::decide::Coverage;
use crate::decide::run::DUE_FIRST;
use crate::time::Time;

/// A wall clock that is set is noticed after this long at the latest.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Requests each block that changes, and one whose ban has to be lifted before all others: in a flood of new blocks a
/// lift by hand does not wait for their bans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiftsFirst(ForObject);

// === impl LiftsFirst ===

impl LiftsFirst {
    pub(crate) fn new() -> Self {
        Self(for_object())
    }
}

impl Handler<IPBlock> for LiftsFirst {
    fn requests(&self, event: &Event<IPBlock>, request: &mut dyn FnMut(Request)) {
        self.0.requests(event, request);
    }

    fn priority(&self, event: &Event<IPBlock>) -> Option<i32> {
        let lifts = match event {
            Event::Added { object, .. } => is_to_be_lifted(object),
            Event::Updated { new, .. } => is_to_be_lifted(new),
            // Another client may have removed its finalizer while its ban stands.
            Event::Deleted { .. } => true,
        };
        if lifts {
            Some(DUE_FIRST)
        } else {
            Handler::<IPBlock>::priority(&self.0, event)
        }
    }
}

fn is_to_be_lifted(block: &IPBlock) -> bool {
    block.spec.unblock == Some(true) || (block.is_deleting() && block.is_held())
}

/// Requests each block in front of the queue at the moment its ban ends, until `stop`.
pub(crate) async fn alarm(
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
            let Some(request) = request_named(&key) else {
                continue;
            };
            // Waits for room, so that no due block is left out.
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use reeve_workqueue::LOW_PRIORITY;

    use super::*;
    use crate::api::{FINALIZER, IPBlockSpec};

    #[test]
    fn what_has_to_be_lifted_is_requested_before_everything_else() {
        let new = IPBlock::new("a", IPBlockSpec::default());
        let mut unblocked = new.clone();
        unblocked.spec.unblock = Some(true);
        let mut set_back = new.clone();
        set_back.spec.unblock = Some(false);
        let mut deleted = new.clone();
        deleted.metadata.finalizers = Some(vec![FINALIZER.into()]);
        let held = deleted.clone();
        deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        for (name, block, expected) in [
            ("new", new, None),
            ("held", held, None),
            ("unblocked", unblocked, Some(DUE_FIRST)),
            ("set back", set_back, None),
            ("deleted", deleted, Some(DUE_FIRST)),
        ] {
            let object = Arc::new(block);
            let added = |initial| Event::Added {
                object: Arc::clone(&object),
                initial,
            };
            let handler = LiftsFirst::new();
            assert_eq!(handler.priority(&added(false)), expected, "{name}");
            let first = expected.or(Some(LOW_PRIORITY));
            assert_eq!(
                handler.priority(&added(true)),
                first,
                "{name}, at the start"
            );
        }
    }
}
