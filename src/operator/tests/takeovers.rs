//! A replica that begins to lead while its cache is behind.

use k8s_openapi::api::coordination::v1::Lease;

use super::*;
use crate::api::Phase;

/// The replica that leads.
async fn leader(world: &World) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(world.server.client(), "default");
    let lease = leases.get("ipblock-operator").await.unwrap();
    lease.spec?.holder_identity
}

/// The leader dies, and the replica `two` leads.
async fn takes_over(world: &mut World) {
    world.kill();
    let killed = Instant::now();
    while leader(world).await.as_deref() != Some("two") {
        assert!(killed.elapsed() < 60 * SECOND);
        tokio::time::sleep(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_asserts_no_ban_by_an_old_copy_and_leaves_none_because_of_one() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    world
        .start_with(|settings| settings.identity = Some("one".to_owned()))
        .await;
    world.create("a", "192.0.2.7", "10h").await;
    world.create("b", "192.0.2.7", "45s").await;
    world.create("c", "198.51.100.7", "10h").await;
    for name in ["a", "b", "c"] {
        world.until(name, "active", 30 * SECOND).await;
    }
    // The next replica reads the blocks, and no change of them.
    world.server.faults().refuse_streaming_lists(true);
    let busy = Rule::new().verb("watch").resource("ipblocks");
    let busy = world.server.faults().add(busy.status(429, "busy"));
    let (_, _running) = world.replica("two").await;
    tokio::time::sleep(20 * SECOND).await;
    assert!(busy.hits() > 0);
    for name in ["a", "c"] {
        let patch = Patch::Merge(json!({"spec": {"unblock": true}}));
        let params = PatchParams::default();
        world.blocks.patch(name, &params, &patch).await.unwrap();
        world.until(name, "expired", 5 * SECOND).await;
    }
    world
        .banned_becomes(GATEWAY, &["192.0.2.7"], 5 * SECOND)
        .await;
    takes_over(&mut world).await;
    tokio::time::sleep(20 * SECOND).await;
    let stands = BTreeSet::from(["192.0.2.7".to_owned()]);
    assert_eq!(world.banned(GATEWAY).await, stands, "c is over");
    let due = world.status("b").await;
    assert_eq!(due.phase, Some(Phase::Active), "the copy of a is old");
    world.server.faults().clear();
    world.until("b", "expired", 60 * SECOND).await;
    world.banned_becomes(GATEWAY, &[], SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_whose_lists_fail_lifts_what_is_due_after_a_minute() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    world
        .start_with(|settings| settings.identity = Some("one".to_owned()))
        .await;
    world.create("a", "192.0.2.7", "50s").await;
    world.until("a", "active", 30 * SECOND).await;
    for n in 0..40 {
        let ip = format!("198.51.100.{n}");
        world.create(&format!("block-{n}"), &ip, "1h").await;
    }
    let (_, _running) = world.replica("two").await;
    tokio::time::sleep(20 * SECOND).await;
    let busy = Rule::new().verb("list").resource("ipblocks");
    let busy = world.server.faults().add(busy.status(429, "busy"));
    takes_over(&mut world).await;
    tokio::time::sleep(50 * SECOND).await;
    assert_eq!(world.status("a").await.phase, Some(Phase::Active));
    world.until("a", "expired", 30 * SECOND).await;
    assert!((30..=62).contains(&busy.hits()), "{} lists", busy.hits());
}

/// A replica `two` that reads the blocks, and no change of them.
async fn follower(world: &World) -> impl Sized + use<> {
    world.server.faults().refuse_streaming_lists(true);
    let busy = Rule::new().verb("watch").resource("ipblocks");
    let busy = world.server.faults().add(busy.status(429, "busy"));
    let (_, running) = world.replica("two").await;
    tokio::time::sleep(20 * SECOND).await;
    assert!(busy.hits() > 0);
    running
}

async fn edit(world: &World, name: &str, spec: serde_json::Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    let params = PatchParams::default();
    world.blocks.patch(name, &params, &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_ban_whose_block_is_removed_while_its_copy_is_old_is_lifted() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    world
        .start_with(|settings| settings.identity = Some("one".to_owned()))
        .await;
    world.create("a", "192.0.2.7", "10h").await;
    world.until("a", "active", 30 * SECOND).await;
    let _running = follower(&world).await;
    edit(&world, "a", json!({"reason": "newer"})).await;
    takes_over(&mut world).await;
    tokio::time::sleep(20 * SECOND).await;
    let strip = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let params = PatchParams::default();
    world.blocks.patch("a", &params, &strip).await.unwrap();
    let delete = DeleteParams::default();
    world.blocks.delete("a", &delete).await.unwrap();
    assert!(world.blocks.get_opt("a").await.unwrap().is_none());
    assert_eq!(world.banned(GATEWAY).await.len(), 1);
    world.server.faults().clear();
    world.banned_becomes(GATEWAY, &[], 60 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_lift_waits_for_an_old_copy_of_another_block_that_claims_nothing() {
    let mut world = World::new().await;
    world.configure(&[]).await;
    world
        .start_with(|settings| settings.identity = Some("one".to_owned()))
        .await;
    world.create("a", "192.0.2.7", "10h").await;
    world.until("a", "active", 30 * SECOND).await;
    edit(&world, "a", json!({"unblock": true})).await;
    world.until("a", "expired", 5 * SECOND).await;
    world.create("b", "192.0.2.7", "45s").await;
    world.until("b", "active", 30 * SECOND).await;
    let _running = follower(&world).await;
    edit(&world, "a", json!({"trigger": true})).await;
    world.until("a", "active", 5 * SECOND).await;
    takes_over(&mut world).await;
    tokio::time::sleep(20 * SECOND).await;
    let due = world.status("b").await;
    assert_eq!(due.phase, Some(Phase::Active), "the copy of a is old");
    let stands = BTreeSet::from(["192.0.2.7".to_owned()]);
    assert_eq!(world.banned(GATEWAY).await, stands);
    world.server.faults().clear();
    world.until("b", "expired", 60 * SECOND).await;
    assert_eq!(world.banned(GATEWAY).await, stands, "a keeps it");
}
