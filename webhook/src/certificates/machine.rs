//! The rotation as a pure function: from what a replica sees to what it does.
//!
//! Certificates are facts here: identifiers and times. `rotation.rs` reads them from the Secret and from the configurations,
//! and performs the decision. Several replicas run the machine without an election: each write names the version of the
//! Secret that it was decided on, and the loser of a race decides again.
//!
//! ```text
//!            Steady(c0)
//!               │ c0 is at two thirds of its life
//!               ▼
//!            Announced(c0, c1)     c1 signs; the leaf is still c0's
//!               │ every configuration has c1, for the time that API servers need to see it
//!               ▼
//!            Issued(c0, c1)        the leaf is c1's
//!               │ the time of overlap is over
//!               ▼
//!            Steady(c1)
//! ```
//!
//! The state is in the Secret alone, so a crash at any point is continued by any replica.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::issue::BACKDATE;

/// Identifies a certificate: the digest of its bytes.
pub(super) type Id = [u8; 32];

/// A certificate that signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Authority {
    pub(super) id: Id,
    pub(super) issued: Timestamp,
    pub(super) expires: Timestamp,
}

/// The certificate of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) id: Id,
    pub(super) issuer: Id,
    pub(super) issued: Timestamp,
    pub(super) expires: Timestamp,
    /// Whether it is for all names of the server.
    pub(super) fits: bool,
}

/// The content of the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    /// Grows with each write, so that an older content is known as such.
    pub(super) generation: u64,
    /// Every authority that clients must trust; one of them is the signer.
    pub(super) bundle: Vec<Authority>,
    /// The authority whose key is in the Secret: it signs the next leaf.
    pub(super) signer: Id,
    pub(super) leaf: Leaf,
    /// The time at which an authority last joined the bundle.
    pub(super) since: Timestamp,
}

/// The Secret as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Missing,
    /// It exists and cannot be used.
    Unusable,
    Contents(Contents),
}

/// The memory of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// The newest contents that were read or written.
    pub(super) known: Option<Contents>,
    /// The leaf that is served.
    pub(super) served: Option<Leaf>,
    /// Since when all configurations have had each authority.
    trusted: BTreeMap<Id, Timestamp>,
    /// Since when there was neither a usable Secret nor known contents.
    empty_since: Option<Timestamp>,
    /// Whether the served leaf was trusted once.
    pub(super) ready: bool,
}

/// The bundles of the configurations: one set of authorities for each entry that leads to this server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bundles {
    pub(super) entries: Vec<BTreeSet<Id>>,
    /// Whether every configuration could be read.
    pub(super) complete: bool,
}

/// The times of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lifetimes {
    /// The life of an authority. Default: ten years.
    pub authority: Duration,
    /// The life of a leaf. Default: one year.
    pub leaf: Duration,
    /// The time between the moment at which every configuration has an authority and the first leaf that it signs: API servers
    /// must have seen the configuration. Default: 30 s.
    pub propagation: Duration,
    /// The time that a replaced authority stays trusted after the last leaf was issued: every replica must have read the
    /// Secret. Default: 24 hours.
    pub overlap: Duration,
    /// The time that a replica without contents waits for another one to restore a lost Secret, if a configuration trusts
    /// an authority already. Default: 30 s.
    pub patience: Duration,
}

/// What to write into the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// A first authority and its leaf.
    Create,
    /// The known contents again, with the authorities of what was found, as this generation.
    Restore { generation: u64 },
    /// Another authority, which signs from now on; the leaf stays.
    Announce,
    /// Another leaf, of the signer.
    Issue,
    /// The bundle without these authorities.
    Retire(Vec<Id>),
}

/// What a replica does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// Serve the leaf of the contents that were found.
    pub(super) adopt: bool,
    /// Write the Secret. The decision is made again after that.
    pub(super) write: Option<Write>,
    /// Bring the bundle of the Secret into the configurations.
    pub(super) inject: bool,
}

// === impl Lifetimes ===

impl Default for Lifetimes {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Self {
            authority: day * 3650,
            leaf: day * 365,
            propagation: Duration::from_secs(30),
            overlap: day,
            patience: Duration::from_secs(30),
        }
    }
}

impl Lifetimes {
    /// Sets the life of an authority.
    #[must_use]
    pub fn authority(mut self, life: Duration) -> Self {
        self.authority = life;
        self
    }

    /// Sets the life of a leaf. A leaf does not outlive the authority that signs it.
    #[must_use]
    pub fn leaf(mut self, life: Duration) -> Self {
        self.leaf = life;
        self
    }

    /// Sets the time for API servers to see a configuration.
    #[must_use]
    pub fn propagation(mut self, time: Duration) -> Self {
        self.propagation = time;
        self
    }

    /// Sets the time that a replaced authority stays trusted.
    #[must_use]
    pub fn overlap(mut self, time: Duration) -> Self {
        self.overlap = time;
        self
    }

    /// Sets the time to wait for another replica to restore a lost Secret.
    #[must_use]
    pub fn patience(mut self, time: Duration) -> Self {
        self.patience = time;
        self
    }
}

// === impl Contents ===

impl Contents {
    pub(super) fn authority(&self, id: Id) -> Option<&Authority> {
        self.bundle.iter().find(|authority| authority.id == id)
    }

    /// Whether clients accept its leaf now.
    fn is_alive(&self, now: Timestamp) -> bool {
        self.leaf.is_valid(now)
            && self
                .authority(self.leaf.issuer)
                .is_some_and(|issuer| is_valid(issuer.issued, issuer.expires, now))
    }
}

// === impl Leaf ===

impl Leaf {
    fn is_valid(&self, now: Timestamp) -> bool {
        is_valid(self.issued, self.expires, now)
    }
}

/// Whether a certificate's life has begun and has not ended. A replica with a clock that is ahead makes certificates of the
/// future; their beginning is earlier than their issue, so small differences of clocks do not count.
fn is_valid(issued: Timestamp, expires: Timestamp, now: Timestamp) -> bool {
    !is_of_the_future(issued, now) && now < expires
}

fn is_of_the_future(issued: Timestamp, now: Timestamp) -> bool {
    has_passed(now, BACKDATE, issued)
}

/// The time of the next leaf or authority: two thirds of a life.
fn is_due(issued: Timestamp, expires: Timestamp, now: Timestamp) -> bool {
    now >= issued + (expires.duration_since(issued) / 3) * 2
}

/// Since `from`, at least `time` has passed.
fn has_passed(from: Timestamp, time: Duration, now: Timestamp) -> bool {
    SignedDuration::try_from(time).is_ok_and(|time| now.duration_since(from) >= time)
}

// === impl Memory ===

impl Memory {
    /// Decides, and remembers what was seen.
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        found: &Found,
        bundles: &Bundles,
        lifetimes: &Lifetimes,
    ) -> Decision {
        self.look(now, bundles);
        let nothing = Decision {
            adopt: false,
            write: None,
            inject: false,
        };
        let contents = match found {
            Found::Contents(contents) => contents,
            Found::Missing | Found::Unusable => {
                let write = self.recover(now, bundles, lifetimes);
                return Decision { write, ..nothing };
            }
        };
        self.empty_since = None;
        let known = self.known.as_ref();
        if let Some(known) = known.filter(|known| known.generation > contents.generation) {
            if known.is_alive(now) {
                let generation = known.generation + 1;
                return Decision {
                    write: Some(Write::Restore { generation }),
                    ..nothing
                };
            }
        } else if let Some(known) = known.filter(|known| known.is_alive(now)) {
            // Another replica made contents that do not trust the leaf that is served here: its Secret was lost.
            let served = self.served.map(|leaf| leaf.issuer);
            let forgotten = served.is_some_and(|issuer| {
                known.leaf.issuer == issuer
                    && contents.authority(issuer).is_none()
                    && contents.generation == known.generation
                    && contents != known
            });
            if forgotten {
                let generation = known.generation + 1;
                return Decision {
                    write: Some(Write::Restore { generation }),
                    ..nothing
                };
            }
        }
        self.known = Some(contents.clone());
        let adopt = self.adopts(now, contents, lifetimes);
        if adopt {
            self.served = Some(contents.leaf);
        }
        self.ready |= self
            .served
            .is_some_and(|leaf| self.is_trusted(leaf.issuer, now, lifetimes));
        Decision {
            adopt,
            write: self.advance(now, contents, lifetimes),
            inject: true,
        }
    }

    /// Notes which authorities all configurations have. A replica counts from its own first look: the Secret does not tell when
    /// a configuration got its bundle.
    fn look(&mut self, now: Timestamp, bundles: &Bundles) {
        let known = self
            .known
            .iter()
            .flat_map(|known| known.bundle.iter().map(|authority| authority.id));
        let candidates: BTreeSet<Id> = bundles
            .entries
            .iter()
            .flatten()
            .copied()
            .chain(known)
            .collect();
        let everywhere =
            |id: &Id| bundles.complete && bundles.entries.iter().all(|entry| entry.contains(id));
        let present: BTreeSet<Id> = candidates.into_iter().filter(everywhere).collect();
        self.trusted.retain(|id, _| present.contains(id));
        for id in present {
            // A clock that was ahead does not keep the time from passing.
            let since = self.trusted.entry(id).or_insert(now);
            *since = now.min(*since);
        }
    }

    /// Whether API servers have been able to see the authority everywhere.
    fn is_trusted(&self, authority: Id, now: Timestamp, lifetimes: &Lifetimes) -> bool {
        let since = self.trusted.get(&authority);
        since.is_some_and(|since| has_passed(*since, lifetimes.propagation, now))
    }

    /// What to write in place of a Secret that is lost.
    fn recover(
        &mut self,
        now: Timestamp,
        bundles: &Bundles,
        lifetimes: &Lifetimes,
    ) -> Option<Write> {
        if let Some(known) = self.known.as_ref().filter(|known| known.is_alive(now)) {
            return Some(Write::Restore {
                generation: known.generation + 1,
            });
        }
        let since = self.empty_since.map_or(now, |since| since.min(now));
        self.empty_since = Some(since);
        let first = bundles.complete && bundles.entries.iter().all(BTreeSet::is_empty);
        (first || has_passed(since, lifetimes.patience, now)).then_some(Write::Create)
    }

    /// Whether to serve the leaf of the contents.
    fn adopts(&self, now: Timestamp, contents: &Contents, lifetimes: &Lifetimes) -> bool {
        match self.served {
            None => true,
            Some(served) if served.id == contents.leaf.id => false,
            // A leaf of an authority that some API server does not trust yet waits, as long as the served one is good.
            Some(served) => {
                !served.is_valid(now)
                    || contents.authority(served.issuer).is_none()
                    || (contents.leaf.is_valid(now)
                        && self.is_trusted(contents.leaf.issuer, now, lifetimes))
            }
        }
    }

    /// The next step of the rotation.
    fn advance(&self, now: Timestamp, contents: &Contents, lifetimes: &Lifetimes) -> Option<Write> {
        let signer = contents.authority(contents.signer)?;
        let leaf = &contents.leaf;
        let dead = !contents.is_alive(now);
        let due = dead || !leaf.fits || is_due(leaf.issued, leaf.expires, now);
        if is_of_the_future(signer.issued, now) || is_due(signer.issued, signer.expires, now) {
            return Some(Write::Announce);
        }
        if due || leaf.issuer != signer.id {
            let trusted = self.is_trusted(signer.id, now, lifetimes);
            return (trusted || dead).then_some(Write::Issue);
        }
        let old: Vec<Id> = contents
            .bundle
            .iter()
            .map(|authority| authority.id)
            .filter(|id| *id != signer.id)
            .collect();
        let settled = leaf.issued.max(contents.since);
        (!old.is_empty() && has_passed(settled, lifetimes.overlap, now))
            .then_some(Write::Retire(old))
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
