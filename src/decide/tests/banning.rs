//! Bans, as they are made and kept.

use super::*;

#[test]
fn a_new_block_writes_its_intent_then_bans_then_says_so() {
    let case = Case::new("192.0.2.7/32", "10m");
    let plan = case.decide();
    let before = plan.before().unwrap();
    assert_eq!(before.finalizer, Some(true));
    let intent = before.intent.clone().unwrap().unwrap();
    assert_eq!(
        (intent.standing.clone(), intent.attempt),
        (standing("192.0.2.7", here()), 1)
    );
    assert_eq!(operations(&plan), [ban("192.0.2.7", Some(600))]);
    let settled = plan.settle(now() + SignedDuration::from_millis(1_234), &[]);
    let status = settled.status.clone().unwrap();
    assert_eq!(status.phase, Some(Phase::Active));
    assert_eq!(status.result, Some(ResultCode::Success));
    assert_eq!(
        status.blocked_at.as_deref(),
        Some("2026-01-01T12:00:01.234Z")
    );
    assert_eq!(
        status.expires_at.as_deref(),
        Some("2026-01-01T12:10:01.234Z")
    );
    assert_eq!(status.target.as_deref(), Some("192.0.2.7"));
    assert_eq!(
        (status.ban_count, status.observed_generation),
        (Some(1), Some(1))
    );
    assert_eq!(reasons(&settled), ["Banned"]);
    assert_eq!(settled.announcements[0].notice, Some(Notice::Ban));
    assert_eq!(settled.wake, Some(RESYNC));
    assert_eq!(settled.effect, Effect::Banned);
    assert_eq!(plan.after(&[]), None);
}

#[test]
fn an_object_born_with_its_intent_needs_no_patch() {
    let mut case = Case::new("192.0.2.7", "10m");
    let target = "192.0.2.7".parse().unwrap();
    case.block.metadata = IPBlock::born(
        "a",
        "default",
        &target,
        Some(&here()),
        case.block.spec.clone(),
    )
    .metadata;
    let plan = case.decide();
    assert_eq!(plan.before(), None);
    assert_eq!(operations(&plan), [ban("192.0.2.7", Some(600))]);
}

#[test]
fn a_settled_active_block_does_nothing_but_wakes_when_it_is_due() {
    let case = Case::active("192.0.2.7", "10m", 500);
    let plan = case.decide();
    assert!(plan.is_rest() && plan.before().is_none() && plan.calls().is_empty());
    let settled = settle(&plan);
    assert!(settled.status.is_none() && settled.announcements.is_empty());
    assert_eq!(settled.wake, Some(Duration::from_secs(100)));
}

#[test]
fn editing_reason_or_tags_never_bans_again() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.spec.reason = Some("other".into());
    case.block.spec.tags = vec!["x".into()];
    case.block.metadata.generation = Some(2);
    let plan = case.decide();
    assert!(plan.calls().is_empty());
    let status = plan.settle(now(), &[]).status.unwrap();
    assert_eq!(status.observed_generation, Some(2));
    assert_eq!(status.blocked_at, case.status().blocked_at);
}

#[test]
fn an_edit_that_changes_no_ban_moves_the_conditions_to_its_generation() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    let status = case.block.status.as_mut().unwrap();
    status.observed_generation = Some(1);
    status.set_condition("Enforced", ConditionStatus::True, "Banned", "banned", now());
    case.block.spec.reason = Some("other".into());
    case.block.metadata.generation = Some(2);
    let settled = case.decide().settle(now(), &[]).status.unwrap();
    let enforced = settled.condition("Enforced").unwrap();
    assert_eq!(
        enforced.observed_generation,
        Some(2),
        "kubectl wait believes no earlier one"
    );
    assert_eq!(enforced.status, ConditionStatus::True);
}

#[test]
fn a_start_far_ahead_of_the_clock_is_not_believed() {
    let mut case = Case::active("192.0.2.7", "10m", 0);
    case.assert = Assert::In(RESYNC);
    let plan = case.at(now() - seconds(7_200));
    let settled = plan.settle(now() - seconds(7_200), &[]);
    assert_eq!(
        settled.status.unwrap().expires_at.as_deref(),
        Some("2026-01-01T10:10:00Z")
    );
    assert!(
        case.at(now() - seconds(30)).is_rest(),
        "half a minute is nothing"
    );
}

#[test]
fn a_standing_ban_is_asserted_again_without_a_write() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.assert = Assert::Due;
    let plan = case.decide();
    assert_eq!(plan.before(), None);
    assert_eq!(operations(&plan), [ban("192.0.2.7", Some(540))]);
    let settled = settle(&plan);
    assert!(settled.status.is_none() && settled.announcements.is_empty());
    assert_eq!(settled.wake, Some(RESYNC));
}

#[test]
fn a_failed_ban_is_pending_and_reported_once_a_reason() {
    let mut case = Case::new("192.0.2.7", "10m");
    let plan = case.decide();
    let refused = Failure {
        reason: "GatewayRefused".into(),
        message: "connection refused".into(),
        may_have_happened: false,
        ..Failure::default()
    };
    let settled = plan.fail(&plan.calls()[0], &refused, now());
    let status = settled.status.clone().unwrap();
    assert_eq!(
        (status.phase.clone(), status.result.clone()),
        (Some(Phase::Pending), Some(ResultCode::Failed))
    );
    assert!(
        status
            .message
            .as_deref()
            .unwrap()
            .contains("connection refused")
    );
    assert_eq!(status.condition("Ready").unwrap().reason, "GatewayRefused");
    assert_eq!(reasons(&settled), ["BanFailed"]);
    let notices = |settled: &Settled| settled.announcements[0].notice;
    assert_eq!(notices(&settled), Some(Notice::Trouble));
    case.block.status = Some(status);
    let plan = case.decide();
    let same = plan.fail(&plan.calls()[0], &refused, now());
    assert!(
        same.status.is_none() && same.announcements.is_empty(),
        "the same reason"
    );
    let other = Failure {
        reason: "GatewayTimeout".into(),
        message: "no answer".into(),
        may_have_happened: false,
        ..Failure::default()
    };
    let other = plan.fail(&plan.calls()[0], &other, now());
    assert_eq!(reasons(&other), ["BanFailed"]);
    assert_eq!(notices(&other), None, "the trouble is known");
    assert_eq!(reasons(&settle(&plan)), ["Banned"]);
}

#[test]
fn a_failed_assertion_is_tried_again_before_its_interval_and_said_when_it_holds_again() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.assert = Assert::Due;
    let plan = case.decide();
    let failure = Failure {
        reason: "GatewayRefused".into(),
        message: "connection refused".into(),
        may_have_happened: false,
        ..Failure::default()
    };
    let settled = plan.fail(&plan.calls()[0], &failure, now());
    assert_eq!(phase(&settled), Phase::Active);
    assert_eq!(
        settled
            .status
            .as_ref()
            .unwrap()
            .condition("Enforced")
            .unwrap()
            .status,
        ConditionStatus::Unknown
    );
    case.block.status = settled.status;
    case.assert = Assert::In(RESYNC);
    let again = case.decide();
    assert_eq!(operations(&again), [ban("192.0.2.7", Some(540))]);
    assert_eq!(reasons(&settle(&again)), ["Asserted"]);
}

#[test]
fn a_failed_assertion_of_a_block_whose_spec_is_not_followed_is_trouble_of_its_own() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.spec.duration = Some("soon".into());
    let settled = settle(&case.decide());
    let status = settled.status.unwrap();
    assert_eq!(status.result, Some(ResultCode::Failed));
    case.block.status = Some(status);
    case.assert = Assert::Due;
    let plan = case.decide();
    let failed = plan.fail(&plan.calls()[0], &refused(), now());
    assert_eq!(reasons(&failed), ["AssertFailed"]);
    assert_eq!(failed.announcements[0].notice, Some(Notice::Trouble));
}

#[test]
fn a_slow_call_is_shown_as_pending() {
    let plan = Case::new("192.0.2.7", "10m").decide();
    let shown = plan.in_progress(now()).unwrap();
    assert_eq!(shown.phase, Some(Phase::Pending));
    assert!(shown.message.unwrap().contains("iptables at gateway:9521"));
    let mut due = Case::active("192.0.2.7", "10m", 60);
    due.assert = Assert::Due;
    assert_eq!(
        due.decide().in_progress(now()),
        None,
        "an assertion is no news"
    );
}

#[test]
fn a_removed_finalizer_or_intent_is_written_again() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.metadata.finalizers = None;
    assert_eq!(case.decide().before().unwrap().finalizer, Some(true));
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.annotate(INTENT, "{}");
    let intent = case
        .decide()
        .before()
        .unwrap()
        .intent
        .clone()
        .unwrap()
        .unwrap();
    assert_eq!(intent.attempt, 1, "it is no new ban");
}

#[test]
fn the_patch_is_bound_to_the_version_and_keeps_other_finalizers() {
    let mut case = Case::new("192.0.2.7", "10m");
    case.block.metadata.resource_version = Some("42".into());
    case.block.metadata.finalizers = Some(vec!["other/one".into()]);
    let plan = case.decide();
    let patch = plan.before().unwrap().to_merge_patch(&case.block);
    assert_eq!(patch["metadata"]["resourceVersion"], "42");
    assert_eq!(
        patch["metadata"]["finalizers"],
        serde_json::json!(["other/one", FINALIZER])
    );
    assert!(patch["metadata"]["annotations"][INTENT].is_string());
    assert!(patch.get("spec").is_none());
}

#[test]
fn a_failure_shows_what_the_other_engines_do_and_is_announced_once() {
    let engine = |name: &str, enforced, message: Option<&str>| EngineStatus {
        name: name.into(),
        enforced,
        message: message.map(str::to_owned),
    };
    let mut case = Case::new("192.0.2.7", "10m");
    let mut fail = |edge| {
        let plan = case.decide();
        let failure = Failure {
            engines: vec![
                engine("edge", edge, None),
                engine("mesh", false, Some("503")),
            ],
            ..refused()
        };
        let settled = plan.fail(&plan.calls()[0], &failure, now());
        if let Some(status) = &settled.status {
            case.block.status = Some(status.clone());
        }
        (settled.status, settled.announcements.len())
    };
    let (status, announced) = fail(true);
    assert_eq!(status.unwrap().engines[0], engine("edge", true, None));
    assert_eq!(announced, 1);
    let (status, announced) = fail(true);
    assert!(status.is_none() && announced == 0, "it is written once");
    let (status, announced) = fail(false);
    assert_eq!(status.unwrap().engines[0], engine("edge", false, None));
    assert_eq!(announced, 0);
}
