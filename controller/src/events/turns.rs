//! Turns of the writer: a few writes at once, and a rest.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The most writes of one turn. A request by itself wakes the process, and its code is in no cache of the processor. It
/// takes two to three times the processor time of a request among others.
const TOGETHER: u32 = 4;
/// The rest for each write of a turn, as a multiple of the time of a write by itself: events take a small share of a busy
/// API server, and wait rather than the writes of reconciles.
const REST: u32 = 3;
/// The longest rest for each write of a turn.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Lets writes pass, a turn at a time.
#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    /// Notified when a turn is over.
    over: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The writes that began in this turn.
    begun: u32,
    /// Those of them that have not ended.
    active: u32,
    /// The times of the fastest and the slowest of those that have ended.
    ended: Option<(Duration, Duration)>,
    /// The end of the rest after the last turn.
    rested: Option<Instant>,
}

/// A write's part of a turn; it ends when it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    begun: Instant,
}

// === impl Turns ===

impl Turns {
    /// Waits for a place in a turn.
    pub(super) async fn take(&self) -> Turn<'_> {
        loop {
            let over = self.over.notified();
            let rested = {
                let mut state = self.state.lock();
                let now = Instant::now();
                if state.enter(now) {
                    return Turn {
                        turns: self,
                        begun: now,
                    };
                }
                state.rested.filter(|_| state.active == 0)
            };
            match rested {
                Some(rested) => sleep_until(rested).await,
                None => over.await,
            }
        }
    }
}

// === impl State ===

impl State {
    /// Whether a write may begin: the rest is over, and the turn has a place.
    fn enter(&mut self, now: Instant) -> bool {
        let rests = self.rested.is_some_and(|rested| now < rested);
        if rests || self.begun == TOGETHER {
            return false;
        }
        self.begun += 1;
        self.active += 1;
        true
    }

    /// A write has ended after `took`. Whether the turn is over with it.
    fn leave(&mut self, took: Duration, now: Instant) -> bool {
        self.active -= 1;
        let (fastest, slowest) = self.ended.unwrap_or((took, took));
        let (fastest, slowest) = (fastest.min(took), slowest.max(took));
        self.ended = Some((fastest, slowest));
        if self.active > 0 {
            return false;
        }
        // Others at the same time make a write slower, by their number at most. The fastest may have been refused at once.
        let alone = fastest.max(slowest / self.begun);
        let rest = (alone * REST).min(LONGEST_REST) * self.begun;
        *self = Self {
            rested: Some(now + rest),
            ..Self::default()
        };
        true
    }
}

// === impl Turn ===

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let took = now - self.begun;
        if self.turns.state.lock().leave(took, now) {
            self.turns.over.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The rest after a turn of writes that took so many milliseconds each.
    fn rest_after(writes: &[u64]) -> u128 {
        let start = Instant::now();
        let mut state = State::default();
        writes.iter().for_each(|_| assert!(state.enter(start)));
        let mut left = writes.len();
        let mut end = start;
        for took in writes {
            left -= 1;
            end = start + after(*took);
            assert_eq!(state.leave(after(*took), end), left == 0);
            if left > 0 && writes.len() == TOGETHER as usize {
                assert!(!state.enter(end), "a place is used once");
            }
        }
        let rested = state.rested.unwrap();
        assert!(!state.enter(rested - Duration::from_nanos(1)));
        assert!(state.enter(rested));
        (rested - end).as_millis()
    }

    #[test]
    fn a_rest_is_three_times_as_long_as_the_writes_would_have_taken_one_after_another() {
        for (writes, rest) in [
            (&[10][..], 30),
            (&[10, 10], 60),
            (&[10, 10, 10, 10], 120),
            // They waited for each other: alone each takes as long as the fastest.
            (&[10, 15, 20, 25], 120),
            // The fastest was refused at once.
            (&[1, 40, 40, 40], 120),
            // A second for each at most.
            (&[500], 1000),
            (&[60_000], 1000),
            (&[400, 400, 400, 400], 4000),
        ] {
            assert_eq!(rest_after(writes), rest, "{writes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_writes_pass_in_turns_and_a_dropped_one_leaves_its_place() {
        let turns = Turns::default();
        let started = Instant::now();
        let write = async |took: Duration| {
            let turn = turns.take().await;
            let began = started.elapsed();
            tokio::time::sleep(took).await;
            drop(turn);
            began.as_millis()
        };
        let (cut, six) = tokio::join!(
            tokio::time::timeout(after(5), write(after(50))),
            futures::future::join_all((0..6).map(|_| write(after(10)))),
        );
        assert!(cut.is_err());
        // The first turn: that which is cut after 5 ms, and three of 10 ms; then a rest of 4 times 3 times 5 ms.
        assert_eq!(six, [0, 0, 0, 70, 70, 70]);
    }
}
