//! Alerts that repeat, against objects in memory: when an address counts as seen.

use super::tests::{block, intake, wanted};
use super::*;
use crate::api::Phase;
use crate::trigger::blocks::in_memory::InMemory;

#[tokio::test(start_paused = true)]
async fn an_address_counts_as_seen_only_when_its_object_is_written() {
    let blocks = Arc::new(InMemory::default());
    let intake = intake(&blocks);
    blocks.fail(BlocksError::Unavailable("down".into()));
    let first = intake.take(&wanted("1.2.3.4", None)).await;
    assert_eq!(first, Outcome::Unavailable("down".into()));
    assert_eq!(
        intake.take(&wanted("1.2.3.4", None)).await,
        Outcome::Created
    );
    assert_eq!(
        intake.take(&wanted("1.2.3.4", None)).await,
        Outcome::Debounced
    );
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(
        intake.take(&wanted("1.2.3.4", None)).await,
        Outcome::LeftAlone
    );
    assert!(intake.shared.locks.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_address_that_was_left_alone_is_banned_again_by_the_next_alert_after_its_ban_ended() {
    let blocks = Arc::new(InMemory::default());
    let name = "ipblock-6465ec74397c9126";
    blocks.put(block(name, "1.2.3.4", Some(Phase::Active)));
    let intake = intake(&blocks);
    let first = intake.take(&wanted("1.2.3.4", None)).await;
    assert_eq!(first, Outcome::LeftAlone);
    blocks.put(block(name, "1.2.3.4", Some(Phase::Expired)));
    let second = intake.take(&wanted("1.2.3.4", None)).await;
    assert_eq!(second, Outcome::Triggered);
}

#[tokio::test(start_paused = true)]
async fn a_second_alert_seconds_after_the_end_of_the_ban_bans_again_whatever_the_debounce_is() {
    let name = "ipblock-6465ec74397c9126";
    let blocks = Arc::new(InMemory::default());
    let intake = intake(&blocks);
    let alert = wanted("1.2.3.4", Some("1h"));
    assert_eq!(intake.take(&alert).await, Outcome::Created);
    assert_eq!(intake.take(&alert).await, Outcome::Debounced);
    // Another client lifted the ban; the API server's object says it.
    blocks.put(block(name, "1.2.3.4", Some(Phase::Expired)));
    assert_eq!(intake.take(&alert).await, Outcome::Triggered);
    assert_eq!(intake.take(&alert).await, Outcome::Debounced);
    // A refused block would be refused again, so the debounce counts.
    blocks.put(block(name, "1.2.3.4", Some(Phase::Skipped)));
    assert_eq!(intake.take(&alert).await, Outcome::Debounced);
}

#[tokio::test(start_paused = true)]
async fn a_ban_shorter_than_the_debounce_is_made_again_after_its_end() {
    let blocks = Arc::new(InMemory::default());
    let intake = intake(&blocks);
    let alert = wanted("1.2.3.4", Some("10s"));
    assert_eq!(intake.take(&alert).await, Outcome::Created);
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_eq!(intake.take(&alert).await, Outcome::Debounced);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_ne!(intake.take(&alert).await, Outcome::Debounced);
}

#[tokio::test(start_paused = true)]
async fn a_longer_alert_prolongs_a_ban_that_was_written_a_moment_ago() {
    let blocks = Arc::new(InMemory::default());
    let intake = intake(&blocks);
    let (short, long) = (
        wanted("1.2.3.4", Some("1h")),
        wanted("1.2.3.4", Some("24h")),
    );
    assert_eq!(intake.take(&short).await, Outcome::Created);
    assert_eq!(intake.take(&long).await, Outcome::Extended);
    assert_eq!(intake.take(&long).await, Outcome::Debounced);
    assert_eq!(intake.take(&short).await, Outcome::Debounced);
}
