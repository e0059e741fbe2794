//! How much other threads decode at once: [`Permit`].

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Handle, RuntimeFlavor};

/// The number of pieces beyond the workers of the runtime. With them there is always one to begin when another ends. More
/// are not faster.
const SPARE: usize = 2;

/// The permits of this process that are taken, of all informers.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The permission to have one piece decoded by a thread for blocking work. What exceeds the permits is decoded by the
/// task that needs it.
#[derive(Debug)]
pub(super) struct Permit(());

// === impl Permit ===

impl Permit {
    /// The most permits that the present runtime needs; 0 where one thread runs all tasks.
    pub(super) fn most() -> usize {
        let runtime = Handle::current();
        if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            return 0;
        }
        match runtime.metrics().num_workers() {
            0 | 1 => 0,
            workers => workers + SPARE,
        }
    }

    /// A permit, unless `most` are taken.
    pub(super) fn take(most: usize) -> Option<Self> {
        let more = |taken| (taken < most).then_some(taken + 1);
        let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        // Not `then_some`, which would make one to drop it.
        taken.is_ok().then(|| Self(()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Held by each test that needs permits of its own.
#[cfg(test)]
pub(super) static ALL_PERMITS: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn most(runtime: std::io::Result<Runtime>) -> usize {
        runtime.unwrap().block_on(async { Permit::most() })
    }

    #[test]
    fn there_are_as_many_permits_as_workers_and_two_more_and_none_with_one_thread() {
        assert_eq!(most(Builder::new_current_thread().build()), 0);
        for (workers, expected) in [(1, 0), (2, 4), (3, 5)] {
            let runtime = Builder::new_multi_thread().worker_threads(workers).build();
            assert_eq!(most(runtime), expected, "{workers} workers");
        }
    }

    #[test]
    fn a_permit_is_free_again_when_it_is_dropped() {
        let _permits = ALL_PERMITS.blocking_lock();
        assert!(Permit::take(0).is_none());
        // More than the chunks of other tests take.
        let most = 1_000;
        let mut held: Vec<_> = std::iter::from_fn(|| Permit::take(most)).collect();
        assert!(held.len() > most / 2, "{}", held.len());
        // A permit that is refused changes nothing.
        assert!(Permit::take(0).is_none() && Permit::take(most / 2).is_none());
        drop(held.pop());
        assert!(Permit::take(most).is_some());
    }
}
