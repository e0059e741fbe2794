//! Yields to other tasks during long decoding.

/// The number of bytes that are decoded before other tasks run: some hundred microseconds' worth.
const BYTES: usize = 64 * 1024;

/// The cost of an object beside its bytes, in bytes.
const OBJECT: usize = 256;

/// The amount that may be decoded before other tasks run.
///
/// Bytes that have arrived are read without a wait, and a large list arrives within a moment: without a budget one poll
/// would decode all of it, and on a runtime with one thread no timer would fire meanwhile. The budget counts bytes and
/// not time, so that a run under virtual time is the same each time.
#[derive(Debug)]
pub(crate) struct Budget {
    left: usize,
    refill: usize,
}

// === impl Budget ===

impl Budget {
    pub(crate) fn new() -> Self {
        Self {
            left: BYTES,
            refill: BYTES,
        }
    }

    /// A budget that never yields.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn unlimited() -> Self {
        Self {
            left: usize::MAX,
            refill: usize::MAX,
        }
    }

    /// Counts an object of `bytes`, and yields once if the budget is used up.
    pub(crate) async fn spend(&mut self, bytes: usize) {
        match self.left.checked_sub(bytes.saturating_add(OBJECT)) {
            Some(left) => self.left = left,
            None => {
                self.left = self.refill;
                tokio::task::yield_now().await;
            }
        }
    }
}
