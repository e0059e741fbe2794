//! The machine in a model: several replicas, configurations that API servers see late, lost and old Secrets.

use jiff::SignedDuration;

use super::*;
use crate::certificates::issue::BACKDATE;

mod clock;
mod history;
mod repair;
mod start;

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

/// Contents with one authority, issued at `now`; `number` makes its identifiers.
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
