//! The rotation as a pure function: from what a replica sees to what it does.
//!
//! Certificates are facts here: identifiers and times. `rotation/look.rs` reads them from the Secret and from the configurations,
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
//! The state is in the Secret alone, so a crash at any point is continued by any replica. That every configuration has
//! trusted an authority for the time of propagation is a fact of the Secret, too: *confirmed*. A replica that starts later
//! relies on it, and waits only for what is not confirmed.
//!
//! Replicas have different clocks, and a clock may be set. Times of certificates are compared with the wall clock; waits are
//! measured with the time since boot, which is never set.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::Lifetimes;
use super::contents::{Authority, Contents, Id, Leaf, has_passed, is_due, is_of_the_future};

/// The most configurations that are recorded for an authority. Beyond them nothing is confirmed, and replicas wait after
/// each start.
const MOST_CONFIGURATIONS: usize = 100;

/// The clocks of a replica at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Now {
    /// The wall clock, for the times of certificates. It may be set at any moment.
    pub(super) wall: Timestamp,
    /// The time since boot, for waits.
    pub(super) elapsed: Duration,
}

/// The Secret as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there is one of it at a time")]
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
    trusted: BTreeMap<Id, Duration>,
    /// The authorities that a configuration was without at some look.
    missed: BTreeSet<Id>,
    /// The names of the configurations at the last look.
    configurations: BTreeSet<String>,
    /// Since when there was neither a usable Secret nor known contents.
    empty_since: Option<Duration>,
    /// Whether the served leaf was trusted once.
    pub(super) ready: bool,
}

/// The bundles of the configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bundles {
    /// One for each entry of a configuration that leads to this server.
    pub(super) entries: Vec<Bundle>,
    /// Whether every configuration could be read.
    pub(super) complete: bool,
}

/// The bundle of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bundle {
    /// The name of its configuration.
    pub(super) configuration: String,
    pub(super) authorities: BTreeSet<Id>,
}

/// What to write into the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// A first authority and its leaf.
    Create,
    /// The known contents again, with the authorities of what was found, as this generation.
    Restore { generation: u64 },
    /// The record that these configurations have trusted these authorities for the time of propagation.
    Confirm(Vec<Id>, BTreeSet<String>),
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

// === impl Memory ===

impl Memory {
    /// Decides, and remembers what was seen.
    pub(super) fn decide(
        &mut self,
        at: Now,
        found: &Found,
        bundles: &Bundles,
        lifetimes: &Lifetimes,
    ) -> Decision {
        let now = at.wall;
        self.look(at, bundles);
        let nothing = Decision {
            adopt: false,
            write: None,
            inject: false,
        };
        let contents = match found {
            Found::Contents(contents) => contents,
            Found::Missing | Found::Unusable => {
                let write = self.recover(at, bundles, lifetimes);
                return Decision { write, ..nothing };
            }
        };
        self.empty_since = None;
        self.miss(contents, bundles);
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
        let adopt = self.adopts(at, contents, lifetimes);
        if adopt {
            self.served = Some(contents.leaf);
        }
        self.ready |= self.served.is_some_and(|leaf| {
            leaf.is_valid(now) && self.is_trusted(leaf.issuer, at, contents, lifetimes)
        });
        Decision {
            adopt,
            write: self.advance(at, contents, lifetimes),
            inject: true,
        }
    }

    /// Records which authorities all configurations have, and since when.
    fn look(&mut self, at: Now, bundles: &Bundles) {
        let known = self
            .known
            .iter()
            .flat_map(|known| known.bundle.iter().map(|authority| authority.id));
        let candidates: BTreeSet<Id> = bundles
            .entries
            .iter()
            .flat_map(|entry| &entry.authorities)
            .copied()
            .chain(known)
            .collect();
        let everywhere = |id: &Id| {
            let mut entries = bundles.entries.iter();
            bundles.complete && entries.all(|entry| entry.authorities.contains(id))
        };
        let present: BTreeSet<Id> = candidates.into_iter().filter(everywhere).collect();
        self.trusted.retain(|id, _| present.contains(id));
        for id in present {
            self.trusted.entry(id).or_insert(at.elapsed);
        }
        let names = bundles.entries.iter().map(|entry| &entry.configuration);
        self.configurations = names.cloned().collect();
    }

    /// Records which authorities of the contents a configuration is without.
    fn miss(&mut self, contents: &Contents, bundles: &Bundles) {
        self.missed.retain(|id| contents.authority(*id).is_some());
        for Authority { id, .. } in &contents.bundle {
            let mut entries = bundles.entries.iter();
            if entries.any(|entry| !entry.authorities.contains(id)) {
                self.missed.insert(*id);
            }
        }
    }

    /// Whether this replica saw the authority everywhere for the time of propagation.
    fn has_seen(&self, authority: Id, at: Now, lifetimes: &Lifetimes) -> bool {
        let since = self.trusted.get(&authority);
        since.is_some_and(|since| at.elapsed.saturating_sub(*since) >= lifetimes.propagation)
    }

    /// Whether API servers have been able to see the authority everywhere: this replica saw it for long enough, or another
    /// one did, and it has been everywhere since this one started.
    fn is_trusted(
        &self,
        authority: Id,
        at: Now,
        contents: &Contents,
        lifetimes: &Lifetimes,
    ) -> bool {
        let is_confirmed = self.trusted.contains_key(&authority)
            && !self.missed.contains(&authority)
            && contents.is_confirmed(authority, &self.configurations);
        is_confirmed || self.has_seen(authority, at, lifetimes)
    }

    /// What to write in place of a Secret that is lost.
    fn recover(&mut self, at: Now, bundles: &Bundles, lifetimes: &Lifetimes) -> Option<Write> {
        if let Some(known) = self.known.as_ref().filter(|known| known.is_alive(at.wall)) {
            return Some(Write::Restore {
                generation: known.generation + 1,
            });
        }
        let since = *self.empty_since.get_or_insert(at.elapsed);
        let mut entries = bundles.entries.iter();
        let first = bundles.complete && entries.all(|entry| entry.authorities.is_empty());
        let waited = at.elapsed.saturating_sub(since) >= lifetimes.patience;
        (first || waited).then_some(Write::Create)
    }

    /// Whether to serve the leaf of the contents.
    fn adopts(&self, at: Now, contents: &Contents, lifetimes: &Lifetimes) -> bool {
        match self.served {
            None => true,
            Some(served) if served.id == contents.leaf.id => false,
            // A leaf of another authority that some API server does not trust yet waits until the served one ends. A served one of
            // the future does not count as bad: this replica's clock may have been set back.
            Some(served) => {
                let issuer = contents.leaf.issuer;
                at.wall >= served.expires
                    || contents.authority(served.issuer).is_none()
                    || (contents.leaf.is_valid(at.wall)
                        && (issuer == served.issuer
                            || self.is_trusted(issuer, at, contents, lifetimes)))
            }
        }
    }

    /// The next step of the rotation.
    fn advance(&self, at: Now, contents: &Contents, lifetimes: &Lifetimes) -> Option<Write> {
        let now = at.wall;
        if let Some(confirm) = self.confirms(at, contents, lifetimes) {
            return Some(confirm);
        }
        let signer = contents.authority(contents.signer)?;
        let leaf = &contents.leaf;
        let dead = contents.is_dead(now);
        let due = !contents.is_alive(now) || !leaf.fits || is_due(leaf.issued, leaf.expires, now);
        if is_of_the_future(signer.issued, now) || is_due(signer.issued, signer.expires, now) {
            return Some(Write::Announce);
        }
        if due || leaf.issuer != signer.id {
            let trusted = self.is_trusted(signer.id, at, contents, lifetimes);
            // Another leaf of the same authority is trusted as the last one was.
            let same = leaf.issuer == signer.id;
            return (trusted || dead || same).then_some(Write::Issue);
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

    /// The record of what this replica saw and no replica recorded.
    fn confirms(&self, at: Now, contents: &Contents, lifetimes: &Lifetimes) -> Option<Write> {
        let configurations = &self.configurations;
        let fits = |id: &Id| {
            let recorded = contents.confirmed.get(id).into_iter().flatten();
            recorded
                .chain(configurations)
                .collect::<BTreeSet<_>>()
                .len()
                <= MOST_CONFIGURATIONS
        };
        let ids = contents.bundle.iter().map(|authority| authority.id);
        let seen: Vec<Id> = ids
            .filter(|id| self.has_seen(*id, at, lifetimes))
            .filter(|id| !contents.is_confirmed(*id, configurations))
            .filter(fits)
            .collect();
        (!seen.is_empty()).then(|| Write::Confirm(seen, configurations.clone()))
    }
}

#[cfg(test)]
mod tests;
