//! The machine in a model: several replicas, configurations that API servers see late, lost and old Secrets.

use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;
use crate::certificates::issue::BACKDATE;

/// Short lives, so that a run has several rotations.
const LIVES: Lifetimes = Lifetimes {
    authority: Duration::from_secs(90 * 60),
    leaf: Duration::from_secs(20 * 60),
    propagation: Duration::from_secs(30),
    overlap: Duration::from_secs(300),
    patience: Duration::from_secs(30),
};
/// Lives that allow for clocks which differ by up to two hours.
const LONG_LIVES: Lifetimes = Lifetimes {
    authority: Duration::from_secs(90 * 3600),
    leaf: Duration::from_secs(20 * 3600),
    overlap: Duration::from_secs(3 * 3600),
    ..LIVES
};
/// The farthest that a clock is from the right time, in seconds.
const SKEW: i64 = 3600;
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
    /// Its clock minus the right one.
    skew: SignedDuration,
    /// The configurations that its version of the program has: the first ones.
    targets: usize,
    /// The versions of the configurations, when it began to look.
    seen: Option<(Bundles, Vec<usize>)>,
    /// What it is about to write.
    pending: Option<(u64, Found, Decision, Vec<usize>)>,
}

// === impl Replica ===

impl Replica {
    fn new(targets: usize) -> Self {
        Self {
            targets,
            ..Self::default()
        }
    }

    /// The process ends, and another begins on the same machine.
    fn restart(&mut self) {
        *self = Self {
            skew: self.skew,
            ..Self::new(self.targets)
        };
    }
}

struct World {
    lives: Lifetimes,
    /// The right time, which is that of the API servers.
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
    confirmed: usize,
}

// === impl World ===

impl World {
    fn new(replicas: usize, targets: usize) -> Self {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        Self {
            lives: LIVES,
            now,
            secret: Stored {
                version: 1,
                found: Found::Missing,
            },
            past: Vec::new(),
            targets: vec![vec![(now, BTreeSet::new())]; targets],
            replicas: vec![Replica::new(targets); replicas],
            ids: 0,
            announced: 0,
            issued: 0,
            confirmed: 0,
        }
    }

    /// The clocks of a replica.
    fn at(&self, replica: usize) -> Now {
        let since_boot = self.now.as_second() - 1_700_000_000;
        Now {
            wall: self.now + self.replicas[replica].skew,
            elapsed: Duration::from_secs(since_boot.unsigned_abs()),
        }
    }

    fn id(&mut self) -> Id {
        self.ids += 1;
        let mut id = [0; 32];
        id[..8].copy_from_slice(&self.ids.to_be_bytes());
        id
    }

    fn authority(&mut self, now: Timestamp) -> Authority {
        Authority {
            id: self.id(),
            issued: now,
            expires: now + self.lives.authority,
        }
    }

    fn leaf(&mut self, now: Timestamp, signer: &Authority) -> Leaf {
        let expires = (now + self.lives.leaf).min(signer.expires);
        Leaf {
            id: self.id(),
            issuer: signer.id,
            issued: now,
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
        let targets = &self.targets[..self.replicas[replica].targets];
        let entries = targets.iter().enumerate();
        let entries = entries.map(|(index, versions)| Bundle {
            configuration: format!("configuration {index}"),
            authorities: versions.last().unwrap().1.clone(),
        });
        let entries = entries.collect();
        let versions = targets.iter().map(Vec::len).collect();
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
        let (at, lives) = (self.at(replica), self.lives);
        let decision = self.replicas[replica]
            .memory
            .decide(at, &found, &bundles, &lives);
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
        let now = self.at(replica).wall;
        let contents = self.perform(now, write, &found, known);
        self.store(Found::Contents(contents));
    }

    fn perform(
        &mut self,
        now: Timestamp,
        write: Write,
        found: &Found,
        known: Option<Contents>,
    ) -> Contents {
        let base = match found {
            Found::Contents(contents) => Some(contents.clone()),
            _ => None,
        };
        match write {
            Write::Create => {
                let signer = self.authority(now);
                let leaf = self.leaf(now, &signer);
                Contents {
                    generation: 1,
                    bundle: vec![signer],
                    signer: signer.id,
                    leaf,
                    since: now,
                    confirmed: BTreeMap::new(),
                }
            }
            Write::Restore { generation } => {
                let mut contents = known.unwrap();
                contents.restore(generation, base.as_ref(), now);
                contents
            }
            Write::Confirm(authorities, configurations) => {
                self.confirmed += 1;
                let mut contents = base.unwrap();
                contents.confirm(&authorities, &configurations);
                contents
            }
            Write::Announce => {
                self.announced += 1;
                let mut contents = base.unwrap();
                let signer = self.authority(now);
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
                    leaf: self.leaf(now, &signer),
                    ..contents
                }
            }
            Write::Retire(old) => {
                let mut contents = base.unwrap();
                contents.retire(&old);
                contents
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
        self.stride(seconds, INTERVAL);
    }

    /// All replicas look each `interval` for `seconds`.
    fn stride(&mut self, seconds: i64, interval: i64) {
        for _ in 0..seconds / interval {
            self.now += SignedDuration::from_secs(interval);
            for replica in 0..self.replicas.len() {
                self.look(replica);
            }
        }
    }

    /// A version of the program with one more configuration is installed.
    fn add_target(&mut self) {
        let empty = (self.now, BTreeSet::new());
        self.targets.push(vec![empty]);
    }

    /// Every bundle of the first configurations that an API server may still use.
    fn visible(&self, targets: usize) -> impl Iterator<Item = &BTreeSet<Id>> {
        let horizon = self.now - SignedDuration::from_secs(LAG);
        self.targets[..targets].iter().flat_map(move |versions| {
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
            if leaf.issued - SignedDuration::try_from(BACKDATE).unwrap() > self.now {
                return Err(format!("replica {index} serves a leaf of the future"));
            }
            let mut visible = self.visible(replica.targets);
            if let Some(bundle) = visible.find(|bundle| !bundle.contains(&leaf.issuer)) {
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
        confirmed: BTreeMap::new(),
    }
}

/// The clocks of a replica that was started at a fixed time.
fn at(now: Timestamp) -> Now {
    let since_boot = now.as_second() - 1_700_000_000;
    Now {
        wall: now,
        elapsed: Duration::from_secs(since_boot.unsigned_abs()),
    }
}

fn trusting(contents: &Contents) -> Bundles {
    Bundles {
        entries: vec![Bundle {
            configuration: "configuration".to_owned(),
            authorities: contents.bundle.iter().map(|one| one.id).collect(),
        }],
        complete: true,
    }
}

#[test]
fn certificates_of_a_replica_whose_clock_is_ahead_are_replaced() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let good = contents(now, 1, 1);
    let mut memory = Memory::default();
    memory.decide(
        at(now),
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
    memory.decide(at(later), &found, &trusting(&ahead), &LIVES);
    let decision = memory.decide(
        at(later + LIVES.propagation),
        &found,
        &trusting(&ahead),
        &LIVES,
    );
    assert!(!decision.adopt);
    let Some(Write::Confirm(authorities, configurations)) = decision.write else {
        panic!("{:?}", decision.write);
    };
    ahead.confirm(&authorities, &configurations);
    let found = Found::Contents(ahead.clone());
    let decision = memory.decide(
        at(later + LIVES.propagation),
        &found,
        &trusting(&ahead),
        &LIVES,
    );
    assert!(!decision.adopt);
    assert_eq!(decision.write, Some(Write::Announce));
    // A difference of minutes between clocks replaces nothing.
    let soon = contents(now + Duration::from_secs(300), 1, 3);
    let mut memory = Memory::default();
    let decision = memory.decide(
        at(now),
        &Found::Contents(soon.clone()),
        &trusting(&soon),
        &LIVES,
    );
    assert_eq!((decision.adopt, decision.write), (true, None));
}

#[test]
fn a_clock_that_is_set_changes_no_wait() {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let mut good = contents(now, 1, 1);
    let hour = Duration::from_secs(3600);
    // Good at all times of the test.
    good.leaf.expires = now + hour * 9;
    good.bundle[0].expires = now + hour * 9;
    let found = Found::Contents(good.clone());
    for set in [now - hour / 2, now + hour * 2] {
        let mut memory = Memory::default();
        let mut ready_after = |wall: Timestamp, seconds: u64| {
            let elapsed = Duration::from_secs(seconds);
            memory.decide(Now { wall, elapsed }, &found, &trusting(&good), &LIVES);
            memory.ready
        };
        let ready = [
            ready_after(now, 0),
            ready_after(set, 20),
            ready_after(set, 30),
        ];
        assert_eq!(ready, [false, false, true], "{set}");
    }
}
