//! Rotations, and the repair of what was lost, rolled back, expired or replaced.

use super::*;

#[test]
fn rotations_follow_each_other_and_no_ready_replica_serves_an_untrusted_leaf() {
    let mut world = World::new(3, 2);
    world.run(60);
    for _ in 0..(4 * 3600) / INTERVAL {
        world.run(INTERVAL);
        world.check().unwrap();
        assert!(world.contents().bundle.len() <= 2);
    }
    // An authority is replaced each hour, a leaf after 13 minutes or with it.
    assert_eq!(world.announced, 4);
    assert!((16..=24).contains(&world.issued), "{}", world.issued);
}

#[test]
fn a_lost_secret_is_restored_with_the_same_certificates() {
    for lost in [Found::Missing, Found::Unusable] {
        let mut world = World::new(2, 1);
        world.run(120);
        let before = world.contents().clone();
        world.store(lost);
        world.run(10);
        let after = world.contents().clone();
        assert_eq!(
            after,
            Contents {
                generation: before.generation + 1,
                ..before
            }
        );
        world.check().unwrap();
    }
}

#[test]
fn a_secret_that_is_rolled_back_is_brought_forward_again() {
    let mut world = World::new(2, 1);
    world.run(120);
    let old = world.secret.found.clone();
    world.run(3600);
    let newest = world.contents().clone();
    assert!(world.announced == 1 && newest.generation > 4);
    world.store(old);
    world.run(10);
    assert_eq!(
        (world.contents().leaf, world.contents().signer),
        (newest.leaf, newest.signer)
    );
    assert!(world.contents().generation > newest.generation);
    for _ in 0..60 {
        world.run(10);
        world.check().unwrap();
    }
    assert!(world.is_settled());
}

#[test]
fn a_replica_without_memory_waits_for_one_that_can_restore() {
    let mut world = World::new(2, 1);
    world.run(120);
    let before = world.contents().clone();
    world.store(Found::Missing);
    world.replicas[0].restart();
    world.look(0);
    assert_eq!(world.secret.found, Found::Missing, "it waits");
    world.look(1);
    assert_eq!(world.contents().leaf, before.leaf);

    // With no replica that has them, they are made again after a while.
    world.store(Found::Missing);
    world.replicas = vec![Replica::new(1); 2];
    world.run(20);
    assert_eq!(world.secret.found, Found::Missing);
    world.run(30);
    assert_ne!(world.contents().leaf, before.leaf);
    world.run(60);
    assert!(world.is_settled());
}

#[test]
fn after_a_long_sleep_an_expired_leaf_is_replaced_at_once() {
    let mut world = World::new(2, 1);
    world.run(120);
    world.now += SignedDuration::from_hours(24);
    world.run(30);
    let leaf = world.contents().leaf;
    assert!(leaf.expires > world.now);
    assert!(
        world
            .replicas
            .iter()
            .all(|replica| replica.memory.served == Some(leaf))
    );
    world.run(120);
    assert!(world.is_settled());
    world.check().unwrap();
}

#[test]
fn a_leaf_for_other_names_is_replaced() {
    let mut world = World::new(1, 1);
    world.run(120);
    let mut contents = world.contents().clone();
    contents.leaf.fits = false;
    contents.generation += 1;
    world.store(Found::Contents(contents));
    world.run(20);
    assert!(world.contents().leaf.fits && world.is_settled());
}

#[test]
fn a_leaf_is_renewed_by_replicas_that_are_always_new() {
    let mut world = World::new(1, 1);
    world.run(120);
    let first = world.contents().leaf;
    // A configuration joins, and no replica lives long enough to see it trusted.
    world.add_target();
    world.replicas[0].targets = 2;
    for _ in 0..150 {
        world.replicas[0].restart();
        world.run(INTERVAL);
    }
    let leaf = world.contents().leaf;
    assert!(leaf.expires > world.now && leaf.issuer == first.issuer);
}

#[test]
fn a_configuration_that_was_applied_again_gets_its_bundle_back() {
    let mut world = World::new(1, 2);
    world.run(120);
    let now = world.now;
    world.targets[1].push((now, BTreeSet::new()));
    world.run(10);
    assert!(world.is_settled(), "the replica stays ready meanwhile");
}
