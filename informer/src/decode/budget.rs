//! Yielding to other tasks while much is decoded.

/// How many bytes are decoded until other tasks have their turn: some hundred microseconds' worth.
const BYTES: usize = 128 * 1024;

/// What an object costs beside its bytes.
const OBJECT: usize = 256;

/// What may be decoded until other tasks have their turn.
///
/// Bytes that are there already are read without a wait, and a large list is there within a moment: without a budget one
/// poll would decode all of it, and on a runtime with one thread no timer would go off meanwhile. Bytes are counted, not
/// time, so that a run under virtual time is the same each time.
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

    /// One that never yields.
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
