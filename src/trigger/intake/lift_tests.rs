//! Resolved alerts, against objects in memory.

use super::tests::{block, intake, now, wanted};
use super::*;
use crate::api::Phase;
use crate::trigger::blocks::in_memory::InMemory;

fn lifting(blocks: &Arc<InMemory>, source: &str) -> Intake {
    Intake {
        source: source.into(),
        lifts: true,
        ..intake(blocks)
    }
}

fn resolved(raw: &str, alert: &str) -> Resolved {
    Resolved {
        target: raw.parse().unwrap(),
        raw: raw.into(),
        alert: alert.into(),
    }
}

fn alert(raw: &str, alert: &str) -> Wanted {
    Wanted {
        alert: alert.into(),
        ..wanted(raw, Some("1h"))
    }
}

/// The ban of the object is made, as the reconciler writes it.
fn ban(blocks: &InMemory, name: &str, minutes_ago: i64) {
    let mut block = blocks.one(name);
    let began = now() - SignedDuration::from_mins(minutes_ago);
    let status = block.status.get_or_insert_default();
    status.phase = Some(Phase::Active);
    status.ban_count = Some(status.bans() + 1);
    status.blocked_at = Some(crate::api::write_time(began));
    status.expires_at = Some(crate::api::write_time(
        began + SignedDuration::from_hours(1),
    ));
    block.spec.trigger = None;
    blocks.put(block);
}

const NAME: &str = "ipblock-6465ec74397c9126";

#[tokio::test(start_paused = true)]
async fn the_last_resolved_alert_ends_the_ban_and_the_next_alert_bans_at_once() {
    let blocks = Arc::new(InMemory::default());
    let intake = lifting(&blocks, "am");
    assert_eq!(intake.take(&alert("1.2.3.4", "a")).await, Outcome::Created);
    ban(&blocks, NAME, 10);
    assert_eq!(
        intake.take(&alert("1.2.3.4", "b")).await,
        Outcome::LeftAlone
    );
    assert_eq!(
        blocks.writes.lock().len(),
        2,
        "the second alert is recorded"
    );
    assert_eq!(
        intake.take(&alert("1.2.3.4", "b")).await,
        Outcome::LeftAlone
    );
    assert_eq!(blocks.writes.lock().len(), 2, "once");
    assert_eq!(
        intake.resolve(&resolved("1.2.3.4", "a")).await,
        Outcome::LeftAlone
    );
    assert_eq!(
        blocks.one(NAME).spec.duration.as_deref(),
        Some("1h"),
        "the second fires"
    );
    assert_eq!(
        intake.resolve(&resolved("1.2.3.4", "b")).await,
        Outcome::Lifted
    );
    let lifted = blocks.one(NAME);
    assert_eq!(lifted.spec.duration.as_deref(), Some("600s"));
    assert_eq!(lifted.spec.unblock, None, "no grace against the next alert");
    assert_eq!(lifted.annotation(ALERTS), None);
    let at = lifted.annotation(RESOLVED).unwrap();
    assert!(at.starts_with("2026-01-01T12:00:00"), "{at}");
    assert_eq!(
        intake.resolve(&resolved("1.2.3.4", "b")).await,
        Outcome::LeftAlone
    );

    // The next alert bans again, before the reconciler lifts the ban and after that, and its end lifts the new ban.
    for phase in [Phase::Active, Phase::Expired] {
        let mut over = lifted.clone();
        over.status.as_mut().unwrap().phase = Some(phase);
        blocks.put(over);
        assert!(blocks.has_ended("default", NAME, now()), "no debounce");
        assert_eq!(
            intake.take(&alert("1.2.3.4", "a")).await,
            Outcome::Triggered
        );
        assert_eq!(blocks.one(NAME).annotation(RESOLVED), None);
        assert_eq!(blocks.one(NAME).spec.duration.as_deref(), Some("1h"));
    }
    ban(&blocks, NAME, 1);
    assert_eq!(
        intake.resolve(&resolved("1.2.3.4", "a")).await,
        Outcome::Lifted
    );
    assert_eq!(blocks.one(NAME).spec.duration.as_deref(), Some("60s"));
}

#[tokio::test(start_paused = true)]
async fn an_alert_of_a_trigger_that_ignores_ends_keeps_the_ban_of_another() {
    let blocks = Arc::new(InMemory::default());
    let (lifts, ignores) = (lifting(&blocks, "am"), intake(&blocks));
    lifts.take(&alert("1.2.3.4", "a")).await;
    ban(&blocks, NAME, 10);
    ignores.take(&alert("1.2.3.4", "g")).await;
    assert_eq!(
        lifts.resolve(&resolved("1.2.3.4", "a")).await,
        Outcome::LeftAlone
    );
    assert_eq!(blocks.one(NAME).spec.duration.as_deref(), Some("1h"));
}

#[tokio::test(start_paused = true)]
async fn a_ban_of_others_is_not_lifted_by_a_resolved_alert() {
    let blocks = Arc::new(InMemory::default());
    let (lifts, ignores) = (lifting(&blocks, "am"), intake(&blocks));
    ignores.take(&alert("1.2.3.4", "a")).await;
    ban(&blocks, NAME, 10);
    lifts.take(&alert("1.2.3.4", "a")).await;
    assert_eq!(
        lifts.resolve(&resolved("1.2.3.4", "a")).await,
        Outcome::LeftAlone
    );
    assert_eq!(
        lifts.resolve(&resolved("1.2.3.5", "a")).await,
        Outcome::LeftAlone
    );
    assert_eq!(blocks.writes.lock().len(), 1);

    // A ban of the other trigger on a block that was lifted before carries no record of the first.
    let mut over = blocks.one(NAME);
    let annotations = over.metadata.annotations.get_or_insert_default();
    annotations.insert(ALERTS.into(), Firing::new("am", 1, "5m", "a").text());
    over.status.as_mut().unwrap().phase = Some(Phase::Expired);
    blocks.put(over);
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(
        ignores.take(&alert("1.2.3.4", "a")).await,
        Outcome::Triggered
    );
    assert_eq!(blocks.one(NAME).annotation(ALERTS), None);
}

#[tokio::test(start_paused = true)]
async fn a_longer_ban_is_still_lifted_by_its_alert() {
    let blocks = Arc::new(InMemory::default());
    let intake = lifting(&blocks, "am");
    intake.take(&alert("1.2.3.4", "a")).await;
    ban(&blocks, NAME, 40);
    // The end of an alert before this ban does not end what is prolonged.
    let mut stands = blocks.one(NAME);
    let annotations = stands.metadata.annotations.get_or_insert_default();
    annotations.insert(RESOLVED.into(), api::write_time(now()));
    blocks.put(stands);
    assert_eq!(intake.take(&alert("1.2.3.4", "a")).await, Outcome::Extended);
    assert_eq!(blocks.one(NAME).spec.duration.as_deref(), Some("1h40m"));
    assert_eq!(blocks.one(NAME).annotation(RESOLVED), None);
    assert_eq!(
        intake.resolve(&resolved("1.2.3.4", "a")).await,
        Outcome::Lifted
    );
}

#[tokio::test(start_paused = true)]
async fn a_ban_that_was_asked_for_and_is_not_made_is_taken_back() {
    let blocks = Arc::new(InMemory::default());
    let intake = lifting(&blocks, "am");
    blocks.put(block(NAME, "1.2.3.4", Some(Phase::Expired)));
    assert_eq!(
        intake.take(&alert("1.2.3.4", "a")).await,
        Outcome::Triggered
    );
    assert_eq!(
        intake.resolve(&resolved("1.2.3.4", "a")).await,
        Outcome::Lifted
    );
    assert_eq!(blocks.one(NAME).spec.trigger, Some(false));
}

#[tokio::test(start_paused = true)]
async fn an_alert_while_a_ban_is_made_again_joins_it_and_its_end_lifts_the_ban() {
    let blocks = Arc::new(InMemory::default());
    let intake = lifting(&blocks, "am");
    for phase in [Phase::Expired, Phase::Failed] {
        let mut over = block(NAME, "1.2.3.4", Some(phase));
        over.status.as_mut().unwrap().ban_count = Some(1);
        blocks.put(over);
        assert_eq!(
            intake.take(&alert("1.2.3.4", "a")).await,
            Outcome::Triggered
        );
        // As the reconciler leaves the block while the gateway does not answer.
        let mut begun = blocks.one(NAME);
        begun.spec.trigger = Some(false);
        let place = Place::new("xdp", "192.0.2.250:8080");
        let mut intent = api::Intent::new("1.2.3.4".parse().unwrap(), place, 2);
        intent.asked = Some(now());
        let annotations = begun.metadata.annotations.get_or_insert_default();
        annotations.insert(api::INTENT.into(), intent.to_string());
        blocks.put(begun);
        assert_eq!(
            intake.take(&alert("1.2.3.4", "b")).await,
            Outcome::LeftAlone,
            "one ban"
        );
        assert_ne!(blocks.one(NAME).spec.trigger, Some(true));
        for (name, outcome) in [("a", Outcome::LeftAlone), ("b", Outcome::Lifted)] {
            assert_eq!(intake.resolve(&resolved("1.2.3.4", name)).await, outcome);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_resolved_alert_whose_write_conflicts_is_tried_again_and_an_outage_is_reported() {
    let blocks = Arc::new(InMemory::default());
    let intake = lifting(&blocks, "am");
    intake.take(&alert("1.2.3.4", "a")).await;
    ban(&blocks, NAME, 10);
    blocks.fail(BlocksError::Conflict);
    assert_eq!(
        intake.resolve(&resolved("1.2.3.4", "a")).await,
        Outcome::Lifted
    );
    intake.take(&alert("1.2.3.5", "a")).await;
    blocks.fail(BlocksError::Unavailable("down".into()));
    let outcome = intake.resolve(&resolved("1.2.3.5", "a")).await;
    assert_eq!(outcome, Outcome::Unavailable("down".into()));
}

#[tokio::test(start_paused = true)]
async fn an_alert_for_a_ban_that_the_brake_kept_after_its_alerts_resolved_goes_on_with_that_ban() {
    for (minutes_ago, repeated, length, duration) in [
        (10, Repeat::Extend, "1h", "1h"),
        (10, Repeat::Extend, "5h", "5h10m"),
        (40, Repeat::Extend, "1h", "1h40m"),
        (40, Repeat::Ignore, "1h", "1h"),
    ] {
        let blocks = Arc::new(InMemory::default());
        let mut intake = lifting(&blocks, "am");
        intake.repeated = Some(repeated);
        intake.take(&alert("1.2.3.4", "a")).await;
        ban(&blocks, NAME, minutes_ago);
        let resolved = resolved("1.2.3.4", "a");
        assert_eq!(intake.resolve(&resolved).await, Outcome::Lifted);
        let mut kept = blocks.one(NAME);
        let ready = crate::api::ConditionStatus::True;
        let status = kept.status.as_mut().unwrap();
        status.set_condition("Ready", ready, "ResolvedBraked", "", now());
        blocks.put(kept);

        // Another trigger asks for the ban, which is not its own.
        let before = blocks.one(NAME);
        let other = lifting(&blocks, "other");
        assert_eq!(other.take(&alert("1.2.3.4", "o")).await, Outcome::Extended);
        assert_eq!(blocks.one(NAME).annotation(ALERTS), None);
        blocks.put(before);

        let again = Wanted {
            duration: Some(length.into()),
            ..alert("1.2.3.4", "a")
        };
        assert_eq!(intake.take(&again).await, Outcome::Extended);
        let block = blocks.one(NAME);
        assert_ne!(block.spec.trigger, Some(true), "it is no new ban");
        assert_eq!(block.spec.duration.as_deref(), Some(duration));
        assert_eq!(block.annotation(RESOLVED), None, "a release keeps it");
        assert_eq!(intake.take(&again).await, Outcome::LeftAlone, "it is once");
        assert_eq!(intake.resolve(&resolved).await, Outcome::Lifted);
    }
}
