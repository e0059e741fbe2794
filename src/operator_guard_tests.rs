//! The guard rails of an operator: what may be banned, how fast, and what holds back a mass of bans or lifts.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn an_entry_of_the_allowlist_that_ends_protects_until_then_and_is_reported_a_day_ahead() {
    let mut world = World::new().await;
    let line = "192.0.2.7 until=2026-01-02T00:05:00Z reason=\"the office\"";
    world.configure(&[("whitelist", line)]).await;
    world.start().await;
    world.create("office", "192.0.2.7", "3d").await;
    let status = world.until("office", "skipped", 5 * SECOND).await;
    let message = status.message.unwrap();
    assert!(
        message.contains("(the office, until 2026-01-02T00:05:00Z)"),
        "{message}"
    );
    assert!(!world.announced("AllowlistEnds", "192.0.2.7").await);
    tokio::time::sleep(6 * MINUTE).await;
    assert!(world.announced("AllowlistEnds", "the office").await);
    // Two minutes before the end.
    world.clock.jump(SignedDuration::from_mins(24 * 60 - 3));
    tokio::time::sleep(MINUTE).await;
    let left = "2026-01-02T00:05:00Z".parse::<jiff::Timestamp>().unwrap();
    let left = left.duration_since(world.clock.now());
    assert!(left.is_positive(), "{left:?}");
    world.until("office", "skipped", SECOND).await;
    tokio::time::sleep(left.try_into().unwrap()).await;
    world.until("office", "active", 5 * SECOND).await;
}
