//! How much is decoded at once: [`threads`].

use tokio::runtime::{Handle, RuntimeFlavor};

/// The most pieces of one watch that are decoded at once. What they bring is applied by one task, which takes about a
/// third of the time of decoding, so more would wait for it.
const MOST: usize = 8;

/// The number of pieces that the present runtime can decode at once, as far as that is worth it; 0 where one thread
/// runs everything.
pub(super) fn threads() -> usize {
    let runtime = Handle::current();
    if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
        return 0;
    }
    match runtime.metrics().num_workers() {
        0 | 1 => 0,
        workers => workers.min(MOST),
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn of(runtime: &Runtime) -> usize {
        runtime.block_on(async { threads() })
    }

    #[test]
    fn as_much_is_decoded_at_once_as_there_are_workers_and_nothing_with_one() {
        assert_eq!(of(&Builder::new_current_thread().build().unwrap()), 0);
        for (workers, expected) in [(1, 0), (2, 2), (3, 3), (20, MOST)] {
            let runtime = Builder::new_multi_thread().worker_threads(workers).build();
            assert_eq!(of(&runtime.unwrap()), expected, "{workers} workers");
        }
    }
}
