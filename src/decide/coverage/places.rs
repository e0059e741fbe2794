//! What a gateway may have lost, and where no call has taken effect.

use std::ops::Bound;
use std::sync::Arc;

use super::{Coverage, coordinates};
use crate::api::Place;

/// The most claims that one [`sample`](Coverage::sample) looks at: those at other places are few.
const SCANNED: usize = 4096;

// === impl Coverage ===

impl Coverage {
    /// Has the bans at `place` that this process asserted asserted again: the gateway may have lost them. Returns their
    /// blocks.
    pub fn suspect(&mut self, place: &Place) -> Vec<Arc<str>> {
        let standing = self.claims.iter_mut();
        standing
            .filter(|(_, claim)| claim.standing.place == *place && claim.asserted.is_some())
            .map(|(key, claim)| {
                claim.suspect = true;
                Arc::clone(key)
            })
            .collect()
    }

    /// No call for block `key` at `place` has taken effect.
    pub fn untouched(&mut self, key: &str, place: &Place) {
        if let Some((key, _)) = self.claims.get_key_value(key) {
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
        let position = last.and_then(|last| self.claims.get_key_value(last));
        let from = position.map(|(key, claim)| {
            let (family, first, length) = coordinates(&claim.standing.target);
            (family, first, length, Arc::clone(key))
        });
        let after = from.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.order.range((after, Bound::Unbounded));
        let earlier = from
            .iter()
            .flat_map(|from| self.order.range(..=from.clone()));
        let here = |key: &Arc<str>| {
            let claim = self.claims.get(key);
            claim.is_some_and(|it| it.asserted.is_some() && it.standing.place == *place)
        };
        let keys = later.chain(earlier).map(|entry| &entry.3);
        keys.take(SCANNED)
            .filter(|key| here(key))
            .take(count)
            .cloned()
            .collect()
    }

    /// Has one ban asserted again, see [`Coverage::suspect`].
    pub fn doubt(&mut self, key: &str) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.suspect = true;
        }
    }
}
