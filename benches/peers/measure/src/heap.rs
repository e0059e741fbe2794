//! The allocator of the shipped programs, jemalloc, or glibc's, and a count of its live bytes.
//!
//! The process chooses the allocator before its first allocation, by the environment variable [`ALLOCATOR`], and keeps
//! it. So one binary measures both. The count is off until a scenario that measures memory starts it. Until then an
//! allocation of jemalloc costs one more relaxed load, and one of glibc two comparisons more.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicUsize, Ordering};

use crate::jemalloc::{self, Jemalloc};

/// The environment variable that chooses the allocator: `glibc`, or jemalloc by any other value and without it.
pub const ALLOCATOR: &str = "PEER_ALLOCATOR";
const ALLOCATOR_NAME: &CStr = c"PEER_ALLOCATOR";

/// The allocator: `#[global_allocator] static HEAP: Counting = Counting;`
#[derive(Debug)]
pub struct Counting;

/// [`JEMALLOC`] or [`GLIBC`], and [`COUNTING`]; 0 before the first allocation.
static MODE: AtomicU8 = AtomicU8::new(0);
const JEMALLOC: u8 = 1;
const GLIBC: u8 = 2;
const COUNTING: u8 = 4;

/// A count on its own cache line: threads that allocate do not wait for each other.
#[repr(align(128))]
struct Shard(AtomicI64);

const SHARDS: usize = 16;
static COUNTS: [Shard; SHARDS] = [const { Shard(AtomicI64::new(0)) }; SHARDS];
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The shard of this thread. Needs no destructor, so it may be used while a thread ends.
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Starts the count. Call it before the first allocation that has to be counted.
pub fn count() {
    let _ = mode();
    MODE.fetch_or(COUNTING, Ordering::Relaxed);
}

/// Stops the count, so that it does not slow the next measurement. [`live`] has no meaning after that.
pub fn stop_counting() {
    MODE.fetch_and(!COUNTING, Ordering::Relaxed);
}

/// Makes the allocator keep memory that is freed from now on, so that the next measurement does not include the first
/// touch of it.
pub fn keep_memory() {
    if mode() & GLIBC == 0 {
        jemalloc::keep_arenas();
        return;
    }
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

fn mode() -> u8 {
    match MODE.load(Ordering::Relaxed) {
        0 => choose(),
        mode => mode,
    }
}

/// Chooses the allocator, before the process has a second thread.
#[cold]
fn choose() -> u8 {
    // SAFETY: the name ends with a zero, and nothing changes the environment before `main`.
    let value = unsafe { libc::getenv(ALLOCATOR_NAME.as_ptr()) };
    // SAFETY: a value that is not null is a text that ends with a zero.
    let is_glibc = !value.is_null() && unsafe { CStr::from_ptr(value) } == c"glibc";
    let is_glibc = is_glibc || !jemalloc::IS_BUILT;
    let chosen = if is_glibc { GLIBC } else { JEMALLOC };
    // A count that has begun stays.
    MODE.fetch_or(chosen, Ordering::Relaxed) | chosen
}

/// Whether `mode` is glibc's, after `bytes` were counted, if they are to be.
#[inline]
fn noted(mode: u8, bytes: i64) -> bool {
    if mode & COUNTING != 0 {
        note(bytes);
    }
    mode & GLIBC != 0
}

// SAFETY: every call is passed to one allocator unchanged, to the same one in the whole process; the count only touches
// atomics and a thread-local without a destructor, and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mode = mode();
        if mode != JEMALLOC && noted(mode, layout.size() as i64) {
            // SAFETY: guaranteed by the caller.
            return unsafe { System.alloc(layout) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { Jemalloc.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let mode = mode();
        if mode != JEMALLOC && noted(mode, layout.size() as i64) {
            // SAFETY: guaranteed by the caller.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { Jemalloc.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let mode = mode();
        if mode != JEMALLOC && noted(mode, -(layout.size() as i64)) {
            // SAFETY: guaranteed by the caller.
            return unsafe { System.dealloc(pointer, layout) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { Jemalloc.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let mode = mode();
        if mode != JEMALLOC && noted(mode, size as i64 - layout.size() as i64) {
            // SAFETY: guaranteed by the caller.
            return unsafe { System.realloc(pointer, layout, size) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { Jemalloc.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static HEAP: Counting = Counting;

    #[test]
    fn what_is_live_is_counted() {
        /// More than the other tests allocate or free, and little beside the peak that another test looks at.
        const MUCH: usize = 16 << 20;
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
