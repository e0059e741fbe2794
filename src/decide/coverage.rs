//! Which blocks stand for which targets, in this process: the neighbours of a decision.
//!
//! The cache of objects lags behind what this process has just done; this index does not. It is filled
//! from the objects' statuses when the process begins to lead, and kept by what it does afterwards. It
//! also remembers when each ban was last asserted, and which ban ends next: see [`Coverage::take_due`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ipnet::IpNet;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::api::Standing;
use crate::target::Target;

use super::world::Neighbour;

/// A ban that one block stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What is banned, and where.
    pub standing: Standing,
    /// Until when; `None`: for ever.
    pub until: Option<Timestamp>,
    /// When the engine was last told, by this process.
    pub asserted: Option<Instant>,
    /// Whether the ban stands, as far as is known: a first call may be under way or failing.
    pub enforced: bool,
    /// A lift may have taken the ban away since it was asserted, and its block was told to look.
    doubted: bool,
}

/// All claims, by block and by target.
#[derive(Debug, Default)]
pub struct Coverage {
    claims: HashMap<Arc<str>, Claim>,
    /// Family, first address, prefix length, block: what lies in a range is one stretch of this order.
    order: BTreeSet<(bool, u128, u8, Arc<str>)>,
    /// How many claims there are of each family and prefix length.
    lengths: HashMap<(bool, u8), usize>,
    /// When claims end.
    alarms: BTreeSet<(Timestamp, Arc<str>)>,
    /// Notified when the first alarm is another one.
    changed: Arc<Notify>,
}

// === impl Coverage ===

impl Coverage {
    /// The claim of a block.
    #[must_use]
    pub fn claim(&self, key: &str) -> Option<&Claim> {
        self.claims.get(key)
    }

    /// How many blocks claim something.
    #[must_use]
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// Whether no block claims anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Sets the claim of a block. Its assertion time stays when what is banned stays.
    pub fn set(&mut self, key: &str, standing: Standing, until: Option<Timestamp>) {
        if let Some((key, claim)) = self.claims.get_key_value(key)
            && claim.standing == standing
        {
            if claim.until != until {
                let (key, before) = (Arc::clone(key), claim.until);
                self.disarm(&key, before);
                if let Some(claim) = self.claims.get_mut(&key) {
                    claim.until = until;
                }
                self.arm(key, until);
            }
            return;
        }
        self.remove(key);
        let key: Arc<str> = key.into();
        self.arm(Arc::clone(&key), until);
        let (family, first, length) = coordinates(&standing.target);
        self.order.insert((family, first, length, Arc::clone(&key)));
        *self.lengths.entry((family, length)).or_default() += 1;
        self.claims.insert(
            key,
            Claim {
                standing,
                until,
                asserted: None,
                enforced: false,
                doubted: false,
            },
        );
    }

    /// Forgets the claim of a block.
    pub fn remove(&mut self, key: &str) -> Option<Claim> {
        let (key, claim) = self.claims.remove_entry(key)?;
        self.disarm(&key, claim.until);
        let (family, first, length) = coordinates(&claim.standing.target);
        self.order.remove(&(family, first, length, key));
        if let Some(count) = self.lengths.get_mut(&(family, length)) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&(family, length));
            }
        }
        Some(claim)
    }

    /// The blocks whose claims ended by `now`, the earliest first, each once: a ban that is due is lifted before
    /// new ones are made, however many of those wait.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<Arc<str>> {
        let mut due = Vec::new();
        while let Some(first) = self.alarms.pop_first() {
            if first.0 > now {
                self.alarms.insert(first);
                break;
            }
            due.push(first.1);
        }
        due
    }

    /// The earliest time that [`Coverage::take_due`] waits for, and what is notified when it changes.
    #[must_use]
    pub fn next_due(&self) -> (Option<Timestamp>, Arc<Notify>) {
        let next = self.alarms.first().map(|(at, _)| *at);
        (next, Arc::clone(&self.changed))
    }

    /// Waits for the ends of all claims again: the clock was set, and what was past may lie ahead.
    pub fn rearm(&mut self) {
        let ends = self
            .claims
            .iter()
            .filter_map(|(key, claim)| Some((claim.until?, key)));
        self.alarms
            .extend(ends.map(|(until, key)| (until, Arc::clone(key))));
        self.changed.notify_one();
    }

    fn arm(&mut self, key: Arc<str>, at: Option<Timestamp>) {
        let Some(at) = at else { return };
        if self.alarms.first().is_none_or(|(first, _)| at < *first) {
            self.changed.notify_one();
        }
        self.alarms.insert((at, key));
    }

    fn disarm(&mut self, key: &Arc<str>, at: Option<Timestamp>) {
        if let Some(at) = at {
            self.alarms.remove(&(at, Arc::clone(key)));
        }
    }

    /// Notes that the engine was told of a block's ban at `at`.
    pub fn asserted(&mut self, key: &str, at: Instant) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.asserted = Some(at);
            claim.doubted = false;
            claim.enforced = true;
        }
    }

    /// Forgets when a block's ban was asserted: a lift of it begins, and may not be finished.
    pub fn lifting(&mut self, key: &str) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.asserted = None;
        }
    }

    /// Notes that a block's ban stands, although this process has not told the engine.
    pub fn enforced(&mut self, key: &str) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.enforced = true;
        }
    }

    /// Forgets when the claims that overlap `target` were asserted, and names their blocks: after a lift
    /// the engine may no longer enforce them.
    ///
    /// A claim that is in doubt already is not named again until it is asserted. Otherwise two overlapping blocks whose lifts fail half-way, at
    /// a gateway that is gone, would wake each other without end.
    pub fn doubt(&mut self, target: &Target, except: &str) -> Vec<Arc<str>> {
        let mut keys = self.keys_overlapping(target, except);
        keys.retain(|key| {
            let Some(claim) = self.claims.get_mut(key) else {
                return false;
            };
            claim.asserted = None;
            !std::mem::replace(&mut claim.doubted, true)
        });
        keys
    }

    /// Names a block again at the next [`doubt`](Self::doubt): its request was not delivered.
    pub fn unnamed(&mut self, key: &str) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.doubted = false;
        }
    }

    /// The claims of other blocks that overlap `target`, in a fixed order.
    #[must_use]
    pub fn neighbours(&self, target: &Target, except: &str) -> Vec<Neighbour> {
        self.keys_overlapping(target, except)
            .into_iter()
            .filter_map(|key| {
                let claim = self.claims.get(&key)?;
                Some(Neighbour {
                    key: key.to_string(),
                    standing: claim.standing.clone(),
                    until: claim.until,
                })
            })
            .collect()
    }

    /// How many bans stand at each engine.
    #[must_use]
    pub fn by_engine(&self) -> BTreeMap<String, i64> {
        let mut counts = BTreeMap::new();
        for claim in self.claims.values().filter(|claim| claim.enforced) {
            *counts
                .entry(claim.standing.place.engine.clone())
                .or_default() += 1;
        }
        counts
    }

    /// Drops every claim.
    pub fn clear(&mut self) {
        let changed = Arc::clone(&self.changed);
        *self = Self {
            changed,
            ..Self::default()
        };
    }

    fn keys_overlapping(&self, target: &Target, except: &str) -> Vec<Arc<str>> {
        let (family, first, length) = coordinates(target);
        let mut keys = Vec::new();
        // Ranges around the target: one place for each prefix length in use.
        let mut shorter: Vec<u8> = self
            .lengths
            .keys()
            .filter(|(of, candidate)| *of == family && *candidate < length)
            .map(|(_, candidate)| *candidate)
            .collect();
        shorter.sort_unstable();
        for candidate in shorter {
            let network = first & mask(candidate);
            let from = (family, network, candidate, Arc::<str>::from(""));
            keys.extend(
                self.order
                    .range(from..)
                    .take_while(|entry| (entry.0, entry.1, entry.2) == (family, network, candidate))
                    .map(|entry| Arc::clone(&entry.3)),
            );
        }
        // The target itself and what lies inside of it.
        let last = first | !mask(length);
        let from = (family, first, length, Arc::<str>::from(""));
        keys.extend(
            self.order
                .range(from..)
                .take_while(|entry| entry.0 == family && entry.1 <= last)
                .filter(|entry| entry.2 >= length)
                .map(|entry| Arc::clone(&entry.3)),
        );
        keys.retain(|key| key.as_ref() != except);
        keys
    }
}

/// IPv4 addresses are put at the upper end of 128 bits, so that one mask serves both families.
fn coordinates(target: &Target) -> (bool, u128, u8) {
    match target.net() {
        IpNet::V4(net) => (
            false,
            u128::from(u32::from(net.addr())) << 96,
            net.prefix_len(),
        ),
        IpNet::V6(net) => (true, u128::from(net.addr()), net.prefix_len()),
    }
}

fn mask(length: u8) -> u128 {
    match length {
        0 => 0,
        length => u128::MAX << (128 - u32::from(length.min(128))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Place;
    use proptest::prelude::*;

    fn standing(target: Target) -> Standing {
        Standing {
            target,
            place: Place::new("dry-run", ""),
        }
    }

    fn any_target() -> impl Strategy<Value = Target> {
        // A small universe, so that overlaps are frequent.
        (any::<bool>(), 0u128..64, 120u8..=128).prop_map(|(v4, bits, length)| {
            let net = if v4 {
                IpNet::new(
                    std::net::IpAddr::V4((bits as u32 + 0x0a00_0000).into()),
                    length - 96,
                )
            } else {
                IpNet::new(
                    std::net::IpAddr::V6((bits + (0x2001u128 << 112)).into()),
                    length,
                )
            };
            Target::range(net.unwrap())
        })
    }

    proptest! {
        #[test]
        fn neighbours_are_exactly_the_overlapping_claims(
            claims in proptest::collection::vec((0usize..12, any_target(), any::<bool>()), 1..40),
            asked in any_target(),
        ) {
            let mut coverage = Coverage::default();
            let mut model: std::collections::BTreeMap<String, Target> = Default::default();
            for (block, target, keep) in claims {
                let key = format!("ns/{block}");
                if keep {
                    coverage.set(&key, standing(target), None);
                    model.insert(key, target);
                } else {
                    coverage.remove(&key);
                    model.remove(&key);
                }
            }
            let mut found: Vec<String> = coverage
                .neighbours(&asked, "ns/3")
                .into_iter()
                .map(|neighbour| neighbour.key)
                .collect();
            found.sort();
            let expected: Vec<String> = model
                .iter()
                .filter(|(key, target)| key.as_str() != "ns/3" && target.overlaps(&asked))
                .map(|(key, _)| key.clone())
                .collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(coverage.len(), model.len());
        }
    }

    #[test]
    fn ends_are_due_once_in_their_order_and_move_with_their_claims() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut coverage = Coverage::default();
        let target = standing("192.0.2.7".parse().unwrap());
        for (key, second) in [("a/late", 30), ("a/soon", 10), ("a/moved", 20)] {
            coverage.set(key, target.clone(), Some(at(second)));
        }
        coverage.set("a/endless", target.clone(), None);
        coverage.set("a/moved", target.clone(), Some(at(40)));
        coverage.set("a/gone", target.clone(), Some(at(5)));
        coverage.remove("a/gone");
        assert_eq!(coverage.next_due().0, Some(at(10)));
        assert!(coverage.take_due(at(9)).is_empty());
        assert_eq!(
            coverage.take_due(at(30)),
            ["a/soon".into(), "a/late".into()]
        );
        assert!(coverage.take_due(at(30)).is_empty(), "once");
        coverage.set("a/soon", target, Some(at(10)));
        assert_eq!(coverage.next_due().0, Some(at(40)), "no new end");
        coverage.rearm();
        assert_eq!(coverage.take_due(at(40)).len(), 3, "the clock was set");
    }

    #[tokio::test(start_paused = true)]
    async fn a_doubted_claim_was_never_asserted() {
        let mut coverage = Coverage::default();
        let (range, inside) = (
            "192.0.2.0/24".parse().unwrap(),
            "192.0.2.7".parse().unwrap(),
        );
        coverage.set("a/range", standing(range), None);
        coverage.set("a/inside", standing(inside), None);
        coverage.asserted("a/range", Instant::now());
        coverage.set("a/range", standing(range), Some(Timestamp::MAX));
        assert!(
            coverage.claim("a/range").unwrap().asserted.is_some(),
            "a new end is no new ban"
        );
        assert_eq!(coverage.doubt(&inside, "a/inside"), ["a/range".into()]);
        assert!(coverage.claim("a/range").unwrap().asserted.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_in_doubt_is_named_once_until_it_is_asserted() {
        let mut coverage = Coverage::default();
        let inside = "192.0.2.7".parse().unwrap();
        coverage.set("a/range", standing("192.0.2.0/24".parse().unwrap()), None);
        coverage.set("a/inside", standing(inside), None);
        let named = ["a/range".into()];
        assert_eq!(
            coverage.doubt(&inside, "a/inside"),
            named,
            "of a new leader"
        );
        assert!(coverage.doubt(&inside, "a/inside").is_empty());
        coverage.asserted("a/range", Instant::now());
        assert_eq!(coverage.doubt(&inside, "a/inside"), named);
    }
    #[tokio::test(start_paused = true)]
    async fn a_claim_whose_lift_began_is_not_asserted() {
        let mut coverage = Coverage::default();
        coverage.set("a/b", standing("192.0.2.7".parse().unwrap()), None);
        coverage.asserted("a/b", Instant::now());
        coverage.lifting("a/b");
        coverage.lifting("a/unknown");
        let claim = coverage.claim("a/b").unwrap();
        assert!(claim.asserted.is_none() && claim.enforced);
    }
}
