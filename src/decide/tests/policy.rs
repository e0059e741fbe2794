//! Targets that may not be banned, and targets that an engine cannot ban.

use super::*;

#[test]
fn a_trigger_never_passes_the_allowlist() {
    let mut case = Case::new("192.0.2.7", "10m");
    case.policy.allowlist = allowed("192.0.2.0/28");
    case.block.spec.trigger = Some(true);
    let plan = case.decide();
    assert!(plan.calls().is_empty() && plan.before().is_none());
    assert!(plan.after(&[]).unwrap().clear_trigger);
    let settled = settle(&plan);
    assert_eq!(phase(&settled), Phase::Skipped);
    assert_eq!(reasons(&settled), ["Allowlisted"]);
}

#[test]
fn an_active_block_that_becomes_allowlisted_is_lifted_and_comes_back_within_its_time() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.policy.allowlist = allowed("192.0.2.7");
    let plan = case.decide();
    assert_eq!(operations(&plan), [unban("192.0.2.7")]);
    let settled = case.apply(&plan, now());
    assert_eq!(
        (phase(&settled), reasons(&settled)),
        (Phase::Skipped, vec!["Allowlisted"])
    );
    assert!(
        settle(&case.decide()).status.is_none(),
        "at rest while allowlisted"
    );
    case.policy.allowlist.clear();
    assert_eq!(operations(&case.decide()), [ban("192.0.2.7", Some(600))]);
    assert!(
        case.at(now() + seconds(600)).is_rest(),
        "its time has passed meanwhile"
    );
}

/// Found by a random day: the block became skipped, and was banned when the entry was removed.
#[test]
fn a_block_that_was_unblocked_stays_so_while_its_address_is_allowlisted_and_after() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.spec.unblock = Some(true);
    let plan = case.decide();
    case.apply(&plan, now());
    case.policy.allowlist = allowed("192.0.2.7");
    let plan = case.decide();
    assert!(plan.is_rest() && settle(&plan).status.is_none());
    case.policy.allowlist.clear();
    assert!(case.decide().is_rest());
    // A ban that is asked for while the address is allowlisted may come about later.
    case.policy.allowlist = allowed("192.0.2.7");
    case.block.spec.trigger = Some(true);
    let plan = case.decide();
    assert_eq!(phase(&case.apply(&plan, now())), Phase::Skipped);
}

/// Found by a random day: it became pending, and was lifted and reported once more.
#[test]
fn a_refused_block_stays_so_while_there_is_no_configuration() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.policy.allowlist = allowed("192.0.2.7");
    let plan = case.decide();
    assert_eq!(phase(&case.apply(&plan, now())), Phase::Skipped);
    case.policy.allowlist.clear();
    case.place = None;
    let plan = case.decide();
    assert!(plan.is_rest() && settle(&plan).status.is_none());
    case.place = Some(here());
    case.policy.allowlist = allowed("192.0.2.7");
    let plan = case.decide();
    assert_eq!(reasons(&settle(&plan)), Vec::<&str>::new());
    assert!(plan.calls().is_empty());
    case.policy.allowlist.clear();
    assert_eq!(operations(&case.decide()), [ban("192.0.2.7", Some(600))]);

    let mut wide = Case::new("198.51.0.0/16", "10m");
    let plan = wide.decide();
    assert_eq!(phase(&wide.apply(&plan, now())), Phase::Failed);
    wide.policy.min_prefix_v4 = 8;
    wide.place = None;
    assert!(wide.decide().is_rest());
}

/// Found by a random day: the next leader had no configuration yet.
#[test]
fn a_refused_block_whose_intent_is_left_is_reported_once() {
    let mut case = Case::new("192.0.2.7", "10m");
    fail(&mut case, now());
    case.policy.allowlist = allowed("192.0.2.7");
    let refused = settle(&case.decide());
    assert_eq!(phase(&refused), Phase::Skipped);
    assert_eq!(reasons(&refused), ["Allowlisted"]);
    // The patch after the report failed.
    case.block.status = refused.status;
    case.policy.allowlist.clear();
    case.place = None;
    let plan = case.decide();
    assert!(plan.is_rest() && settle(&plan).status.is_none());
    // A ban may have been begun since: it is lifted when its time is over.
    let left = Duration::from_secs(540);
    assert_eq!(settle(&plan).wake, Some(left));
    let late = case.at(now() + seconds(540));
    assert_eq!(operations(&late), [unban("192.0.2.7")]);
    case.place = Some(here());
    case.policy.allowlist = allowed("192.0.2.7");
    let plan = case.decide();
    assert_eq!(operations(&plan), [unban("192.0.2.7")], "to be sure");
    let settled = case.apply(&plan, now());
    assert_eq!((reasons(&settled), settled.effect), (vec![], Effect::None));
    assert!(case.decide().calls().is_empty(), "the intent is gone");
    case.policy.allowlist.clear();
    case.place = None;
    case.block.spec.trigger = Some(true);
    let waiting = settle(&case.decide());
    assert_eq!(phase(&waiting), Phase::Pending);
}

#[test]
fn a_block_whose_range_holds_an_allowlisted_address_is_skipped() {
    let mut case = Case::new("192.0.2.0/24", "10m");
    case.policy.allowlist = allowed("192.0.2.7");
    let settled = settle(&case.decide());
    assert_eq!(phase(&settled), Phase::Skipped);
    assert!(
        settled
            .status
            .unwrap()
            .message
            .unwrap()
            .contains("contains 192.0.2.7")
    );
}

#[test]
fn a_range_that_is_too_wide_fails_until_the_policy_allows_it() {
    let mut case = Case::new("198.51.0.0/16", "10m");
    let plan = case.decide();
    assert_eq!(phase(&case.apply(&plan, now())), Phase::Failed);
    case.policy.min_prefix_v4 = 16;
    assert_eq!(
        operations(&case.decide()),
        [ban("198.51.0.0/16", Some(600))]
    );
}

#[test]
fn a_refused_block_has_the_condition_allowlisted_until_it_is_banned() {
    use crate::api::condition::{ALLOWLISTED, ENFORCED, READY};
    let shown = |case: &Case| {
        let status = case.status();
        let of = |kind| status.condition(kind).map(|it| it.status);
        [READY, ENFORCED, ALLOWLISTED].map(of)
    };
    let (yes, no) = (Some(ConditionStatus::True), Some(ConditionStatus::False));
    let mut case = Case::new("192.0.2.7", "10m");
    case.policy.allowlist = allowed("192.0.2.7");
    case.apply(&case.decide(), now());
    assert_eq!(shown(&case), [yes, no, yes]);
    let since = case.status().condition(ALLOWLISTED).cloned();
    case.block.spec.trigger = Some(true);
    let later = now() + seconds(60);
    case.apply(&case.at(later), later);
    assert_eq!(
        case.status().condition(ALLOWLISTED).cloned(),
        since,
        "no transition"
    );
    case.block.spec.trigger = Some(false);
    case.policy.allowlist.clear();
    case.apply(&case.decide(), now());
    assert_eq!(shown(&case), [yes, yes, no]);
    let mut never = Case::new("192.0.2.7", "10m");
    never.apply(&never.decide(), now());
    assert_eq!(shown(&never), [yes, yes, None]);
    let mut wide = Case::new("198.51.0.0/16", "10m");
    wide.apply(&wide.decide(), now());
    assert_eq!(shown(&wide), [no, no, None], "it may be banned in parts");
}

#[test]
fn a_target_that_the_engine_cannot_express_fails_without_a_call() {
    let mut triggered = Case::new("2001:db8::7", "10m");
    triggered.block.spec.trigger = Some(true);
    let mut born = Case::new("2001:db8::7", "10m");
    let target = "2001:db8::7".parse().unwrap();
    born.annotate(INTENT, &Intent::new(target, here(), 1).to_string());
    // What an intent names may be in the set of a set engine that is not configured any more.
    let lift = vec![unban("2001:db8::7")];
    let plain = Case::new("2001:db8::7", "10m");
    for (mut case, lifts) in [(plain, vec![]), (triggered, vec![]), (born, lift)] {
        let plan = case.decide();
        assert_eq!(operations(&plan), lifts);
        assert!(plan.before().is_none(), "nothing is about to be enforced");
        let settled = case.apply(&plan, now());
        assert_eq!(phase(&settled), Phase::Failed);
        assert_eq!(reasons(&settled), ["Unsupported"]);
        assert_eq!(settled.wake, None, "only a change wakes it");
        let message = case.status().message.unwrap();
        assert!(
            message.contains("iptables cannot ban 2001:db8::7"),
            "{message}"
        );
        let again = case.decide();
        assert_eq!(operations(&again), []);
        assert_eq!(case.apply(&again, now()).status, None, "it is written once");
        case.block.metadata.deletion_timestamp = Some(Time(now()));
        assert_eq!(operations(&case.decide()), []);
    }
}

#[test]
fn another_engine_bans_what_the_former_could_not_express() {
    let mut case = Case::new("2001:db8::7", "10m");
    let plan = case.decide();
    case.apply(&plan, now());
    case.place = Some(xdp());
    let plan = case.decide();
    assert_eq!(operations(&plan), [ban("2001:db8::7", Some(600))]);
    assert_eq!(phase(&case.apply(&plan, now())), Phase::Active);
}

#[test]
fn an_engine_that_cannot_keep_a_standing_ban_has_it_lifted_where_it_stands() {
    let mut case = Case::new("2001:db8::7", "10m");
    case.place = Some(xdp());
    let plan = case.decide();
    case.apply(&plan, now());
    case.place = Some(here());
    let plan = case.decide();
    assert_eq!(operations(&plan), [unban("2001:db8::7")]);
    assert_eq!(plan.calls()[0].standing.place, xdp());
    let settled = case.apply(&plan, now());
    assert_eq!(phase(&settled), Phase::Failed);
    assert_eq!(reasons(&settled), ["Unsupported"]);
    let notice = settled.announcements[0].notice;
    assert_eq!(notice, Some(Notice::Resolve), "the ban is over");
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
fn a_target_that_only_a_set_engine_can_express_is_banned_kept_and_lifted() {
    let follower = Capabilities {
        v6: true,
        ranges: false,
        ttl: true,
        most: None,
    };
    let mut case = Case::new("2001:db8::7", "10m");
    case.followers = vec![follower];
    let plan = case.decide();
    assert_eq!(operations(&plan), [ban("2001:db8::7", Some(600))]);
    assert_eq!(phase(&case.apply(&plan, now())), Phase::Active);
    case.assert = Assert::Due;
    assert_eq!(operations(&case.decide()), [ban("2001:db8::7", Some(600))]);
    let mut ended = case.clone();
    ended.block.spec.unblock = Some(true);
    assert_eq!(operations(&ended.decide()), [unban("2001:db8::7")]);
    // The set engine is not configured any more: the ban stands nowhere.
    case.followers.clear();
    let plan = case.decide();
    assert_eq!(operations(&plan), [unban("2001:db8::7")]);
    assert_eq!(reasons(&case.apply(&plan, now())), ["Unsupported"]);
    let mut range = Case::new("2001:db8::/64", "10m");
    range.followers = vec![follower];
    assert_eq!(operations(&range.decide()), [], "neither takes ranges");
}
