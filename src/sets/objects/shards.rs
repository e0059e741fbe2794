//! Which object of a network plugin holds which targets.
//!
//! An object that is written is written whole, so the set is spread over objects of a bounded size: a change costs one
//! small write. A target stays in its shard; a new one goes to the first shard with room.

use std::collections::{BTreeMap, BTreeSet};

use super::super::kind::Change;
use super::super::set::{Entry, TargetSet, Until};
use crate::target::Target;

/// The targets by the number of their object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shards(pub(super) BTreeMap<usize, BTreeSet<Target>>);

// === impl Shards ===

impl Shards {
    /// Takes a change in. Returns the numbers of the shards that changed; one that became empty has no entry any more.
    pub(super) fn apply(&mut self, change: &Change, most: usize) -> BTreeSet<usize> {
        let mut touched = BTreeSet::new();
        let mut added = Vec::new();
        for difference in change.differences() {
            match (difference.before, difference.after) {
                (None, Some(_)) => added.push(difference.target),
                (_, None) => {
                    // Every shard: a write without an answer may have left a target in two of them.
                    for (number, targets) in &mut self.0 {
                        if targets.remove(&difference.target) {
                            touched.insert(*number);
                        }
                    }
                }
                (Some(_), Some(_)) => {}
            }
        }
        let mut number = 0;
        for target in added {
            while self.0.get(&number).is_some_and(|it| it.len() >= most) {
                number += 1;
            }
            self.0.entry(number).or_default().insert(target);
            touched.insert(number);
        }
        self.0.retain(|_, targets| !targets.is_empty());
        touched
    }

    /// All targets.
    pub(super) fn set(&self) -> TargetSet {
        let targets = self.0.values().flatten();
        let entries = targets.map(|target| Entry {
            target: *target,
            until: Until::NEVER,
        });
        entries.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: impl IntoIterator<Item = u8>) -> TargetSet {
        let entries = numbers.into_iter().map(|number| Entry {
            target: Target::host([192, 0, 2, number].into()),
            until: Until::NEVER,
        });
        entries.collect()
    }

    fn apply(shards: &mut Shards, to: TargetSet) -> Vec<usize> {
        let change = Change {
            from: shards.set(),
            to,
        };
        shards.apply(&change, 3).into_iter().collect()
    }

    #[test]
    fn a_change_touches_few_shards_and_empty_ones_go() {
        let mut shards = Shards::default();
        assert_eq!(apply(&mut shards, set(0..8)), [0, 1, 2]);
        let sizes: Vec<usize> = shards.0.values().map(BTreeSet::len).collect();
        assert_eq!(sizes, [3, 3, 2]);
        assert_eq!(apply(&mut shards, set((0..8).filter(|it| *it != 4))), [1]);
        assert_eq!(
            apply(&mut shards, set((0..10).filter(|it| *it != 4))),
            [1, 2]
        );
        assert_eq!(shards.set(), set((0..10).filter(|it| *it != 4)));
        assert_eq!(apply(&mut shards, set([0, 1, 2, 8])), [1, 2]);
        assert_eq!(shards.0.keys().copied().collect::<Vec<_>>(), [0, 1]);
        assert_eq!(apply(&mut shards, TargetSet::default()), [0, 1]);
        assert!(shards.0.is_empty());
    }

    #[test]
    fn a_target_that_is_in_two_shards_leaves_both() {
        let mut shards = Shards::default();
        apply(&mut shards, set(0..4));
        let double = shards.0.get_mut(&1).unwrap();
        double.insert(Target::host([192, 0, 2, 0].into()));
        assert_eq!(apply(&mut shards, set(1..4)), [0, 1]);
        assert_eq!(shards.set(), set(1..4));
    }
}
