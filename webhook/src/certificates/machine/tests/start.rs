//! Starts: when a replica is ready, and which authorities are confirmed.

use super::*;

#[test]
fn a_first_start_makes_certificates_and_is_ready_when_they_are_trusted() {
    let mut world = World::new(2, 2);
    world.look(0);
    world.look(1);
    assert_eq!(
        world.contents().generation,
        1,
        "the second replica uses those of the first"
    );
    world.run(30);
    assert!(
        world.replicas.iter().all(|replica| !replica.memory.ready),
        "not trusted long enough"
    );
    world.run(30);
    assert!(world.is_settled());
    assert_eq!(
        (world.contents().generation, world.confirmed),
        (2, 1),
        "one replica recorded that the authority is trusted"
    );
}

#[test]
fn replicas_that_start_again_are_ready_at_their_first_look() {
    let mut world = World::new(3, 2);
    world.run(120);
    let before = world.contents().clone();
    // All at once.
    for replica in 0..3 {
        world.replicas[replica].restart();
    }
    world.look(0);
    assert!(world.replicas[0].memory.ready);
    assert!(!world.replicas[1].memory.ready, "it has not looked");
    world.run(INTERVAL);
    assert!(world.is_settled());
    assert_eq!(world.contents(), &before, "nothing is written");
}

#[test]
fn a_replica_that_starts_waits_for_what_is_not_confirmed() {
    // Each of these changes the world before the start.
    let wait = |name: &str, change: fn(&mut World)| {
        let mut world = World::new(2, 1);
        world.run(120);
        world.replicas[0].restart();
        change(&mut world);
        world.look(0);
        assert!(!world.replicas[0].memory.ready, "{name}");
        world.run(20);
        assert!(!world.replicas[0].memory.ready, "{name}: 20 s later");
        world.run(20);
        assert!(world.replicas[0].memory.ready, "{name}: 40 s later");
        world.check().unwrap();
    };
    wait("a Secret of an earlier version", |world| {
        let mut contents = world.contents().clone();
        contents.confirmed.clear();
        world.store(Found::Contents(contents));
        // It would record it at its next look.
        world.replicas[1].restart();
    });
    wait("a configuration without the bundle", |world| {
        let now = world.now;
        world.targets[0].push((now, BTreeSet::new()));
    });
    wait("a configuration that another replica repaired", |world| {
        world.add_target();
        world.replicas[1].targets = 2;
        world.replicas[1].restart();
        world.look(1);
        world.replicas[0].targets = 2;
    });
}

#[test]
fn a_replica_that_could_not_read_a_configuration_is_ready_when_it_can() {
    let mut world = World::new(1, 2);
    world.run(120);
    let found = world.secret.found.clone();
    world.begin(0);
    let (all, _) = world.replicas[0].seen.take().unwrap();
    let some = Bundles {
        entries: all.entries[..1].to_vec(),
        complete: false,
    };
    let mut memory = Memory::default();
    let at = world.at(0);
    memory.decide(at, &found, &some, &LIVES);
    assert!(!memory.ready);
    memory.decide(at, &found, &all, &LIVES);
    assert!(memory.ready);
}

#[test]
fn what_was_confirmed_follows_the_authorities_of_the_secret() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let (mut known, mut found) = (contents(now, 7, 1), contents(now, 3, 2));
    let names = |names: &[&str]| -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    };
    let both = contents(now, 1, 3).bundle[0];
    for (contents, configurations) in [(&mut known, ["a", "b"]), (&mut found, ["b", "c"])] {
        contents.bundle.push(both);
        let ids: Vec<Id> = contents.bundle.iter().map(|one| one.id).collect();
        contents.confirm(&ids, &names(&configurations));
    }
    let mut restored = known.clone();
    restored.restore(9, Some(&found), now);
    assert_eq!((restored.generation, restored.bundle.len()), (9, 3));
    assert_eq!(restored.confirmed, [(both.id, names(&["b"]))].into());
    // A Secret without contents takes no authority out of a configuration.
    let mut restored = known.clone();
    restored.restore(9, None, now);
    assert_eq!(restored.confirmed, known.confirmed);
    restored.retire(&[both.id]);
    assert_eq!(
        restored.confirmed.keys().copied().collect::<Vec<_>>(),
        [[1; 32]]
    );
    assert_eq!(restored.generation, 10);
}

#[test]
fn too_many_configurations_are_not_recorded_and_nothing_is_written_for_them() {
    let mut world = World::new(1, MOST_CONFIGURATIONS + 1);
    world.run(120);
    assert!(world.is_settled());
    assert_eq!(world.contents().generation, 1);
}
