//! The places of claims: each once, what a gateway there may have lost, and where no call has taken effect.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use super::{Coverage, position};
use crate::api::{Place, Standing};
use crate::target::Target;

/// The most claims that one [`sample`](Coverage::sample) looks at: those at other places are few.
const SCANNED: usize = 4096;

// === impl Coverage ===

impl Coverage {
    /// How many claims there are of an address family, at all places.
    pub(super) fn of_family(&self, ipv6: bool) -> usize {
        let lengths = self.lengths.iter();
        let counts = lengths.filter(|((of, _), _)| *of == ipv6);
        counts.map(|(_, count)| count).sum()
    }

    /// Whether the claims at the place of `standing` have `most` targets of its family, and not its own, which would need no
    /// room. Claims are only gone through when there may be so many.
    #[must_use]
    pub fn is_full(&self, standing: &Standing, most: usize) -> bool {
        let ipv6 = standing.target.is_ipv6();
        if self.of_family(ipv6) < most {
            return false;
        }
        let claims = self.claims().map(|(_, claim)| claim);
        let here =
            claims.filter(|claim| claim.target.is_ipv6() == ipv6 && *claim.place == standing.place);
        let targets: HashSet<Target> = here.map(|claim| claim.target).collect();
        targets.len() >= most && !targets.contains(&standing.target)
    }

    /// The place as all claims there share it.
    pub(super) fn shared(&mut self, place: Place) -> Arc<Place> {
        if let Some(shared) = self.places.get(&place) {
            return Arc::clone(shared);
        }
        let shared = Arc::new(place);
        self.places.insert(Arc::clone(&shared));
        shared
    }

    /// Forgets the place of a claim that is removed, if it is the last one there.
    pub(super) fn release(&mut self, place: &Arc<Place>) {
        // That claim and the set itself hold it.
        if Arc::strong_count(place) <= 2 {
            self.places.remove(place);
        }
    }

    /// Has the bans at `place` that this process asserted asserted again: the gateway may have lost them. Returns their
    /// blocks.
    pub fn suspect(&mut self, place: &Place) -> Vec<Arc<str>> {
        let standing = self.claims.iter_mut();
        standing
            .filter(|(_, claim)| *claim.place == *place && claim.asserted.is_some())
            .map(|(key, claim)| {
                claim.suspect = true;
                Arc::clone(key)
            })
            .collect()
    }

    /// No call for block `key` at `place` has taken effect.
    pub fn untouched(&mut self, key: &str, place: &Place) {
        let number = self.claims.number(key);
        if let Some(key) = number.and_then(|number| self.claims.key(number)) {
            let places = self.untouched.entry(Arc::clone(key)).or_default();
            if !places.contains(place) {
                places.push(place.clone());
            }
        }
    }

    /// A call for block `key` at `place` begins, and may take effect. Whether none has so far.
    pub fn touch(&mut self, key: &str, place: &Place) -> bool {
        let Some(places) = self.untouched.get_mut(key) else {
            return false;
        };
        let count = places.len();
        places.retain(|untouched| untouched != place);
        let none = places.len() < count;
        if places.is_empty() {
            self.untouched.remove(key);
        }
        none
    }

    /// The places at which no call of block `key` has taken effect, although its records may name them.
    #[must_use]
    pub fn untouched_places(&self, key: &str) -> &[Place] {
        self.untouched.get(key).map_or(&[], Vec::as_slice)
    }

    /// Some blocks whose bans at `place` this process asserted, each in its turn: those after `last`.
    #[must_use]
    pub fn sample(&self, place: &Place, last: Option<&str>, count: usize) -> Vec<Arc<str>> {
        let last = last.and_then(|last| self.claims.number(last));
        let from = last.and_then(|number| {
            let (_, claim) = self.claims.at(number)?;
            Some(position(&claim.target, number))
        });
        let after = from.map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.order.range((after, Bound::Unbounded));
        let earlier = from.into_iter().flat_map(|from| self.order.range(..=from));
        let looked_at = later.chain(earlier).take(SCANNED);
        let claims = looked_at.filter_map(|position| self.claims.at(position.3));
        let here = claims.filter(|(_, it)| it.asserted.is_some() && *it.place == *place);
        here.take(count).map(|(key, _)| Arc::clone(key)).collect()
    }

    /// Has one ban asserted again, see [`Coverage::suspect`].
    pub fn doubt(&mut self, key: &str) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.suspect = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Alarm, Claim, Position};
    use super::*;
    use crate::api::Standing;

    #[test]
    fn claims_at_one_place_share_it_and_the_last_one_takes_it_along() {
        let mut coverage = Coverage::default();
        let standing = |place: &str| Standing {
            target: "192.0.2.7".parse().unwrap(),
            place: Place::new("xdp", place),
        };
        for (key, place) in [("a/1", "g:1"), ("a/2", "g:1"), ("a/3", "g:2")] {
            coverage.set(key, standing(place), None);
        }
        let place = |coverage: &Coverage, key| Arc::clone(&coverage.claim(key).unwrap().place);
        assert!(Arc::ptr_eq(
            &place(&coverage, "a/1"),
            &place(&coverage, "a/2")
        ));
        assert_eq!(coverage.places.len(), 2);
        coverage.set("a/3", standing("g:1"), None);
        assert_eq!(coverage.places.len(), 1, "it moved");
        coverage.remove("a/1");
        coverage.remove("a/2");
        assert_eq!(place(&coverage, "a/3"), Place::new("xdp", "g:1").into());
        coverage.remove("a/3");
        assert!(coverage.places.is_empty());
    }

    #[test]
    fn a_claim_is_small() {
        assert!(size_of::<Claim>() <= 96, "{}", size_of::<Claim>());
        assert!(size_of::<Position>() <= 24, "{}", size_of::<Position>());
        assert!(size_of::<Alarm>() <= 16, "{}", size_of::<Alarm>());
    }
}
