//! Clocks that jump, and clocks that differ from the API server's.

use jiff::Timestamp;

use super::faulty::Connect;
use super::*;
use crate::time::ServerTime;

#[tokio::test(start_paused = true)]
async fn when_the_wall_clock_is_set_forward_what_is_due_is_lifted() {
    let world = World::configured().await;
    world.create("a", "192.0.2.7", "1h").await;
    world.until("a", "active", 5 * SECOND).await;
    world.clock.jump(SignedDuration::from_hours(2));
    world.until("a", "expired", 5 * SECOND).await;
    assert!(world.banned(GATEWAY).await.is_empty());
}

/// A server whose clock is this far behind the simulated one.
#[derive(Debug)]
struct Behind(Clock, Mutex<SignedDuration>);

impl ServerTime for Behind {
    fn read(&self) -> BoxFuture<'_, Result<Option<Timestamp>, String>> {
        let now = self.0.now() - *self.1.lock();
        Box::pin(async move { Ok(Some(now)) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_ahead_lifts_nothing_until_the_api_server_agrees() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    let behind = Arc::new(Behind(world.clock.clone(), Mutex::default()));
    let server = Arc::clone(&behind);
    world
        .start_with(|settings| settings.server_time = Some(server))
        .await;
    world.create("a", "192.0.2.7", "1h").await;
    let before = world.until("a", "active", 5 * SECOND).await;
    *behind.1.lock() = SignedDuration::from_hours(2);
    world.clock.jump(SignedDuration::from_hours(2));
    tokio::time::sleep(MINUTE).await;
    let after = world.status("a").await;
    assert_eq!(after.expires_at, before.expires_at);
    assert_eq!(world.banned(GATEWAY).await.len(), 1, "still banned");
    *behind.1.lock() = SignedDuration::ZERO;
    world.until("a", "expired", 15 * SECOND).await;
}

/// A server with a clock of its own.
#[derive(Debug)]
pub(super) struct At(pub(super) Clock);

impl ServerTime for At {
    fn read(&self) -> BoxFuture<'_, Result<Option<Timestamp>, String>> {
        let now = self.0.now();
        Box::pin(async move { Ok(Some(now)) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_behind_at_the_start_and_is_set_later_ends_no_ban_early_or_late() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    let two_hours = SignedDuration::from_hours(2);
    let node = Clock::simulated(world.clock.now() - two_hours, 5);
    let (clock, server) = (node.clone(), At(world.clock.clone()));
    world
        .start_with(|settings| {
            settings.clock = clock;
            settings.server_time = Some(Arc::new(server));
        })
        .await;
    world.create("a", "192.0.2.7", "1h").await;
    world.create("short", "192.0.2.8", "10m").await;
    let banned = world.until("a", "active", 5 * SECOND).await;
    let left = banned
        .expires_at()
        .unwrap()
        .duration_since(world.clock.now());
    assert!(left > SignedDuration::from_mins(59), "{left:?}");
    world.until("short", "active", 5 * SECOND).await;
    world.until("short", "expired", 10 * MINUTE + SECOND).await;
    node.jump(two_hours);
    tokio::time::sleep(48 * MINUTE).await;
    world.until("a", "active", SECOND).await;
    world.until("a", "expired", 3 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_ban_that_is_no_longer_due_because_the_clock_was_set_back_is_lifted_first_at_its_end() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    let slow = Arc::new(Connect(world.faulty(2 * SECOND)));
    world
        .start_with(|settings| {
            settings.workers = 2;
            settings.connector = Some(slow);
        })
        .await;
    world.create("due", "192.0.2.7", "60s").await;
    let banned = world.until("due", "active", 5 * SECOND).await;
    let end = banned.expires_at().unwrap();
    let left = Duration::try_from(end.duration_since(world.clock.now())).unwrap();
    tokio::time::sleep(left - SECOND / 2).await;
    // Both workers are busy when it is due, and 50 s after.
    for n in 0..60 {
        let address = format!("198.51.100.{n}");
        world.create(&format!("new-{n}"), &address, "1h").await;
    }
    tokio::time::sleep(SECOND).await;
    world.clock.jump(SignedDuration::from_secs(-20));
    tokio::time::sleep(15 * SECOND).await;
    world.until("due", "active", SECOND).await;
    world.until("due", "expired", 10 * SECOND).await;
    let phases = world.phases().await;
    assert!(phases["active"] < 50, "a flood all along: {phases:?}");
}
