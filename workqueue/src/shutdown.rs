//! How a queue ends.

use std::future::poll_fn;
use std::hash::Hash;
use std::time::Duration;

use crate::queue::Queue;
use crate::state;

/// What is waited for when a queue shuts down. See [`Queue::shut_down_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drain {
    /// Nothing. What is ready is still handed out, if somebody asks.
    Nothing,
    /// What is being worked on. Nothing is handed out any more.
    InFlight,
    /// And what is ready, and what was added again while it was worked on.
    #[default]
    Ready,
    /// And what waits for a time or a token, which comes when it is due.
    Delayed,
}

/// What was left when a queue had shut down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left<T> {
    /// How many items are still to be handed out, or were to run again after their current run.
    pub ready: usize,
    /// How many items were dropped while they waited for a time or a token, or wait still.
    pub waiting: usize,
    /// How many items are being worked on.
    pub in_flight: usize,
    /// Some of them, up to 100: in flight, ready, then what waits.
    pub keys: Vec<T>,
}

/// So many keys are reported.
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
    /// Refuses adds from now on and drops what waits for a time. What is ready is still handed
    /// out; then [`Queue::get`] returns `None`. client-go: `ShutDown`.
    ///
    /// Ends a drain that is in progress.
    pub fn shut_down(&self) {
        self.begin_shutdown(Drain::Nothing);
    }

    /// Shuts down and waits until every item that was ready, and every item that was added again
    /// while it was worked on, has been handed out and settled. client-go: `ShutDownWithDrain`.
    ///
    /// As [`Queue::shut_down_with`]`(`[`Drain::Ready`]`, None)`.
    pub async fn shut_down_with_drain(&self) {
        self.begin_shutdown(Drain::Ready);
        poll_fn(|cx| self.0.poll_drained(cx)).await;
    }

    /// Shuts down, waits for what `drain` says but no longer than `deadline`, and reports what was
    /// left. Adds are refused from the first poll on, retries and requeues of items in flight too.
    ///
    /// When the deadline has passed nothing is handed out any more. Somebody has to work on the
    /// items: without workers only the deadline, or [`Queue::shut_down`], ends a drain. Dropping the
    /// future leaves the queue draining.
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

    /// Adds are refused. client-go: `ShuttingDown`.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.0.update(false, |core, _, _| {
            core.state.shutdown != state::Shutdown::Running
        })
    }

    /// Returns what was dropped.
    fn begin_shutdown(&self, drain: Drain) -> Left<T> {
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
