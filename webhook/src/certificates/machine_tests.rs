//! The machine in a model: several replicas, configurations that API servers see late, lost and old Secrets.

use proptest::prelude::*;

use super::*;

/// Short lives, so that a run has several rotations.
const LIVES: Lifetimes = Lifetimes {
    authority: Duration::from_secs(90 * 60),
    leaf: Duration::from_secs(20 * 60),
    propagation: Duration::from_secs(30),
    overlap: Duration::from_secs(300),
    patience: Duration::from_secs(30),
};
/// The longest time until an API server sees a configuration.
const LAG: i64 = 20;
/// The interval of the looks of a replica.
const INTERVAL: i64 = 10;

/// A Secret as it is stored.
#[derive(Clone, Debug)]
struct Stored {
    version: u64,
    found: Found,
}

/// The looks of one replica.
#[derive(Clone, Debug, Default)]
struct Replica {
    memory: Memory,
    /// The versions of the configurations, when it began to look.
    seen: Option<(Bundles, Vec<usize>)>,
    /// What it is about to write.
    pending: Option<(u64, Found, Decision, Vec<usize>)>,
}

struct World {
    now: Timestamp,
    secret: Stored,
    /// Every content that the Secret had.
    past: Vec<Found>,
    /// Each configuration: all its bundles, and since when.
    targets: Vec<Vec<(Timestamp, BTreeSet<Id>)>>,
    replicas: Vec<Replica>,
    ids: u64,
    announced: usize,
    issued: usize,
}

// === impl World ===

impl World {
    fn new(replicas: usize, targets: usize) -> Self {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        Self {
            now,
            secret: Stored {
                version: 1,
                found: Found::Missing,
            },
            past: Vec::new(),
            targets: vec![vec![(now, BTreeSet::new())]; targets],
            replicas: vec![Replica::default(); replicas],
            ids: 0,
            announced: 0,
            issued: 0,
        }
    }

    fn id(&mut self) -> Id {
        self.ids += 1;
        let mut id = [0; 32];
        id[..8].copy_from_slice(&self.ids.to_be_bytes());
        id
    }

    fn authority(&mut self) -> Authority {
        Authority {
            id: self.id(),
            issued: self.now,
            expires: self.now + LIVES.authority,
        }
    }

    fn leaf(&mut self, signer: &Authority) -> Leaf {
        let expires = (self.now + LIVES.leaf).min(signer.expires);
        Leaf {
            id: self.id(),
            issuer: signer.id,
            issued: self.now,
            expires,
            fits: true,
        }
    }

    fn store(&mut self, found: Found) {
        self.past.push(self.secret.found.clone());
        self.secret = Stored {
            version: self.secret.version + 1,
            found,
        };
    }

    /// Reads the configurations.
    fn begin(&mut self, replica: usize) {
        let entries = self
            .targets
            .iter()
            .map(|versions| versions.last().unwrap().1.clone())
            .collect();
        let versions = self.targets.iter().map(Vec::len).collect();
        self.replicas[replica].seen = Some((
            Bundles {
                entries,
                complete: true,
            },
            versions,
        ));
    }

    /// Reads the Secret, and decides.
    fn decide(&mut self, replica: usize) {
        let Some((bundles, versions)) = self.replicas[replica].seen.take() else {
            return;
        };
        let Stored { version, found } = self.secret.clone();
        let decision = self.replicas[replica]
            .memory
            .decide(self.now, &found, &bundles, &LIVES);
        self.replicas[replica].pending = Some((version, found, decision, versions));
    }

    /// Writes, unless another replica wrote since.
    fn commit(&mut self, replica: usize) {
        let Some((version, found, decision, versions)) = self.replicas[replica].pending.take()
        else {
            return;
        };
        if let (true, Found::Contents(contents)) = (decision.inject, &found) {
            let bundle: BTreeSet<Id> = contents
                .bundle
                .iter()
                .map(|authority| authority.id)
                .collect();
            for (target, read) in self.targets.iter_mut().zip(versions) {
                if target.len() == read && target.last().unwrap().1 != bundle {
                    target.push((self.now, bundle.clone()));
                }
            }
        }
        let Some(write) = decision.write.filter(|_| version == self.secret.version) else {
            return;
        };
        let known = self.replicas[replica].memory.known.clone();
        let contents = self.perform(write, &found, known);
        self.store(Found::Contents(contents));
    }

    fn perform(&mut self, write: Write, found: &Found, known: Option<Contents>) -> Contents {
        let now = self.now;
        let base = match found {
            Found::Contents(contents) => Some(contents.clone()),
            _ => None,
        };
        match write {
            Write::Create => {
                let signer = self.authority();
                let leaf = self.leaf(&signer);
                Contents {
                    generation: 1,
                    bundle: vec![signer],
                    signer: signer.id,
                    leaf,
                    since: now,
                }
            }
            Write::Restore { generation } => {
                let mut contents = known.unwrap();
                for authority in base.into_iter().flat_map(|base| base.bundle) {
                    if contents.authority(authority.id).is_none() {
                        contents.bundle.push(authority);
                        contents.since = now;
                    }
                }
                Contents {
                    generation,
                    ..contents
                }
            }
            Write::Announce => {
                self.announced += 1;
                let mut contents = base.unwrap();
                let signer = self.authority();
                contents.bundle.push(signer);
                Contents {
                    generation: contents.generation + 1,
                    signer: signer.id,
                    since: now,
                    ..contents
                }
            }
            Write::Issue => {
                self.issued += 1;
                let contents = base.unwrap();
                let signer = *contents.authority(contents.signer).unwrap();
                Contents {
                    generation: contents.generation + 1,
                    leaf: self.leaf(&signer),
                    ..contents
                }
            }
            Write::Retire(old) => {
                let mut contents = base.unwrap();
                contents
                    .bundle
                    .retain(|authority| !old.contains(&authority.id));
                Contents {
                    generation: contents.generation + 1,
                    ..contents
                }
            }
        }
    }

    fn look(&mut self, replica: usize) {
        self.begin(replica);
        self.decide(replica);
        self.commit(replica);
    }

    /// All replicas look again and again for `seconds`.
    fn run(&mut self, seconds: i64) {
        for _ in 0..seconds / INTERVAL {
            self.now += SignedDuration::from_secs(INTERVAL);
            for replica in 0..self.replicas.len() {
                self.look(replica);
            }
        }
    }

    /// Every bundle that an API server may still use.
    fn visible(&self) -> impl Iterator<Item = &BTreeSet<Id>> {
        let horizon = self.now - SignedDuration::from_secs(LAG);
        self.targets.iter().flat_map(move |versions| {
            let ends = versions
                .iter()
                .skip(1)
                .map(|(begin, _)| Some(*begin))
                .chain([None]);
            versions
                .iter()
                .zip(ends)
                .filter(move |(_, end)| end.is_none_or(|end| end >= horizon))
                .map(|((_, bundle), _)| bundle)
        })
    }

    /// Each replica that is ready serves a leaf that every API server accepts.
    fn check(&self) -> Result<(), String> {
        for (index, replica) in self
            .replicas
            .iter()
            .enumerate()
            .filter(|(_, replica)| replica.memory.ready)
        {
            let leaf = replica.memory.served.ok_or("ready without a leaf")?;
            if leaf.expires <= self.now {
                return Err(format!("replica {index} serves an expired leaf"));
            }
            if let Some(bundle) = self.visible().find(|bundle| !bundle.contains(&leaf.issuer)) {
                return Err(format!(
                    "replica {index} serves a leaf of {:?}, and a bundle has {bundle:?}",
                    leaf.issuer
                ));
            }
        }
        Ok(())
    }

    fn contents(&self) -> &Contents {
        match &self.secret.found {
            Found::Contents(contents) => contents,
            other => panic!("the Secret is {other:?}"),
        }
    }

    fn is_settled(&self) -> bool {
        let bundle: BTreeSet<Id> = self
            .contents()
            .bundle
            .iter()
            .map(|authority| authority.id)
            .collect();
        self.replicas.iter().all(|replica| {
            replica.memory.ready && replica.memory.served == Some(self.contents().leaf)
        }) && self
            .targets
            .iter()
            .all(|versions| versions.last().unwrap().1 == bundle)
    }
}

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
    assert_eq!(world.contents().generation, 1);
}

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
    world.replicas[0] = Replica::default();
    world.look(0);
    assert_eq!(world.secret.found, Found::Missing, "it waits");
    world.look(1);
    assert_eq!(world.contents().leaf, before.leaf);

    // With no replica that has them, they are made again after a while.
    world.store(Found::Missing);
    world.replicas = vec![Replica::default(); 2];
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
fn a_configuration_that_was_applied_again_gets_its_bundle_back() {
    let mut world = World::new(1, 2);
    world.run(120);
    let now = world.now;
    world.targets[1].push((now, BTreeSet::new()));
    world.run(10);
    assert!(world.is_settled(), "the replica stays ready meanwhile");
}

/// A step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Wait(i64),
    Begin(usize),
    Decide(usize),
    Commit(usize),
    Crash(usize),
    /// Only in histories with faults.
    Lose,
    Corrupt,
    RollBack(usize),
    Wipe(usize),
}

fn steps(faults: bool) -> impl Strategy<Value = Vec<Step>> {
    let usual = prop_oneof![
        2 => (1..12_i64).prop_map(Step::Wait),
        3 => (0..3_usize).prop_map(Step::Begin),
        3 => (0..3_usize).prop_map(Step::Decide),
        3 => (0..3_usize).prop_map(Step::Commit),
        1 => (0..3_usize).prop_map(Step::Crash),
    ];
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
        Step::Crash(replica) => world.replicas[replica] = Replica::default(),
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
    #![proptest_config(ProptestConfig::with_cases(64))]

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
    fn every_fault_is_repaired(start in 0..3600_i64, steps in steps(true)) {
        let mut world = World::new(3, 2);
        world.run(120 + start);
        for step in &steps {
            apply(&mut world, step);
        }
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

fn contents(now: Timestamp, generation: u64, number: u8) -> Contents {
    let authority = Authority {
        id: [number; 32],
        issued: now,
        expires: now + LIVES.authority,
    };
    Contents {
        generation,
        bundle: vec![authority],
        signer: authority.id,
        leaf: Leaf {
            id: [number + 100; 32],
            issuer: authority.id,
            issued: now,
            expires: now + LIVES.leaf,
            fits: true,
        },
        since: now,
    }
}

fn trusting(contents: &Contents) -> Bundles {
    Bundles {
        entries: vec![contents.bundle.iter().map(|one| one.id).collect()],
        complete: true,
    }
}

#[test]
fn certificates_of_a_replica_whose_clock_is_ahead_are_replaced() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let good = contents(now, 1, 1);
    let mut memory = Memory::default();
    memory.decide(
        now,
        &Found::Contents(good.clone()),
        &trusting(&good),
        &LIVES,
    );
    let year = Duration::from_secs(365 * 24 * 3600);
    let mut ahead = contents(now + year, 2, 2);
    ahead.bundle.extend(&good.bundle);
    let later = now + Duration::from_secs(60);
    let found = Found::Contents(ahead.clone());
    // Even when the configurations have trusted the new authority for long, the good leaf stays.
    memory.decide(later, &found, &trusting(&ahead), &LIVES);
    let decision = memory.decide(later + LIVES.propagation, &found, &trusting(&ahead), &LIVES);
    assert!(!decision.adopt);
    assert_eq!(decision.write, Some(Write::Announce));
    // A difference of minutes between clocks replaces nothing.
    let soon = contents(now + Duration::from_secs(300), 1, 3);
    let mut memory = Memory::default();
    let decision = memory.decide(
        now,
        &Found::Contents(soon.clone()),
        &trusting(&soon),
        &LIVES,
    );
    assert_eq!((decision.adopt, decision.write), (true, None));
}

#[test]
fn a_clock_that_was_ahead_does_not_keep_a_replica_from_readiness() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let good = contents(now, 1, 1);
    let found = Found::Contents(good.clone());
    let mut memory = Memory::default();
    let ahead = now + Duration::from_secs(90 * 24 * 3600);
    memory.look(ahead, &trusting(&good));
    memory.decide(now, &found, &trusting(&good), &LIVES);
    assert!(!memory.ready);
    memory.decide(now + LIVES.propagation, &found, &trusting(&good), &LIVES);
    assert!(memory.ready);
}
