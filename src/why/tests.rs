use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::api::{ALERT_ANNOTATION, ConditionStatus, IPBlock, IPBlockSpec, IPBlockStatus, Phase};
use crate::api::{UNBLOCKED, condition, write_time};
use crate::config;
use crate::target::Target;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn minutes(count: i64) -> Timestamp {
    now() + SignedDuration::from_mins(count)
}

fn block(name: &str, ip: &str, phase: Phase) -> IPBlock {
    let spec = IPBlockSpec {
        ip: ip.into(),
        source: Some("grafana".into()),
        reason: Some("scan".into()),
        ..IPBlockSpec::default()
    };
    let mut block = IPBlock::new(name, spec);
    block.metadata.namespace = Some("default".into());
    block.status = Some(IPBlockStatus {
        phase: Some(phase),
        ..IPBlockStatus::default()
    });
    block
}

fn active(name: &str, ip: &str, left: Option<i64>) -> IPBlock {
    let mut block = block(name, ip, Phase::Active);
    let status = block.status.as_mut().unwrap();
    status.target = ip.parse::<Target>().ok().map(|target| target.to_string());
    status.blocked_at = Some(write_time(minutes(-10)));
    status.expires_at = left.map(|left| write_time(minutes(left)));
    status.ban_count = Some(1);
    block
}

fn lifted(name: &str, ip: &str, ago: i64, reason: &str) -> IPBlock {
    let mut block = block(name, ip, Phase::Expired);
    let status = block.status.as_mut().unwrap();
    status.unblocked_at = Some(write_time(minutes(-ago)));
    status.set_condition(condition::READY, ConditionStatus::True, reason, "", now());
    block
}

fn ask(target: &str, blocks: &[IPBlock], rules: &Rules<'_>) -> Answer {
    let mut search = Search::new(target.parse().unwrap());
    for block in blocks {
        search.see(block);
    }
    search.answer(rules, now())
}

fn texts() -> BTreeMap<String, String> {
    [
        ("engine", "dry-run"),
        (
            "whitelist",
            "# offices\n203.0.113.10\n\n198.51.100.0/24 # ours",
        ),
        ("protectedRanges", "10.0.0.0/8"),
    ]
    .map(|(key, text)| (key.to_owned(), text.to_owned()))
    .into()
}

#[test]
fn an_answer_is_the_longest_ban_of_all_of_the_target() {
    let blocks = [
        active("short", "192.0.2.7", Some(5)),
        active("range", "192.0.2.0/24", Some(42)),
        active("other", "192.0.3.0/24", None),
    ];
    let rules = Rules::default();
    for (target, verdict, summary) in [
        (
            "192.0.2.7",
            Verdict::Banned,
            "192.0.2.7 is banned until 2026-01-01T12:42:00Z (in 42m)",
        ),
        (
            "192.0.2.9",
            Verdict::Banned,
            "192.0.2.9 is banned until 2026-01-01T12:42:00Z (in 42m)",
        ),
        (
            "192.0.3.1",
            Verdict::Banned,
            "192.0.3.1 is banned without end",
        ),
        (
            "192.0.0.0/16",
            Verdict::Partly,
            "192.0.0.0/16 is not banned as a whole, and 3 blocks ban parts of it",
        ),
        ("192.0.4.1", Verdict::Free, "192.0.4.1 is not banned"),
        ("2001:db8::1", Verdict::Free, "2001:db8::1 is not banned"),
    ] {
        let answer = ask(target, &blocks, &rules);
        assert_eq!((answer.verdict, &*answer.summary), (verdict, summary));
    }
    let answer = ask("192.0.2.7", &blocks, &rules);
    let names: Vec<&str> = answer.blocks.iter().map(|block| &*block.name).collect();
    assert_eq!(names, ["short", "range"], "the narrowest comes first");
    let endless = [
        active("a", "192.0.2.7", None),
        active("b", "192.0.2.7", Some(5)),
    ];
    assert_eq!(ask("192.0.2.7", &endless, &rules).until, None);
    let overdue = ask("192.0.2.7", &[active("a", "192.0.2.7", Some(-1))], &rules);
    assert!(
        overdue.summary.contains("the lift is due"),
        "{}",
        overdue.summary
    );
}

#[test]
fn a_refusal_names_the_line_of_its_entry() {
    let texts = texts();
    let config = config::parse(&texts, &config::Options::default()).unwrap();
    let rules = Rules {
        policy: Some(&config.policy),
        texts: Some(&texts),
        ..Rules::default()
    };
    for (target, reason, part) in [
        (
            "203.0.113.10",
            "Allowlisted",
            "is allowlisted (whitelist, line 2)",
        ),
        (
            "198.51.100.9",
            "Allowlisted",
            "range 198.51.100.0/24 (whitelist, line 4)",
        ),
        ("10.1.2.3", "Protected", "(protectedRanges, line 1)"),
        ("127.0.0.1", "Protected", "loopback"),
        ("192.0.0.0/16", "RangeTooWide", "minPrefixV4"),
    ] {
        let answer = ask(target, &[], &rules);
        assert_eq!(answer.verdict, Verdict::Refused, "{target}");
        assert!(answer.summary.contains(part), "{}", answer.summary);
        assert_eq!(answer.refused.unwrap().reason, reason);
    }
    let banned = ask(
        "203.0.113.10",
        &[active("a", "203.0.113.10", Some(5))],
        &rules,
    );
    assert_eq!(banned.verdict, Verdict::Banned);
    assert!(banned.facts[0].starts_with("a new ban would be refused"));
}

#[test]
fn a_pending_or_refused_block_gives_its_reason() {
    let mut pending = block("a", "192.0.2.7", Phase::Pending);
    let message = "banning failed (xdp 192.0.2.7), retrying: refused";
    pending.status.as_mut().unwrap().message = Some(message.into());
    let answer = ask(
        "192.0.2.7",
        std::slice::from_ref(&pending),
        &Rules::default(),
    );
    assert_eq!(answer.verdict, Verdict::Pending);
    assert!(answer.summary.ends_with(message), "{}", answer.summary);
    pending.status = None;
    let answer = ask("192.0.2.7", &[pending], &Rules::default());
    assert!(answer.summary.ends_with("has not seen the block yet"));
    let mut failed = block("a", "192.0.2.7", Phase::Failed);
    failed.status.as_mut().unwrap().message = Some("too long".into());
    let answer = ask("192.0.2.7", &[failed], &Rules::default());
    assert_eq!(answer.verdict, Verdict::Failed);
    assert_eq!(answer.summary, "192.0.2.7 is not banned: too long");
}

#[test]
fn a_lift_by_hand_has_a_grace_and_an_expiry_has_none() {
    let rules = Rules {
        unblock_grace: Some(Duration::from_secs(600)),
        ..Rules::default()
    };
    for (ago, reason, wanted) in [
        (
            4,
            UNBLOCKED,
            "its last ban was lifted by hand at 2026-01-01T11:56:00Z (4m ago); alerts leave it alone until 2026-01-01T12:06:00Z (in 6m)",
        ),
        (
            10,
            UNBLOCKED,
            "its last ban was lifted by hand at 2026-01-01T11:50:00Z (10m ago)",
        ),
        (
            4,
            "Expired",
            "its last ban ended at 2026-01-01T11:56:00Z (4m ago)",
        ),
    ] {
        let answer = ask(
            "192.0.2.7",
            &[lifted("a", "192.0.2.7", ago, reason)],
            &rules,
        );
        assert_eq!(
            (answer.verdict, answer.facts),
            (Verdict::Free, vec![wanted.to_owned()])
        );
    }
}

#[test]
fn what_could_not_be_read_is_said_and_not_guessed() {
    let rules = Rules {
        unknown: vec!["the allowlist is not known: forbidden".into()],
        ..Rules::default()
    };
    let answer = ask("203.0.113.10", &[], &rules);
    assert_eq!(answer.verdict, Verdict::Free);
    assert_eq!(answer.facts, rules.unknown);
}

#[test]
fn lines_name_source_alert_person_and_manager() {
    let mut block = active("a", "192.0.2.7", Some(5));
    block.spec.by = Some("alice".into());
    block.status.as_mut().unwrap().ban_count = Some(3);
    let alert = json!({"rule": "HighLoginRate", "fingerprint": "9f2c"}).to_string();
    block.metadata.annotations = Some([(ALERT_ANNOTATION.to_owned(), alert)].into());
    let fields = json!([{
        "manager": "kubectl-create", "operation": "Update", "apiVersion": "ops.yiiong.top/v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:ip": {}}}, "time": "2026-01-01T11:50:00Z"
    }]);
    block.metadata.managed_fields = serde_json::from_value(fields).unwrap();
    let lines = ask("192.0.2.7", &[block], &Rules::default()).lines(now());
    assert_eq!(
        lines,
        [
            "192.0.2.7 is banned until 2026-01-01T12:05:00Z (in 5m)",
            "  block default/a (192.0.2.7): active since 2026-01-01T11:50:00Z (10m ago) until 2026-01-01T12:05:00Z (in 5m), ban number 3",
            "    reason: scan",
            "    source grafana, alert HighLoginRate (9f2c), by alice, made with kubectl-create",
        ]
    );
}

#[test]
fn an_answer_about_a_range_is_bounded_and_keeps_what_covers_it() {
    let mut blocks: Vec<IPBlock> = (0..200)
        .map(|last| active(&format!("b{last}"), &format!("192.0.2.{last}"), Some(5)))
        .collect();
    blocks.insert(7, lifted("whole", "192.0.2.0/24", 5, "Expired"));
    let answer = ask("192.0.2.0/24", &blocks, &Rules::default());
    assert_eq!(answer.blocks.len(), MOST_BLOCKS);
    assert_eq!(answer.more, 201 - MOST_BLOCKS);
    assert_eq!(answer.blocks[0].name, "whole");
    assert!(answer.summary.contains("200 blocks ban parts"));
}

#[test]
fn an_answer_reads_back_from_its_json() {
    let answer = ask(
        "192.0.2.7",
        &[active("a", "192.0.2.7", Some(5))],
        &Rules::default(),
    );
    let text = serde_json::to_string(&answer).unwrap();
    assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer);
}

proptest! {
    #[test]
    fn the_index_agrees_with_a_look_at_every_block(
        given in proptest::collection::vec((0u8..4, 24u8..=32, proptest::option::of(-3i64..100)), 0..20),
        asked in (0u8..4, 24u8..=32),
    ) {
        let target = |(last, prefix): (u8, u8)| format!("192.0.2.{last}/{prefix}");
        let blocks: Vec<IPBlock> = given
            .into_iter()
            .enumerate()
            .map(|(place, (last, prefix, left))| {
                active(&place.to_string(), &target((last, prefix)), left)
            })
            .collect();
        let mut bans = Bans::default();
        for block in &blocks {
            bans.add(&Entry::of(block).unwrap());
        }
        let asked = target(asked);
        let answer = ask(&asked, &blocks, &Rules::default());
        let found = bans.covering(&asked.parse().unwrap());
        prop_assert_eq!(found.is_some(), answer.verdict == Verdict::Banned);
        if let Some(found) = found {
            prop_assert_eq!(found.until, answer.until);
        }
    }
}
