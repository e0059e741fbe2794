//! Lists that lose many entries at once: the brake on lifts.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_list_that_lost_most_of_its_entries_lifts_none_until_the_brake_is_released() {
    let lost = (1..=200).map(|last| format!("192.0.2.{last}"));
    let stays = (1..=110).map(|last| format!("198.51.100.{last}"));
    let addresses: Vec<String> = lost.chain(stays).collect();
    let world = World::new(&decisions(&addresses, 4));
    let brake = crate::guard::Brake::default();
    world.sources.set_brake(brake, None);
    world.sources.set(&[crowdsec("")]);
    let _running = world.lead();
    world.pass(3).await;
    let active = |world: &World| {
        let phases = world.phases();
        phases.values().filter(|phase| *phase == "active").count()
    };
    assert_eq!(active(&world), 310);
    let gone = |from: usize, to: usize| {
        let gone: Vec<serde_json::Value> = (from..to)
            .map(|id| serde_json::json!({ "id": id }))
            .collect();
        (
            200,
            serde_json::json!({"new": null, "deleted": gone}).to_string(),
        )
    };
    *world.server.list.lock() = gone(0, 90);
    world.pass(3).await;
    assert_eq!(active(&world), 220, "fewer than liftLeast");
    *world.server.list.lock() = gone(90, 200);
    world.pass(5).await;
    assert_eq!(active(&world), 220);
    assert_eq!(world.metrics.held_now("list"), 110);
    let held = world.sources.held();
    let [held] = held.as_slice() else {
        panic!("{held:?}")
    };
    let (_, id) = held.split_once(" to lifts-list-").unwrap();
    let id = format!("lifts-list-{}", &id[..8]);
    world
        .sources
        .set_brake(brake, Some("lifts-list-00000000".into()));
    world.pass(3).await;
    assert_eq!(active(&world), 220, "that is another brake");
    world.sources.set_brake(brake, Some(id));
    world.pass(3).await;
    assert_eq!(active(&world), 110);
    assert!(world.sources.held().is_empty());
    assert_eq!(world.metrics.held_now("list"), 0);
    // The annotation stays, and releases no later loss.
    *world.server.list.lock() = gone(200, 310);
    world.pass(5).await;
    assert_eq!(active(&world), 110);
    assert_eq!(world.sources.held().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_list_after_a_restart_is_judged_against_the_bans_that_stand() {
    let addresses: Vec<String> = (1..=150).map(|last| format!("192.0.2.{last}")).collect();
    let mut world = World::new(&decisions(&addresses, 4));
    let brake = crate::guard::Brake::default();
    world.sources.set_brake(brake, None);
    world.sources.set(&[crowdsec("")]);
    let first = world.lead();
    world.pass(3).await;
    // The loss is first seen by the next process, and by the one after that.
    let mut texts = Vec::new();
    let mut running = first;
    for _ in 0..2 {
        world.stop.cancel();
        running.await.unwrap();
        assert!(world.sources.held().is_empty(), "another replica leads");
        *world.server.list.lock() = (200, NO_NEWS.into());
        world.stop = CancellationToken::new();
        running = world.lead();
        world.pass(3).await;
        assert!(world.phases().values().all(|phase| phase == "active"));
        texts.extend(world.sources.held());
    }
    assert_eq!(texts.len(), 2);
    assert_eq!(texts[0], texts[1], "one release is for both");
}

#[tokio::test(start_paused = true)]
async fn decisions_that_end_by_themselves_engage_no_brake() {
    let addresses: Vec<String> = (1..=200).map(|last| format!("192.0.2.{last}")).collect();
    let world = World::new(&decisions(&addresses, 1));
    world
        .sources
        .set_brake(crate::guard::Brake::default(), None);
    world.sources.set(&[crowdsec("")]);
    let _running = world.lead();
    world.pass(2).await;
    *world.server.list.lock() = (200, NO_NEWS.into());
    for _ in 0..70 {
        world.pass(1).await;
        assert!(world.sources.held().is_empty());
    }
    assert!(world.phases().values().all(|phase| phase == "expired"));
}
