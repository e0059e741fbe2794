//! Blocks that are deleted after their retention, and what is remembered of them.

use super::*;
use crate::logged::Logged;
use crate::target::object_name;

#[tokio::test(start_paused = true)]
async fn a_block_of_a_trigger_is_deleted_after_its_retention_and_one_of_a_person_stays() {
    let world = World::configured().await;
    world.configure(&[("retention", "1h")]).await;
    let name = object_name("192.0.2.7");
    world.create(&name, "192.0.2.7", "1m").await;
    world.create("by-hand", "192.0.2.8", "1m").await;
    world.until(&name, "expired", 2 * MINUTE).await;
    world.until("by-hand", "expired", 2 * MINUTE).await;
    tokio::time::sleep(58 * MINUTE).await;
    assert!(world.exists(&name).await);
    tokio::time::sleep(3 * MINUTE).await;
    assert!(!world.exists(&name).await);
    assert!(world.exists("by-hand").await);
}

#[tokio::test(start_paused = true)]
async fn a_block_that_may_not_be_deleted_is_tried_again_after_an_hour() {
    let world = World::configured().await;
    world.configure(&[("retention", "1h")]).await;
    let refused = Rule::new().verb("delete").resource("ipblocks").times(1);
    let refused = world.server.faults().add(refused.status(403, "no"));
    let name = object_name("192.0.2.7");
    world.create(&name, "192.0.2.7", "1m").await;
    tokio::time::sleep(HOUR + 5 * MINUTE).await;
    assert_eq!(refused.hits(), 1);
    assert!(world.exists(&name).await);
    tokio::time::sleep(HOUR).await;
    assert!(!world.exists(&name).await);
}

#[tokio::test(start_paused = true)]
async fn blocks_that_may_not_be_deleted_are_counted_each_and_logged_in_one_line() {
    let log = Logged::at(tracing::Level::INFO);
    let world = World::configured().await;
    world.configure(&[("retention", "1h")]).await;
    let refused = Rule::new().verb("delete").resource("ipblocks");
    let refused = world.server.faults().add(refused.status(403, "no"));
    for n in 0..10 {
        let address = format!("192.0.2.{n}");
        world.create(&object_name(&address), &address, "1m").await;
    }
    tokio::time::sleep(HOUR + 5 * MINUTE).await;
    assert_eq!(refused.hits(), 10);
    let metrics = world.manager.as_ref().unwrap().metrics().encode();
    let count = "ipblock_collections_refused_total 10";
    assert!(metrics.contains(count), "{metrics}");
    let logged = log.take();
    let logged: Vec<&str> = logged.lines().collect();
    let about = |line: &&&str| line.contains("could not delete a block");
    assert_eq!(logged.iter().filter(about).count(), 1, "{logged:#?}");
}

/// Keeps the API server from sending changes of IPBlocks, until its faults are cleared.
fn unheard(world: &World) -> reeve_apiserver::faults::Handle {
    let faults = world.server.faults();
    let watches = Rule::new().verb("watch").resource("ipblocks");
    let handle = faults.add(watches.status(503, "no watch cache"));
    faults.add(
        Rule::new()
            .verb("list")
            .resource("ipblocks")
            .status(503, "no"),
    );
    world.server.close_watches();
    handle
}

#[tokio::test(start_paused = true)]
async fn a_block_that_changed_while_the_informer_does_not_follow_the_server_is_not_deleted() {
    for (end, change, phase) in [
        ("expired", json!({"spec": {"trigger": true}}), "active"),
        ("expired", json!({"spec": {"unblock": true}}), "expired"),
        (
            "expired",
            json!({"metadata": {"annotations": {api::RETENTION_ANNOTATION: "never"}}}),
            "expired",
        ),
        // Banned by the next alert once the grace is over.
        ("unblocked", json!({"spec": {"trigger": true}}), "active"),
        ("unblocked", json!({"spec": {"unblock": true}}), "expired"),
    ] {
        let what = format!("{end}, then {change}");
        let world = World::configured().await;
        // After an unblock the grace counts, of ten minutes.
        let retention = if end == "expired" { "10m" } else { "10s" };
        world.configure(&[("retention", retention)]).await;
        let name = object_name("192.0.2.7");
        world.create(&name, "192.0.2.7", "1m").await;
        world.until(&name, "active", 5 * SECOND).await;
        let params = PatchParams::default();
        if end == "unblocked" {
            let unblock = Patch::Merge(json!({"spec": {"unblock": true}}));
            world.blocks.patch(&name, &params, &unblock).await.unwrap();
        }
        world.until(&name, "expired", 2 * MINUTE).await;
        tokio::time::sleep(MINUTE).await;
        let tried = Rule::new().verb("delete").resource("ipblocks");
        let tried = world.server.faults().add(tried.delay(SECOND / 1000));
        let unheard = unheard(&world);
        tokio::time::sleep(SECOND).await;
        let patch = Patch::Merge(change);
        world.blocks.patch(&name, &params, &patch).await.unwrap();
        tokio::time::sleep(15 * MINUTE).await;
        let hits = [unheard.hits(), tried.hits()];
        assert!(hits.iter().all(|hits| *hits > 0), "{what}: {hits:?}");
        let block = world.server_block(&name).await;
        assert!(block.metadata.deletion_timestamp.is_none(), "{what}");
        world.server.faults().clear();
        // The change is followed at last.
        world.until(&name, phase, 5 * MINUTE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_alert_within_the_grace_bans_nothing_however_short_the_retention() {
    let world = World::configured().await;
    world.configure(&[("retention", "10s")]).await;
    let name = object_name("192.0.2.7");
    world.create(&name, "192.0.2.7", "1h").await;
    world.until(&name, "active", 5 * SECOND).await;
    let unblock = Patch::Merge(json!({"spec": {"unblock": true}}));
    let params = PatchParams::default();
    world.blocks.patch(&name, &params, &unblock).await.unwrap();
    world.until(&name, "expired", 5 * SECOND).await;
    tokio::time::sleep(9 * MINUTE).await;
    assert!(world.exists(&name).await, "the grace is remembered by it");
    tokio::time::sleep(2 * MINUTE).await;
    assert!(!world.exists(&name).await);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_blocks_that_are_gone() {
    let world = World::configured().await;
    world.configure(&[("retention", "10s")]).await;
    for round in 0..20 {
        for n in 0..10 {
            let address = format!("198.51.{round}.{n}");
            let name = object_name(&address);
            world.create(&name, &address, "10s").await;
        }
        tokio::time::sleep(5 * SECOND).await;
        let claims = world.kept.coverage.lock().len();
        assert_eq!(claims, 10, "round {round}: no more than there are bans");
        tokio::time::sleep(25 * SECOND).await;
    }
    assert!(world.phases().await.is_empty(), "all were deleted");
    let coverage = world.kept.coverage.lock();
    assert!(coverage.is_empty());
    assert_eq!(coverage.next_due().0, None);
    assert!(world.kept.locks.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cached_block_takes_no_more_than_docs_operate_md_says() {
    let world = World::configured().await;
    for n in 0..500 {
        let address = format!("198.51.{}.{}", 100 + n / 250, n % 250);
        world.create(&object_name(&address), &address, "1h").await;
    }
    tokio::time::sleep(MINUTE).await;
    assert_eq!(world.phases().await.get("active"), Some(&500));
    let manager = world.manager.as_ref().unwrap();
    let lister = manager.caches().lister::<IPBlock>().unwrap();
    let health = lister.health().unwrap();
    assert_eq!(health.objects, 500);
    let bytes = health.bytes;
    let (each, place) = (
        bytes.owned / health.objects,
        (bytes.entries + bytes.indexes) / health.objects,
    );
    // "0.27 to 0.6 KB, and 0.17 KB for its place", and a tenth more.
    assert!((200..=660).contains(&each), "{each} bytes a block");
    assert!((100..=190).contains(&place), "{place} bytes for its place");
}
