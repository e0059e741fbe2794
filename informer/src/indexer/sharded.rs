//! A value with many readers: [`Sharded`].
//!
//! A lock counts its readers, and threads that read at the same time write this count in turn: its cache line moves between their
//! processors at each read. Here each thread has a lock of its own to read with, up to [`MOST`] of them; a writer takes
//! them all. A reader writes nothing that another thread uses, and a write costs two uncontended lock operations more for each shard.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The largest number of shards. With more threads, some share one.
const MOST: usize = 16;

/// A value that is read by many threads and written rarely.
pub(super) struct Sharded<T> {
    shards: Box<[Shard<T>]>,
}

/// The value, for some of the threads. It is absent only while a writer has all locks.
#[repr(align(128))]
struct Shard<T>(RwLock<Option<Arc<T>>>);

/// All locks, and the value.
struct Writing<'a, T> {
    guards: Vec<RwLockWriteGuard<'a, Option<Arc<T>>>>,
    value: Arc<T>,
}

/// What this thread is about in all values.
struct Reader {
    /// The number of the thread; `usize::MAX` before its first read.
    number: Cell<usize>,
    /// The address of the value that [`Sharded::lend`] lends in this thread; the innermost of several.
    lent: Cell<usize>,
    /// The number of values that are lent in this thread.
    loans: Cell<usize>,
}

/// Ends a loan of this thread.
struct EndOfLoan {
    before: usize,
}

thread_local! {
    static READER: Reader = const {
        Reader { number: Cell::new(usize::MAX), lent: Cell::new(0), loans: Cell::new(0) }
    };
}

/// The number of shards, a power of two: that of the processors at least.
static SHARDS: LazyLock<usize> = LazyLock::new(|| {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    processors.next_power_of_two().min(MOST)
});

// === impl Reader ===

impl Reader {
    /// The number of the thread. Threads are numbered in the order of their first reads, so those that begin together have
    /// different shards.
    fn number(&self) -> usize {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        if self.number.get() == usize::MAX {
            let next = THREADS.fetch_add(1, Ordering::Relaxed);
            self.number.set(next % usize::MAX);
        }
        self.number.get()
    }
}

// === impl EndOfLoan ===

impl EndOfLoan {
    fn new(lent: usize) -> Self {
        READER.with(|reader| {
            reader.loans.set(reader.loans.get() + 1);
            let before = reader.lent.replace(lent);
            Self { before }
        })
    }
}

impl Drop for EndOfLoan {
    fn drop(&mut self) {
        READER.with(|reader| {
            reader.loans.set(reader.loans.get() - 1);
            reader.lent.set(self.before);
        });
    }
}

// === impl Sharded ===

impl<T> Sharded<T> {
    pub(super) fn new(value: T) -> Self {
        Self::with_shards(value, *SHARDS)
    }

    /// With `shards` shards, a power of two.
    fn with_shards(value: T, shards: usize) -> Self {
        let value = Arc::new(value);
        let shards = (0..shards).map(|_| Shard(RwLock::new(Some(Arc::clone(&value)))));
        Self {
            shards: shards.collect(),
        }
    }

    fn address(&self) -> usize {
        self.shards.as_ptr().addr()
    }

    /// The value, locked. No code of users may run before the guard is dropped: see [`Sharded::lend`].
    pub(super) fn read(&self) -> MappedRwLockReadGuard<'_, Arc<T>> {
        let (number, lends) = READER.with(|reader| (reader.number(), reader.lent.get() != 0));
        let shard = &self.shards[number & (self.shards.len() - 1)].0;
        let guard = if lends {
            // This thread may have the lock already: it must not wait for a writer that waits for it.
            shard.read_recursive()
        } else {
            shard.read()
        };
        RwLockReadGuard::map(guard, |value| {
            value.as_ref().expect("a shard with its value")
        })
    }

    /// Calls `read` with the value, and may read this value and others. Writers wait for it.
    pub(super) fn lend<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        let value = self.read();
        let _end = EndOfLoan::new(self.address());
        read(&value)
    }

    /// The present value.
    pub(super) fn snapshot(&self) -> Arc<T> {
        Arc::clone(&self.read())
    }

    /// Before a lock that a writer of this value may have: it waits for the loans to end.
    ///
    /// # Panics
    /// If this thread lends the value, or lends several, one of which may be this one.
    pub(super) fn check_not_lent(&self) {
        let (lent, loans) = READER.with(|reader| (reader.lent.get(), reader.loans.get()));
        assert!(
            loans == 0 || loans == 1 && lent != self.address(),
            "a store cannot be changed, nor its informer asked, by the function that borrows one of its objects; return from `with` before"
        );
    }

    /// Changes the value in one step that no reader sees half of. Nothing else here refers to the value meanwhile, so that
    /// [`Arc::make_mut`] copies it only if there are snapshots.
    ///
    /// # Panics
    /// As [`Sharded::check_not_lent`]: it would wait for itself.
    pub(super) fn write<R>(&self, write: impl FnOnce(&mut Arc<T>) -> R) -> R {
        self.check_not_lent();
        // Always in the same order.
        let mut guards: Vec<_> = self.shards.iter().map(|shard| shard.0.write()).collect();
        let mut values = guards.iter_mut().map(|guard| guard.take());
        let value = values.next().flatten().expect("a shard with its value");
        values.for_each(drop);
        let mut writing = Writing { guards, value };
        write(&mut writing.value)
    }
}

// === impl Writing ===

/// Every shard has the value again, also if the writer panicked.
impl<T> Drop for Writing<'_, T> {
    fn drop(&mut self) {
        for mut guard in self.guards.drain(..) {
            *guard = Some(Arc::clone(&self.value));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_reader_sees_whole_writes_and_never_an_earlier_one_than_before() {
        const WRITES: u64 = 200;
        let value = Sharded::with_shards([0_u64; 64], 4);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 0..6 {
                let (value, over) = (&value, &over);
                scope.spawn(move || {
                    let mut last = 0;
                    while !over.load(Ordering::Acquire) {
                        let seen = |all: &[u64; 64]| {
                            assert!(all.iter().all(|one| *one == all[0]), "half of a write");
                            all[0]
                        };
                        let now = match thread % 3 {
                            0 => seen(&value.read()),
                            1 => value.lend(|all| seen(all).min(value.lend(seen))),
                            _ => seen(&value.snapshot()),
                        };
                        assert!(now >= last, "{now} after {last}");
                        last = now;
                    }
                });
            }
            for write in 1..=WRITES {
                value.write(|value| Arc::make_mut(value).fill(write));
                // What was written is read by the thread that wrote it, and by a thread that learns of it.
                assert_eq!(value.read()[0], write);
            }
            over.store(true, Ordering::Release);
        });
        assert!(value.shards.iter().all(|shard| shard.0.read().is_some()));
    }

    #[test]
    fn a_write_copies_the_value_only_for_a_snapshot() {
        let value = Sharded::with_shards(vec![1], 8);
        let address = |value: &Sharded<Vec<i32>>| value.read().as_ptr();
        let before = address(&value);
        value.write(|value| Arc::make_mut(value)[0] = 2);
        assert_eq!(address(&value), before);
        let snapshot = value.snapshot();
        value.write(|value| Arc::make_mut(value)[0] = 3);
        assert_ne!(address(&value), before);
        assert_eq!((snapshot[0], value.read()[0]), (2, 3));
        // All shards refer to one value, and to no other.
        assert_eq!(Arc::strong_count(&snapshot), 1);
        assert_eq!(Arc::strong_count(&value.read()), 8);
    }

    #[test]
    fn a_loan_that_reads_again_does_not_wait_for_a_waiting_writer() {
        let value = Sharded::with_shards(1, 1);
        thread::scope(|scope| {
            value.lend(|outer| {
                scope.spawn(|| value.write(|value| *Arc::make_mut(value) = 2));
                // The writer waits from here on.
                while value.shards[0].0.try_read().is_some() {
                    thread::yield_now();
                }
                assert_eq!((*outer, value.lend(|inner| *inner)), (1, 1));
                assert_eq!(**value.read(), 1);
            });
        });
        assert_eq!(**value.read(), 2);
    }

    #[test]
    fn a_write_within_a_loan_of_the_same_value_panics_and_one_of_another_value_works() {
        let (value, other) = (Sharded::new(1), Sharded::new(1));
        let write = |value: &Sharded<i32>| value.write(|value| *Arc::make_mut(value) += 1);
        value.lend(|_| write(&other));
        let within = || value.lend(|_| value.lend(|_| write(&value)));
        catch_unwind(AssertUnwindSafe(within)).expect_err("a deadlock otherwise");
        let within = || value.lend(|_| other.lend(|_| write(&value)));
        catch_unwind(AssertUnwindSafe(within)).expect_err("a deadlock otherwise");
        // The loans have ended.
        write(&value);
        assert_eq!(**value.read() + **other.read(), 4);
    }

    #[test]
    fn a_write_that_panics_leaves_the_value_to_all_readers() {
        let value = Sharded::with_shards(1, 4);
        let write = AssertUnwindSafe(|| value.write(|_| panic!("the write")));
        catch_unwind(write).expect_err("it panics");
        let read = |shard: &Shard<i32>| shard.0.read().as_deref().copied();
        assert!(value.shards.iter().map(read).all(|read| read == Some(1)));
    }
}
