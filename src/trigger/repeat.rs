//! Alerts for an address that has a block already: what prolongs its ban, and what leaves it alone.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::{INTENT, IPBlock, IPBlockStatus, Intent, Phase, UNBLOCKED, condition};
use crate::duration;

/// What an alert does to an active block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeat {
    /// Moves its end, so that a ban lasts as long as its alerts come.
    #[default]
    Extend,
    /// Nothing: the ban ends when it was to end, and the next alert after that bans again.
    Ignore,
}

/// The `spec.duration` that makes an active block last `asked` from `now` on, but at most `most` in all.
///
/// `None` while half of what is asked for is left: an attack that goes on costs two writes for each length of its
/// ban, however often it is reported. `None` too while `spec.duration` is not what was granted: somebody edits it; and
/// for an object that a tool would set back.
pub(super) fn extension(
    block: &IPBlock,
    asked: Duration,
    most: Option<Duration>,
    now: Timestamp,
) -> Option<String> {
    let status = block.status.as_ref()?;
    if !status.is(&Phase::Active) || block.is_kept_elsewhere() {
        return None;
    }
    let (began, end) = (status.blocked_at()?, status.expires_at()?);
    let left = Duration::try_from(end.duration_since(now)).ok()?;
    if left.is_zero() || left >= asked / 2 {
        return None;
    }
    let passed = Duration::try_from(now.duration_since(began)).unwrap_or_default();
    let total = passed
        .as_secs()
        .saturating_add(duration::whole_seconds(asked));
    let total = Duration::from_secs(total);
    let total = most.map_or(total, |most| most.min(total));
    let granted = Duration::try_from(end.duration_since(began)).ok()?;
    if duration::parse(block.spec.duration.as_deref()?).ok()? != granted {
        return None;
    }
    (total > granted).then(|| duration::display(total))
}

/// Whether a ban that stands is past its end: it is about to be lifted, or its gateway does not answer.
pub(super) fn is_overdue(block: &IPBlock, now: Timestamp) -> bool {
    let status = block.status.as_ref();
    let active = status.filter(|status| status.is(&Phase::Active));
    let end = active.and_then(IPBlockStatus::expires_at);
    end.is_some_and(|end| end <= now)
}

/// Whether half of the time has passed within which a ban has to come about, and it has not. After all of it the ban
/// is given up, though its alerts still come.
pub(super) fn is_lapsing(block: &IPBlock, now: Timestamp) -> bool {
    let phase = block
        .status
        .as_ref()
        .and_then(|status| status.phase.as_ref());
    if !matches!(phase, None | Some(Phase::Pending)) {
        return false;
    }
    let intent = block.annotation(INTENT).map(str::parse::<Intent>);
    let created = block.metadata.creation_timestamp.as_ref();
    let asked = intent
        .and_then(|intent| intent.ok()?.asked)
        .or(created.map(|created| created.0));
    let window = block.spec.duration.as_deref().map(duration::parse);
    let (Some(asked), Some(Ok(window))) = (asked, window) else {
        return false;
    };
    SignedDuration::try_from(window / 2).is_ok_and(|half| now.duration_since(asked) >= half)
}

/// Whether `spec.unblock` lifted the ban less than `grace` ago.
pub(super) fn in_grace(status: &IPBlockStatus, grace: Duration, now: Timestamp) -> bool {
    let by_hand = status.is(&Phase::Expired)
        && status
            .condition(condition::READY)
            .is_some_and(|ready| ready.reason == UNBLOCKED);
    let Some(lifted) = status.unblocked_at().filter(|_| by_hand) else {
        return false;
    };
    let grace = SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX);
    now.duration_since(lifted) < grace
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ConditionStatus, IPBlockSpec, write_time};

    const MINUTE: Duration = Duration::from_secs(60);

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn minutes(count: i64) -> SignedDuration {
        SignedDuration::from_mins(count)
    }

    fn active(began: i64, left: i64) -> IPBlock {
        let spec = IPBlockSpec {
            duration: Some(format!("{}m", began + left)),
            ..IPBlockSpec::default()
        };
        let mut block = IPBlock::new("a", spec);
        block.status = Some(IPBlockStatus {
            phase: Some(Phase::Active),
            blocked_at: Some(write_time(now() - minutes(began))),
            expires_at: Some(write_time(now() + minutes(left))),
            ..IPBlockStatus::default()
        });
        block
    }

    #[test]
    fn a_duration_that_somebody_edits_is_left_to_them() {
        let mut edited = active(40, 20);
        for (duration, expected) in [("60m", Some("1h40m")), ("10m", None), ("7d", None)] {
            edited.spec.duration = Some(duration.into());
            let given = extension(&edited, 60 * MINUTE, None, now());
            assert_eq!(given.as_deref(), expected, "{duration}");
        }
    }

    #[test]
    fn a_block_that_a_tool_applies_is_not_prolonged() {
        let mut applied = active(40, 20);
        let mark = "argocd.argoproj.io/instance".to_owned();
        let labels = applied.metadata.labels.insert(Default::default());
        labels.insert(mark.clone(), "bans".into());
        assert_eq!(extension(&applied, 60 * MINUTE, None, now()), None);
        applied.metadata.labels.as_mut().unwrap().remove(&mark);
        assert!(extension(&applied, 60 * MINUTE, None, now()).is_some());
    }

    #[test]
    fn an_alert_in_the_second_half_of_a_ban_moves_its_end() {
        for (name, began, left, asked, most, expected) in [
            ("first half", 20, 40, 60, None, None),
            ("second half", 40, 20, 60, None, Some("1h40m")),
            ("a longer ban than asked for", 40, 2000, 60, None, None),
            ("due", 60, 0, 60, None, None),
            ("overdue", 70, -10, 60, None, None),
            ("over the limit", 40, 20, 60, Some(90), Some("1h30m")),
            ("at the limit already", 70, 20, 60, Some(90), None),
        ] {
            let most = most.map(|most: u32| MINUTE * most);
            let given = extension(&active(began, left), MINUTE * asked, most, now());
            assert_eq!(given.as_deref(), expected, "{name}");
        }
        let mut endless = active(40, 20);
        endless.status.as_mut().unwrap().expires_at = None;
        assert_eq!(extension(&endless, MINUTE, None, now()), None);
        let mut pending = active(40, 20);
        pending.status.as_mut().unwrap().phase = Some(Phase::Pending);
        assert_eq!(extension(&pending, 60 * MINUTE, None, now()), None);
    }

    #[test]
    fn a_lift_by_hand_counts_for_the_grace_and_an_expiry_does_not() {
        let lifted = |reason: &str, ago: i64| {
            let mut status = IPBlockStatus {
                phase: Some(Phase::Expired),
                unblocked_at: Some(write_time(now() - minutes(ago))),
                ..IPBlockStatus::default()
            };
            let ready = ConditionStatus::True;
            status.set_condition(condition::READY, ready, reason, "", now());
            status
        };
        let grace = 10 * MINUTE;
        assert!(in_grace(&lifted("Unblocked", 9), grace, now()));
        assert!(!in_grace(&lifted("Unblocked", 10), grace, now()));
        assert!(!in_grace(&lifted("Expired", 1), grace, now()));
        assert!(!in_grace(&lifted("Unblocked", 1), Duration::ZERO, now()));
        let mut again = lifted("Unblocked", 1);
        again.phase = Some(Phase::Active);
        assert!(!in_grace(&again, grace, now()), "banned again since");
    }
}
