//! Alerts for an address that has a block already: what bans again, what prolongs the ban, and what leaves it alone.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::api::{INTENT, IPBlock, IPBlockStatus, Intent, Phase, RESOLVED, condition};
use crate::decide::RESOLVED_BRAKED;
use crate::duration;
use crate::guard::Escalation;
use crate::policy::RefusalKind;

/// What an alert does to an active block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeat {
    /// Moves its end, so that a ban lasts as long as its alerts come.
    #[default]
    Extend,
    /// Multiplies its length by the factor of [`Escalation`].
    Escalate,
    /// Nothing: the ban ends when it was to end, and the next alert after that bans again.
    Ignore,
}

/// The settings that decide about an alert.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The longest ban; `None`: no limit.
    pub(crate) most: Option<Duration>,
    /// What an alert does to an active block.
    pub(crate) repeated: Repeat,
    /// How long a lift by `spec.unblock` counts against alerts.
    pub(crate) grace: Duration,
    /// How bans grow.
    pub(crate) escalation: Option<Escalation>,
    /// A ban that the longest one keeps from being moved is requested again when it ends sooner than this.
    pub(crate) renew_before: Duration,
}

/// What an alert changes about a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing.
    LeaveAlone,
    /// Ban again, for the alert's duration.
    Trigger,
    /// This is the new `spec.duration`.
    Extend(String),
}

/// The change that an alert for a ban of `asked`, a duration within the limit, makes to `block`, which is not in
/// deletion.
pub(crate) fn answer(block: &IPBlock, asked: &str, rules: Rules, now: Timestamp) -> Answer {
    let status = block.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_ref());
    let refused = phase.is_some_and(Phase::is_refused);
    // A refused object keeps a trigger that could not be followed; a new duration may be what it lacks.
    let triggered = block.spec.trigger == Some(true)
        && !(refused && block.spec.duration.as_deref() != Some(asked));
    if block.spec.unblock == Some(true) {
        return Answer::LeaveAlone;
    }
    let pending = |length| is_longer_than_pending(block, length).then(|| asked.to_owned());
    if triggered {
        // The ban that is asked for is not begun yet.
        let length = duration::parse(asked).ok();
        let length = length.filter(|_| rules.repeated != Repeat::Ignore);
        return length
            .and_then(pending)
            .map_or(Answer::LeaveAlone, Answer::Extend);
    }
    if let Some(longer) = resumed(block, asked, rules, now) {
        return Answer::Extend(longer);
    }
    // Between the intent of a new ban and its outcome the phase is the former one.
    let resting = phase.is_some_and(Phase::is_over) && !block.has_begun_ban();
    let graced = status.is_some_and(|status| in_grace(status, rules.grace, now));
    if block.is_overdue(now) || is_lapsing(block, asked, now) || (resting && !graced) {
        return Answer::Trigger;
    }
    let longer = match (rules.repeated, duration::parse(asked)) {
        (Repeat::Ignore, _) | (_, Err(_)) => None,
        (_, Ok(length)) => prolonged(block, length, rules, now).or_else(|| pending(length)),
    };
    match longer {
        Some(longer) => Answer::Extend(longer),
        None if ends_too_soon(block, asked, rules, now) => Answer::Trigger,
        None => Answer::LeaveAlone,
    }
}

/// Whether the longest ban keeps an active block from being moved, and it would be free before it is reported again. A new
/// ban takes its place then, without a lift.
fn ends_too_soon(block: &IPBlock, asked: &str, rules: Rules, now: Timestamp) -> bool {
    let asked = duration::parse(asked).unwrap_or_default();
    let soon = rules.renew_before.min(asked / 2);
    Ban::read(block, now).is_some_and(|ban| ban.left < soon)
}

/// The `spec.duration` that moves the end of an active block, as the setting for repeated alerts has it.
fn prolonged(block: &IPBlock, asked: Duration, rules: Rules, now: Timestamp) -> Option<String> {
    match (rules.repeated, rules.escalation) {
        (Repeat::Ignore, _) => None,
        (Repeat::Escalate, Some(escalation)) => next_step(block, escalation, rules, now),
        _ => extension(block, asked, rules.most, now),
    }
}

/// The `spec.duration` of a block whose alerts were resolved and whose ban the brake on such lifts keeps: the ban has not
/// ended, so an alert that fires again takes back the end that its `spec.duration` requests, and prolongs it as any other
/// repeated alert. `None`: it is not such a block.
fn resumed(block: &IPBlock, asked: &str, rules: Rules, now: Timestamp) -> Option<String> {
    if !is_kept_by_brake(block, now) {
        return None;
    }
    let status = block.status.as_ref()?;
    let (began, end) = (status.blocked_at()?, status.expires_at()?);
    let granted = Duration::try_from(end.duration_since(began)).ok()?;
    let mut restored = block.clone();
    restored.spec.duration = Some(duration::display(granted));
    let longer = duration::parse(asked).ok();
    let longer = longer.and_then(|asked| prolonged(&restored, asked, rules, now));
    longer.or(restored.spec.duration)
}

/// Whether the alerts of the ban of `block` are resolved, and the brake on such lifts keeps it until its end.
pub(super) fn is_kept_by_brake(block: &IPBlock, now: Timestamp) -> bool {
    let Some(status) = &block.status else {
        return false;
    };
    // While the ban cannot be asserted, Ready has another reason.
    let kinds = [condition::READY, condition::LIFT_HELD];
    let mut conditions = kinds.iter().filter_map(|kind| status.condition(kind));
    status.is(&Phase::Active)
        && conditions.any(|condition| condition.reason == RESOLVED_BRAKED)
        && block.annotation(RESOLVED).is_some()
        && block.is_overdue(now)
        && status.expires_at().is_some_and(|end| end > now)
}

/// Whether the ban of `block` is not made yet, and `asked` is longer than it will be.
fn is_longer_than_pending(block: &IPBlock, asked: Duration) -> bool {
    let present = block.spec.duration.as_deref().map(duration::parse);
    let longer = matches!(present, Some(Ok(present)) if asked > present);
    let pending = is_pending(block) || block.spec.trigger == Some(true);
    longer && pending && !block.is_kept_elsewhere() && !block.has_edited_duration()
}

fn is_pending(block: &IPBlock) -> bool {
    let status = block.status.as_ref();
    match status.and_then(|status| status.phase.as_ref()) {
        None | Some(Phase::Pending) => true,
        Some(Phase::Active) => false,
        Some(_) => block.has_begun_ban(),
    }
}

/// The `spec.duration` that makes an active block last `asked` from `now` on, but at most `most` in all.
///
/// `None` while half of the requested time is left: an attack that goes on costs two writes for each length of its
/// ban, however often it is reported. `None` too for an edited duration, of which some servers' objects only show that
/// `spec.duration` is not the granted one until it is reconciled; and for an object that a tool would set back.
fn extension(
    block: &IPBlock,
    asked: Duration,
    most: Option<Duration>,
    now: Timestamp,
) -> Option<String> {
    let ban = Ban::read(block, now)?;
    if ban.left >= asked / 2 {
        return None;
    }
    let total = ban.passed.as_secs();
    let total = total.saturating_add(duration::whole_seconds(asked));
    let total = Duration::from_secs(total);
    let total = most.map_or(total, |most| most.min(total));
    (total > ban.granted).then(|| duration::display(total))
}

/// The `spec.duration` that makes an active block last as long as its next step, in the second half of its time.
fn next_step(
    block: &IPBlock,
    escalation: Escalation,
    rules: Rules,
    now: Timestamp,
) -> Option<String> {
    let ban = Ban::read(block, now)?;
    if ban.left >= ban.granted / 2 {
        return None;
    }
    let longer = escalation.longer(ban.granted, rules.most)?;
    Some(duration::display(longer))
}

/// An active ban whose end an alert may move.
struct Ban {
    /// How long it lasts in all.
    granted: Duration,
    passed: Duration,
    left: Duration,
}

// === impl Ban ===

impl Ban {
    /// `None` for a ban that is over, without end, or not what `spec.duration` requests; and for one whose duration a
    /// person edited.
    fn read(block: &IPBlock, now: Timestamp) -> Option<Self> {
        let status = block.status.as_ref()?;
        if !status.is(&Phase::Active) || block.is_kept_elsewhere() || block.has_edited_duration() {
            return None;
        }
        let (began, end) = (status.blocked_at()?, status.expires_at()?);
        let left = Duration::try_from(end.duration_since(now)).ok()?;
        let granted = Duration::try_from(end.duration_since(began)).ok()?;
        let asked = duration::parse(block.spec.duration.as_deref()?).ok();
        if left.is_zero() || status.granted(asked) != Some(granted) {
            return None;
        }
        Some(Self {
            granted,
            passed: Duration::try_from(now.duration_since(began)).unwrap_or_default(),
            left,
        })
    }
}

/// Whether the ban of `block` is lifted, or about to be, and none is requested. A refused block does not count: it would
/// be refused again by each alert.
pub(crate) fn has_ended(block: &IPBlock, now: Timestamp) -> bool {
    let status = block.status.as_ref();
    let expired = status.is_some_and(|status| status.is(&Phase::Expired));
    let expired = expired && !block.has_begun_ban();
    (expired || block.is_overdue(now)) && block.spec.trigger != Some(true)
}

/// Until when a refused block is banned as soon as what refuses it is gone; `None`: it is not refused, or not by
/// something that can go. An alert before that would only be refused again.
pub(crate) fn refused_until(block: &IPBlock) -> Option<Timestamp> {
    let status = block.status.as_ref()?;
    let ready = status.condition(condition::READY);
    let reason = ready.map_or("", |ready| ready.reason.as_str());
    let kept = status.is(&Phase::Skipped)
        || (status.is(&Phase::Failed)
            && [RefusalKind::TooWide.as_str(), "Unsupported"].contains(&reason));
    if !kept || block.is_deleting() {
        return None;
    }
    let created = block.metadata.creation_timestamp.as_ref();
    let asked = status.blocked_at().or(created.map(|created| created.0));
    let duration = block.spec.duration.as_deref().map(duration::parse);
    let window = match duration {
        None => return Some(Timestamp::MAX),
        Some(length) => SignedDuration::try_from(length.ok()?).ok()?,
    };
    asked?.checked_add(window).ok()
}

/// Whether half of the time has passed within which a ban has to come about, and it has not. After all of it the ban
/// is given up, though its alerts still come. A new request of `asked` must not be given up earlier than the present one.
fn is_lapsing(block: &IPBlock, asked: &str, now: Timestamp) -> bool {
    if !is_pending(block) {
        return false;
    }
    let intent = block.annotation(INTENT).map(str::parse::<Intent>);
    let created = block.metadata.creation_timestamp.as_ref();
    let since = intent
        .and_then(|intent| intent.ok()?.asked)
        .or(created.map(|created| created.0));
    let window = block.spec.duration.as_deref().map(duration::parse);
    let (Some(since), Some(Ok(window))) = (since, window) else {
        return false;
    };
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let left = window.saturating_sub(passed);
    passed >= window / 2 && duration::parse(asked).is_ok_and(|asked| asked >= left)
}

/// Whether an alert for `block` bans nothing only because `spec.unblock` lifted its ban less than `grace` ago.
pub(crate) fn is_graced(block: &IPBlock, grace: Duration, now: Timestamp) -> bool {
    let status = block.status.as_ref();
    status.is_some_and(|status| in_grace(status, grace, now))
}

/// Whether `spec.unblock` lifted the ban less than `grace` ago.
fn in_grace(status: &IPBlockStatus, grace: Duration, now: Timestamp) -> bool {
    let Some(lifted) = status.lifted_by_hand() else {
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
    fn a_duration_that_another_client_edits_stays_as_edited() {
        let mut edited = active(40, 20);
        for (duration, expected) in [("60m", Some("1h40m")), ("10m", None), ("7d", None)] {
            edited.spec.duration = Some(duration.into());
            let given = extension(&edited, 60 * MINUTE, None, now());
            assert_eq!(given.as_deref(), expected, "{duration}");
        }
    }

    /// `block`, whose `spec.duration` the field manager `editor` wrote last, `minutes_ago`.
    fn written_by(mut block: IPBlock, editor: &str, minutes_ago: i64) -> IPBlock {
        let time = write_time(now() - minutes(minutes_ago));
        let managed = serde_json::json!([
            {"manager": "ipblock-operator", "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:ip": {}}}},
            {"manager": editor, "operation": "Update", "time": time, "fieldsV1": {"f:spec": {"f:duration": {}}}},
        ]);
        block.metadata.managed_fields = serde_json::from_value(managed).unwrap();
        block
    }

    #[test]
    fn an_edited_duration_is_its_editors_after_it_is_reconciled_too() {
        let rules = |repeated| Rules {
            most: None,
            repeated,
            grace: Duration::ZERO,
            escalation: Some(Escalation::default()),
            renew_before: Duration::ZERO,
        };
        // The ban began 40 minutes ago.
        for (editor, minutes_ago, edited) in [
            ("kubectl-edit", 5, true),
            ("ipblock-operator", 5, false),
            // An earlier ban's: the alert that bans again asked for the same duration.
            ("kubectl-edit", 90, false),
        ] {
            let mut block = written_by(active(40, 20), editor, minutes_ago);
            block.status.as_mut().unwrap().ban_count = Some(2);
            for repeated in [Repeat::Extend, Repeat::Escalate] {
                let left = answer(&block, "60m", rules(repeated), now()) == Answer::LeaveAlone;
                assert_eq!(left, edited, "{editor} {minutes_ago} {repeated:?}");
            }
        }
        // Before the gateway answered.
        let mut first = written_by(active(40, 20), "kubectl-edit", 45);
        first.status.as_mut().unwrap().ban_count = Some(1);
        let given = answer(&first, "60m", rules(Repeat::Extend), now());
        assert_eq!(given, Answer::LeaveAlone);
        let mut pending = written_by(active(0, 60), "kubectl-edit", 5);
        pending.status = None;
        let given = answer(&pending, "2h", rules(Repeat::Extend), now());
        assert_eq!(given, Answer::LeaveAlone);
        let pending = IPBlock {
            status: None,
            ..written_by(active(0, 60), "ipblock-operator", 5)
        };
        let given = answer(&pending, "2h", rules(Repeat::Extend), now());
        assert_eq!(given, Answer::Extend("2h".into()));
    }

    #[test]
    fn an_alert_in_the_second_half_of_a_ban_takes_it_to_its_next_step() {
        let escalation = Escalation {
            cap: 200 * MINUTE,
            ..Escalation::default()
        };
        let rules = Rules {
            most: None,
            repeated: Repeat::Escalate,
            grace: Duration::ZERO,
            escalation: Some(escalation),
            renew_before: Duration::ZERO,
        };
        for (name, began, left, expected) in [
            ("first half", 20, 40, None),
            ("second half", 40, 20, Some("2h")),
            ("near the cap", 100, 20, Some("3h20m")),
            ("at the cap", 180, 20, None),
        ] {
            let given = answer(&active(began, left), "60m", rules, now());
            let expected =
                expected.map_or(Answer::LeaveAlone, |it: &str| Answer::Extend(it.into()));
            assert_eq!(given, expected, "{name}");
        }
        // The ban lasts longer than its spec says, because it was lengthened.
        let mut lengthened = active(40, 20);
        lengthened.spec.duration = Some("30m".into());
        let status = lengthened.status.as_mut().unwrap();
        status.escalation = Some(crate::api::Escalated::new(2, 30 * MINUTE, 60 * MINUTE));
        let given = answer(&lengthened, "30m", rules, now());
        assert_eq!(given, Answer::Extend("2h".into()));
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
    fn an_alert_that_asks_for_longer_while_the_ban_is_pending_makes_it_longer() {
        let rules = |repeated| Rules {
            most: None,
            repeated,
            grace: Duration::ZERO,
            escalation: None,
            renew_before: Duration::ZERO,
        };
        let mut pending = active(0, 10);
        for phase in [None, Some(Phase::Pending)] {
            pending.status = Some(IPBlockStatus {
                phase,
                ..IPBlockStatus::default()
            });
            for (asked, expected) in [
                ("11m", Answer::Extend("11m".into())),
                ("10m", Answer::LeaveAlone),
                ("600s", Answer::LeaveAlone),
                ("9m", Answer::LeaveAlone),
                ("soon", Answer::LeaveAlone),
            ] {
                let given = answer(&pending, asked, rules(Repeat::Extend), now());
                assert_eq!(given, expected, "{asked}");
            }
            let ignored = answer(&pending, "1h", rules(Repeat::Ignore), now());
            assert_eq!(ignored, Answer::LeaveAlone);
        }
        let asks = |block: &IPBlock| answer(block, "1h", rules(Repeat::Extend), now());
        // An earlier alert asked for a ban that nothing has begun yet.
        let mut triggered = active(40, 10);
        triggered.status.as_mut().unwrap().phase = Some(Phase::Expired);
        triggered.spec.trigger = Some(true);
        assert_eq!(asks(&triggered), Answer::Extend("1h".into()));
        let shorter = answer(&triggered, "9m", rules(Repeat::Extend), now());
        assert_eq!(shorter, Answer::LeaveAlone);
        let ignored = answer(&triggered, "1h", rules(Repeat::Ignore), now());
        assert_eq!(ignored, Answer::LeaveAlone);
        for duration in [None, Some("soon".to_owned())] {
            let mut other = pending.clone();
            other.spec.duration = duration;
            assert_eq!(asks(&other), Answer::LeaveAlone, "without a known end");
        }
        let mut unblocked = pending.clone();
        unblocked.spec.unblock = Some(true);
        assert_eq!(asks(&unblocked), Answer::LeaveAlone);
        let labels = pending.metadata.labels.insert(Default::default());
        labels.insert("argocd.argoproj.io/instance".into(), "bans".into());
        assert_eq!(asks(&pending), Answer::LeaveAlone, "a tool applies it");
    }

    /// Found by a random day: a short alert had a ban given up hours before its time was over.
    #[test]
    fn an_alert_requests_a_pending_ban_again_if_it_is_given_up_no_earlier_then() {
        let rules = Rules {
            most: None,
            repeated: Repeat::Extend,
            grace: Duration::ZERO,
            escalation: None,
            renew_before: Duration::ZERO,
        };
        for (name, passed, asked, expected) in [
            ("first half", 20, "60m", Answer::LeaveAlone),
            ("second half", 40, "60m", Answer::Trigger),
            ("as late", 40, "20m", Answer::Trigger),
            ("earlier", 40, "19m", Answer::LeaveAlone),
            ("over", 70, "5s", Answer::Trigger),
        ] {
            let mut pending = active(passed, 60 - passed);
            let created = now() - minutes(passed);
            let created = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created);
            pending.metadata.creation_timestamp = Some(created);
            pending.status.as_mut().unwrap().phase = Some(Phase::Pending);
            assert_eq!(answer(&pending, asked, rules, now()), expected, "{name}");
        }
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
