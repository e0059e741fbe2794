//! Timers of waiting items: a hierarchical timer wheel of coarse buckets, and a heap for the current bucket.
//!
//! A timer further away than the current bucket (2²⁰ ns, about a millisecond) is appended to the bucket of
//! its time: O(1), without sorting. A bucket is a plain vector of indices, because moving many timers costs
//! the memory that it touches; a removed timer leaves a gap. Buckets of level 0 have the width of the
//! current bucket, those of each further level are 64 times as wide. When the time of such a bucket comes,
//! its timers are redistributed to the levels below; those of level 0 go to the heap, which alone has
//! nanosecond order. So a timer is moved a few times at most, however many there are, and only timers of
//! the same millisecond are sorted at a time. Work is done in steps of one timer each, so that the caller
//! can release the lock in between.
//!
//! The order is exact: by time, and timers of the same time in the order in which they were set.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::slab::{NONE, Slab};

/// Width of a bucket of level 0, as a power of two.
const FINEST: u32 = 20;
/// Buckets of a level, as a power of two.
const BITS: u32 = 6;
const BUCKETS: usize = 1 << BITS;
/// Number of levels that cover all of 64 bits.
const LEVELS: usize = 8;
const WIDTH: u64 = 1 << FINEST;
/// Number of timers to prefetch for.
pub(crate) const PREFETCHED: usize = 128;

#[derive(Debug)]
struct Timer {
    at: u64,
    slot: u32,
    /// In a bucket: its index. In the heap: its valid ticket.
    position: u32,
    bucket: u16,
    state: TimerState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimerState {
    InBucket,
    InHeap,
}

/// A timer in the heap. It is stale when the timer was removed, or has another ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Soon {
    at: u64,
    ticket: u32,
    timer: u32,
}

/// Timers in the order in which they were set, with gaps ([`NONE`]).
#[derive(Debug, Default)]
struct Bucket {
    timers: Vec<u32>,
    gaps: usize,
}

/// A bucket whose time has come, while its timers are redistributed.
#[derive(Clone, Copy, Debug)]
struct Opening {
    level: usize,
    bucket: usize,
    start: u64,
    /// Number of timers that were redistributed.
    moved: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    timers: Slab<Timer>,
    /// The levels in use, one after the other.
    buckets: Vec<Bucket>,
    /// Bit sets of the buckets of a level that hold timers.
    occupied: [u64; LEVELS],
    /// A past time; the level of a timer is the highest one at which the two differ.
    position: u64,
    /// Timers before it go to the heap.
    horizon: u64,
    opening: Option<Opening>,
    heap: BinaryHeap<Reverse<Soon>>,
    last_ticket: u32,
    stale: usize,
    /// The earliest time in the buckets, or an earlier one; `None`: unknown.
    earliest: Option<u64>,
}

/// Result of [`Timers::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The timer of this slot was due at that time.
    Due((u32, u64)),
    /// A timer was moved; call again.
    Moved,
    /// As above, at the time to [prefetch](Timers::next_slots).
    MovedFirst,
    /// Nothing is due.
    Idle,
}

impl Ord for Soon {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.ticket).cmp(&(other.at, other.ticket))
    }
}

impl PartialOrd for Soon {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn shift(level: usize) -> u32 {
    FINEST + BITS * u32::try_from(level).unwrap_or(u32::MAX)
}

/// The level of a timer due at `at`, relative to `position`, and its bucket.
fn place(at: u64, position: u64) -> (usize, usize) {
    let differ = at ^ position;
    let level = (63 - (differ | WIDTH).leading_zeros()).saturating_sub(FINEST) / BITS;
    let level = level as usize;
    (level, (at >> shift(level)) as usize % BUCKETS)
}

// === impl Opening ===

impl Opening {
    fn index(&self) -> usize {
        self.level * BUCKETS + self.bucket
    }
}

// === impl Timers ===

impl Timers {
    /// Number of timers.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.timers.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.timers.len() == 0
    }

    /// The slot and the time of each timer.
    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<(u32, u64)> {
        let timers = self.timers.iter();
        timers.map(|timer| (timer.slot, timer.at)).collect()
    }

    /// Sets a timer for `slot`. All timers due up to `now` must have been taken.
    pub(crate) fn insert(&mut self, slot: u32, at: u64, now: u64) -> u32 {
        if self.is_empty() && self.opening.is_none() {
            self.move_on(now);
        }
        let timer = self.timers.insert(Timer {
            at,
            slot,
            position: 0,
            bucket: 0,
            state: TimerState::InHeap,
        });
        if at < self.horizon {
            self.enter_heap(timer);
        } else {
            self.enter_bucket(timer, self.position);
            // While the earliest time is unknown, it stays so.
            if self.earliest.is_some_and(|earliest| at < earliest) {
                self.earliest = Some(at);
            }
        }
        timer
    }

    /// Removes a timer.
    pub(crate) fn remove(&mut self, timer: u32) {
        const SMALL: usize = 64;
        let gone = self.timers.remove(timer);
        match gone.state {
            TimerState::InBucket => {
                self.leave_gap(gone.bucket as usize, gone.position as usize);
                if self.earliest == Some(gone.at) {
                    self.earliest = None;
                }
            }
            TimerState::InHeap => {
                self.stale += 1;
                if self.heap.len() > SMALL && self.stale > self.heap.len() / 2 {
                    let timers = &self.timers;
                    self.heap.retain(|Reverse(soon)| counts(timers, *soon));
                    self.stale = 0;
                    self.heap.shrink_to(self.heap.len() * 2);
                }
            }
        }
        self.give_back();
    }

    fn leave_gap(&mut self, index: usize, position: usize) {
        const SMALL: usize = 64;
        let bucket = &mut self.buckets[index];
        bucket.timers[position] = NONE;
        bucket.gaps += 1;
        let opening = self.opening;
        if opening.is_some_and(|opening| opening.index() == index) {
            return;
        }
        if bucket.gaps == bucket.timers.len() {
            self.empty(index);
        } else if bucket.timers.len() > SMALL && bucket.gaps > bucket.timers.len() / 2 {
            bucket.timers.retain(|&timer| timer != NONE);
            bucket.gaps = 0;
            for (position, &timer) in (0..).zip(&bucket.timers) {
                self.timers[timer].position = position;
            }
        }
    }

    /// Empties a bucket that holds only gaps.
    fn empty(&mut self, index: usize) {
        /// Capacity that is kept, so that a steady flow allocates nothing.
        const KEPT: usize = 256;
        let bucket = &mut self.buckets[index];
        bucket.timers.clear();
        bucket.timers.shrink_to(KEPT);
        bucket.gaps = 0;
        self.occupied[index / BUCKETS] &= !(1 << (index % BUCKETS));
    }

    fn enter_heap(&mut self, timer: u32) {
        // The heap empties with each bucket, so tickets start again long before they overflow.
        if self.heap.is_empty() {
            self.last_ticket = 0;
        }
        self.last_ticket += 1;
        let entry = &mut self.timers[timer];
        entry.state = TimerState::InHeap;
        entry.position = self.last_ticket;
        self.heap.push(Reverse(Soon {
            at: entry.at,
            ticket: self.last_ticket,
            timer,
        }));
    }

    fn enter_bucket(&mut self, timer: u32, position: u64) {
        let entry = &mut self.timers[timer];
        let (level, bucket) = place(entry.at, position);
        self.occupied[level] |= 1 << bucket;
        let index = level * BUCKETS + bucket;
        if self.buckets.len() <= index {
            self.buckets
                .resize_with((level + 1) * BUCKETS, Bucket::default);
        }
        let timers = &mut self.buckets[index].timers;
        entry.state = TimerState::InBucket;
        entry.bucket = u16::try_from(index).unwrap_or(u16::MAX);
        entry.position = u32::try_from(timers.len()).unwrap_or(NONE);
        timers.push(timer);
    }

    /// The first valid timer of the heap.
    fn soonest(&mut self) -> Option<Soon> {
        while let Some(&Reverse(soon)) = self.heap.peek() {
            if counts(&self.timers, soon) {
                return Some(soon);
            }
            self.heap.pop();
            self.stale -= 1;
        }
        None
    }

    /// The first bucket that holds timers, and its start.
    fn first_bucket(&self) -> Option<Opening> {
        let level = self.occupied.iter().position(|&buckets| buckets != 0)?;
        let bucket = self.occupied[level].trailing_zeros() as usize;
        let shift = shift(level);
        let above = self
            .position
            .checked_shr(shift + BITS)
            .map_or(0, |upper| upper << (shift + BITS));
        Some(Opening {
            level,
            bucket,
            start: above | (bucket as u64) << shift,
            moved: 0,
        })
    }

    /// The time of the first timer, or an earlier one.
    pub(crate) fn next(&mut self) -> Option<u64> {
        /// Buckets up to this size are searched for the earliest timer; otherwise the start of the bucket is used.
        const FEW: usize = 64;
        if self.is_empty() {
            return None;
        }
        if let Some(opening) = self.opening {
            return Some(opening.start);
        }
        if let Some(soon) = self.soonest() {
            return Some(soon.at);
        }
        if self.earliest.is_none() {
            let first = self.first_bucket()?;
            let bucket = &self.buckets[first.index()];
            self.earliest = if bucket.timers.len() <= FEW {
                let timers = bucket.timers.iter().filter(|&&timer| timer != NONE);
                timers.map(|&timer| self.timers[timer].at).min()
            } else {
                Some(first.start)
            };
        }
        self.earliest
    }

    /// Takes or moves one timer that is due up to `now`, in order of time.
    pub(crate) fn step(&mut self, now: u64) -> Step {
        if let Some(opening) = self.opening {
            self.move_timer(opening);
            return if opening.moved.is_multiple_of(PREFETCHED) {
                Step::MovedFirst
            } else {
                Step::Moved
            };
        }
        if let Some(soon) = self.soonest() {
            if soon.at > now {
                return Step::Idle;
            }
            self.heap.pop();
            let slot = self.timers.remove(soon.timer).slot;
            self.give_back();
            return Step::Due((slot, soon.at));
        }
        match self.first_bucket() {
            Some(first) if first.start <= now => {
                // A timer that is set meanwhile for a time before this bucket comes before it.
                self.horizon = first.start;
                self.opening = Some(first);
                self.earliest = None;
                Step::Moved
            }
            _ => {
                // It was the start of a bucket whose timers have been removed since.
                if self.earliest.is_some_and(|earliest| earliest <= now) {
                    self.earliest = None;
                }
                self.move_on(now);
                Step::Idle
            }
        }
    }

    /// The slots of the timers that are moved next, and whether they are due within the millisecond.
    ///
    /// In a large queue each of them is a cache miss. Reading them together overlaps these misses.
    pub(crate) fn next_slots(&self) -> (impl Iterator<Item = u32> + '_, bool) {
        let next = self.opening.map_or(&[][..], |opening| {
            let timers = &self.buckets[opening.index()].timers;
            &timers[opening.moved..timers.len().min(opening.moved + PREFETCHED)]
        });
        let timers = next.iter().filter(|&&timer| timer != NONE);
        let due = self.opening.is_some_and(|opening| opening.level == 0);
        (timers.map(|&timer| self.timers[timer].slot), due)
    }

    /// Moves one timer of the opened bucket.
    fn move_timer(&mut self, opening: Opening) {
        let index = opening.index();
        let moved = opening.moved + 1;
        match self.buckets[index].timers.get(opening.moved).copied() {
            None | Some(NONE) => {}
            Some(timer) if opening.level == 0 => self.enter_heap(timer),
            Some(timer) => self.enter_bucket(timer, opening.start),
        }
        if moved < self.buckets[index].timers.len() {
            self.opening = Some(Opening { moved, ..opening });
            return;
        }
        self.empty(index);
        self.opening = None;
        self.position = opening.start;
        self.horizon = opening.start;
        if opening.level == 0 {
            self.horizon = opening.start.saturating_add(WIDTH);
        }
    }

    /// Advances to `now`, up to which no timer is due.
    fn move_on(&mut self, now: u64) {
        let position = now & !(WIDTH - 1);
        if position > self.position {
            self.position = position;
            self.horizon = position.saturating_add(WIDTH);
        }
    }

    /// Shrinks memory after a burst.
    fn give_back(&mut self) {
        const WORTH_KEEPING: usize = 4096;
        if self.is_empty() {
            self.heap.clear();
            self.stale = 0;
            if let Some(opening) = self.opening.take() {
                self.empty(opening.index());
            }
            self.earliest = None;
        }
        if self.heap.capacity() > WORTH_KEEPING && self.heap.len() < self.heap.capacity() / 8 {
            self.heap.shrink_to(self.heap.len() * 2);
        }
    }

    /// Up to `limit` slots with a timer, of the earliest buckets, and the number of visited timers.
    pub(crate) fn some(&self, limit: usize) -> (Vec<u32>, usize) {
        let mut visited = 0;
        let soon = self.heap.iter().map(|Reverse(soon)| {
            if counts(&self.timers, *soon) {
                soon.timer
            } else {
                NONE
            }
        });
        let levels = self.occupied.iter().enumerate();
        let later = levels
            .flat_map(|(level, &occupied)| {
                (0..BUCKETS)
                    .filter(move |bucket| occupied & 1 << bucket != 0)
                    .map(move |bucket| level * BUCKETS + bucket)
            })
            .flat_map(|index| {
                let moved = self
                    .opening
                    .filter(|opening| opening.index() == index)
                    .map_or(0, |opening| opening.moved);
                self.buckets[index].timers[moved..].iter().copied()
            });
        let slots = soon
            .chain(later)
            .inspect(|_| visited += 1)
            .filter(|&timer| timer != NONE)
            .take(limit)
            .map(|timer| self.timers[timer].slot)
            .collect();
        (slots, visited)
    }

    /// Removes every timer and returns the slots that had one.
    pub(crate) fn clear(&mut self) -> Vec<u32> {
        let all = std::mem::take(self);
        all.timers.iter().map(|timer| timer.slot).collect()
    }

    /// Number of timers that fit into the allocated memory, in order and in the heap.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> (usize, usize) {
        (self.timers.capacity(), self.heap.capacity())
    }
}

fn counts(timers: &Slab<Timer>, soon: Soon) -> bool {
    timers
        .get(soon.timer)
        .is_some_and(|timer| timer.state == TimerState::InHeap && timer.position == soon.ticket)
}

#[cfg(test)]
mod tests {
    use reeve_clock::Random;

    use super::*;

    fn take_due(timers: &mut Timers, now: u64) -> Vec<u32> {
        let mut due = Vec::new();
        loop {
            match timers.step(now) {
                Step::Due((slot, _)) => due.push(slot),
                Step::Moved | Step::MovedFirst => {}
                Step::Idle => return due,
            }
        }
    }

    #[test]
    fn a_timer_is_24_bytes() {
        assert_eq!(Slab::<Timer>::bytes_each(), 24);
    }

    #[test]
    fn the_earliest_comes_first_and_equal_times_in_the_order_they_were_set() {
        for unit in [1, WIDTH, 1 << 30, 1 << 50] {
            let mut timers = Timers::default();
            for (slot, at) in [(3, 50), (1, 20), (0, 50), (2, 20)] {
                timers.insert(slot, at * unit, 0);
            }
            assert_eq!(take_due(&mut timers, 20 * unit - 1), []);
            assert_eq!(timers.next(), Some(20 * unit));
            assert_eq!(take_due(&mut timers, 50 * unit), [1, 2, 3, 0]);
            assert_eq!(timers.next(), None);
        }
    }

    /// Against a sorted list: times of all magnitudes, removals, time in jumps of all sizes, and steps
    /// that are interrupted by inserts.
    #[test]
    fn the_order_is_that_of_a_sorted_list() {
        for seed in 0..300 {
            let random = Random::seeded(seed);
            let mut timers = Timers::default();
            let mut expected: Vec<(u64, u32, u32)> = Vec::new();
            let (mut now, mut count) = (0_u64, 0);
            for _ in 0..400 {
                let magnitude = random.below(45);
                match random.below(10) {
                    0..5 => {
                        let at = now + 1 + random.below(1 << magnitude) / 1000 * 1000;
                        expected.push((at, count, timers.insert(count, at, now)));
                        count += 1;
                    }
                    5 if !expected.is_empty() => {
                        let some = random.below(expected.len() as u64) as usize;
                        let (_, _, timer) = expected.swap_remove(some);
                        timers.remove(timer);
                    }
                    6 => {
                        // Part of the way only; timers that are set meanwhile are still in order.
                        let later = now + random.below(1 << magnitude);
                        for _ in 0..random.below(10) {
                            if let Step::Due((slot, at)) = timers.step(later) {
                                let first = *expected.iter().min().unwrap();
                                assert_eq!((slot, at), (first.1, first.0));
                                assert!(first.0 <= later);
                                expected.retain(|timer| *timer != first);
                            }
                        }
                    }
                    _ => {
                        now += random.below(1 << magnitude);
                        let due = take_due(&mut timers, now);
                        expected.sort_unstable();
                        let split = expected.partition_point(|timer| timer.0 <= now);
                        let rest = expected.split_off(split);
                        let order: Vec<u32> = expected.iter().map(|timer| timer.1).collect();
                        assert_eq!(due, order, "seed {seed}");
                        expected = rest;
                        let next = expected.first().map(|timer| timer.0);
                        assert_eq!(timers.next(), next, "few are searched: exact");
                    }
                }
                assert_eq!(timers.len(), expected.len());
            }
        }
    }

    #[test]
    fn timers_that_were_taken_back_are_swept_out_of_the_heap() {
        let mut timers = Timers::default();
        let set: Vec<u32> = (0..1000)
            .map(|slot| timers.insert(slot, u64::from(slot) + 10, 0))
            .collect();
        timers.insert(7, 5, 0);
        for &timer in &set[..990] {
            timers.remove(timer);
        }
        assert!(timers.heap.len() <= 64, "{} left", timers.heap.len());
        assert_eq!(timers.next(), Some(5));
    }

    #[test]
    fn memory_is_given_back_though_a_few_stay() {
        let mut timers = Timers::default();
        for slot in 0..100_000 {
            timers.insert(slot, 1000 + u64::from(slot), 0);
        }
        timers.insert(0, 1 << 40, 0);
        assert_eq!(take_due(&mut timers, 1 << 20).len(), 100_000);
        let (order, heap) = timers.capacity();
        assert!(order <= 6 * 1024 && heap <= 8192, "{order} {heap}");
        assert_eq!(timers.all(), [(0, 1 << 40)]);
    }

    #[test]
    fn a_look_at_some_of_a_crowd_looks_at_few_and_finds_the_soonest_bucket() {
        let mut timers = Timers::default();
        for slot in 0..100_000_u32 {
            timers.insert(slot, u64::from(100_000 - slot) * WIDTH, 0);
        }
        let (some, visited) = timers.some(10);
        assert_eq!((some.len(), visited), (10, 10));
        assert!(some.iter().all(|&slot| slot >= 100_000 - 64), "{some:?}");
    }
}
