//! Requests of users: durations, limits, flags, other addresses.

use super::*;

#[test]
fn a_changed_duration_counts_from_the_ban_and_the_engine_gets_what_is_left() {
    for (name, duration, expected) in [
        ("longer", "20m", Some(ban("192.0.2.7", Some(1_140)))),
        ("shorter", "2m", Some(ban("192.0.2.7", Some(60)))),
        ("without end", "", Some(ban("192.0.2.7", None))),
        ("already over", "30s", Some(unban("192.0.2.7"))),
        ("the same in other words", "600s", None),
    ] {
        let mut case = Case::active("192.0.2.7", "10m", 60);
        case.block.spec.duration = (!duration.is_empty()).then(|| duration.into());
        let plan = case.decide();
        assert_eq!(operations(&plan), Vec::from_iter(expected), "{name}");
        let settled = settle(&plan);
        if name == "longer" {
            let status = settled.status.clone().unwrap();
            assert_eq!(status.expires_at.as_deref(), Some("2026-01-01T12:19:00Z"));
            assert_eq!(status.ban_count, Some(1));
            assert_eq!(reasons(&settled), ["DurationChanged"]);
            assert_eq!(
                settled.announcements[0].notice, None,
                "no new ban, no notification"
            );
        }
    }
}

#[test]
fn a_duration_that_breaks_while_active_keeps_the_end_that_was_granted() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.spec.duration = Some("soon".into());
    let plan = case.decide();
    let settled = case.apply(&plan, now());
    assert_eq!(phase(&settled), Phase::Active);
    assert_eq!(
        case.status().expires_at.as_deref(),
        Some("2026-01-01T12:09:00Z")
    );
    assert!(case.status().message.unwrap().contains("spec.duration"));
    assert_eq!(reasons(&settled), ["InvalidSpec"]);
    assert!(case.decide().is_rest(), "reported once");
    let due = case.at(now() + seconds(600));
    assert_eq!(operations(&due), [unban("192.0.2.7")]);
}

#[test]
fn a_wrong_spec_is_terminal_and_names_the_field() {
    for (ip, duration, part) in [
        ("example.com", "10m", "spec.ip"),
        ("192.0.2.7&x=1", "10m", "spec.ip"),
        ("192.0.2.7", "-5m", "negative"),
        ("192.0.2.7", "9999999h", "longer than 100 years"),
        ("192.0.2.7", "soon", "spec.duration"),
        ("192.0.2.7", "0s", "zero"),
    ] {
        let mut case = Case::new(ip, duration);
        let plan = case.decide();
        assert!(
            plan.before().is_none() && plan.calls().is_empty(),
            "{ip} {duration}"
        );
        let settled = case.apply(&plan, now());
        assert_eq!(phase(&settled), Phase::Failed);
        assert!(
            case.status().message.unwrap().contains(part),
            "{ip} {duration}"
        );
        assert_eq!(reasons(&settled), ["InvalidSpec"]);
        assert_eq!(settled.wake, None);
        let again = settle(&case.decide());
        assert!(
            again.status.is_none() && again.announcements.is_empty(),
            "reported once: {ip} {duration}"
        );
        case.block.spec.ip = "192.0.2.7".into();
        case.block.spec.duration = None;
        assert_eq!(
            operations(&case.decide()),
            [ban("192.0.2.7", None)],
            "mended"
        );
    }
}

#[test]
fn a_limit_on_durations_refuses_new_bans_and_spares_what_was_granted() {
    let mut case = Case::new("192.0.2.7", "2h");
    case.max = Some(Duration::from_secs(3_600));
    assert_eq!(phase(&settle(&case.decide())), Phase::Failed);
    case.block.spec.duration = None;
    assert_eq!(
        phase(&settle(&case.decide())),
        Phase::Failed,
        "without end is longer than any limit"
    );
    let mut case = Case::active("192.0.2.7", "2h", 60);
    case.max = Some(Duration::from_secs(3_600));
    assert!(settle(&case.decide()).status.is_none());
}

#[test]
fn unblock_lifts_then_clears_the_flag_and_does_not_ban_again() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.spec.unblock = Some(true);
    case.block.spec.trigger = Some(true);
    // `kubectl apply` of the original's example drops the duration with the same edit.
    case.block.spec.duration = None;
    let plan = case.decide();
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
    assert!(
        plan.before().is_none(),
        "the flag stays until the ban is lifted"
    );
    let after = plan.after(&[]).unwrap();
    assert!(
        after.clear_unblock && after.clear_trigger,
        "unblock wins over trigger"
    );
    let settled = case.apply(&plan, now());
    assert_eq!(phase(&settled), Phase::Expired);
    assert_eq!(reasons(&settled), ["Unbanned"]);
    assert!(case.decide().is_rest());
}

#[test]
fn unblock_on_a_block_that_is_not_banned_only_clears_the_flag() {
    let mut case = Case::active("192.0.2.7", "1m", 61);
    let plan = case.decide();
    case.apply(&plan, now());
    case.block.spec.unblock = Some(true);
    let plan = case.decide();
    assert!(plan.calls().is_empty());
    assert!(plan.after(&[]).unwrap().clear_unblock);
    assert!(settle(&plan).status.is_none());
}

#[test]
fn a_trigger_bans_again_in_one_patch_that_survives_a_crash() {
    let mut case = Case::active("192.0.2.7", "1m", 61);
    let plan = case.decide();
    case.apply(&plan, now());
    case.block.spec.trigger = Some(true);
    let plan = case.decide();
    let before = plan.before().unwrap().clone();
    assert!(before.clear_trigger);
    assert_eq!(before.intent.clone().unwrap().unwrap().attempt, 2);
    assert_eq!(operations(&plan), [ban("192.0.2.7", Some(60))]);
    // Killed after the patch: only the intent records the request.
    case.block.spec.trigger = Some(false);
    case.annotate(INTENT, &before.intent.unwrap().unwrap().to_string());
    let again = case.decide();
    assert_eq!(again.before(), None);
    assert_eq!(operations(&again), [ban("192.0.2.7", Some(60))]);
    let settled = case.apply(&again, now());
    assert_eq!(phase(&settled), Phase::Active);
    assert_eq!(case.status().ban_count, Some(2));
    assert_eq!(case.status().unblocked_at, None);
    assert_eq!(
        case.status().expires_at.as_deref(),
        Some("2026-01-01T12:01:00Z")
    );
    assert!(case.decide().is_rest());
}

#[test]
fn the_trigger_annotation_is_an_edge_that_is_handled_once_a_value() {
    let mut case = Case::active("192.0.2.7", "10m", 300);
    case.annotate(TRIGGER_ANNOTATION, "monday");
    let plan = case.decide();
    assert_eq!(operations(&plan), [ban("192.0.2.7", Some(600))]);
    case.apply(&plan, now());
    assert_eq!(
        case.status().last_handled_trigger.as_deref(),
        Some("monday")
    );
    assert_eq!(
        case.status().blocked_at.as_deref(),
        Some("2026-01-01T12:00:00Z")
    );
    assert!(
        case.decide().is_rest(),
        "a repository that is applied again bans once"
    );
    case.annotate(TRIGGER_ANNOTATION, "tuesday");
    assert!(!case.decide().is_rest());
}

#[test]
fn an_edited_address_bans_the_new_one_and_lifts_the_old_one() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.spec.ip = "192.0.2.8".into();
    let plan = case.decide();
    assert_eq!(
        operations(&plan),
        [ban("192.0.2.8", Some(600)), unban("192.0.2.7")]
    );
    assert!(plan.calls()[1].required, "at the same gateway it must go");
    case.apply(&plan, now());
    assert_eq!(case.status().target.as_deref(), Some("192.0.2.8"));
    assert!(case.decide().is_rest());
}

#[test]
fn an_address_edited_into_nonsense_lifts_what_is_banned() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.spec.ip = "nonsense".into();
    let plan = case.decide();
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
    assert_eq!(phase(&case.apply(&plan, now())), Phase::Failed);
    assert!(case.decide().calls().is_empty());
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
fn a_trigger_annotation_that_is_set_while_a_ban_is_pending_starts_its_time_again() {
    // Created a minute before `now`, and its gateway does not answer.
    let mut case = Case::new("192.0.2.7", "10m");
    fail(&mut case, now());
    case.annotate(TRIGGER_ANNOTATION, "again");
    fail(&mut case, now() + seconds(300));
    let intent: Intent = case.block.annotation(INTENT).unwrap().parse().unwrap();
    assert_eq!(intent.asked, Some(now() + seconds(300)));
    assert_eq!(intent.attempt, 1, "it is the same ban");
    // Neither a later try nor a restart moves it once more.
    fail(&mut case, now() + seconds(400));
    let later = now() + seconds(899);
    assert_eq!(operations(&case.at(later)), [ban("192.0.2.7", Some(600))]);
    let after: Intent = case.block.annotation(INTENT).unwrap().parse().unwrap();
    assert_eq!(after, intent);

    let late = now() + seconds(900);
    let plan = case.at(late);
    assert_eq!(reasons(&plan.settle(late, &[])), ["NotInTime"]);
    case.apply(&plan, late);
    assert!(case.at(late).is_rest(), "the annotation is answered");
    case.annotate(TRIGGER_ANNOTATION, "once more");
    assert_eq!(operations(&case.at(late)), [ban("192.0.2.7", Some(600))]);
}

#[test]
fn a_trigger_of_a_due_ban_outlasts_the_lift_while_there_is_no_engine() {
    for flag in [true, false] {
        let mut case = Case::active("192.0.2.7", "10m", 600);
        case.place = None;
        if flag {
            case.block.spec.trigger = Some(true);
        } else {
            case.annotate(TRIGGER_ANNOTATION, "again");
        }
        let plan = case.decide();
        assert_eq!(operations(&plan), [unban("192.0.2.7")]);
        let settled = case.apply(&plan, now());
        assert_eq!(phase(&settled), Phase::Expired);
        case.place = Some(here());
        let plan = case.decide();
        assert_eq!(operations(&plan), [ban("192.0.2.7", Some(600))], "{flag}");
        case.apply(&plan, now());
        assert!(
            !case
                .decide()
                .before()
                .is_some_and(|patch| patch.clear_trigger)
        );
    }
}

#[test]
fn a_ban_that_a_trigger_began_outlasts_a_while_without_an_engine() {
    for annotated in [false, true] {
        for due in [false, true] {
            let mut case = Case::active("192.0.2.7", "10m", 60);
            if annotated {
                case.annotate(TRIGGER_ANNOTATION, "again");
            } else {
                case.block.spec.trigger = Some(true);
            }
            // Killed after the patch: only the intent records the request.
            let before = case.decide().before().unwrap().clone();
            case.block.spec.trigger = Some(false);
            case.annotate(INTENT, &before.intent.unwrap().unwrap().to_string());
            // The next process cannot read the configuration yet.
            let later = now() + seconds(if due { 540 } else { 30 });
            case.place = None;
            case.assert = Assert::Due;
            let plan = case.at(later);
            let expected = if due {
                unban("192.0.2.7")
            } else {
                ban("192.0.2.7", Some(510))
            };
            assert_eq!(operations(&plan), [expected], "{annotated} {due}");
            case.apply(&plan, later);

            case.place = Some(here());
            let plan = case.at(later);
            let name = format!("{annotated} {due}");
            assert_eq!(operations(&plan), [ban("192.0.2.7", Some(600))], "{name}");
            case.apply(&plan, later);
            assert_eq!(case.status().ban_count, Some(2), "{name}");
            case.assert = Assert::In(RESYNC);
            assert!(case.at(later).is_rest(), "{name}");
        }
    }
}

#[test]
fn a_trigger_of_an_active_block_outlasts_a_while_without_an_engine() {
    for flag in [true, false] {
        for assert in [Assert::Due, Assert::In(RESYNC)] {
            let mut case = Case::active("192.0.2.7", "10m", 60);
            case.place = None;
            case.assert = assert;
            if flag {
                case.block.spec.trigger = Some(true);
            } else {
                case.annotate(TRIGGER_ANNOTATION, "again");
            }
            let plan = case.decide();
            case.apply(&plan, now());
            case.place = Some(here());
            let plan = case.decide();
            assert_eq!(operations(&plan), [ban("192.0.2.7", Some(600))], "{flag}");
        }
    }
}
