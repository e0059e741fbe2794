//! Lifts go before bans: which changes request a block, with which priority, and the alarm at the end of each ban.
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
use crate::api::condition::LIFTED;
use crate::api::{IPBlock, ResultCode};
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

/// Whether `event` shows nothing but that a call for this block has failed for another reason. The run is repeated after its
/// back-off. For the event of its own status it would be repeated at once, and without end where two reasons take turns.
pub(crate) fn is_another_failure(event: &Event<IPBlock>) -> bool {
    let Event::Updated { old, new, .. } = event else {
        return false;
    };
    // A block that is over was refused, unless the lift of what stands for it fails.
    let failing = |block: &IPBlock| {
        let status = block.status.as_ref();
        let failed = status.filter(|it| {
            let calls = !it.is_over() || it.condition(LIFTED).is_some();
            calls && it.result == Some(ResultCode::Failed)
        });
        failed.map(|status| status.phase.clone())
    };
    let (before, after) = (&old.metadata, &new.metadata);
    failing(old).is_some()
        && failing(old) == failing(new)
        && old.status != new.status
        && old.spec == new.spec
        && before.uid == after.uid
        && before.annotations == after.annotations
        && before.labels == after.labels
        && before.owner_references == after.owner_references
        && before.finalizers == after.finalizers
        && before.deletion_timestamp == after.deletion_timestamp
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
    use reeve_controller::UpdateReason;
    use reeve_workqueue::LOW_PRIORITY;

    use super::*;
    use crate::api::{Condition, ConditionStatus, FINALIZER, IPBlockSpec, IPBlockStatus, Phase};

    #[test]
    fn a_failing_run_is_not_repeated_for_its_own_status() {
        let with = |result: ResultCode, reason: &str| {
            let mut block = IPBlock::new("a", IPBlockSpec::default());
            block.status = Some(IPBlockStatus {
                result: Some(result),
                message: Some(reason.to_owned()),
                ..IPBlockStatus::default()
            });
            block
        };
        let (refused, failed) = (
            with(ResultCode::Failed, "refused"),
            with(ResultCode::Failed, "failed"),
        );
        let update = |old: &IPBlock, new: &IPBlock| Event::Updated {
            old: Arc::new(old.clone()),
            new: Arc::new(new.clone()),
            reason: UpdateReason::Changed,
        };
        assert!(is_another_failure(&update(&refused, &failed)));
        let changed = |change: fn(&mut IPBlock)| {
            let mut block = failed.clone();
            change(&mut block);
            block
        };
        let time = Time("2026-01-01T00:00:00Z".parse().unwrap());
        let mut deleted = failed.clone();
        deleted.metadata.deletion_timestamp = Some(time);
        for (case, old, new) in [
            (
                "another spec",
                &refused,
                changed(|it| it.spec.unblock = Some(true)),
            ),
            (
                "another object",
                &refused,
                changed(|it| it.metadata.uid = Some("b".into())),
            ),
            (
                "an annotation",
                &refused,
                changed(|it| it.metadata.annotations = Some([("a".into(), "b".into())].into())),
            ),
            (
                "a label",
                &refused,
                changed(|it| it.metadata.labels = Some([("a".into(), "b".into())].into())),
            ),
            (
                "an owner",
                &refused,
                changed(|it| it.metadata.owner_references = Some(vec![])),
            ),
            (
                "a block that is refused",
                &changed(|it| it.status.as_mut().unwrap().phase = Some(Phase::Failed)),
                changed(|it| {
                    let status = it.status.as_mut().unwrap();
                    status.phase = Some(Phase::Failed);
                    status.message = Some("too wide".into());
                }),
            ),
            (
                "no finalizer",
                &changed(|it| it.metadata.finalizers = Some(vec![FINALIZER.into()])),
                failed.clone(),
            ),
            ("deleted", &refused, deleted),
            (
                "another phase",
                &refused,
                changed(|it| it.status.as_mut().unwrap().phase = Some(Phase::Expired)),
            ),
            ("a success", &refused, with(ResultCode::Success, "")),
            (
                "the first failure",
                &with(ResultCode::Success, ""),
                failed.clone(),
            ),
        ] {
            assert!(!is_another_failure(&update(old, &new)), "{case}");
        }
        let lifting = |message: &str| {
            let mut block = with(ResultCode::Failed, message);
            let status = block.status.as_mut().unwrap();
            status.phase = Some(Phase::Failed);
            status.conditions = vec![Condition {
                kind: LIFTED.to_owned(),
                status: ConditionStatus::False,
                reason: "GatewayFailed".to_owned(),
                message: message.to_owned(),
                last_transition_time: "2026-01-01T00:00:00Z".to_owned(),
                observed_generation: None,
            }];
            block
        };
        let failing_lift = update(&lifting("refused"), &lifting("failed"));
        assert!(is_another_failure(&failing_lift), "what stands is lifted");
        let object = Arc::new(failed.clone());
        let added = Event::Added {
            object,
            initial: false,
        };
        assert!(!is_another_failure(&added));
    }

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
