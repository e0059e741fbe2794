//! One alert after another, against objects in memory.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;
use reeve_clock::Clock;

use super::*;
use crate::api::{IPBlockStatus, Phase};
use crate::trigger::blocks::in_memory::InMemory;

pub(in crate::trigger) fn intake(blocks: &Arc<InMemory>) -> Intake {
    let settings = Settings {
        namespace: "default".into(),
        place: Some(Place::new("xdp", "192.0.2.250:8080")),
        default_duration: Duration::from_secs(3600),
        max_duration: Some(Duration::from_secs(24 * 3600)),
        repeated_alert: Repeat::Extend,
        unblock_grace: Duration::from_secs(600),
        escalation: None,
        shadow: std::iter::once("feed".to_owned()).collect(),
    };
    Intake {
        shared: Shared {
            blocks: Arc::clone(blocks) as Arc<dyn Blocks>,
            locks: KeyedLocks::new(),
            settings: Arc::new(RwLock::new(Arc::new(settings))),
            metrics: Metrics::default(),
            bodies: Budget::mebibytes(1),
            time: Time::trusting(Clock::simulated(now(), 1)),
            graced: Arc::new(Graced::new()),
        },
        debounce: Arc::new(Debounce::new(Duration::from_secs(60), 1000)),
        unfinished: Unfinished::default(),
        source: "grafana".into(),
        namespace: None,
        lifts: false,
        repeated: None,
        renew_before: Duration::ZERO,
    }
}

pub(super) fn now() -> jiff::Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

pub(in crate::trigger) fn wanted(raw: &str, duration: Option<&str>) -> Wanted {
    Wanted {
        target: raw.parse().unwrap(),
        raw: raw.into(),
        duration: duration.map(str::to_owned),
        reason: "Grafana alert: scan".into(),
        by: None,
        alert: "f1".into(),
        named: Some(crate::api::Alert {
            rule: Some("Scan".into()),
            fingerprint: Some("f1".into()),
        }),
        remark: None,
    }
}

pub(super) fn block(name: &str, ip: &str, phase: Option<Phase>) -> IPBlock {
    let spec = IPBlockSpec {
        ip: ip.into(),
        duration: Some("5m".into()),
        ..IPBlockSpec::default()
    };
    let mut block = IPBlock::born(name, "default", &ip.parse().unwrap(), None, spec);
    block.status = Some(IPBlockStatus {
        phase,
        ..IPBlockStatus::default()
    });
    block
}

#[tokio::test(start_paused = true)]
async fn a_new_address_becomes_an_object_with_finalizer_and_intent() {
    let blocks = Arc::new(InMemory::default());
    let outcome = intake(&blocks).take(&wanted("1.2.3.4", None)).await;
    assert_eq!(outcome, Outcome::Created);
    let made = blocks.one("ipblock-6465ec74397c9126");
    assert_eq!(made.spec.ip, "1.2.3.4");
    assert_eq!(made.spec.source.as_deref(), Some("grafana"));
    assert_eq!(
        made.spec.duration.as_deref(),
        Some("1h"),
        "never without end"
    );
    assert_eq!(made.spec.trigger, None);
    assert!(made.is_held());
    let intent = made.annotation(crate::api::INTENT).unwrap();
    assert!(intent.contains("192.0.2.250:8080"), "{intent}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_object_is_triggered_with_the_new_duration_and_reason() {
    let blocks = Arc::new(InMemory::default());
    let name = "ipblock-6465ec74397c9126";
    blocks.put(block(name, "1.2.3.4", Some(Phase::Expired)));
    let outcome = intake(&blocks).take(&wanted("1.2.3.4", Some("10m"))).await;
    assert_eq!(outcome, Outcome::Triggered);
    let patched = blocks.one(name);
    assert_eq!(patched.spec.trigger, Some(true));
    assert_eq!(patched.spec.duration.as_deref(), Some("10m"));
    assert_eq!(patched.spec.reason.as_deref(), Some("Grafana alert: scan"));
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_new_or_active_are_left_alone() {
    for phase in [None, Some(Phase::Pending), Some(Phase::Active)] {
        let blocks = Arc::new(InMemory::default());
        blocks.put(block("ipblock-6465ec74397c9126", "1.2.3.4", phase));
        let outcome = intake(&blocks).take(&wanted("1.2.3.4", Some("5m"))).await;
        assert_eq!(outcome, Outcome::LeftAlone);
        assert!(blocks.writes.lock().is_empty());
    }
    let blocks = Arc::new(InMemory::default());
    let mut unblocked = block("ipblock-6465ec74397c9126", "1.2.3.4", Some(Phase::Expired));
    unblocked.spec.unblock = Some(true);
    blocks.put(unblocked);
    let outcome = intake(&blocks).take(&wanted("1.2.3.4", None)).await;
    assert_eq!(
        outcome,
        Outcome::LeftAlone,
        "unblock means: must not be banned"
    );
}

#[tokio::test(start_paused = true)]
async fn an_alert_asks_again_for_a_ban_that_is_half_past_its_time_and_does_not_stand() {
    let name = "ipblock-6465ec74397c9126";
    // Five minutes are requested.
    for (phase, ago, expected) in [
        (None, 149, Outcome::LeftAlone),
        (Some(Phase::Pending), 149, Outcome::LeftAlone),
        (None, 150, Outcome::Triggered),
        (Some(Phase::Pending), 150, Outcome::Triggered),
        (Some(Phase::Pending), 900, Outcome::Triggered),
    ] {
        let blocks = Arc::new(InMemory::default());
        let mut waiting = block(name, "1.2.3.4", phase);
        waiting.metadata.creation_timestamp =
            Some(MetaTime(now() - SignedDuration::from_secs(ago)));
        blocks.put(waiting.clone());
        let outcome = intake(&blocks).take(&wanted("1.2.3.4", Some("5m"))).await;
        assert_eq!(outcome, expected, "{ago} s ago");
        let asked = (expected == Outcome::Triggered).then_some(true);
        assert_eq!(blocks.one(name).spec.trigger, asked, "{ago} s ago");
        // Requested again a minute ago.
        let mut intent: crate::api::Intent = r#"{"target":"1.2.3.4","engine":"xdp","attempt":1}"#
            .parse()
            .unwrap();
        intent.asked = Some(now() - SignedDuration::from_secs(60));
        let annotations = waiting.metadata.annotations.get_or_insert_default();
        annotations.insert(crate::api::INTENT.into(), intent.to_string());
        blocks.put(waiting);
        let outcome = intake(&blocks).take(&wanted("1.2.3.4", Some("5m"))).await;
        assert_eq!(outcome, Outcome::LeftAlone, "{ago} s ago");
    }
}

#[tokio::test(start_paused = true)]
async fn an_alert_for_a_ban_that_is_past_its_end_and_not_lifted_yet_asks_for_it_again() {
    let name = "ipblock-6465ec74397c9126";
    let mut overdue = block(name, "1.2.3.4", Some(Phase::Active));
    let status = overdue.status.as_mut().unwrap();
    status.blocked_at = Some("2026-01-01T11:55:00Z".into());
    status.expires_at = Some("2026-01-01T12:00:00Z".into());
    let blocks = Arc::new(InMemory::default());
    blocks.put(overdue);
    let outcome = intake(&blocks).take(&wanted("1.2.3.4", Some("10m"))).await;
    assert_eq!(outcome, Outcome::Triggered);
    let spec = blocks.one(name).spec;
    assert_eq!(spec.trigger, Some(true));
    assert_eq!(spec.duration.as_deref(), Some("10m"));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_failed_or_was_skipped_is_triggered_by_the_next_alert() {
    for phase in [Phase::Failed, Phase::Skipped] {
        let blocks = Arc::new(InMemory::default());
        let name = "ipblock-6465ec74397c9126";
        blocks.put(block(name, "1.2.3.4", Some(phase)));
        let outcome = intake(&blocks).take(&wanted("1.2.3.4", Some("10m"))).await;
        assert_eq!(outcome, Outcome::Triggered);
        let patched = blocks.one(name);
        assert_eq!(patched.spec.trigger, Some(true));
        assert_eq!(patched.spec.duration.as_deref(), Some("10m"));
        assert_eq!(patched.spec.reason.as_deref(), Some("Grafana alert: scan"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_object_whose_trigger_waits_still_takes_a_duration_that_can_be_followed() {
    let blocks = Arc::new(InMemory::default());
    let name = "ipblock-6465ec74397c9126";
    let mut refused = block(name, "1.2.3.4", Some(Phase::Failed));
    refused.spec.trigger = Some(true);
    refused.spec.duration = Some("999h".into());
    blocks.put(refused);
    let intake = intake(&blocks);
    let outcome = intake.take(&wanted("1.2.3.4", Some("10m"))).await;
    assert_eq!(outcome, Outcome::Triggered);
    let patched = blocks.one(name);
    assert_eq!(patched.spec.duration.as_deref(), Some("10m"));
    tokio::time::advance(Duration::from_secs(60)).await;
    let outcome = intake.take(&wanted("1.2.3.4", Some("10m"))).await;
    assert_eq!(outcome, Outcome::LeftAlone, "it says so already");
}

#[tokio::test(start_paused = true)]
async fn an_alert_that_asks_for_longer_than_the_limit_gets_the_limit() {
    let name = "ipblock-6465ec74397c9126";
    for (asked, given) in [("999h", "1d"), ("24h", "24h"), ("5m", "5m")] {
        let blocks = Arc::new(InMemory::default());
        let outcome = intake(&blocks).take(&wanted("1.2.3.4", Some(asked))).await;
        assert_eq!(outcome, Outcome::Created);
        assert_eq!(blocks.one(name).spec.duration.as_deref(), Some(given));
        blocks.put(block(name, "1.2.3.4", Some(Phase::Expired)));
        let outcome = intake(&blocks).take(&wanted("1.2.3.4", Some(asked))).await;
        assert_eq!(outcome, Outcome::Triggered);
        assert_eq!(blocks.one(name).spec.duration.as_deref(), Some(given));
    }
}

#[tokio::test(start_paused = true)]
async fn an_alert_for_an_active_block_makes_its_ban_last_longer_if_so_configured() {
    let name = "ipblock-6465ec74397c9126";
    let mut active = block(name, "1.2.3.4", Some(Phase::Active));
    let status = active.status.as_mut().unwrap();
    status.blocked_at = Some("2026-01-01T11:56:00Z".into());
    status.expires_at = Some("2026-01-01T12:01:00Z".into());
    for (repeated_alert, expected, outcome) in [
        (Repeat::Extend, "9m", Outcome::Extended),
        (Repeat::Ignore, "5m", Outcome::LeftAlone),
    ] {
        let blocks = Arc::new(InMemory::default());
        blocks.put(active.clone());
        let intake = intake(&blocks);
        let settings = Settings {
            repeated_alert,
            ..Settings::clone(&intake.shared.settings.read())
        };
        *intake.shared.settings.write() = Arc::new(settings);
        assert_eq!(intake.take(&wanted("1.2.3.4", Some("5m"))).await, outcome);
        let spec = blocks.one(name).spec;
        assert_eq!(spec.duration.as_deref(), Some(expected));
        assert_eq!(spec.trigger, None, "it is no new ban");
    }
}

#[tokio::test(start_paused = true)]
async fn a_longer_ban_that_is_asked_for_while_the_first_is_pending_is_written() {
    let name = "ipblock-6465ec74397c9126";
    for phase in [None, Some(Phase::Pending)] {
        let blocks = Arc::new(InMemory::default());
        blocks.put(block(name, "1.2.3.4", phase));
        let outcome = intake(&blocks).take(&wanted("1.2.3.4", Some("30h"))).await;
        assert_eq!(outcome, Outcome::Extended);
        let spec = blocks.one(name).spec;
        assert_eq!(spec.duration.as_deref(), Some("1d"), "within the limit");
        assert_eq!(spec.trigger, None, "it is the same ban");
    }
}

#[tokio::test(start_paused = true)]
async fn an_alert_within_the_grace_after_an_unblock_bans_nothing() {
    let blocks = Arc::new(InMemory::default());
    let name = "ipblock-6465ec74397c9126";
    let mut unblocked = block(name, "1.2.3.4", Some(Phase::Expired));
    let status = unblocked.status.as_mut().unwrap();
    status.unblocked_at = Some("2026-01-01T11:55:00Z".into());
    let (ready, at) = (crate::api::ConditionStatus::True, now());
    status.set_condition("Ready", ready, crate::api::UNBLOCKED, "", at);
    blocks.put(unblocked);
    let intake = intake(&blocks);
    let outcome = intake.take(&wanted("1.2.3.4", None)).await;
    assert_eq!(outcome, Outcome::LeftAlone);
    assert_eq!(
        intake.take(&wanted("1.2.3.4", None)).await,
        Outcome::LeftAlone
    );
    assert_eq!(intake.shared.metrics.graced.get(), 2);
    let events = blocks.events.lock().clone();
    let [event] = events.as_slice() else {
        panic!("{events:?}");
    };
    let start = "ipblock-6465ec74397c9126 UnblockGrace: an alert of grafana bans nothing";
    assert!(
        event.starts_with(start) && event.contains("less than 10m ago"),
        "{event}"
    );
    tokio::time::advance(Duration::from_secs(300)).await;
    let outcome = intake.take(&wanted("1.2.3.4", None)).await;
    assert_eq!(outcome, Outcome::Triggered, "the grace is over");
    assert_eq!(intake.shared.metrics.graced.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn alerts_go_by_the_time_that_bans_end_by_and_not_by_a_clock_that_is_off() {
    let name = "ipblock-6465ec74397c9126";
    let mut active = block(name, "1.2.3.4", Some(Phase::Active));
    let status = active.status.as_mut().unwrap();
    status.blocked_at = Some("2026-01-01T11:59:00Z".into());
    status.expires_at = Some("2026-01-01T12:04:00Z".into());
    let mut going = active.clone();
    going.metadata.deletion_timestamp = Some(MetaTime(now()));
    for hours in [-3, 0, 3] {
        let blocks = Arc::new(InMemory::default());
        let mut intake = intake(&blocks);
        let off = now() + SignedDuration::from_hours(hours);
        intake.shared.time = Time::new(Clock::simulated(off, 1));
        intake.shared.time.compare(Some(now()));
        blocks.put(active.clone());
        let outcome = intake.take(&wanted("1.2.3.4", Some("5m"))).await;
        assert_eq!(outcome, Outcome::LeftAlone, "{hours} h off");
        blocks.put(going.clone());
        let outcome = intake.take(&wanted("1.2.3.4", Some("5m"))).await;
        let again = matches!(outcome, Outcome::Unavailable(_));
        assert!(again, "{hours} h off: {outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_alert_that_comes_before_the_clock_was_compared_waits_for_that() {
    let blocks = Arc::new(InMemory::default());
    let mut active = block("ipblock-6465ec74397c9126", "1.2.3.4", Some(Phase::Active));
    active.spec.duration = Some("5h".into());
    let status = active.status.as_mut().unwrap();
    status.blocked_at = Some("2026-01-01T11:59:00Z".into());
    status.expires_at = Some("2026-01-01T16:59:00Z".into());
    blocks.put(active);
    let mut intake = intake(&blocks);
    let ahead = now() + SignedDuration::from_hours(6);
    let time = Time::new(Clock::simulated(ahead, 1));
    intake.shared.time = time.clone();
    let compared = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        time.compare(Some(now()));
    };
    let alert = wanted("1.2.3.4", Some("5m"));
    let (outcome, ()) = tokio::join!(intake.take(&alert), compared);
    assert_eq!(outcome, Outcome::LeftAlone);
}

#[tokio::test(start_paused = true)]
async fn an_object_named_after_another_spelling_is_found() {
    let blocks = Arc::new(InMemory::default());
    let name = "ipblock-a8cf2281064b410e";
    blocks.put(block(name, "2001:0db8::1", Some(Phase::Expired)));
    let outcome = intake(&blocks).take(&wanted("2001:0db8::1", None)).await;
    assert_eq!(outcome, Outcome::Triggered);
    assert_eq!(blocks.names(), [name]);
}

#[tokio::test(start_paused = true)]
async fn a_name_taken_by_another_address_is_refused() {
    let blocks = Arc::new(InMemory::default());
    let name = "ipblock-6465ec74397c9126";
    blocks.put(block(name, "198.51.100.1", Some(Phase::Expired)));
    let outcome = intake(&blocks).take(&wanted("1.2.3.4", None)).await;
    assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
    assert_eq!(blocks.one(name).spec.trigger, None);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_asks_the_sender_to_come_again_until_it_is_stuck() {
    for (deleted, expected) in [
        ("2026-01-01T11:59:10Z", None),
        ("2026-01-01T11:58:50Z", Some(Outcome::Stuck)),
    ] {
        let blocks = Arc::new(InMemory::default());
        let name = "ipblock-6465ec74397c9126";
        let mut going = block(name, "1.2.3.4", Some(Phase::Active));
        going.metadata.deletion_timestamp = Some(MetaTime(deleted.parse().unwrap()));
        blocks.put(going);
        let outcome = intake(&blocks).take(&wanted("1.2.3.4", None)).await;
        match expected {
            Some(expected) => assert_eq!(outcome, expected),
            None => assert!(matches!(outcome, Outcome::Unavailable(_)), "{outcome:?}"),
        }
        assert!(blocks.writes.lock().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_read_and_decided_again() {
    let blocks = Arc::new(InMemory::default());
    let name = "ipblock-6465ec74397c9126";
    blocks.put(block(name, "1.2.3.4", Some(Phase::Expired)));
    // The create answers Exists by itself; the patch conflicts once.
    let intake = intake(&blocks);
    blocks.fail(BlocksError::Exists);
    blocks.fail(BlocksError::Conflict);
    let outcome = intake.take(&wanted("1.2.3.4", None)).await;
    assert_eq!(outcome, Outcome::Triggered);
    assert_eq!(blocks.writes.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn alerts_for_one_address_at_once_make_one_object() {
    let blocks = Arc::new(InMemory::default());
    let intake = Arc::new(intake(&blocks));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let intake = Arc::clone(&intake);
        tasks.spawn(async move { intake.take(&wanted("1.2.3.4", None)).await });
    }
    let outcomes = tasks.join_all().await;
    let created = outcomes.iter().filter(|it| **it == Outcome::Created);
    assert_eq!(created.count(), 1);
    let debounced = outcomes.iter().filter(|it| **it == Outcome::Debounced);
    assert_eq!(debounced.count(), 19);
}

#[tokio::test(start_paused = true)]
async fn an_alert_of_a_source_in_shadow_mode_makes_a_block_for_which_no_gateway_is_called() {
    let blocks = Arc::new(InMemory::default());
    let mut intake = intake(&blocks);
    intake.source = "feed".into();
    let outcome = intake.take(&wanted("1.2.3.4", None)).await;
    assert_eq!(outcome, Outcome::Created);
    let made = blocks.one("ipblock-6465ec74397c9126");
    assert_eq!(made.spec.source.as_deref(), Some("feed"));
    assert!(!made.is_held() && made.annotation(crate::api::INTENT).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_block_names_the_alert_of_its_latest_ban() {
    const NAME: &str = "ipblock-6465ec74397c9126";
    let blocks = Arc::<InMemory>::default();
    let intake = intake(&blocks);
    intake.take(&wanted("1.2.3.4", None)).await;
    let named = |name: &str| {
        let block = blocks.one(name);
        let text = block.annotation(crate::api::ALERT_ANNOTATION)?;
        Some(text.parse::<crate::api::Alert>().unwrap().to_string())
    };
    assert_eq!(named(NAME).as_deref(), Some("alert Scan (f1)"));
    let mut over = block(NAME, "1.2.3.4", Some(Phase::Expired));
    over.metadata.annotations = blocks.one(NAME).metadata.annotations;
    over.status.as_mut().unwrap().ban_count = Some(1);
    blocks.put(over);
    tokio::time::advance(Duration::from_secs(61)).await;
    let mut other = wanted("1.2.3.4", None);
    other.named = Some(crate::api::Alert {
        rule: None,
        fingerprint: Some("f2".into()),
    });
    assert_eq!(intake.take(&other).await, Outcome::Triggered);
    assert_eq!(named(NAME).as_deref(), Some("alert (f2)"));
}

#[tokio::test(start_paused = true)]
async fn a_source_in_shadow_mode_changes_no_block_of_another_and_keeps_none_from_being_banned() {
    const NAME: &str = "ipblock-6465ec74397c9126";
    let blocks = Arc::new(InMemory::default());
    let (real, mut shown) = (intake(&blocks), intake(&blocks));
    shown.source = "feed".into();
    for phase in [Phase::Expired, Phase::Active] {
        let mut present = block(NAME, "1.2.3.4", Some(phase));
        present.spec.source = Some(real.source.clone());
        blocks.put(present);
        let outcome = shown.take(&wanted("1.2.3.4", Some("8h"))).await;
        assert_eq!(outcome, Outcome::LeftAlone);
    }
    assert!(blocks.writes.lock().is_empty());

    // Not reconciled yet, and refused since: in both cases the alert of a real source bans.
    for phase in [None, Some(Phase::Skipped)] {
        let mut present = block(NAME, "1.2.3.4", phase);
        present.spec.source = Some("feed".into());
        blocks.put(present);
        tokio::time::advance(Duration::from_secs(61)).await;
        let outcome = real.take(&wanted("1.2.3.4", None)).await;
        assert_eq!(outcome, Outcome::Triggered);
        let banned = blocks.one(NAME);
        assert_eq!(banned.spec.source.as_deref(), Some(real.source.as_str()));
        assert_eq!(banned.spec.trigger, Some(true));
    }
}
