//! Objects of the original operator.

use super::*;

#[test]
fn an_active_object_of_the_original_is_adopted_without_a_notification() {
    let mut case = originals(Phase::Active, 60);
    let plan = case.decide();
    assert_eq!(plan.before().unwrap().finalizer, Some(true));
    assert_eq!(operations(&plan), [ban("192.0.2.7", Some(540))]);
    let settled = case.apply(&plan, now());
    let status = case.status();
    assert_eq!(status.blocked_at.as_deref(), Some("2026-01-01T11:59:00Z"));
    assert_eq!(status.expires_at.as_deref(), Some("2026-01-01T12:09:00Z"));
    assert_eq!(status.ban_count, Some(1));
    assert!(status.last_spec_hash.unwrap().starts_with("v1:"));
    assert_eq!(reasons(&settled), ["Adopted"]);
    assert!(
        settled
            .announcements
            .iter()
            .all(|said| said.notice.is_none())
    );
    assert!(case.decide().is_rest());
}

#[test]
fn an_overdue_object_of_the_original_is_lifted_at_once() {
    let plan = originals(Phase::Active, 86_400).decide();
    assert_eq!(plan.before(), None);
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
    assert_eq!(phase(&settle(&plan)), Phase::Expired);
}

#[test]
fn settled_objects_of_the_original_are_not_touched() {
    let plan = originals(Phase::Expired, 86_400).decide();
    assert!(plan.is_rest() && settle(&plan).status.is_none());
    let plan = originals(Phase::Skipped, 86_400).decide();
    assert!(plan.is_rest() && settle(&plan).status.is_none());
}

#[test]
fn what_the_original_gave_up_on_is_banned_within_its_time_and_lifted_after_it() {
    assert_eq!(
        operations(&originals(Phase::Failed, 60).decide()),
        [ban("192.0.2.7", Some(600))]
    );
    assert_eq!(
        operations(&originals(Phase::Failed, 3_600).decide()),
        [unban("192.0.2.7")]
    );
}

#[test]
fn a_lift_of_what_the_original_gave_up_on_that_fails_is_tried_again() {
    let mut case = originals(Phase::Failed, 3_600);
    fail(&mut case, now());
    assert_eq!(case.status().phase, Some(Phase::Failed));
    let plan = case.decide();
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
    assert_eq!(phase(&case.apply(&plan, now())), Phase::Expired);
    assert!(case.decide().is_rest());
}

#[test]
fn the_fields_that_the_original_reads_are_kept_up_to_date_through_a_life() {
    let mut case = Case::new("192.0.2.7", "10m");
    case.apply(&case.decide(), now());
    let fields = |case: &Case| {
        let status = case.status();
        let word = |text: Option<String>| text.unwrap_or_default();
        (
            word(status.phase.map(|it| it.to_string())),
            status.result,
            word(status.blocked_at),
            word(status.unblocked_at),
            status.ban_count,
        )
    };
    let began = "2026-01-01T12:00:00Z".to_owned();
    let expected = |phase: &str, result, unblocked: &str, count| {
        let phase = phase.to_owned();
        (
            phase,
            Some(result),
            began.clone(),
            unblocked.to_owned(),
            Some(count),
        )
    };
    assert_eq!(
        fields(&case),
        expected("active", ResultCode::Success, "", 1)
    );
    let hash = case.status().last_spec_hash;
    assert!(hash.is_some() && case.status().message.is_some());
    let end = now() + seconds(600);
    case.apply(&case.at(end), end);
    let lifted = "2026-01-01T12:10:00Z";
    assert_eq!(
        fields(&case),
        expected("expired", ResultCode::Unblocked, lifted, 1)
    );
    case.block.spec.trigger = Some(true);
    let again = end + seconds(60);
    case.apply(&case.at(again), again);
    assert_eq!(case.block.spec.trigger, Some(false));
    let status = case.status();
    assert_eq!((status.ban_count, status.unblocked_at), (Some(2), None));
    assert_eq!(status.blocked_at.as_deref(), Some("2026-01-01T12:11:00Z"));
}

#[test]
fn a_ban_without_an_intent_is_lifted_but_not_asserted_at_a_gateway_that_no_record_names() {
    let mut case = originals(Phase::Active, 60);
    case.place = None;
    case.unrecorded = Some(here());
    let plan = case.decide();
    assert_eq!((plan.before(), plan.calls()), (None, &[][..]));
    let shortly_before = case.at(now() + seconds(440));
    assert_eq!(settle(&shortly_before).wake, Some(Duration::from_secs(100)));
    let due = case.at(now() + seconds(540));
    assert_eq!(operations(&due), [unban("192.0.2.7")]);
    case.block.spec.unblock = Some(true);
    assert_eq!(operations(&case.decide()), [unban("192.0.2.7")]);
}
