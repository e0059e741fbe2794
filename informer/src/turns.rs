//! Bounded turns of a task: [`Turns`].

use std::collections::VecDeque;

use futures::FutureExt;
use tokio::runtime::Handle;

use crate::tasks;

/// The number of objects that a task works on before other tasks run: some hundred microseconds' worth.
pub(crate) const PIECE: usize = 256;

/// The number of objects that a task may still work on in this turn.
///
/// It counts objects and not time, so that a run under virtual time is the same each time.
#[derive(Debug)]
pub(crate) struct Turns {
    /// `None`: any number, for work that is done at once.
    left: Option<usize>,
}

// === impl Turns ===

impl Turns {
    pub(crate) fn new() -> Self {
        Self { left: Some(PIECE) }
    }

    /// One turn for any number of objects. See [`at_once`].
    pub(crate) fn endless() -> Self {
        Self { left: None }
    }

    /// Counts `objects` that were worked on, and yields once if the turn is used up.
    pub(crate) async fn spend(&mut self, objects: usize) {
        let Some(left) = &mut self.left else {
            return;
        };
        *left = left.saturating_sub(objects);
        if *left == 0 {
            *left = PIECE;
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
        let drops = async move {
            let mut turns = Turns::new();
            for item in items {
                drop(item);
                turns.spend(1).await;
            }
        };
        tasks::spawn(&runtime, drops.boxed());
    }
}

/// The result of `future`, which waits for nothing: its turns are [endless](Turns::endless).
///
/// # Panics
/// If it waits. A loop would not end: what it waits for may need this thread, or the next turn of this task.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    let result = future.now_or_never();
    result.expect("work that is done at once waits for nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "waits for nothing")]
    fn work_that_waits_is_not_done_at_once() {
        let lock = tokio::sync::Mutex::new(());
        let _held = lock.try_lock().unwrap();
        drop(at_once(lock.lock()));
    }
}
