//! Gateways that are replaced, gone, unknown or not followed.

use super::*;

#[test]
fn a_moved_gateway_bans_at_the_new_one_first_then_lifts_at_the_old_one() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.place = Some(there());
    let plan = case.decide();
    let intent = plan.before().unwrap().intent.clone().unwrap().unwrap();
    assert_eq!(intent.standing.place, there());
    assert_eq!(intent.also, [standing("192.0.2.7", here())]);
    assert_eq!(
        operations(&plan),
        [
            (
                "192.0.2.7 @ new-gateway:9521".into(),
                Operation::Ban(Some(Duration::from_secs(540)))
            ),
            unban("192.0.2.7"),
        ]
    );
    assert!(plan.calls()[0].required && !plan.calls()[1].required);
    assert!(
        plan.after(&[])
            .unwrap()
            .intent
            .unwrap()
            .unwrap()
            .also
            .is_empty()
    );
    let old = [standing("192.0.2.7", here())];
    assert_eq!(
        plan.after(&old),
        None,
        "what could not be lifted stays in the intent"
    );
    assert!(reasons(&plan.settle(now(), &old)).contains(&"LeftBehind"));
    let settled = case.apply(&plan, now());
    assert_eq!(reasons(&settled), ["Moved"]);
    assert!(case.decide().is_rest());
}

#[test]
fn a_ban_without_a_place_where_it_stands_is_made_or_comes_to_its_end() {
    // The earlier gateway is withdrawn, and the new one refused the only call.
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.untouched = vec![here()];
    case.assert = Assert::Due;
    assert_eq!(operations(&case.decide()), [ban("192.0.2.7", Some(540))]);
    let due = case.at(now() + seconds(540));
    assert!(operations(&due).is_empty());
    let settled = due.settle(now() + seconds(540), &[]);
    assert_eq!(phase(&settled), Phase::Expired);
    let notices: Vec<_> = settled.announcements.iter().map(|it| it.notice).collect();
    assert_eq!(notices, [Some(Notice::Resolve)]);
}

#[test]
fn a_ban_that_was_begun_is_lifted_at_the_end_of_its_time_without_an_engine() {
    let mut case = Case::new("192.0.2.7", "2m");
    fail(&mut case, now());
    case.place = None;
    let waiting = settle(&case.decide());
    // Half of its time is over.
    assert_eq!(waiting.wake, Some(Duration::from_secs(60)));
    let end = now() + seconds(60);
    assert_eq!(operations(&case.at(end)), [unban("192.0.2.7")]);
}

#[test]
fn what_an_earlier_gateway_keeps_is_recorded_once() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.place = Some(there());
    let left = [standing("192.0.2.7", here())];
    let plan = case.decide();
    assert_eq!(plan.after(&left), None, "as before the calls");
    let intent = plan.before().unwrap().intent.clone().unwrap().unwrap();
    case.annotate(INTENT, &intent.to_string());
    case.assert = Assert::Due;
    let again = case.decide();
    assert!(again.before().is_none());
    assert_eq!(again.after(&left), None);
    assert!(again.after(&[]).is_some(), "it is lifted");
}

#[test]
fn an_expired_block_does_not_care_about_a_new_engine() {
    let mut case = Case::active("192.0.2.7", "1m", 61);
    let plan = case.decide();
    case.apply(&plan, now());
    case.place = Some(Place::new("xdp", "gateway:9521"));
    assert!(case.decide().is_rest());
}

#[test]
fn without_an_engine_a_block_waits_and_a_due_one_is_lifted_where_it_was_banned() {
    let mut case = Case::new("192.0.2.7", "10m");
    case.place = None;
    let plan = case.decide();
    assert!(plan.before().is_none() && plan.calls().is_empty());
    let settled = case.apply(&plan, now());
    assert_eq!(phase(&settled), Phase::Pending);
    assert_eq!(reasons(&settled), ["NoEngine"]);
    assert!(settled.wake.is_some());
    assert!(
        settle(&case.decide()).announcements.is_empty(),
        "reported once"
    );
    let mut due = Case::active("192.0.2.7", "10m", 601);
    due.place = None;
    assert_eq!(operations(&due.decide()), [unban("192.0.2.7")]);
}

#[test]
fn what_may_stand_at_an_unknown_gateway_waits_for_the_engine_instead_of_being_let_go() {
    type Ask = (&'static str, fn(&mut Case));
    let asks: [Ask; 5] = [
        ("deleted", |case| {
            case.block.metadata.finalizers = Some(vec![FINALIZER.into()]);
            case.block.metadata.deletion_timestamp = Some(Time(now()));
        }),
        ("unblock", |case| case.block.spec.unblock = Some(true)),
        ("allowlisted", |case| {
            case.policy.allowlist = allowed("192.0.2.0/24");
        }),
        ("due", |case| {
            case.block.status.as_mut().unwrap().blocked_at = Some("2026-01-01T00:00:00Z".into());
        }),
        ("unreadable", |case| case.block.spec.ip = "nonsense".into()),
    ];
    let mut unannotated = Case::active("192.0.2.7", "10m", 601);
    unannotated.block.metadata.annotations = None;
    for (name, ask) in asks {
        for (whose, mut case) in [
            ("the original's active", originals(Phase::Active, 60)),
            ("the original's failed", originals(Phase::Failed, 60)),
            ("without its annotation", unannotated.clone()),
        ] {
            case.block.status.as_mut().unwrap().target = Some("192.0.2.7".into());
            ask(&mut case);
            case.place = None;
            let plan = case.decide();
            assert!(
                plan.calls().is_empty() && plan.before().is_none() && plan.after(&[]).is_none(),
                "{whose}, {name}: {plan:?}"
            );
            let before = case.status().phase;
            let settled = case.apply(&plan, now());
            assert_eq!(case.status().phase, before, "{whose}, {name}");
            assert_eq!(reasons(&settled), ["NoEngine"], "{whose}, {name}");
            assert_eq!(settled.wake, Some(RESYNC), "{whose}, {name}: no hot loop");
            case.place = Some(here());
            assert_eq!(
                operations(&case.decide()),
                [unban("192.0.2.7")],
                "{whose}, {name}: lifted once there is an engine"
            );
        }
    }
}

#[test]
fn the_release_annotation_lets_go_of_what_stands_at_an_unknown_gateway_and_says_so() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.metadata.annotations = None;
    case.block.metadata.deletion_timestamp = Some(Time(now()));
    case.annotate(RELEASE_ANNOTATION, "true");
    case.place = None;
    let plan = case.decide();
    assert_eq!(plan.after(&[]).unwrap().finalizer, Some(false));
    assert_eq!(reasons(&settle(&plan)), ["Released"]);
}

/// Whether the lift at each place is required.
fn required(case: &Case, place: &Place, at: Timestamp) -> bool {
    let plan = case.at(at);
    let mut calls = plan.calls().iter();
    let call = calls.find(|call| call.standing.place == *place);
    call.expect("it is called").required
}

#[test]
fn a_lift_waits_for_a_dead_gateway_that_was_replaced_for_ten_minutes_from_its_first_failure() {
    type Ask = (&'static str, fn(&mut Case));
    let asks: [Ask; 5] = [
        ("allowlisted", |case| {
            case.policy.allowlist = allowed("192.0.2.0/24");
        }),
        ("unblock", |case| case.block.spec.unblock = Some(true)),
        ("wrong spec", |case| case.block.spec.ip = "nonsense".into()),
        ("due", |case| case.block.spec.duration = Some("1m".into())),
        ("deleted", |case| {
            case.block.metadata.deletion_timestamp = Some(Time(now()));
        }),
    ];
    for (name, ask) in asks {
        let mut case = Case::active("192.0.2.7", "7d", 60);
        // An outage of the gateway while it was the configured one.
        case.assert = Assert::Due;
        fail(&mut case, now());
        case.place = Some(there());
        ask(&mut case);
        let late = now() + seconds(3_600);
        assert!(required(&case, &here(), late), "{name}: not called yet");
        let settled = fail_to_lift(&mut case, &here(), late);
        assert_eq!(reasons(&settled), ["LiftFailed"], "{name}");
        let note = &settled.announcements[0].note;
        assert_eq!(
            note,
            "lifting the ban failed at an earlier gateway (iptables at gateway:9521, 192.0.2.7), retrying until 2026-01-01T13:10:00Z: connection refused",
            "{name}"
        );
        let again = fail_to_lift(&mut case, &here(), late + seconds(300));
        assert!(again.status.is_none() && again.announcements.is_empty());
        assert!(required(&case, &here(), late + seconds(599)), "{name}");
        let end = late + seconds(600);
        assert!(!required(&case, &here(), end), "{name}");
        assert!(required(&case, &there(), end), "{name}: it is configured");

        let settled = case.at(end).settle(end, &[standing("192.0.2.7", here())]);
        let status = settled.status.clone().unwrap();
        assert!(reasons(&settled).contains(&"LeftBehind"), "{name}");
        assert!(status.condition("Lifted").is_none(), "{name}");
        let message = &status.condition("Ready").unwrap().message;
        let left = "could not be lifted: 192.0.2.7 at iptables at gateway:9521";
        assert!(message.contains(left), "{name}: {message}");
        assert_eq!(
            status.is(&Phase::Active),
            name == "deleted",
            "{name}: {status:?}"
        );
    }
}

#[test]
fn a_lift_that_failed_and_is_not_wanted_any_more_leaves_no_trace() {
    let mut case = Case::active("192.0.2.7", "7d", 60);
    case.policy.allowlist = allowed("192.0.2.7");
    fail_to_lift(&mut case, &here(), now());
    assert!(case.status().condition("Lifted").is_some());
    case.policy.allowlist.clear();
    case.assert = Assert::Due;
    let plan = case.decide();
    assert_eq!(operations(&plan).len(), 1, "what was lifted is banned");
    case.apply(&plan, now());
    assert!(case.status().condition("Lifted").is_none());
    // An assertion that fails for the same reason is reported too.
    case.block.spec.unblock = Some(true);
    fail_to_lift(&mut case, &here(), now());
    case.block.spec.unblock = Some(false);
    fail(&mut case, now());
    assert!(case.status().condition("Lifted").is_none());
    // The next lift has its own time.
    case.place = Some(there());
    case.block.spec.unblock = Some(true);
    assert!(required(&case, &here(), now() + seconds(3_600)));
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
    let settled = plan.settle(late, &[]);
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
    assert_eq!(phase(&plan.settle(late, &[])), Phase::Expired);
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
    fail_to_lift(&mut case, &here(), now() + seconds(540));
    for (late, expected) in [(540, true), (1_139, true), (1_140, false)] {
        let needed = required(&case, &here(), now() + seconds(late));
        assert_eq!(needed, expected, "after {late} s");
    }
    let at = now() + seconds(1_140);
    let stands = [standing("192.0.2.7", here())];
    let settled = case.at(at).settle(at, &stands);
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

#[test]
fn a_standing_ban_is_asserted_where_it_is_and_lifted_nowhere_else_while_the_next_gateway_is_held() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.place = None;
    case.unrecorded = Some(there());
    case.assert = Assert::Due;
    let plan = case.decide();
    assert_eq!(plan.before(), None);
    assert_eq!(operations(&plan), [ban("192.0.2.7", Some(540))]);
    assert_eq!(plan.calls()[0].standing.place, here());
    case.block.spec.unblock = Some(true);
    let plan = case.decide();
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
    assert_eq!(plan.calls()[0].standing.place, here());
}
