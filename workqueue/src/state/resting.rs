//! The minimum interval between two hand-outs of a key.

use std::collections::VecDeque;

use crate::sparse_map::SparseMap;

/// The ends of the rests of keys. Only for queues with a minimum interval.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    until: SparseMap<u64>,
    /// Hand-outs in order, to be removed when their rest ends.
    order: VecDeque<(u64, u32)>,
}

// === impl Resting ===

impl Resting {
    pub(super) fn until(&self, index: u32) -> Option<u64> {
        self.until.get(index).copied()
    }

    pub(super) fn begin(&mut self, index: u32, until: u64) {
        self.until.insert(index, until);
        self.order.push_back((until, index));
    }

    /// Revokes the rest of the last hand-out.
    pub(super) fn undo(&mut self, index: u32) {
        if let Some(until) = self.until.remove(index)
            && self.order.back() == Some(&(until, index))
        {
            self.order.pop_back();
        }
    }

    /// A slot whose rest has ended at `now`.
    pub(super) fn take_rested(&mut self, now: u64) -> Option<u32> {
        const WORTH_KEEPING: usize = 4096;
        while let Some(&(until, index)) = self.order.front()
            && until <= now
        {
            self.order.pop_front();
            if self.order.capacity() > WORTH_KEEPING && self.order.len() < self.order.capacity() / 8
            {
                self.order.shrink_to(self.order.len() * 2);
            }
            // It may have been handed out again since.
            if self.until.get(index) == Some(&until) {
                self.until.remove(index);
                return Some(index);
            }
        }
        None
    }

    /// Number of keys that fit into the allocated memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.until.capacity().max(self.order.capacity())
    }
}
