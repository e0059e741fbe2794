//! A gateway that takes no more targets.

use super::faulty::{Connect, Faulty};
use super::*;

/// A world whose gateways take two targets of a family.
async fn of_two() -> World {
    let mut world = World::new().await;
    world.configure(&[]).await;
    let faults = Faulty {
        places: Arc::clone(&world.places),
        most: Some(2),
        ..Faulty::default()
    };
    let connector = Arc::new(Connect(Arc::new(faults)));
    world
        .start_with(|settings| settings.connector = Some(connector))
        .await;
    for last in 1..=2 {
        let (name, ip) = (format!("b-{last}"), format!("192.0.2.{last}"));
        world.create(&name, &ip, "1h").await;
        world.until(&name, "active", 5 * SECOND).await;
    }
    world
}

#[tokio::test(start_paused = true)]
async fn a_ban_that_a_full_gateway_has_no_room_for_waits_and_is_made_when_another_one_ends() {
    let world = of_two().await;
    world.create("late", "192.0.2.3", "30m").await;
    world.create("short", "192.0.2.4", "5m").await;
    let status = world.until("late", "pending", 5 * SECOND).await;
    let message = status.message.unwrap();
    assert!(
        message.contains("takes 2 targets of IPv4") && message.contains("given up at"),
        "{message}"
    );
    assert_eq!(world.reason("late").await, "Limited");
    assert!(world.announced("Limited", "takes 2 targets of IPv4").await);
    assert_eq!(world.metric("ipblock_waiting{reason=\"active\"}"), 2.0);
    let both = ["192.0.2.1", "192.0.2.2"];
    tokio::time::sleep(6 * MINUTE).await;
    world.banned_becomes(GATEWAY, &both, SECOND).await;
    world.until("short", "failed", SECOND).await;
    world.set("b-1", json!({"unblock": true})).await;
    world.until("late", "active", 2 * SECOND).await;
    let both = ["192.0.2.2", "192.0.2.3"];
    world.banned_becomes(GATEWAY, &both, SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_gateway_takes_another_block_of_a_target_that_it_has() {
    let world = of_two().await;
    world.create("again", "192.0.2.2", "2h").await;
    world.until("again", "active", 5 * SECOND).await;
    // What stands is asserted again.
    tokio::time::sleep(20 * MINUTE).await;
    assert_eq!(world.phases().await.get("active"), Some(&3));
}
