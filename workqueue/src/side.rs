//! What only some slots have: a table beside them that takes no memory when nobody uses it.

use hashbrown::HashMap;

#[derive(Debug)]
pub(crate) struct Side<V>(HashMap<u32, V>);

/// Below this, memory is not worth giving back.
const WORTH_KEEPING: usize = 4096;

// === impl Side ===

impl<V> Default for Side<V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<V> Side<V> {
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
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_though_a_few_stay() {
        let mut side = Side::default();
        for index in 0..100_000 {
            side.insert(index, u64::from(index));
        }
        for index in 5..100_000 {
            assert_eq!(side.remove(index), Some(u64::from(index)));
        }
        assert!(side.capacity() <= WORTH_KEEPING, "{}", side.capacity());
        assert_eq!((side.get(4), side.get(5)), (Some(&4), None));
    }
}
