//! The allocator of the shipped binary, glibc's, and a count of its live bytes.
//!
//! The count is off until a scenario that measures memory starts it; until then an allocation
//! costs one more relaxed load.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// The allocator: `#[global_allocator] static HEAP: Counting = Counting;`
#[derive(Debug)]
pub struct Counting;

/// A count on its own cache line: threads that allocate do not wait for each other.
#[repr(align(128))]
struct Shard(AtomicI64);

const SHARDS: usize = 16;
static COUNTS: [Shard; SHARDS] = [const { Shard(AtomicI64::new(0)) }; SHARDS];
static COUNTING: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The shard of this thread. Needs no destructor, so it may be used while a thread ends.
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Starts the count. Call it before the first allocation that has to be counted.
pub fn count() {
    COUNTING.store(true, Ordering::Relaxed);
}

/// Stops the count, so that it does not slow the next measurement. [`live`] has no meaning after that.
pub fn stop_counting() {
    COUNTING.store(false, Ordering::Relaxed);
}

/// Makes glibc keep memory that is freed from now on, so that the next measurement does not include the
/// first touch of it.
pub fn keep_memory() {
    // SAFETY: mallopt only changes when memory is returned to the kernel.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TOP_PAD, 64 << 20);
    }
}

/// Bytes that were requested since [`count`] and are not freed.
#[must_use]
pub fn live() -> i64 {
    COUNTS
        .iter()
        .map(|shard| shard.0.load(Ordering::Relaxed))
        .sum()
}

fn note(bytes: i64) {
    let shard = SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    });
    COUNTS[shard].0.fetch_add(bytes, Ordering::Relaxed);
}

fn counting() -> bool {
    COUNTING.load(Ordering::Relaxed)
}

// SAFETY: every call is passed to the system's allocator unchanged; the count only touches
// atomics and a thread-local without a destructor, and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if counting() {
            note(layout.size() as i64);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if counting() {
            note(layout.size() as i64);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if counting() {
            note(-(layout.size() as i64));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if counting() {
            note(size as i64 - layout.size() as i64);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static HEAP: Counting = Counting;

    #[test]
    fn what_is_live_is_counted() {
        /// More than the other tests allocate or free; without a touch it costs nothing.
        const MUCH: usize = 1 << 30;
        let is = |live: i64, wanted: usize| (live - wanted as i64).unsigned_abs() < MUCH as u64 / 4;
        count();
        let before = live();
        let mut bytes: Vec<u8> = Vec::with_capacity(MUCH);
        std::hint::black_box(&mut bytes);
        assert!(is(live() - before, MUCH));
        bytes.reserve_exact(3 * MUCH);
        assert!(is(live() - before, 3 * MUCH));
        drop(std::hint::black_box(bytes));
        assert!(is(live() - before, 0));
    }
}
