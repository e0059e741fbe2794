//! When waiting items are due: one binary heap for a queue.
//!
//! A slot has at most one timer that counts, named by its ticket. A timer that no longer counts
//! (its item was cancelled, became ready, or is due earlier) stays in the heap until it comes up,
//! or until such timers are the majority and all are swept out: O(log n) each, amortised, without
//! writing to slots while the heap is sifted.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::slots::Slots;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timer {
    at: u64,
    ticket: u32,
    slot: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
    /// How many timers count.
    live: usize,
    last_ticket: u32,
}

impl Ord for Timer {
    /// By time; timers of one time in the order in which they were set.
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.ticket).cmp(&(other.at, other.ticket))
    }
}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

// === impl Timers ===

impl Timers {
    /// How many slots have a timer.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Sets the slot's timer, in place of the one it had.
    pub(crate) fn set<T>(&mut self, slots: &mut Slots<T>, index: u32, at: u64) {
        self.unset(slots, index);
        self.last_ticket = self.last_ticket.checked_add(1).unwrap_or(1);
        slots[index].ticket = self.last_ticket;
        self.live += 1;
        self.heap.push(Reverse(Timer {
            at,
            ticket: self.last_ticket,
            slot: index,
        }));
    }

    /// The slot's timer, if it has one, counts no more.
    pub(crate) fn unset<T>(&mut self, slots: &mut Slots<T>, index: u32) {
        const SMALL: usize = 64;
        if slots[index].ticket == 0 {
            return;
        }
        slots[index].ticket = 0;
        self.live -= 1;
        if self.live == 0 {
            self.empty();
        } else if self.heap.len() > SMALL && self.live < self.heap.len() / 2 {
            self.heap
                .retain(|Reverse(timer)| slots[timer.slot].ticket == timer.ticket);
            self.heap.shrink_to(self.live * 2);
        }
    }

    /// When the first timer is due.
    pub(crate) fn next<T>(&mut self, slots: &Slots<T>) -> Option<u64> {
        while let Some(Reverse(timer)) = self.heap.peek() {
            if slots[timer.slot].ticket == timer.ticket {
                return Some(timer.at);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes the first timer; to be called after [`Timers::next`] said that there is one.
    pub(crate) fn pop<T>(&mut self, slots: &mut Slots<T>) -> Option<u32> {
        self.next(slots)?;
        let Reverse(timer) = self.heap.pop()?;
        slots[timer.slot].ticket = 0;
        self.live -= 1;
        if self.live == 0 {
            self.empty();
        }
        Some(timer.slot)
    }

    /// Forgets timers that do not count, whose slots are about to go.
    pub(crate) fn forget_all(&mut self) {
        self.live = 0;
        self.empty();
    }

    /// No timer counts: sweeps out the others, and gives back the memory of a crowd.
    fn empty(&mut self) {
        const WORTH_KEEPING: usize = 4096;
        self.heap.clear();
        self.heap.shrink_to(WORTH_KEEPING);
    }

    /// Up to `limit` slots that have a timer, in no order.
    pub(crate) fn some<'a, T>(
        &'a self,
        slots: &'a Slots<T>,
        limit: usize,
    ) -> impl Iterator<Item = u32> + 'a {
        self.heap
            .iter()
            .filter(|Reverse(timer)| slots[timer.slot].ticket == timer.ticket)
            .map(|Reverse(timer)| timer.slot)
            .take(limit)
    }

    /// Drops every timer and gives back the slots that had one.
    pub(crate) fn clear<T>(&mut self, slots: &mut Slots<T>) -> Vec<u32> {
        let mut had = Vec::with_capacity(self.live);
        for Reverse(timer) in self.heap.drain() {
            if slots[timer.slot].ticket == timer.ticket {
                slots[timer.slot].ticket = 0;
                had.push(timer.slot);
            }
        }
        self.live = 0;
        self.empty();
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(keys: u32) -> (Slots<u32>, Timers) {
        let mut slots = Slots::new();
        for key in 0..keys {
            slots.find_or_insert(key, key);
        }
        (slots, Timers::default())
    }

    #[test]
    fn the_earliest_comes_first_and_equal_times_in_the_order_they_were_set() {
        let (mut slots, mut timers) = setup(4);
        for (slot, at) in [(3, 50), (1, 20), (0, 50), (2, 20)] {
            timers.set(&mut slots, slot, at);
        }
        let order: Vec<u32> = std::iter::from_fn(|| timers.pop(&mut slots)).collect();
        assert_eq!(order, [1, 2, 3, 0]);
    }

    #[test]
    fn a_timer_set_again_counts_once() {
        let (mut slots, mut timers) = setup(1);
        timers.set(&mut slots, 0, 50);
        timers.set(&mut slots, 0, 20);
        assert_eq!((timers.len(), timers.next(&slots)), (1, Some(20)));
        assert_eq!(timers.pop(&mut slots), Some(0));
        assert_eq!(timers.pop(&mut slots), None);
    }

    #[test]
    fn timers_that_do_not_count_are_swept_out() {
        let (mut slots, mut timers) = setup(1000);
        for slot in 0..1000 {
            timers.set(&mut slots, slot, u64::from(slot) + 1_000_000);
        }
        for slot in 0..990 {
            timers.unset(&mut slots, slot);
        }
        assert_eq!(timers.len(), 10);
        assert!(timers.heap.len() <= 64, "{} left", timers.heap.len());
        assert_eq!(timers.next(&slots), Some(1_000_990));
    }
}
