//! The content of the Secret as facts: identifiers and times of certificates.

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
    /// The authorities that a replica saw in configurations for the time of propagation, and the names of these.
    pub(super) confirmed: BTreeMap<Id, BTreeSet<String>>,
}

// === impl Contents ===

impl Contents {
    pub(super) fn authority(&self, id: Id) -> Option<&Authority> {
        self.bundle.iter().find(|authority| authority.id == id)
    }

    /// Whether clients accept its leaf now.
    pub(super) fn is_alive(&self, now: Timestamp) -> bool {
        self.leaf.is_valid(now)
            && self
                .authority(self.leaf.issuer)
                .is_some_and(|issuer| is_valid(issuer.issued, issuer.expires, now))
    }

    /// Whether its leaf ended, or is of an authority that ended or left: no client accepts it.
    pub(super) fn is_dead(&self, now: Timestamp) -> bool {
        let issuer = self.authority(self.leaf.issuer);
        now >= self.leaf.expires || issuer.is_none_or(|issuer| now >= issuer.expires)
    }

    /// Whether it is recorded that all of these configurations trusted the authority.
    pub(super) fn is_confirmed(&self, authority: Id, configurations: &BTreeSet<String>) -> bool {
        let confirmed = self.confirmed.get(&authority);
        confirmed.is_some_and(|confirmed| confirmed.is_superset(configurations))
    }

    /// Performs [`Write::Confirm`].
    pub(super) fn confirm(&mut self, authorities: &[Id], configurations: &BTreeSet<String>) {
        for authority in authorities {
            let confirmed = self.confirmed.entry(*authority).or_default();
            confirmed.extend(configurations.iter().cloned());
        }
        self.generation += 1;
    }

    /// Performs [`Write::Retire`].
    pub(super) fn retire(&mut self, old: &[Id]) {
        self.bundle.retain(|authority| !old.contains(&authority.id));
        self.confirmed.retain(|id, _| !old.contains(id));
        self.generation += 1;
    }

    /// Performs [`Write::Restore`] at `now`, in place of the contents that were found.
    ///
    /// Only what both confirm stays confirmed: a replica that relied on what was found may have taken an authority of these
    /// contents out of the configurations. A Secret without contents brings none into them.
    pub(super) fn restore(&mut self, generation: u64, found: Option<&Self>, now: Timestamp) {
        self.generation = generation;
        let Some(found) = found else { return };
        for authority in &found.bundle {
            if self.authority(authority.id).is_none() {
                self.bundle.push(*authority);
                self.since = now;
            }
        }
        self.confirmed.retain(|id, configurations| {
            let both = found.confirmed.get(id);
            both.is_some_and(|both| {
                configurations.retain(|configuration| both.contains(configuration));
                true
            })
        });
    }
}

// === impl Leaf ===

impl Leaf {
    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        is_valid(self.issued, self.expires, now)
    }
}

/// Whether a certificate's life has begun and has not ended. A replica with a clock that is ahead makes certificates of the
/// future; their beginning is earlier than their issue, so small differences of clocks do not count.
fn is_valid(issued: Timestamp, expires: Timestamp, now: Timestamp) -> bool {
    !is_of_the_future(issued, now) && now < expires
}

pub(super) fn is_of_the_future(issued: Timestamp, now: Timestamp) -> bool {
    has_passed(now, BACKDATE, issued)
}

/// The time of the next leaf or authority: two thirds of a life.
pub(super) fn is_due(issued: Timestamp, expires: Timestamp, now: Timestamp) -> bool {
    now >= issued + (expires.duration_since(issued) / 3) * 2
}

/// Since `from`, at least `time` has passed.
pub(super) fn has_passed(from: Timestamp, time: Duration, now: Timestamp) -> bool {
    SignedDuration::try_from(time).is_ok_and(|time| now.duration_since(from) >= time)
}
