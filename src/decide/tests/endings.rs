//! How blocks end: in time, too late, deleted, kept for long enough.

use super::*;
use crate::api::{RESOLVED, RETENTION_ANNOTATION};

#[test]
fn a_due_block_is_lifted_with_two_writes_in_all() {
    let mut case = Case::active("192.0.2.7", "10m", 601);
    let plan = case.decide();
    assert_eq!(plan.before(), None);
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
    let settled = case.apply(&plan, now());
    assert_eq!(phase(&settled), Phase::Expired);
    assert_eq!(reasons(&settled), ["Expired"]);
    assert_eq!(
        settled.effect,
        Effect::Lifted(Cause::Expired, Some(Duration::from_secs(1)))
    );
    assert_eq!(settled.wake, None);
    let status = case.status();
    assert_eq!(
        (status.result, status.expires_at),
        (Some(ResultCode::Unblocked), None)
    );
    assert_eq!(plan.after(&[]), None);
    let again = case.decide();
    assert!(
        again.is_rest() && settle(&again).status.is_none(),
        "expired is the end"
    );
}

#[test]
fn a_failed_lift_stays_active_and_due() {
    let mut case = Case::active("192.0.2.7", "10m", 700);
    let plan = case.decide();
    let failure = Failure {
        reason: "GatewayTimeout".into(),
        message: "no answer".into(),
        may_have_happened: false,
        ..Failure::default()
    };
    let settled = plan.fail(&plan.calls()[0], &failure, now());
    assert_eq!(phase(&settled), Phase::Active);
    assert_eq!(reasons(&settled), ["LiftFailed"]);
    assert!(settled.retry && settled.wake.is_none());
    case.block.status = settled.status;
    let again = case.decide();
    assert_eq!(operations(&again), [unban("192.0.2.7")]);
    assert_eq!(reasons(&settle(&again)), ["Expired"]);
}

#[test]
fn a_deleted_block_is_lifted_and_let_go_with_one_write() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.metadata.deletion_timestamp = Some(Time(now()));
    let plan = case.decide();
    assert_eq!(plan.before(), None);
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
    assert_eq!(
        plan.after(&[]).unwrap(),
        Patch {
            finalizer: Some(false),
            ..Patch::default()
        }
    );
    let settled = settle(&plan);
    assert!(settled.status.is_none());
    assert_eq!(reasons(&settled), ["Unbanned"]);
    let mut expired = Case::active("192.0.2.7", "1m", 61);
    let plan = expired.decide();
    expired.apply(&plan, now());
    expired.block.metadata.deletion_timestamp = Some(Time(now()));
    assert!(
        expired.decide().calls().is_empty(),
        "nothing is banned any more"
    );
    assert_eq!(expired.decide().after(&[]).unwrap().finalizer, Some(false));
}

#[test]
fn a_block_deleted_before_its_first_answer_is_lifted_to_be_sure() {
    let mut case = Case::new("192.0.2.7", "10m");
    let plan = case.decide();
    let before = plan.before().unwrap().clone();
    case.block.metadata.finalizers = Some(vec![FINALIZER.into()]);
    case.annotate(INTENT, &before.intent.unwrap().unwrap().to_string());
    case.block.metadata.deletion_timestamp = Some(Time(now()));
    assert_eq!(operations(&case.decide()), [unban("192.0.2.7")]);
}

#[test]
fn the_release_annotation_lets_go_without_the_gateway() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.metadata.deletion_timestamp = Some(Time(now()));
    case.annotate(RELEASE_ANNOTATION, "true");
    let plan = case.decide();
    assert!(plan.calls().is_empty());
    assert_eq!(plan.after(&[]).unwrap().finalizer, Some(false));
    let settled = settle(&plan);
    assert_eq!(reasons(&settled), ["Released"]);
    assert!(settled.announcements[0].warning);
}

#[test]
fn a_ban_that_did_not_come_about_within_its_own_time_is_lifted_to_be_sure_and_ends_failed() {
    let mut case = Case::new("192.0.2.7", "10m");
    fail(&mut case, now());
    assert_eq!(case.status().phase, Some(Phase::Pending));
    // Created a minute before `now`.
    let plan = case.at(now() + seconds(539));
    assert!(matches!(operations(&plan)[0].1, Operation::Ban(_)), "still");
    let late = now() + seconds(540);
    let plan = case.at(late);
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
    let failed = plan.fail(&plan.calls()[0], &refused(), late);
    assert_eq!(failed.effect, Effect::LiftFailed, "tried again");
    let settled = case.apply(&plan, late);
    assert_eq!(phase(&settled), Phase::Failed);
    assert_eq!(reasons(&settled), ["NotInTime"]);
    let message = case.status().message.unwrap();
    assert!(
        message.contains("192.0.2.7 was not banned within its duration of 10m"),
        "{message}"
    );
    let rest = case.at(late);
    assert!(rest.is_rest() && settle(&rest).status.is_none(), "once");
    case.block.spec.trigger = Some(true);
    let again = case.at(late);
    assert_eq!(operations(&again), [ban("192.0.2.7", Some(600))]);
}

#[test]
fn a_ban_whose_alert_was_resolved_before_it_came_about_ends_as_any_other() {
    let resolved = |case: &mut Case, at: Timestamp| {
        case.block.spec.duration = Some("1s".into());
        case.annotate(RESOLVED, &at.to_string());
    };
    let mut waiting = Case::new("192.0.2.7", "10m");
    fail(&mut waiting, now());
    resolved(&mut waiting, now());
    let plan = waiting.decide();
    assert_eq!(operations(&plan), [unban("192.0.2.7")], "to be sure");
    let settled = waiting.apply(&plan, now());
    assert_eq!(phase(&settled), Phase::Expired);
    assert_eq!(reasons(&settled), ["Expired"]);
    // An earlier lift says nothing about a later ban.
    let mut earlier = Case::new("192.0.2.7", "10m");
    fail(&mut earlier, now());
    resolved(&mut earlier, now() - seconds(61));
    assert_eq!(reasons(&settle(&earlier.decide())), ["NotInTime"]);
    // No ban was begun: there was no configuration.
    let mut new = Case::new("192.0.2.7", "10m");
    new.place = None;
    resolved(&mut new, now());
    let settled = settle(&new.decide());
    assert_eq!(
        (phase(&settled), reasons(&settled)),
        (Phase::Expired, vec![])
    );
    assert_eq!(
        settled.status.unwrap().message.as_deref(),
        Some("not banned: its time is over")
    );
}

#[test]
fn an_end_is_reported_once_though_its_intent_could_not_be_removed() {
    let mut case = Case::new("192.0.2.7", "10m");
    fail(&mut case, now());
    let late = now() + seconds(540);
    let given_up = case.at(late).settle(late, &[]);
    assert_eq!(reasons(&given_up), ["NotInTime"]);
    // The patch after the report failed.
    case.block.status = given_up.status;
    let again = case.at(late);
    assert_eq!(operations(&again), [unban("192.0.2.7")], "to be sure");
    let again = again.settle(late, &[]);
    assert_eq!((reasons(&again), again.effect), (vec![], Effect::None));
}

#[test]
fn a_block_that_waited_for_a_configuration_past_its_own_time_is_not_banned_when_there_is_one() {
    let mut case = Case::new("192.0.2.7", "10m");
    case.block.metadata.creation_timestamp = Some(Time(now() - seconds(DAY)));
    for place in [None, Some(here())] {
        case.place = place;
        let plan = case.decide();
        assert!(plan.calls().is_empty() && plan.before().is_none());
        assert_eq!(phase(&settle(&plan)), Phase::Failed);
    }
    case.block.spec.duration = None;
    assert_eq!(
        operations(&case.decide()),
        [ban("192.0.2.7", None)],
        "a ban without end is never late"
    );
}

#[test]
fn messages_of_bans_that_were_never_confirmed_name_the_address() {
    let mut overdue = originals(Phase::Active, DAY);
    let plan = overdue.decide();
    overdue.apply(&plan, now());
    let message = overdue.status().message.unwrap();
    assert_eq!(message, "the ban of 192.0.2.7 is lifted: its time is over");
    let mut unblocked = Case::new("192.0.2.7/32", "10m");
    fail(&mut unblocked, now());
    unblocked.block.spec.unblock = Some(true);
    let plan = unblocked.decide();
    let settled = unblocked.apply(&plan, now());
    let message = "the ban of 192.0.2.7 is lifted: spec.unblock was set";
    assert_eq!(settled.announcements[0].note, message);
    let mut deleted = Case::new("192.0.2.7", "10m");
    fail(&mut deleted, now());
    deleted.block.metadata.deletion_timestamp = Some(Time(now()));
    let note = &settle(&deleted.decide()).announcements[0].note;
    assert_eq!(
        note,
        "the ban of 192.0.2.7 is lifted: the object was deleted"
    );
}

/// An object that a trigger made, whose ban of ten minutes ended at `now`.
fn ended() -> Case {
    let mut case = Case::active("192.0.2.7", "10m", 600);
    case.block.metadata.name = Some(crate::target::object_name("192.0.2.7"));
    case.retention = Some(Duration::from_secs(7 * DAY as u64));
    let plan = case.decide();
    case.apply(&plan, now());
    case
}

#[test]
fn an_object_that_a_trigger_made_is_deleted_when_it_was_kept_for_the_retention() {
    let case = ended();
    let kept = case.at(now() + seconds(DAY));
    assert!(kept.is_rest() && !kept.collects());
    let wake = kept.settle(now() + seconds(DAY), &[]).wake;
    assert_eq!(wake, Some(Duration::from_secs(6 * DAY as u64)));
    assert!(case.at(now() + seconds(7 * DAY)).collects());
}

#[test]
fn an_address_that_was_banned_often_is_remembered_longer() {
    for (bans, days) in [(1, 7), (2, 14), (8, 56), (9, 56), (i64::MAX, 56)] {
        let mut case = ended();
        case.block.status.as_mut().unwrap().ban_count = Some(bans);
        let at = |left| now() + seconds(days * DAY - left);
        assert!(!case.at(at(1)).collects(), "{bans} bans");
        assert!(case.at(at(0)).collects(), "{bans} bans");
    }
}

#[test]
fn what_people_made_what_is_held_and_what_is_not_over_is_never_deleted() {
    type Change = (&'static str, fn(&mut Case));
    let changes: [Change; 9] = [
        ("a name of its own", |case| {
            case.block.metadata.name = Some("office".into());
        }),
        ("applied by a tool", |case| {
            case.annotate("kubectl.kubernetes.io/last-applied-configuration", "{}");
        }),
        ("retention: never", |case| case.retention = None),
        ("annotated", |case| {
            case.annotate(RETENTION_ANNOTATION, "never");
        }),
        ("a finalizer of others", |case| {
            case.block.metadata.finalizers = Some(vec!["other/one".into(), FINALIZER.into()]);
        }),
        ("active", |case| {
            let metadata = case.block.metadata.clone();
            *case = Case {
                retention: case.retention,
                ..Case::active("192.0.2.7", "", DAY)
            };
            case.block.metadata.name = metadata.name;
        }),
        ("triggered", |case| case.block.spec.trigger = Some(true)),
        ("unblock", |case| case.block.spec.unblock = Some(true)),
        ("deleted already", |case| {
            case.block.metadata.deletion_timestamp = Some(Time(now()));
        }),
    ];
    let late = now() + seconds(100 * DAY);
    assert!(ended().at(late).collects());
    for (name, change) in changes {
        let mut case = ended();
        change(&mut case);
        assert!(!case.at(late).collects(), "{name}");
    }
}

#[test]
fn a_block_that_was_unblocked_is_kept_for_the_grace_however_short_the_retention() {
    for annotated in [None, Some("10s")] {
        let mut case = Case::active("192.0.2.7", "10m", 300);
        case.block.metadata.name = Some(crate::target::object_name("192.0.2.7"));
        case.grace = Duration::from_secs(600);
        case.block.spec.unblock = Some(true);
        let plan = case.decide();
        case.apply(&plan, now());
        case.retention = Some(Duration::from_secs(10));
        if let Some(text) = annotated {
            case.annotate(RETENTION_ANNOTATION, text);
        }
        let kept = case.at(now() + seconds(11));
        assert!(!kept.collects(), "{annotated:?}");
        let wake = kept.settle(now() + seconds(11), &[]).wake;
        assert_eq!(wake, Some(Duration::from_secs(589)));
        assert!(case.at(now() + seconds(600)).collects());
        case.grace = Duration::ZERO;
        assert!(case.at(now() + seconds(10)).collects(), "without a grace");
    }
    let mut expired = ended();
    expired.grace = Duration::from_secs(600);
    expired.retention = Some(Duration::from_secs(10));
    let plan = expired.at(now() + seconds(10));
    assert!(plan.collects(), "only a lift by hand has a grace");
}

#[test]
fn the_annotation_gives_any_object_a_retention_of_its_own() {
    let mut case = ended();
    case.block.metadata.name = Some("office".into());
    case.annotate(RETENTION_ANNOTATION, "1h");
    assert!(!case.at(now() + seconds(3_599)).collects());
    assert!(case.at(now() + seconds(3_600)).collects());
}

#[test]
fn skipped_failed_and_the_originals_objects_are_deleted_too() {
    let late = now() + seconds(8 * DAY);
    let mut skipped = Case::new("192.0.2.7", "10m");
    skipped.policy.allowlist = allowed("192.0.2.7");
    let mut failed = Case::new("192.0.2.7", "2h");
    failed.max = Some(Duration::from_secs(3_600));
    for (name, mut case) in [
        ("skipped", skipped),
        ("failed", failed),
        ("the original's", originals(Phase::Expired, 600)),
    ] {
        case.block.metadata.name = Some(crate::target::object_name("192.0.2.7"));
        let plan = case.decide();
        case.apply(&plan, now());
        case.retention = Some(Duration::from_secs(7 * DAY as u64));
        assert!(!case.at(now() + seconds(6 * DAY)).collects(), "{name}");
        assert!(case.at(late).collects(), "{name}");
    }
}

#[test]
fn an_uncountable_number_of_bans_overflows_nothing() {
    let mut case = ended();
    case.retention = Some(Duration::MAX);
    case.block.status = Some(IPBlockStatus {
        ban_count: Some(i64::MAX),
        ..case.status()
    });
    assert!(!case.at(now() + seconds(DAY)).collects());
}

#[test]
fn an_unreadable_intent_of_a_block_that_may_be_banned_is_lifted_where_the_gateway_is() {
    let mut case = Case::new("192.0.2.7", "10m");
    fail(&mut case, now());
    case.annotate(INTENT, "{}");
    case.block.metadata.deletion_timestamp = Some(Time(now()));
    assert_eq!(operations(&case.decide()), [unban("192.0.2.7")]);
    case.place = None;
    assert_eq!(case.decide().after(&[]), None, "waits for the gateway");
}

#[test]
fn the_retention_of_a_block_that_was_pending_for_long_counts_from_its_end() {
    let mut case = Case::new("192.0.2.7", "3d");
    case.block.metadata.name = Some(crate::target::object_name("192.0.2.7"));
    fail(&mut case, now());
    let late = now() + seconds(3 * DAY);
    let plan = case.at(late);
    case.apply(&plan, late);
    assert_eq!(case.status().phase, Some(Phase::Failed));
    case.retention = Some(Duration::from_secs(DAY as u64));
    assert!(!case.at(late + seconds(DAY - 1)).collects());
    assert!(case.at(late + seconds(DAY)).collects());
}
