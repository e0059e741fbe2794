//! The claims by block: a slab. Each has a number of four bytes, by which the other orders of the coverage name its block.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;

use super::Claim;

/// The number of a claim, until the claim is removed.
pub(super) type Number = u32;

/// Claims by the keys of their blocks.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// By number.
    entries: Vec<Option<Entry>>,
    /// The numbers without a claim.
    free: Vec<Number>,
    numbers: HashTable<Number>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Entry {
    key: Arc<str>,
    claim: Claim,
}

// === impl Claims ===

impl Claims {
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn number(&self, key: &str) -> Option<Number> {
        let matches = |number: &Number| self.key(*number).is_some_and(|known| **known == *key);
        self.numbers
            .find(self.hasher.hash_one(key), matches)
            .copied()
    }

    fn entry(&self, number: Number) -> Option<&Entry> {
        self.entries.get(number as usize)?.as_ref()
    }

    pub(super) fn key(&self, number: Number) -> Option<&Arc<str>> {
        self.entry(number).map(|entry| &entry.key)
    }

    pub(super) fn get(&self, key: &str) -> Option<&Claim> {
        self.at(self.number(key)?).map(|(_, claim)| claim)
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Claim> {
        self.at_mut(self.number(key)?)
    }

    /// The block and the claim of a number.
    pub(super) fn at(&self, number: Number) -> Option<(&Arc<str>, &Claim)> {
        self.entry(number).map(|entry| (&entry.key, &entry.claim))
    }

    pub(super) fn at_mut(&mut self, number: Number) -> Option<&mut Claim> {
        let entry = self.entries.get_mut(number as usize)?.as_mut()?;
        Some(&mut entry.claim)
    }

    /// Adds the claim of a block that has none.
    pub(super) fn insert(&mut self, key: Arc<str>, claim: Claim) -> Number {
        let hash = self.hasher.hash_one(&*key);
        let entry = Some(Entry { key, claim });
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = entry;
                number
            }
            None => {
                // A vector that doubles would have room for 31,000 claims more at 100,000.
                if self.entries.len() == self.entries.capacity() {
                    self.entries.reserve_exact(self.entries.len() / 8 + 16);
                }
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).unwrap_or(Number::MAX)
            }
        };
        let Self {
            entries,
            numbers,
            hasher,
            ..
        } = self;
        let hash_of = |number: &Number| {
            let entry = entries.get(*number as usize).and_then(Option::as_ref);
            entry.map_or(0, |entry| hasher.hash_one(&*entry.key))
        };
        numbers.insert_unique(hash, number, hash_of);
        number
    }

    /// Removes the claim of a block.
    pub(super) fn remove(&mut self, key: &str) -> Option<(Number, Arc<str>, Claim)> {
        let number = self.number(key)?;
        let hash = self.hasher.hash_one(key);
        if let Ok(found) = self.numbers.find_entry(hash, |known| *known == number) {
            found.remove();
        }
        let Entry { key, claim } = self.entries.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some((number, key, claim))
    }

    /// All claims with their numbers, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Number, &Arc<str>, &Claim)> {
        let numbered = (0..).zip(&self.entries);
        numbered.filter_map(|(number, entry)| {
            let entry = entry.as_ref()?;
            Some((number, &entry.key, &entry.claim))
        })
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut Claim)> {
        let entries = self.entries.iter_mut().flatten();
        entries.map(|entry| (&entry.key, &mut entry.claim))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::api::Place;

    fn claim(attempt: usize) -> Claim {
        Claim::new(
            "192.0.2.7".parse().unwrap(),
            Place::new("xdp", format!("g:{attempt}")).into(),
            None,
        )
    }

    proptest! {
        #[test]
        fn it_is_a_map_whose_numbers_stay(operations in proptest::collection::vec((0_u8..40, any::<bool>()), 0..400)) {
            let (mut claims, mut model) = (Claims::default(), BTreeMap::new());
            for (step, (key, adds)) in operations.into_iter().enumerate() {
                let key: Arc<str> = format!("a/{key}").into();
                match (adds, model.contains_key(&key)) {
                    (true, false) => {
                        let number = claims.insert(key.clone(), claim(step));
                        model.insert(key, (number, claim(step)));
                    }
                    (false, _) => {
                        let removed = claims.remove(&key);
                        let expected = model.remove(&key);
                        prop_assert_eq!(removed, expected.map(|(number, claim)| (number, key.clone(), claim)));
                    }
                    (true, true) => {}
                }
                prop_assert_eq!(claims.len(), model.len());
                prop_assert!(claims.entries.len() <= 40, "a number is used again");
            }
            for (key, (number, claim)) in &model {
                prop_assert_eq!(claims.number(key), Some(*number));
                prop_assert_eq!(claims.get(key), Some(claim));
                prop_assert_eq!(claims.at(*number), Some((key, claim)));
            }
            let all: BTreeMap<_, _> = claims
                .iter()
                .map(|(number, key, claim)| (key.clone(), (number, claim.clone())))
                .collect();
            prop_assert_eq!(all, model);
            prop_assert_eq!(claims.get("b/1"), None);
        }
    }
}
