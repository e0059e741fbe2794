//! A table beside the slots for data that few slots have; it uses no memory while empty.

use hashbrown::HashMap;

#[derive(Debug)]
pub(crate) struct SparseMap<V>(HashMap<u32, V>);

/// Smaller allocations are kept.
const WORTH_KEEPING: usize = 4096;

// === impl SparseMap ===

impl<V> Default for SparseMap<V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<V> SparseMap<V> {
    pub(crate) fn get(&self, index: u32) -> Option<&V> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&index)
    }

    pub(crate) fn insert(&mut self, index: u32, value: V) -> Option<V> {
        self.0.insert(index, value)
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<V> {
        if self.0.is_empty() {
            return None;
        }
        let gone = self.0.remove(&index)?;
        if self.0.capacity() > WORTH_KEEPING && self.0.len() < self.0.capacity() / 8 {
            self.0.shrink_to(self.0.len() * 2);
        }
        Some(gone)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_though_a_few_stay() {
        let mut map = SparseMap::default();
        for index in 0..100_000 {
            map.insert(index, u64::from(index));
        }
        for index in 5..100_000 {
            assert_eq!(map.remove(index), Some(u64::from(index)));
        }
        assert!(map.capacity() <= WORTH_KEEPING, "{}", map.capacity());
        assert_eq!((map.get(4), map.get(5)), (Some(&4), None));
    }
}
