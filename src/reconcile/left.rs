//! Bans that were left at an earlier gateway: its lift failed, and the block stands at another gateway by now.
//!
//! Such a lift is tried again with each assertion of its block, which is minutes away. So that a gateway that answers
//! again is cleared within seconds, one block of each gateway is tried at every check. The first lift that succeeds
//! there requests all others. A gateway that is gone for good costs one call a check, however many bans it has.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::api::Place;

/// The blocks whose bans were left, by gateway.
#[derive(Debug, Default)]
pub(super) struct Left {
    gateways: HashMap<Place, BTreeSet<Arc<str>>>,
}

// === impl Left ===

impl Left {
    /// A lift for block `key` at `place` failed, and the block does not wait for it.
    pub(super) fn failed(&mut self, place: &Place, key: &str) {
        match self.gateways.get_mut(place) {
            Some(keys) => {
                keys.insert(key.into());
            }
            None => {
                let keys = BTreeSet::from([key.into()]);
                self.gateways.insert(place.clone(), keys);
            }
        }
    }

    /// A lift for block `key` at `place` succeeded. Returns the other blocks whose bans were left there.
    pub(super) fn lifted(&mut self, place: &Place, key: &str) -> BTreeSet<Arc<str>> {
        let mut keys = self.gateways.remove(place).unwrap_or_default();
        keys.remove(key);
        keys
    }

    /// Takes one block of each gateway, to try it. One whose lift fails again comes back; one that left nothing any more
    /// does not.
    pub(super) fn probe(&mut self) -> Vec<Arc<str>> {
        let tried = self.gateways.values_mut().filter_map(BTreeSet::pop_first);
        let tried = tried.collect();
        self.gateways.retain(|_, keys| !keys.is_empty());
        tried
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_of_each_gateway_is_tried_and_the_first_that_succeeds_takes_the_others_along() {
        let mut left = Left::default();
        let [a, b] = ["g:1", "g:2"].map(|address| Place::new("xdp", address));
        for key in ["x/1", "x/2", "x/3"] {
            left.failed(&a, key);
        }
        left.failed(&b, "x/4");
        let mut tried = left.probe();
        tried.sort();
        assert_eq!(tried, ["x/1".into(), "x/4".into()]);
        left.failed(&a, "x/1");
        let others = left.lifted(&a, "x/1");
        assert_eq!(others, BTreeSet::from(["x/2".into(), "x/3".into()]));
        assert_eq!(
            left.probe(),
            [],
            "the block at the other gateway came not back"
        );
        assert!(left.gateways.is_empty());
    }
}
