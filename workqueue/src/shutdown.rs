//! Shutdown of a queue.

use std::future::poll_fn;
use std::hash::Hash;
use std::time::Duration;

use crate::queue::Queue;
use crate::state;

/// Items for which a shutdown waits. See [`Queue::shut_down_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drain {
    /// None. Ready items are still handed out on request.
    Nothing,
    /// Items in flight. Nothing is handed out any more.
    InFlight,
    /// Also ready items, and items that were added again while in flight.
    #[default]
    Ready,
    /// Also items that wait for a time or a token, until they are due.
    Delayed,
}

/// Items left after a shutdown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left<T> {
    /// Items still to be handed out, now or after their current run.
    pub ready: usize,
    /// Items that were dropped while they waited for a time or a token, or are still waiting.
    pub waiting: usize,
    /// Items in flight.
    pub in_flight: usize,
    /// Some of their keys, up to 100: in flight, ready, then waiting.
    pub keys: Vec<T>,
}

/// Maximum number of reported keys.
const REPORTED: usize = 100;

// === impl Left ===

impl<T> Left<T> {
    /// Nothing was left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready == 0 && self.waiting == 0 && self.in_flight == 0
    }
}

// === impl Queue ===

impl<T: Hash + Eq + Clone + Send + Sync + 'static> Queue<T> {
    /// Refuses adds from now on and drops delayed items. Ready items are still handed out; then
    /// [`Queue::get`] returns `None`. client-go: `ShutDown`.
    ///
    /// Ends a drain that is in progress.
    pub fn shut_down(&self) {
        self.begin_shutdown(Drain::Nothing);
    }

    /// Shuts down and waits until all ready items, and all items that were added again while in flight, have
    /// been handed out and settled. client-go: `ShutDownWithDrain`.
    ///
    /// As [`Queue::shut_down_with`]`(`[`Drain::Ready`]`, None)`.
    pub async fn shut_down_with_drain(&self) {
        self.begin_shutdown(Drain::Ready);
        poll_fn(|cx| self.0.poll_drained(cx)).await;
    }

    /// Shuts down, waits as `drain` requires until `deadline` at the latest, and reports the items that are
    /// left. Adds are refused from the first poll on, and so are retries and requeues of items in flight.
    ///
    /// After the deadline nothing is handed out. Workers must process the items: without workers only the
    /// deadline, or [`Queue::shut_down`], ends a drain. Dropping the future leaves the queue draining.
    ///
    /// # Panics
    /// If there is a deadline, and no tokio runtime with time enabled.
    pub async fn shut_down_with(&self, drain: Drain, deadline: Option<Duration>) -> Left<T> {
        let dropped = self.begin_shutdown(drain);
        if drain != Drain::Nothing {
            let drained = poll_fn(|cx| self.0.poll_drained(cx));
            match deadline {
                None => drained.await,
                Some(deadline) => {
                    if tokio::time::timeout(deadline, drained).await.is_err() {
                        self.0.update(false, |core, _, _| core.state.stop());
                    }
                }
            }
        }
        self.0.update(true, |core, _, _| {
            let state = &core.state;
            let mut left = Left {
                ready: state.queued(),
                waiting: dropped.waiting + state.later(),
                in_flight: state.flights.len(),
                keys: state.some_keys(REPORTED),
            };
            for key in dropped.keys {
                if left.keys.len() < REPORTED && !left.keys.contains(&key) {
                    left.keys.push(key);
                }
            }
            left
        })
    }

    /// Whether adds are refused. client-go: `ShuttingDown`.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.0.update(false, |core, _, _| {
            core.state.shutdown != state::Shutdown::Running
        })
    }

    /// Returns the items that were dropped.
    fn begin_shutdown(&self, drain: Drain) -> Left<T> {
        // What is due is ready, however much it is.
        self.0.catch_up();
        self.0.update(false, |core, now, effects| {
            let how = match drain {
                Drain::Nothing => state::Shutdown::Immediate,
                Drain::InFlight | Drain::Ready => state::Shutdown::Draining,
                Drain::Delayed => state::Shutdown::DrainingDelayed,
            };
            let keys = if how == state::Shutdown::DrainingDelayed {
                Vec::new()
            } else {
                core.state.some_that_wait(REPORTED)
            };
            let waiting = core.state.shut_down(how, now, effects);
            if drain == Drain::InFlight {
                core.state.stop();
            }
            Left {
                ready: 0,
                waiting,
                in_flight: 0,
                keys,
            }
        })
    }
}
