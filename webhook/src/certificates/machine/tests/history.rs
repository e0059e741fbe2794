//! Random histories: races, crashes, upgrades, wrong clocks and faults at any point.

use proptest::prelude::*;

use super::*;

/// A step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Wait(i64),
    Begin(usize),
    Decide(usize),
    Commit(usize),
    Crash(usize),
    /// It ends, and begins with a version of the program that has one more configuration.
    Upgrade(usize),
    /// Its clock is set: so many seconds from the right time.
    Set(usize, i64),
    /// Only in histories with faults.
    Lose,
    Corrupt,
    RollBack(usize),
    Wipe(usize),
}

/// Steps of a cluster without faults.
fn usual() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (1..12_i64).prop_map(Step::Wait),
        3 => (0..3_usize).prop_map(Step::Begin),
        3 => (0..3_usize).prop_map(Step::Decide),
        3 => (0..3_usize).prop_map(Step::Commit),
        1 => (0..3_usize).prop_map(Step::Crash),
        1 => (0..3_usize).prop_map(Step::Upgrade),
    ]
}

fn steps(faults: bool) -> impl Strategy<Value = Vec<Step>> {
    let usual = usual();
    let fault = prop_oneof![
        Just(Step::Lose),
        Just(Step::Corrupt),
        (0..8_usize).prop_map(Step::RollBack),
        (0..2_usize).prop_map(Step::Wipe),
    ];
    let weight = u32::from(faults);
    let step = if weight == 0 {
        usual.boxed()
    } else {
        prop_oneof![12 => usual, 1 => fault].boxed()
    };
    prop::collection::vec(step, 0..400)
}

/// The replicas that the steps interrupt look once in a while by themselves.
fn apply(world: &mut World, step: &Step) {
    match *step {
        Step::Wait(seconds) => world.now += SignedDuration::from_secs(seconds),
        Step::Begin(replica) => world.begin(replica),
        Step::Decide(replica) => world.decide(replica),
        Step::Commit(replica) => world.commit(replica),
        Step::Crash(replica) => world.replicas[replica].restart(),
        Step::Upgrade(replica) => {
            if world.targets.len() == 2 {
                world.add_target();
            }
            world.replicas[replica].targets = 3;
            world.replicas[replica].restart();
        }
        Step::Set(replica, skew) => {
            world.replicas[replica].skew = SignedDuration::from_secs(skew);
        }
        Step::Lose => world.store(Found::Missing),
        Step::Corrupt => world.store(Found::Unusable),
        Step::RollBack(back) => {
            let usable: Vec<Found> = world
                .past
                .iter()
                .filter(|past| matches!(past, Found::Contents(_)))
                .cloned()
                .collect();
            if let Some(past) = usable
                .len()
                .checked_sub(back + 1)
                .and_then(|index| usable.get(index))
            {
                world.store(past.clone());
            }
        }
        Step::Wipe(target) => {
            let now = world.now;
            world.targets[target].push((now, BTreeSet::new()));
        }
    }
}

proptest! {
    #![proptest_config(crate::sample::cases(64))]

    #[test]
    fn races_and_crashes_at_any_point_leave_no_ready_replica_with_an_untrusted_leaf(
        start in 0..3600_i64,
        steps in steps(false),
    ) {
        let mut world = World::new(3, 2);
        // Up to any phase of a rotation.
        world.run(120 + start);
        for step in &steps {
            apply(&mut world, step);
            let settled = world.check();
            prop_assert!(settled.is_ok(), "{step:?}: {settled:?}");
        }
    }

    #[test]
    fn clocks_that_differ_and_are_set_leave_no_ready_replica_with_an_untrusted_leaf(
        start in 0..120 * 3600_i64,
        skews in prop::collection::vec(-SKEW..=SKEW, 3),
        steps in prop::collection::vec(prop_oneof![
            12 => usual(),
            1 => (0..3_usize, -SKEW..=SKEW).prop_map(|(replica, skew)| Step::Set(replica, skew)),
        ], 0..400),
    ) {
        let mut world = World::new(3, 2);
        world.lives = LONG_LIVES;
        for (replica, skew) in world.replicas.iter_mut().zip(skews) {
            replica.skew = SignedDuration::from_secs(skew);
        }
        world.run(180);
        for _ in 0..start / 600 {
            world.stride(600, 600);
            let settled = world.check();
            prop_assert!(settled.is_ok(), "{settled:?}");
        }
        // Whatever the clocks are, they do not make the replicas replace each other's certificates again and again.
        prop_assert!(world.announced < 12 && world.issued < 40, "{} {}", world.announced, world.issued);
        for step in &steps {
            apply(&mut world, step);
            let settled = world.check();
            prop_assert!(settled.is_ok(), "{step:?}: {settled:?}");
        }
    }

    #[test]
    fn every_fault_is_repaired(start in 0..3600_i64, steps in steps(true)) {
        let mut world = World::new(3, 2);
        world.run(120 + start);
        for step in &steps {
            apply(&mut world, step);
        }
        // Every replica has the last version of the program then.
        let targets = world.targets.len();
        world.replicas.iter_mut().for_each(|replica| replica.targets = targets);
        world.run(300);
        // A rotation may be on its way.
        let settled = (0..6).any(|_| {
            world.run(INTERVAL);
            world.is_settled()
        });
        prop_assert!(settled);
        for _ in 0..400 {
            world.run(INTERVAL);
            let settled = world.check();
            prop_assert!(settled.is_ok(), "{settled:?}");
        }
    }
}
