//! The rules, case by case.

mod endings;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::api::{
    FINALIZER, INTENT, IPBlockSpec, IPBlockStatus, Place, RELEASE_ANNOTATION, ResultCode,
};
use crate::policy::Policy;

const RESYNC: Duration = Duration::from_secs(300);

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn seconds(count: i64) -> SignedDuration {
    SignedDuration::from_secs(count)
}

fn here() -> Place {
    Place::new("iptables", "gateway:9521")
}

fn there() -> Place {
    Place::new("iptables", "new-gateway:9521")
}

fn standing(target: &str, place: Place) -> Standing {
    Standing {
        target: target.parse().unwrap(),
        place,
    }
}

/// Everything a case may set.
#[derive(Clone)]
struct Case {
    block: IPBlock,
    policy: Policy,
    place: Option<Place>,
    max: Option<Duration>,
    retention: Option<Duration>,
    neighbours: Vec<Neighbour>,
    assert: Assert,
}

impl Case {
    fn new(ip: &str, duration: &str) -> Self {
        let mut block = IPBlock::new(
            "a",
            IPBlockSpec {
                ip: ip.into(),
                duration: (!duration.is_empty()).then(|| duration.into()),
                ..IPBlockSpec::default()
            },
        );
        block.metadata.namespace = Some("default".into());
        block.metadata.generation = Some(1);
        block.metadata.creation_timestamp = Some(Time(now() - seconds(60)));
        Self {
            block,
            policy: Policy::default(),
            place: Some(here()),
            max: None,
            retention: None,
            neighbours: Vec::new(),
            assert: Assert::In(RESYNC),
        }
    }

    /// As our own operator left it, `age` seconds after its ban.
    fn active(ip: &str, duration: &str, age: i64) -> Self {
        let mut case = Self::new(ip, duration);
        let plan = case.at(now() - seconds(age));
        case.apply(&plan, now() - seconds(age));
        case
    }

    fn decide(&self) -> Plan {
        self.at(now())
    }

    fn at(&self, at: Timestamp) -> Plan {
        let world = World {
            policy: &self.policy,
            place: self.place.as_ref().ok_or("set engine and gatewayHost"),
            max_duration: self.max,
            retention: self.retention,
            neighbours: &self.neighbours,
            assert: self.assert,
            resync: RESYNC,
        };
        decide(&self.block, &world, at)
    }

    /// Runs a plan in which everything goes well.
    fn apply(&mut self, plan: &Plan, at: Timestamp) -> Settled {
        for patch in [plan.before().cloned(), plan.after(&[])]
            .into_iter()
            .flatten()
        {
            let metadata = &mut self.block.metadata;
            match patch.finalizer {
                Some(true) => metadata.finalizers = Some(vec![FINALIZER.into()]),
                Some(false) => metadata.finalizers = None,
                None => {}
            }
            if let Some(intent) = patch.intent {
                let annotations = metadata.annotations.get_or_insert_default();
                match intent {
                    Some(intent) => annotations.insert(INTENT.into(), intent.to_string()),
                    None => annotations.remove(INTENT),
                };
            }
            if patch.clear_unblock {
                self.block.spec.unblock = Some(false);
            }
            if patch.clear_trigger {
                self.block.spec.trigger = Some(false);
            }
        }
        let settled = plan.settle(at, self.block.metadata.generation, &[]);
        if let Some(status) = &settled.status {
            self.block.status = Some(status.clone());
        }
        settled
    }

    fn status(&self) -> IPBlockStatus {
        self.block.status.clone().unwrap_or_default()
    }

    fn annotate(&mut self, name: &str, value: &str) {
        self.block
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(name.into(), value.into());
    }
}

fn operations(plan: &Plan) -> Vec<(String, Operation)> {
    plan.calls()
        .iter()
        .map(|call| {
            (
                format!(
                    "{} @ {}",
                    call.standing.target, call.standing.place.endpoint
                ),
                call.operation,
            )
        })
        .collect()
}

fn ban(target: &str, left: Option<u64>) -> (String, Operation) {
    (
        format!("{target} @ gateway:9521"),
        Operation::Ban(left.map(Duration::from_secs)),
    )
}

fn unban(target: &str) -> (String, Operation) {
    (format!("{target} @ gateway:9521"), Operation::Unban)
}

fn reasons(settled: &Settled) -> Vec<&'static str> {
    settled
        .announcements
        .iter()
        .map(|said| said.reason)
        .collect()
}

fn settle(plan: &Plan) -> Settled {
    plan.settle(now(), Some(1), &[])
}

fn phase(settled: &Settled) -> Phase {
    settled
        .status
        .as_ref()
        .expect("a status is written")
        .phase
        .clone()
        .unwrap()
}

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
    let settled = plan.settle(now() + SignedDuration::from_millis(1_234), Some(1), &[]);
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
fn editing_reason_or_tags_never_bans_again() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.block.spec.reason = Some("other".into());
    case.block.spec.tags = vec!["x".into()];
    case.block.metadata.generation = Some(2);
    let plan = case.decide();
    assert!(plan.calls().is_empty());
    let status = plan.settle(now(), Some(2), &[]).status.unwrap();
    assert_eq!(status.observed_generation, Some(2));
    assert_eq!(status.blocked_at, case.status().blocked_at);
}

#[test]
fn a_changed_duration_counts_from_the_ban_and_tells_the_engine_what_is_left() {
    for (name, duration, expected) in [
        ("longer", "20m", Some(ban("192.0.2.7", Some(1_140)))),
        ("shorter", "2m", Some(ban("192.0.2.7", Some(60)))),
        ("for ever", "", Some(ban("192.0.2.7", None))),
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
    assert!(case.decide().is_rest(), "said once");
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
            "said once: {ip} {duration}"
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
    // Killed after the patch: flag and status say nothing, the intent does.
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
fn a_trigger_never_passes_the_allowlist() {
    let mut case = Case::new("192.0.2.7", "10m");
    case.policy.allowlist = vec!["192.0.2.0/28".parse().unwrap()];
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
    case.policy.allowlist = vec!["192.0.2.7".parse().unwrap()];
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

#[test]
fn a_block_whose_range_holds_an_allowlisted_address_is_skipped() {
    let mut case = Case::new("192.0.2.0/24", "10m");
    case.policy.allowlist = vec!["192.0.2.7".parse().unwrap()];
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

/// As the original leaves it: no finalizer, no end, the time of its own zone, an old hash.
fn originals(phase: Phase, age: i64) -> Case {
    let mut case = Case::new("192.0.2.7", "10m");
    let began = now() - seconds(age);
    let zone = jiff::tz::TimeZone::fixed(jiff::tz::offset(8));
    case.block.metadata.creation_timestamp = Some(Time(began));
    case.block.status = Some(IPBlockStatus {
        phase: Some(phase),
        result: Some(ResultCode::Success),
        blocked_at: Some(
            began
                .to_zoned(zone)
                .strftime("%Y-%m-%dT%H:%M:%S%:z")
                .to_string(),
        ),
        last_spec_hash: Some("9f86d081".into()),
        message: Some("limited".into()),
        ..IPBlockStatus::default()
    });
    case
}

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
fn a_start_far_ahead_of_the_clock_is_not_believed() {
    let mut case = Case::active("192.0.2.7", "10m", 0);
    case.assert = Assert::In(RESYNC);
    let plan = case.at(now() - seconds(7_200));
    let settled = plan.settle(now() - seconds(7_200), Some(1), &[]);
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
fn a_failed_ban_is_pending_and_told_once_a_reason() {
    let mut case = Case::new("192.0.2.7", "10m");
    let plan = case.decide();
    let refused = Failure {
        reason: "GatewayRefused".into(),
        message: "connection refused".into(),
    };
    let settled = plan.fail(&plan.calls()[0], &refused, Some(1), now());
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
    case.block.status = Some(status);
    let plan = case.decide();
    let same = plan.fail(&plan.calls()[0], &refused, Some(1), now());
    assert!(
        same.status.is_none() && same.announcements.is_empty(),
        "the same reason"
    );
    let other = Failure {
        reason: "GatewayTimeout".into(),
        message: "no answer".into(),
    };
    assert_eq!(
        reasons(&plan.fail(&plan.calls()[0], &other, Some(1), now())),
        ["BanFailed"]
    );
    assert_eq!(reasons(&settle(&plan)), ["Banned"]);
}

#[test]
fn a_failed_lift_stays_active_and_due() {
    let mut case = Case::active("192.0.2.7", "10m", 700);
    let plan = case.decide();
    let failure = Failure {
        reason: "GatewayTimeout".into(),
        message: "no answer".into(),
    };
    let settled = plan.fail(&plan.calls()[0], &failure, Some(1), now());
    assert_eq!(phase(&settled), Phase::Active);
    assert_eq!(reasons(&settled), ["LiftFailed"]);
    assert_eq!(settled.wake, Some(Duration::ZERO));
    case.block.status = settled.status;
    let again = case.decide();
    assert_eq!(operations(&again), [unban("192.0.2.7")]);
    assert_eq!(reasons(&settle(&again)), ["Expired"]);
}

#[test]
fn a_failed_assertion_is_tried_again_before_its_interval_and_said_when_it_holds_again() {
    let mut case = Case::active("192.0.2.7", "10m", 60);
    case.assert = Assert::Due;
    let plan = case.decide();
    let failure = Failure {
        reason: "GatewayRefused".into(),
        message: "connection refused".into(),
    };
    let settled = plan.fail(&plan.calls()[0], &failure, Some(1), now());
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
fn a_slow_call_is_shown_as_pending() {
    let plan = Case::new("192.0.2.7", "10m").decide();
    let shown = plan.in_progress(Some(1), now()).unwrap();
    assert_eq!(shown.phase, Some(Phase::Pending));
    assert!(shown.message.unwrap().contains("iptables at gateway:9521"));
    let mut due = Case::active("192.0.2.7", "10m", 60);
    due.assert = Assert::Due;
    assert_eq!(
        due.decide().in_progress(Some(1), now()),
        None,
        "an assertion is no news"
    );
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
    assert!(reasons(&plan.settle(now(), Some(1), &old)).contains(&"LeftBehind"));
    let settled = case.apply(&plan, now());
    assert_eq!(reasons(&settled), ["Moved"]);
    assert!(case.decide().is_rest());
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
    assert!(settle(&case.decide()).announcements.is_empty(), "said once");
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
            case.policy.allowlist = vec!["192.0.2.0/24".parse().unwrap()];
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

fn neighbour(target: &str, left: Option<i64>) -> Neighbour {
    Neighbour {
        key: "other/b".into(),
        standing: standing(target, here()),
        until: left.map(|left| now() + seconds(left)),
    }
}

#[test]
fn of_two_blocks_on_one_address_the_longest_wins() {
    for (name, left, expected) in [
        ("the other is longer", Some(900), Some(900)),
        ("the other is shorter", Some(30), Some(600)),
        ("the other is without end", None, None),
    ] {
        let mut case = Case::new("192.0.2.7", "10m");
        case.neighbours = vec![neighbour("192.0.2.7", left)];
        assert_eq!(
            operations(&case.decide()),
            [ban("192.0.2.7", expected)],
            "{name}"
        );
    }
}

#[test]
fn lifting_one_of_two_blocks_asserts_what_the_other_has_left() {
    let mut case = Case::active("192.0.2.7", "10m", 601);
    case.neighbours = vec![
        neighbour("192.0.2.7", Some(900)),
        neighbour("192.0.2.7", Some(60)),
    ];
    let plan = case.decide();
    assert_eq!(operations(&plan), [ban("192.0.2.7", Some(900))]);
    let settled = settle(&plan);
    assert_eq!(phase(&settled), Phase::Expired);
    assert!(
        settled
            .status
            .unwrap()
            .message
            .unwrap()
            .contains("stays banned by other/b")
    );
}

#[test]
fn a_neighbour_that_is_due_itself_keeps_nothing() {
    for left in [0, -5] {
        let mut case = Case::active("192.0.2.7", "10m", 601);
        case.neighbours = vec![neighbour("192.0.2.7", Some(left))];
        let plan = case.decide();
        assert_eq!(operations(&plan), [unban("192.0.2.7")], "{left}");
        let message = settle(&plan).status.unwrap().message.unwrap();
        assert!(!message.contains("stays banned"), "{message}");
    }
}

#[test]
fn a_neighbour_that_only_overlaps_does_not_keep_an_address() {
    let mut case = Case::active("192.0.2.7", "10m", 601);
    case.neighbours = vec![neighbour("192.0.2.0/24", Some(900))];
    assert_eq!(
        operations(&case.decide()),
        [unban("192.0.2.7")],
        "or it leaks when the range is lifted"
    );
    let mut other = neighbour("192.0.2.7", Some(900));
    other.standing.place = there();
    case.neighbours = vec![other];
    assert_eq!(
        operations(&case.decide()),
        [unban("192.0.2.7")],
        "banned elsewhere is not banned here"
    );
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

fn xdp() -> Place {
    Place::new("xdp", "gateway:9521")
}

#[test]
fn a_target_that_the_engine_cannot_express_fails_without_a_call() {
    let mut triggered = Case::new("2001:db8::7", "10m");
    triggered.block.spec.trigger = Some(true);
    let mut born = Case::new("2001:db8::7", "10m");
    let target = "2001:db8::7".parse().unwrap();
    born.annotate(INTENT, &Intent::new(target, here(), 1).to_string());
    for mut case in [Case::new("2001:db8::7", "10m"), triggered, born] {
        let plan = case.decide();
        assert_eq!(operations(&plan), []);
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
}
