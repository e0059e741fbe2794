//! Slots in the order of their objects' keys: [`Ordered`], and for each namespace [`Namespaces`].

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::objects::{Names, Slot};
use crate::turns::Turns;
use reeve_client::{KeyRef, ObjectKey};

/// The most slots in a run. A change moves at most that many, whatever the size of the whole.
const RUN: usize = 512;

/// A set of slots, in an order that the caller passes with each change: four bytes each, in runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Ordered {
    /// In order; none is empty.
    runs: Vec<Vec<Slot>>,
    len: usize,
}

/// The slots of each namespace, cluster-scoped objects under "". Together they are the order of everything. A clone
/// shares all of it.
#[derive(Clone, Default)]
pub(super) struct Namespaces(Arc<BTreeMap<Arc<str>, Arc<Ordered>>>);

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

// === impl Names: order ===

impl Names {
    /// Adds `slot`, whose key is `key`, to a set.
    pub(super) fn add_to(&self, set: &mut Ordered, slot: Slot, key: KeyRef<'_>) {
        set.insert(slot, |other| self.key(other).cmp(&key));
    }

    /// Removes the slot of `key` from a set.
    pub(super) fn remove_from(&self, set: &mut Ordered, key: KeyRef<'_>) {
        set.remove(|other| self.key(other).cmp(&key));
    }

    /// The slots of all sets, each once, in the order of the keys.
    pub(super) fn union(&self, sets: &[&Ordered]) -> Vec<Slot> {
        let mut slots = Vec::with_capacity(sets.iter().map(|set| set.len()).sum());
        for set in sets {
            slots.extend(set.iter());
        }
        if sets.len() > 1 {
            slots.sort_unstable_by(|a, b| self.key(*a).cmp(&self.key(*b)));
            slots.dedup();
        }
        slots
    }

    /// Every slot, in the order of the keys, where no slot was given back: merge sort, in turns.
    ///
    /// Lists come in this order, except from some servers that stream, and a list of one part is followed by the objects
    /// of the others. So what ascends is taken as it is, and the rest is sorted in short runs.
    pub(super) async fn in_order(&self, turns: &mut Turns) -> Vec<Slot> {
        let (mut sorted, mut run, mut ascends) = (VecDeque::new(), Vec::new(), true);
        for slot in 0..self.end() {
            turns.spend(1).await;
            let next = run.last();
            let next = next.is_none_or(|last| self.key(*last) < self.key(slot));
            if run.len() >= RUN / 2 && !(ascends && next) {
                sorted.push_back(self.run_in_order(std::mem::take(&mut run), ascends));
                ascends = true;
            } else {
                ascends &= next;
            }
            run.push(slot);
        }
        sorted.push_back(self.run_in_order(run, ascends));
        while sorted.len() > 1 {
            let (Some(one), Some(other)) = (sorted.pop_front(), sorted.pop_front()) else {
                break;
            };
            let mut merged = Vec::with_capacity(one.len() + other.len());
            let mut other = other.into_iter().peekable();
            for slot in one {
                turns.spend(1).await;
                while let Some(less) = other.next_if(|less| self.key(*less) < self.key(slot)) {
                    merged.push(less);
                    turns.spend(1).await;
                }
                merged.push(slot);
            }
            merged.extend(other);
            sorted.push_back(merged);
        }
        sorted.pop_front().unwrap_or_default()
    }

    fn run_in_order(&self, mut run: Vec<Slot>, ascends: bool) -> Vec<Slot> {
        if !ascends {
            debug_assert!(run.len() <= RUN / 2, "it is sorted in one turn");
            run.sort_unstable_by(|a, b| self.key(*a).cmp(&self.key(*b)));
        }
        run
    }

    /// The slots of each namespace, of all slots in the order of the keys.
    pub(super) fn by_namespace(&self, order: &[Slot]) -> Namespaces {
        let mut namespaces = Vec::new();
        let mut rest = order;
        while let Some(first) = rest.first() {
            let namespace = self.key(*first).namespace;
            let length = rest.partition_point(|slot| self.key(*slot).namespace == namespace);
            let slots = Ordered::from_sorted(&rest[..length]);
            namespaces.push((self.namespace(*first), Arc::new(slots)));
            rest = &rest[length..];
        }
        // A tree that is made at once has full nodes; one that grows in order has half of them empty.
        Namespaces(Arc::new(namespaces.into_iter().collect()))
    }
}

// === impl Namespaces ===

impl Namespaces {
    /// The slots of a namespace.
    pub(super) fn get(&self, namespace: &str) -> Option<&Ordered> {
        self.0.get(namespace).map(Arc::as_ref)
    }

    /// The number of objects of the namespaces that `accepts` accepts.
    pub(super) fn count(&self, accepts: impl Fn(Option<&str>) -> bool) -> usize {
        self.sets_of(accepts).map(Ordered::len).sum()
    }

    /// The slots of the namespaces that `accepts` accepts, in the order of the keys.
    pub(super) fn slots_of(
        &self,
        accepts: impl Fn(Option<&str>) -> bool,
    ) -> impl Iterator<Item = Slot> {
        self.sets_of(accepts).flat_map(Ordered::iter)
    }

    fn sets_of(&self, accepts: impl Fn(Option<&str>) -> bool) -> impl Iterator<Item = &Ordered> {
        let of = self.0.iter().filter(move |(name, _)| {
            let namespace = Some(&***name).filter(|name| !name.is_empty());
            accepts(namespace)
        });
        of.map(|(_, slots)| &**slots)
    }

    /// The names of the namespaces, in order.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.0.keys().cloned().collect()
    }

    /// The name of a namespace as all of its keys share it.
    pub(super) fn shared(&self, namespace: &str) -> Arc<str> {
        match self.0.get_key_value(namespace) {
            Some((shared, _)) => Arc::clone(shared),
            None => Arc::from(namespace),
        }
    }

    /// The key, which shares its namespace with the other keys.
    pub(super) fn key_of(&self, key: KeyRef<'_>) -> ObjectKey {
        ObjectKey {
            namespace: key.namespace.map(|namespace| self.shared(namespace)),
            name: Arc::from(key.name),
        }
    }

    /// Adds the slot of `key`, whose namespace has this shared name.
    pub(super) fn add(&mut self, names: &Names, namespace: Arc<str>, slot: Slot, key: KeyRef<'_>) {
        let slots = Arc::make_mut(&mut self.0).entry(namespace).or_default();
        names.add_to(Arc::make_mut(slots), slot, key);
    }

    /// Removes the slot of `key`.
    pub(super) fn remove(&mut self, names: &Names, key: KeyRef<'_>) {
        let namespace = key.namespace.unwrap_or_default();
        let namespaces = Arc::make_mut(&mut self.0);
        if let Some(slots) = namespaces.get_mut(namespace) {
            let slots = Arc::make_mut(slots);
            names.remove_from(slots, key);
            if slots.len() == 0 {
                namespaces.remove(namespace);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Every slot, in the order of the keys.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.0.values().flat_map(|slots| slots.iter())
    }

    /// The slots after `after` of one namespace or of all, in the order of the keys.
    pub(super) fn range<'a>(
        &'a self,
        names: &'a Names,
        namespace: Option<&'a str>,
        after: Option<KeyRef<'a>>,
    ) -> impl Iterator<Item = Slot> + 'a {
        let first = after.map(|after| after.namespace.unwrap_or_default());
        let from = Bound::Included(namespace.or(first).unwrap_or_default());
        let to = namespace.map_or(Bound::Unbounded, Bound::Included);
        let namespaces = self.0.range::<str, _>((from, to));
        namespaces.flat_map(move |(_, slots)| {
            slots.iter_after(move |slot| after.is_some_and(|after| names.key(slot) <= after))
        })
    }

    /// The bytes on the heap.
    pub(super) fn bytes(&self) -> usize {
        let each = |(name, slots): (&Arc<str>, &Arc<Ordered>)| {
            // A pointer to each, their reference counts, and the text.
            24 + 32 + size_of::<Ordered>() + name.len() + slots.bytes()
        };
        self.0.iter().map(each).sum()
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
