//! How blocks end: bans that never came about, gateways that are gone, objects that were kept for long enough.

use super::*;
use crate::api::{IPBlockStatus, RETENTION_ANNOTATION};

const DAY: i64 = 24 * 3600;

fn refused() -> Failure {
    Failure {
        reason: "GatewayRefused".into(),
        message: "connection refused".into(),
    }
}

/// Writes the patch before the first call, and the status of its failure.
fn fail(case: &mut Case, at: Timestamp) {
    let plan = case.at(at);
    if let Some(before) = plan.before().cloned() {
        case.block.metadata.finalizers = Some(vec![FINALIZER.into()]);
        if let Some(Some(intent)) = before.intent {
            case.annotate(INTENT, &intent.to_string());
        }
        if before.clear_trigger {
            case.block.spec.trigger = Some(false);
        }
    }
    let settled = plan.fail(&plan.calls()[0], &refused(), Some(1), at);
    if let Some(status) = settled.status {
        case.block.status = Some(status);
    }
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
    let failed = plan.fail(&plan.calls()[0], &refused(), Some(1), late);
    assert_eq!(failed.effect, Effect::LiftFailed, "tried again");
    let settled = case.apply(&plan, late);
    assert_eq!(phase(&settled), Phase::Failed);
    assert_eq!(reasons(&settled), ["NotInTime"]);
    let message = case.status().message.unwrap();
    assert!(
        message.contains("192.0.2.7 was not banned within the 10m"),
        "{message}"
    );
    let rest = case.at(late);
    assert!(rest.is_rest() && settle(&rest).status.is_none(), "once");
    case.block.spec.trigger = Some(true);
    let again = case.at(late);
    assert_eq!(operations(&again), [ban("192.0.2.7", Some(600))]);
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
fn a_trigger_begins_a_new_time_for_its_ban_to_come_about() {
    for annotated in [false, true] {
        let mut case = Case::active("192.0.2.7", "10m", DAY);
        let plan = case.decide();
        case.apply(&plan, now());
        if annotated {
            case.annotate(TRIGGER_ANNOTATION, "monday");
        } else {
            case.block.spec.trigger = Some(true);
        }
        fail(&mut case, now());
        let soon = case.at(now() + seconds(599));
        assert!(matches!(operations(&soon)[0].1, Operation::Ban(_)));
        let plan = case.at(now() + seconds(600));
        assert_eq!(operations(&plan), [unban("192.0.2.7")], "{annotated}");
        let settled = case.apply(&plan, now() + seconds(600));
        assert_eq!(phase(&settled), Phase::Failed);
        assert!(
            case.at(now() + seconds(601)).is_rest(),
            "the annotation is handled"
        );
    }
}

#[test]
fn a_block_that_failed_long_ago_is_not_banned_when_the_rules_are_relaxed() {
    for (name, ip, duration) in [
        ("too wide", "198.51.0.0/16", "10m"),
        ("too long", "192.0.2.7", "2h"),
    ] {
        let mut case = Case::new(ip, duration);
        case.max = Some(Duration::from_secs(3_600));
        let plan = case.decide();
        case.apply(&plan, now());
        assert_eq!(case.status().phase, Some(Phase::Failed), "{name}");
        case.max = None;
        case.policy.min_prefix_v4 = 16;
        assert!(!case.decide().calls().is_empty(), "{name}: within its time");
        let plan = case.at(now() + seconds(DAY));
        assert!(plan.is_rest(), "{name}: {plan:?}");
    }
}

#[test]
fn a_spec_that_is_mended_long_after_it_was_refused_is_banned() {
    let mut case = Case::new("192.0.2.7", "soon");
    let plan = case.decide();
    case.apply(&plan, now());
    case.block.spec.duration = Some("10m".into());
    case.block.metadata.generation = Some(2);
    let late = now() + seconds(DAY);
    let plan = case.at(late);
    assert_eq!(operations(&plan), [ban("192.0.2.7", Some(600))]);
    fail(&mut case, late);
    let again = case.at(late + seconds(599));
    assert!(matches!(operations(&again)[0].1, Operation::Ban(_)));
}

#[test]
fn a_duration_of_exactly_the_limit_is_followed() {
    let mut case = Case::new("192.0.2.7", "1h");
    case.max = Some(Duration::from_secs(3_600));
    assert_eq!(operations(&case.decide()), [ban("192.0.2.7", Some(3_600))]);
    case.block.spec.duration = Some("3601s".into());
    let settled = settle(&case.decide());
    assert_eq!(phase(&settled), Phase::Failed);
}

#[test]
fn a_gateway_that_was_replaced_and_stays_dead_holds_an_object_for_ten_minutes_past_its_end() {
    let old = [standing("192.0.2.7", here())];
    let mut case = Case::active("192.0.2.7", "10m", 600);
    let left = Intent {
        standing: standing("192.0.2.7", there()),
        attempt: 1,
        asked: None,
        also: old.to_vec(),
        unfollowed: Vec::new(),
    };
    case.place = Some(there());
    case.annotate(INTENT, &left.to_string());
    for (late, required) in [(0, true), (599, true), (600, false), (6_000, false)] {
        let plan = case.at(now() + seconds(late));
        let calls: Vec<bool> = plan.calls().iter().map(|call| call.required).collect();
        assert_eq!(calls, [true, required], "{late} s late");
    }
    let at = now() + seconds(600);
    let settled = case.at(at).settle(at, Some(1), &old);
    assert_eq!(phase(&settled), Phase::Expired);
    assert!(reasons(&settled).contains(&"LeftBehind"));
    case.block.metadata.deletion_timestamp = Some(Time(now()));
    let calls = |late| case.at(now() + seconds(late)).calls()[1].required;
    assert!(
        calls(599) && !calls(600),
        "a deleted one, from its deletion"
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
    let wake = kept.settle(now() + seconds(DAY), Some(1), &[]).wake;
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
    skipped.policy.allowlist = vec!["192.0.2.7".parse().unwrap()];
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

fn unfollowed(place: Place) -> Intent {
    let mut intent = Intent::new("192.0.2.7".parse().unwrap(), here(), 1);
    intent.unfollowed = vec![standing("192.0.2.7", place)];
    intent
}

#[test]
fn what_may_stand_at_a_gateway_that_is_not_followed_is_carried_and_holds_up_the_end() {
    let mut case = Case::active("192.0.2.7", "10m", 300);
    // Nothing of the intent is followed: the gateway was replaced, and the record is lost.
    let mut lost = unfollowed(there());
    lost.standing = lost.unfollowed[0].clone();
    case.annotate(INTENT, &lost.to_string());
    let plan = case.decide();
    assert_eq!(operations(&plan), [ban("192.0.2.7", Some(300))]);
    let written = plan.before().unwrap().intent.clone().unwrap().unwrap();
    assert_eq!(written, unfollowed(there()));
    case.apply(&plan, now());

    let late = now() + seconds(3_600);
    let plan = case.at(late);
    assert_eq!(operations(&plan), [unban("192.0.2.7")], "what is followed");
    let settled = plan.settle(late, Some(1), &[]);
    assert_eq!(phase(&settled), Phase::Active);
    assert_eq!(reasons(&settled), ["IntentIgnored"]);
    assert_eq!(plan.after(&[]), None);

    let mut deleted = case.clone();
    deleted.block.metadata.deletion_timestamp = Some(Time(now()));
    assert_eq!(deleted.at(late).after(&[]), None, "the finalizer stays");
    deleted.annotate(RELEASE_ANNOTATION, "true");
    assert_eq!(deleted.at(late).after(&[]).unwrap().finalizer, Some(false));

    case.annotate(RELEASE_ANNOTATION, "true");
    let plan = case.at(late);
    assert_eq!(phase(&plan.settle(late, Some(1), &[])), Phase::Expired);
    assert_eq!(plan.after(&[]).unwrap().intent, Some(None));
}

#[test]
fn a_new_ban_carries_what_may_stand_at_a_gateway_that_is_not_followed() {
    let mut case = Case::new("192.0.2.7", "10m");
    let mut forged = unfollowed(there());
    forged.standing = forged.unfollowed[0].clone();
    forged.attempt = 9;
    case.annotate(INTENT, &forged.to_string());
    let plan = case.decide();
    let written = plan.before().unwrap().intent.clone().unwrap().unwrap();
    assert_eq!(written, unfollowed(there()));
}

#[test]
fn an_ended_block_with_an_intent_of_an_unknown_gateway_goes_when_it_is_deleted() {
    let mut case = Case::active("192.0.2.7", "10m", 600);
    let plan = case.decide();
    case.apply(&plan, now());
    let mut lost = unfollowed(there());
    lost.standing = lost.unfollowed[0].clone();
    case.annotate(INTENT, &lost.to_string());
    case.block.metadata.deletion_timestamp = Some(Time(now()));
    let plan = case.decide();
    assert_eq!(plan.calls(), []);
    assert_eq!(plan.after(&[]).unwrap().finalizer, Some(false));
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
fn what_the_status_says_is_banned_is_lifted_whatever_the_intent_says() {
    let mut case = Case::active("192.0.2.7", "10m", 300);
    case.block.spec.unblock = Some(true);
    let elsewhere = Intent::new("192.0.2.7".parse().unwrap(), there(), 1);
    case.annotate(INTENT, &elsewhere.to_string());
    let lifted = operations(&case.decide());
    assert!(lifted.contains(&unban("192.0.2.7")), "{lifted:?}");
}

#[test]
fn a_ban_that_is_given_up_does_not_wait_longer_than_ten_minutes_for_a_dead_gateway_that_was_replaced()
 {
    let mut case = Case::new("192.0.2.7", "10m");
    fail(&mut case, now());
    case.place = Some(there());
    // Created a minute before `now`.
    for (late, required) in [(540, true), (1_139, true), (1_140, false)] {
        let plan = case.at(now() + seconds(late));
        let needed: Vec<bool> = plan.calls().iter().map(|call| call.required).collect();
        assert_eq!(needed, [required], "after {late} s");
    }
    let at = now() + seconds(1_140);
    let stands = [standing("192.0.2.7", here())];
    let settled = case.at(at).settle(at, Some(1), &stands);
    assert_eq!(phase(&settled), Phase::Failed);
    case.place = Some(here());
    assert!(case.at(at).calls()[0].required, "the configured one counts");
}

#[test]
fn a_gateway_that_is_gone_does_not_hold_up_the_lift_at_the_one_that_is_there() {
    let mut case = Case::active("192.0.2.7", "10m", 600);
    case.place = Some(there());
    let places = |plan: &Plan| {
        let calls = plan.calls().iter();
        calls
            .map(|call| call.standing.place.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(places(&case.decide()), [there(), here()]);
}
