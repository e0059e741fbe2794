//! Bounded turns of a task: [`Turns`].

use std::collections::VecDeque;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;

/// The number of objects that a task works on before other tasks run: some hundred microseconds' worth.
pub(crate) const PIECE: usize = 256;

/// The number of objects that a task may still work on in this turn.
///
/// It counts objects and not time, so that a run under virtual time is the same each time.
#[derive(Debug)]
pub(crate) struct Turns {
    left: usize,
}

// === impl Turns ===

impl Turns {
    pub(crate) fn new() -> Self {
        Self { left: PIECE }
    }

    /// Counts `objects` that were worked on, and yields once if the turn is used up.
    pub(crate) async fn spend(&mut self, objects: usize) {
        self.left = self.left.saturating_sub(objects);
        if self.left == 0 {
            self.left = PIECE;
            tokio::task::yield_now().await;
        }
    }
}

/// Drops `items`: many in turns of a task of their own, if there is a runtime, so that the present task goes on.
pub(crate) fn free<T: Send + 'static>(items: VecDeque<T>) {
    if items.len() <= PIECE {
        return;
    }
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            let mut turns = Turns::new();
            for item in items {
                drop(item);
                turns.spend(1).await;
            }
        });
    }
}

/// Polls `future`, which waits for nothing but its turn, to its end.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
    }
}
