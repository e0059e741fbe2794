//! Bans that were left at an earlier gateway: its lift failed, and the block stands at another gateway by now.
//!
//! Such a lift is tried again with each assertion of its block, which is minutes away. So that a gateway that answers
//! again is cleared within seconds, one block of each gateway is tried at every check. The first lift that succeeds
//! there requests all others. A gateway that is gone for good costs one call a check, however many bans it has.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use crate::api::Place;

/// The blocks whose bans were left, by gateway.
#[derive(Debug, Default)]
pub(super) struct Left {
    gateways: HashMap<Place, Blocks>,
}

/// Blocks that take turns.
#[derive(Debug, Default)]
struct Blocks {
    keys: BTreeSet<Arc<str>>,
    /// The one that was tried last.
    last: Option<Arc<str>>,
}

// === impl Left ===

impl Left {
    /// A lift for block `key` at `place` failed, and the block does not wait for it.
    pub(super) fn failed(&mut self, place: &Place, key: &str) {
        if !self.gateways.contains_key(place) {
            self.gateways.insert(place.clone(), Blocks::default());
        }
        if let Some(blocks) = self.gateways.get_mut(place) {
            blocks.keys.insert(key.into());
        }
    }

    /// A lift for block `key` at `place` succeeded. Returns the other blocks whose bans were left there.
    pub(super) fn lifted(&mut self, place: &Place, key: &str) -> BTreeSet<Arc<str>> {
        let mut keys = self.gateways.remove(place).unwrap_or_default().keys;
        keys.remove(key);
        keys
    }

    /// Takes one block of each gateway, to try it, and forgets those that are not `active`: they lift nothing any more. One
    /// whose lift fails again comes back.
    pub(super) fn probe(&mut self, active: impl Fn(&str) -> bool) -> Vec<Arc<str>> {
        let mut tried = Vec::new();
        self.gateways.retain(|_, blocks| {
            while let Some(key) = blocks.next() {
                if active(&key) {
                    tried.push(key);
                    break;
                }
            }
            !blocks.keys.is_empty()
        });
        tried
    }
}

// === impl Blocks ===

impl Blocks {
    /// Takes the block after the last one; after all of them, the first.
    fn next(&mut self) -> Option<Arc<str>> {
        let after = self
            .last
            .as_deref()
            .map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.keys.range::<str, _>((after, Bound::Unbounded)).next();
        let key = next.or(self.keys.first()).cloned()?;
        self.keys.remove(&key);
        self.last = Some(Arc::clone(&key));
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> [Place; 2] {
        ["g:1", "g:2"].map(|address| Place::new("xdp", address))
    }

    #[test]
    fn one_block_of_each_gateway_is_tried_and_the_first_that_succeeds_takes_the_others_along() {
        let mut left = Left::default();
        let [a, b] = places();
        for key in ["x/1", "x/2", "x/3"] {
            left.failed(&a, key);
        }
        left.failed(&b, "x/4");
        let mut tried = left.probe(|_| true);
        tried.sort();
        assert_eq!(tried, ["x/1".into(), "x/4".into()]);
        left.failed(&a, "x/1");
        let others = left.lifted(&a, "x/1");
        assert_eq!(others, BTreeSet::from(["x/2".into(), "x/3".into()]));
        assert_eq!(
            left.probe(|_| true),
            [],
            "the block at the other gateway did not come back"
        );
    }

    #[test]
    fn blocks_take_turns_and_those_that_ended_are_forgotten() {
        let mut left = Left::default();
        let [a, _] = places();
        let active = |key: &str| key > "x/2";
        for key in ["x/1", "x/2", "x/3", "x/4", "x/5"] {
            left.failed(&a, key);
        }
        let mut tried = Vec::new();
        for _ in 0..4 {
            for key in left.probe(active) {
                left.failed(&a, &key);
                tried.push(key);
            }
        }
        let expected = ["x/3", "x/4", "x/5", "x/3"].map(Arc::<str>::from);
        assert_eq!(tried, expected);
        assert_eq!(left.gateways[&a].keys.len(), 3);
        assert!(left.probe(|_| false).is_empty());
        assert!(left.gateways.is_empty());
    }
}
