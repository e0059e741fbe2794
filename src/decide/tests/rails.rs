//! Caps, brakes, shadow mode and escalation.

use super::*;
use crate::api::{RESOLVED, condition};

fn hold() -> Hold {
    Hold {
        reason: "Limited",
        message: "maxActiveBlocks allows 2 banned at once in all, and all are".into(),
        retry_in: Duration::from_secs(60),
        may_stand: false,
    }
}

fn ready(status: &IPBlockStatus) -> (ConditionStatus, String) {
    let ready = status.condition(condition::READY).unwrap();
    (ready.status, ready.reason.clone())
}

#[test]
fn a_new_ban_that_is_held_waits_without_a_call_and_is_reported_once() {
    let mut case = Case::new("192.0.2.7", "10m");
    case.hold = Some(hold());
    let plan = case.decide();
    assert!(
        plan.calls().is_empty() && plan.before().is_none(),
        "{plan:?}"
    );
    let settled = case.apply(&plan, now());
    assert_eq!(phase(&settled), Phase::Pending);
    assert_eq!(reasons(&settled), ["Limited"]);
    let status = case.status();
    let message = status.message.clone().unwrap();
    assert!(message.contains("maxActiveBlocks"), "{message}");
    assert!(
        message.contains("given up at 2026-01-01T12:09:00Z"),
        "{message}"
    );
    assert_eq!(settled.wake, Some(Duration::from_secs(60)));
    // Another cap holds it at the next question.
    case.hold.as_mut().unwrap().message = "another".into();
    let again = case.apply(&case.decide(), now());
    assert_eq!((again.status, again.announcements.len()), (None, 0));
    case.hold = None;
    let plan = case.decide();
    assert_eq!(operations(&plan), [ban("192.0.2.7", Some(600))]);
    assert_eq!(phase(&settle(&plan)), Phase::Active);
}

#[test]
fn a_held_ban_is_given_up_at_the_end_of_its_own_time() {
    let mut case = Case::new("192.0.2.7", "10m");
    case.hold = Some(hold());
    case.apply(&case.decide(), now());
    let soon = case.at(now() + seconds(8 * 60 + 50));
    assert_eq!(
        soon.settle(now() + seconds(8 * 60 + 50), &[]).wake,
        Some(Duration::from_secs(10))
    );
    let plan = case.at(now() + seconds(9 * 60));
    let settled = plan.settle(now() + seconds(9 * 60), &[]);
    assert_eq!(phase(&settled), Phase::Failed);
    assert_eq!(reasons(&settled), ["NotInTime"]);
}

#[test]
fn a_held_trigger_is_recorded_with_its_time_and_its_flag_is_set_back() {
    let mut case = Case::active("192.0.2.7", "10m", 3600);
    let lifted = case.decide();
    case.apply(&lifted, now());
    assert!(case.status().is(&Phase::Expired));
    case.block.spec.trigger = Some(true);
    case.hold = Some(hold());
    let plan = case.decide();
    assert!(plan.calls().is_empty());
    assert!(plan.before().unwrap().clear_trigger);
    case.apply(&plan, now());
    assert_eq!(case.block.spec.trigger, Some(false));
    assert!(case.status().is(&Phase::Pending));
    // It is the same request later.
    let later = now() + seconds(300);
    let plan = case.at(later);
    assert!(
        plan.calls().is_empty() && plan.before().is_none(),
        "{plan:?}"
    );
    let end = now() + seconds(600);
    assert_eq!(phase(&case.at(end).settle(end, &[])), Phase::Failed);
    case.hold = None;
    assert_eq!(operations(&case.at(later)), [ban("192.0.2.7", Some(600))]);
}

#[test]
fn a_due_lift_a_lift_by_hand_and_an_assertion_are_never_held() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.hold = Some(hold());
    case.assert = Assert::Due;
    assert_eq!(operations(&case.decide()), [ban("192.0.2.7", Some(540))]);
    let due = case.at(now() + seconds(540));
    assert_eq!(operations(&due), [unban("192.0.2.7")]);
    case.block.spec.unblock = Some(true);
    assert_eq!(operations(&case.decide()), [unban("192.0.2.7")]);
}

#[test]
fn the_brake_keeps_a_refused_ban_until_its_end_and_a_lift_by_hand_passes_it() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.policy.allowlist = allowed("192.0.2.0/24");
    case.keeps_refused = Some("the brake holds the lift of 100 bans");
    let plan = case.decide();
    assert_eq!(operations(&plan), [ban("192.0.2.7", Some(540))]);
    let settled = case.apply(&plan, now());
    assert_eq!(reasons(&settled), ["LiftBraked"]);
    let status = case.status();
    assert!(status.is(&Phase::Active) && status.result == Some(ResultCode::Success));
    assert_eq!(
        ready(&status),
        (ConditionStatus::False, "LiftBraked".into())
    );
    assert!(case.decide().is_rest(), "it is written once");
    let due = case.at(now() + seconds(540));
    assert_eq!(operations(&due), [unban("192.0.2.7")]);
    let mut by_hand = case.clone();
    by_hand.block.spec.unblock = Some(true);
    assert_eq!(operations(&by_hand.decide()), [unban("192.0.2.7")]);
    // The edit is taken back, or released.
    let mut released = case.clone();
    released.keeps_refused = None;
    let plan = released.decide();
    assert_eq!(phase(&settle(&plan)), Phase::Skipped);
    case.policy.allowlist.clear();
    case.keeps_refused = None;
    let settled = case.apply(&case.decide(), now());
    assert_eq!(
        ready(&settled.status.unwrap()),
        (ConditionStatus::True, "Banned".into())
    );
    let new = Case {
        policy: released.policy.clone(),
        keeps_refused: Some("the brake"),
        ..Case::new("192.0.2.8", "10m")
    };
    assert_eq!(
        phase(&settle(&new.decide())),
        Phase::Skipped,
        "a new ban follows the policy"
    );
}

#[test]
fn alerts_do_not_lengthen_a_refused_ban_that_the_brake_keeps_and_may_shorten_it() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.policy.allowlist = allowed("192.0.2.0/24");
    case.keeps_refused = Some("the brake holds the lift of 100 bans");
    case.apply(&case.decide(), now());
    for asked in ["1h", ""] {
        case.block.spec.duration = Some(asked.into());
        case.block.spec.trigger = Some(true);
        case.apply(&case.decide(), now());
        assert_eq!(length(&case.status()), 600, "asked for {asked:?}");
    }
    case.block.spec.duration = Some("5m".into());
    let plan = case.decide();
    assert_eq!(operations(&plan), [ban("192.0.2.7", Some(240))]);
    case.apply(&plan, now());
    assert_eq!(length(&case.status()), 300);
}

#[test]
fn a_ban_whose_alerts_are_resolved_stays_until_its_end_while_the_brake_holds_such_lifts() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.annotate(RESOLVED, &now().to_string());
    case.block.spec.duration = Some("60s".into());
    let bans = case.status().bans();
    let plan = case.decide();
    assert!(plan.0.lifts_resolved());
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
    case.keeps_resolved = Some("the brake holds the lifts");
    let settled = case.apply(&case.decide(), now());
    assert_eq!(reasons(&settled), ["ResolvedBraked"]);
    assert_eq!(settled.wake, Some(RESYNC));
    let status = case.status();
    assert_eq!((phase(&settled), length(&status)), (Phase::Active, 600));
    let message = status.message.unwrap();
    assert!(
        message.ends_with("its alerts are resolved; the brake holds the lifts"),
        "{message}"
    );
    assert!(case.decide().is_rest(), "it is written once");
    let end = case.at(now() + seconds(540));
    assert_eq!(operations(&end), [unban("192.0.2.7")], "its own end");
    assert!(!end.0.lifts_resolved());
    // The alert fires again: the trigger writes the duration that was granted, and a release lifts nothing.
    let mut again = case.clone();
    again.block.spec.duration = Some("10m".into());
    let annotations = again.block.metadata.annotations.as_mut().unwrap();
    annotations.remove(RESOLVED);
    for keeps_resolved in [Some("the brake holds the lifts"), None] {
        again.keeps_resolved = keeps_resolved;
        let plan = again.decide();
        assert!(!plan.0.lifts_resolved());
        assert!(!operations(&plan).contains(&unban("192.0.2.7")));
        again.apply(&plan, now());
        let status = again.status();
        assert_eq!((length(&status), status.bans()), (600, bans));
        let ready = status.condition("Ready").unwrap();
        assert_ne!(ready.reason, "ResolvedBraked");
    }
    case.keeps_resolved = None;
    assert_eq!(operations(&case.decide()), [unban("192.0.2.7")], "released");
}

fn held(case: &Case) -> Option<String> {
    let status = case.status();
    let held = status.condition(condition::LIFT_HELD)?;
    assert_eq!(held.status, ConditionStatus::True);
    Some(format!("{}: {}", held.reason, held.message))
}

#[test]
fn what_a_brake_holds_is_marked_as_held_also_while_the_gateway_is_away() {
    let resolved = "the brake holds the lifts: to alerts-am-7";
    for (resolves, away_before) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut case = Case::active("192.0.2.7", "10m", 60);
        case.assert = Assert::Due;
        if away_before {
            fail(&mut case, now());
            assert_eq!(held(&case), None);
        }
        if resolves {
            case.annotate(RESOLVED, &now().to_string());
            case.block.spec.duration = Some("60s".into());
            case.keeps_resolved = Some(resolved);
        } else {
            case.policy.allowlist = allowed("192.0.2.0/24");
            case.keeps_refused = Some("the brake holds the lift of 100 bans");
        }
        if !away_before {
            case.apply(&case.decide(), now());
        }
        fail(&mut case, now());
        assert_eq!(ready(&case.status()).1, "GatewayRefused");
        let shown = held(&case).unwrap();
        if resolves {
            assert!(shown.starts_with("ResolvedBraked: "), "{shown}");
            assert!(shown.ends_with(resolved), "{shown}");
        } else {
            assert!(shown.starts_with("LiftBraked: "), "{shown}");
        }
        // Released, and the gateway is still away.
        let mut released = case.clone();
        (released.keeps_resolved, released.keeps_refused) = (None, None);
        fail(&mut released, now());
        assert_eq!(held(&released), None);
        // The edit is taken back, or the alert fires again.
        case.policy.allowlist.clear();
        case.block.spec.duration = Some("20m".into());
        case.apply(&case.decide(), now());
        assert_eq!(held(&case), None);
    }
}

#[test]
fn a_refused_ban_whose_alerts_are_resolved_stays_until_its_end_while_the_brake_on_edits_holds() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.policy.allowlist = allowed("192.0.2.0/24");
    case.keeps_refused = Some("the brake holds the lift of 100 bans");
    case.annotate(RESOLVED, &now().to_string());
    case.block.spec.duration = Some("60s".into());
    for keeps_resolved in [None, Some("the brake holds the lifts")] {
        let mut case = case.clone();
        case.keeps_resolved = keeps_resolved;
        let plan = case.decide();
        assert_eq!(operations(&plan), [ban("192.0.2.7", Some(540))]);
        case.apply(&plan, now());
        assert_eq!(length(&case.status()), 600);
        let end = case.at(now() + seconds(540));
        assert_eq!(operations(&end), [unban("192.0.2.7")], "its own end");
    }
    // An edit that shortens the duration lifts the ban.
    let annotations = case.block.metadata.annotations.as_mut().unwrap();
    annotations.remove(RESOLVED);
    assert_eq!(operations(&case.decide()), [unban("192.0.2.7")]);
}

#[test]
fn a_lift_by_hand_and_an_edited_duration_are_no_lifts_of_resolved_alerts() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.spec.duration = Some("60s".into());
    assert!(!case.decide().0.lifts_resolved(), "edited");
    case.annotate(RESOLVED, &(now() - seconds(61)).to_string());
    assert!(!case.decide().0.lifts_resolved(), "of an earlier ban");
    case.annotate(RESOLVED, &now().to_string());
    assert!(case.decide().0.lifts_resolved());
    case.keeps_resolved = Some("the brake holds the lifts");
    case.block.spec.unblock = Some(true);
    let plan = case.decide();
    assert!(!plan.0.lifts_resolved());
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
}

/// The address of a braked ban is edited, as servers without CEL let it be.
fn edited_while_braked() -> Case {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.keeps_refused = Some("the brake holds the lift of 100 bans");
    case.block.spec.ip = "198.51.100.1".into();
    case
}

#[test]
fn a_braked_block_that_is_edited_to_a_refused_address_lifts_and_bans_nothing() {
    let mut case = edited_while_braked();
    case.policy.allowlist = allowed("198.51.100.0/24");
    let plan = case.decide();
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
    assert_eq!(phase(&settle(&plan)), Phase::Skipped);
}

#[test]
fn a_braked_block_of_a_shadow_source_whose_address_is_edited_lifts_and_bans_nothing() {
    let mut case = edited_while_braked();
    case.shadow = Some("feed");
    let plan = case.decide();
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
    let settled = settle(&plan);
    assert_eq!(phase(&settled), Phase::Skipped);
    assert_eq!(settled.effect, Effect::Lifted(Cause::Refused, None));
}

#[test]
fn a_source_in_shadow_mode_shows_what_it_would_ban_and_calls_nothing() {
    let mut case = Case::new("192.0.2.7", "10m");
    case.shadow = Some("feed");
    let plan = case.decide();
    assert!(plan.calls().is_empty() && plan.before().is_none());
    let settled = case.apply(&plan, now());
    assert_eq!(
        (phase(&settled), settled.effect),
        (Phase::Skipped, Effect::Shadowed)
    );
    assert_eq!(reasons(&settled), ["Shadow"]);
    let status = case.status();
    let message = status.message.clone().unwrap();
    assert!(
        message.starts_with("would ban 192.0.2.7 for 10m: the source feed"),
        "{message}"
    );
    let shown = status.condition(condition::SHADOW).unwrap();
    assert_eq!(shown.status, ConditionStatus::True);
    assert_eq!(case.decide().settle(now(), &[]).effect, Effect::None);
    // Each further alert counts, without an Event.
    case.block.spec.trigger = Some(true);
    let settled = settle(&case.decide());
    assert_eq!(
        (settled.effect, settled.announcements.len()),
        (Effect::Shadowed, 0)
    );
    let later = now() + seconds(60);
    case.apply(&case.at(later), later);
    let shadow = case.status().condition(condition::SHADOW).cloned();
    assert_eq!(
        shadow,
        status.condition(condition::SHADOW).cloned(),
        "no transition"
    );
    case.block.spec.trigger = Some(false);
    case.shadow = None;
    assert_eq!(operations(&case.decide()), [ban("192.0.2.7", Some(600))]);
    let banned = case.clone().apply(&case.decide(), now()).status.unwrap();
    let shown = banned.condition(condition::SHADOW).unwrap();
    assert_eq!(shown.status, ConditionStatus::False);
    assert!(case.at(now() + seconds(600)).is_rest(), "its time is over");
}

#[test]
fn a_standing_ban_whose_source_enters_shadow_mode_is_lifted_and_an_ended_one_stays_as_it_is() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.shadow = Some("feed");
    let plan = case.decide();
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
    let settled = settle(&plan);
    assert_eq!(settled.effect, Effect::Lifted(Cause::Refused, None));
    let mut ended = Case::active("192.0.2.7", "10m", 3600);
    ended.apply(&ended.decide(), now());
    ended.shadow = Some("feed");
    assert!(ended.decide().is_rest());
}

fn growing() -> Option<Escalation> {
    Some(Escalation {
        jitter: 0.0,
        cap: Duration::from_secs(3 * 3600),
        ..Escalation::default()
    })
}

/// The length of the ban that stands.
fn length(status: &IPBlockStatus) -> i64 {
    let (began, end) = (status.blocked_at().unwrap(), status.expires_at().unwrap());
    end.duration_since(began).as_secs()
}

#[test]
fn each_ban_of_an_address_lasts_longer_and_stays_so_whatever_the_configuration_becomes() {
    let mut case = Case::new("192.0.2.7", "1h");
    case.escalation = growing();
    let mut at = now();
    for (step, hours) in [(1, 1), (2, 2), (3, 3), (4, 3)] {
        let plan = case.at(at);
        let banned = case.apply(&plan, at);
        let status = case.status();
        assert_eq!(length(&status), hours * 3600, "step {step}");
        assert_eq!(status.escalation.as_ref().unwrap().step, step);
        let note = &banned.announcements[0].note;
        assert_eq!(note.contains("instead of 1h"), step > 1, "{note}");
        // Factor and cap are edited, or escalation is removed: what was granted stays.
        let mut edited = case.clone();
        edited.escalation = None;
        assert!(edited.at(at).is_rest(), "{:?}", edited.at(at));
        at += seconds(hours * 3600);
        let lifted = case.at(at);
        assert_eq!(operations(&lifted), [unban("192.0.2.7")], "step {step}");
        case.apply(&lifted, at);
        case.block.spec.trigger = Some(true);
    }
}

#[test]
fn an_edited_duration_of_a_lengthened_ban_is_followed_as_it_is() {
    let mut case = Case::new("192.0.2.7", "1h");
    case.escalation = growing();
    case.block.status = Some(IPBlockStatus {
        ban_count: Some(1),
        ..IPBlockStatus::default()
    });
    case.apply(&case.decide(), now());
    assert_eq!(length(&case.status()), 2 * 3600);
    case.block.spec.duration = Some("90m".into());
    case.apply(&case.decide(), now());
    assert_eq!(length(&case.status()), 90 * 60);
    let step = |case: &Case| case.status().escalation.unwrap().step;
    assert_eq!(step(&case), 2);
    // A longer one is the next step where alerts escalate.
    case.escalates_active = true;
    case.block.spec.duration = Some("3h".into());
    case.apply(&case.decide(), now());
    assert_eq!((length(&case.status()), step(&case)), (3 * 3600, 3));
    assert!(case.decide().is_rest());
}

#[test]
fn a_ban_that_an_earlier_process_may_have_made_is_lifted_while_it_waits() {
    let mut case = Case::new("192.0.2.7", "10m");
    let plan = case.decide();
    // The intent is recorded, the gateway called, and the process ends.
    let before = plan.before().cloned().unwrap();
    case.block.metadata.finalizers = Some(vec![FINALIZER.into()]);
    case.annotate(INTENT, &before.intent.unwrap().unwrap().to_string());
    case.hold = Some(Hold {
        may_stand: true,
        ..hold()
    });
    let plan = case.decide();
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
    let settled = case.apply(&plan, now());
    assert_eq!(phase(&settled), Phase::Pending);
    case.hold = Some(hold());
    assert!(case.decide().calls().is_empty());
}

#[test]
fn a_refused_ban_that_waited_since_is_not_reported_as_over_once_more() {
    let mut case = Case::active("192.0.2.7", "1h", 60);
    let refused = Policy {
        allowlist: allowed("192.0.2.7"),
        ..Policy::default()
    };
    case.policy = refused.clone();
    let settled = case.apply(&case.decide(), now());
    assert_eq!(settled.announcements[0].notice, Some(Notice::Resolve));
    // It is asked for again, which its intent records, and waits.
    case.policy = Policy::default();
    case.hold = Some(hold());
    let settled = case.apply(&case.decide(), now());
    assert_eq!(phase(&settled), Phase::Pending);
    case.policy = refused;
    let plan = case.decide();
    assert_eq!(operations(&plan), [unban("192.0.2.7")], "by its intent");
    let settled = case.apply(&plan, now());
    assert_eq!(phase(&settled), Phase::Skipped);
    assert_eq!(settled.announcements[0].notice, None);
}
