//! Slots in the order of their objects' keys: [`Ordered`].

use std::cmp::Ordering;

use super::slot::Slot;

/// The most slots in a run. A change moves at most that many, whatever the size of the whole.
const RUN: usize = 512;

/// A set of slots, in an order that the caller passes with each change: four bytes each, in runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Ordered {
    /// In order; none is empty.
    runs: Vec<Vec<Slot>>,
    len: usize,
}

// === impl Ordered ===

impl Ordered {
    /// A set of slots that are in order already.
    pub(super) fn from_sorted(slots: &[Slot]) -> Self {
        Self {
            runs: slots.chunks(RUN).map(<[Slot]>::to_vec).collect(),
            len: slots.len(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let runs = self
            .runs
            .iter()
            .map(|run| run.capacity() * size_of::<Slot>());
        self.runs.capacity() * size_of::<Vec<Slot>>() + runs.sum::<usize>()
    }

    /// Adds `slot`, unless there is an equal one; `stands` compares a slot of the set with it.
    pub(super) fn insert(&mut self, slot: Slot, stands: impl Fn(Slot) -> Ordering) {
        let at = self.run(&stands);
        let Some(run) = self.runs.get_mut(at) else {
            self.runs.push(vec![slot]);
            self.len = 1;
            return;
        };
        let Err(place) = run.binary_search_by(|other| stands(*other)) else {
            return;
        };
        run.insert(place, slot);
        self.len += 1;
        if run.len() > RUN {
            let half = run.split_off(RUN / 2);
            run.shrink_to_fit();
            self.runs.insert(at + 1, half);
        }
    }

    /// Removes the slot for which `stands` returns `Equal`.
    pub(super) fn remove(&mut self, stands: impl Fn(Slot) -> Ordering) {
        let at = self.run(&stands);
        let Some(run) = self.runs.get_mut(at) else {
            return;
        };
        if let Ok(place) = run.binary_search_by(|other| stands(*other)) {
            run.remove(place);
            self.len -= 1;
            if run.is_empty() {
                self.runs.remove(at);
            }
        }
    }

    /// The run in which such a slot is, or belongs.
    fn run(&self, stands: impl Fn(Slot) -> Ordering) -> usize {
        let after = self
            .runs
            .partition_point(|run| run.first().is_some_and(|first| stands(*first).is_le()));
        after.saturating_sub(1)
    }

    /// All slots, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        self.runs.iter().flatten().copied()
    }

    /// The slots for which `skip` is false, in order; it must be true for the first ones only.
    pub(super) fn iter_after(&self, skip: impl Fn(Slot) -> bool) -> impl Iterator<Item = Slot> {
        let at = self
            .runs
            .partition_point(|run| run.last().is_some_and(|last| skip(*last)));
        let run = self.runs.get(at).map(Vec::as_slice).unwrap_or_default();
        let place = run.partition_point(|slot| skip(*slot));
        let rest = self.runs.get(at + 1..).unwrap_or_default();
        run[place..].iter().chain(rest.iter().flatten()).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::sample::cases;

    proptest! {
        #![proptest_config(cases(300))]

        /// It holds what a sorted set holds, in the same order, through splits and emptied runs.
        #[test]
        fn it_is_a_sorted_set(
            begin in 0..1500_u32,
            steps in proptest::collection::vec((any::<bool>(), 0..3000_u32, 1..200_u32), 0..40),
        ) {
            let mut wanted: BTreeSet<u32> = (0..begin).map(|number| number * 2).collect();
            let mut ordered = Ordered::from_sorted(&wanted.iter().copied().collect::<Vec<_>>());
            for (insert, from, count) in steps {
                for slot in from..from + count {
                    if insert {
                        ordered.insert(slot, |other| other.cmp(&slot));
                        wanted.insert(slot);
                    } else {
                        ordered.remove(|other| other.cmp(&slot));
                        wanted.remove(&slot);
                    }
                }
                prop_assert!(ordered.runs.iter().all(|run| (1..=RUN).contains(&run.len())));
                prop_assert_eq!(ordered.len(), wanted.len());
                prop_assert!(ordered.iter().eq(wanted.iter().copied()));
                let after: Vec<_> = ordered.iter_after(|slot| slot <= from).collect();
                prop_assert_eq!(after, wanted.range(from + 1..).copied().collect::<Vec<_>>());
            }
        }
    }
}
