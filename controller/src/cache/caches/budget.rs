//! The rate of live reads from the server of one cluster for own writes: lost ones, and objects no cache shows.
//!
//! The reads of all controllers and readers of a cluster share one line. A turn that is not fetched does not hold up
//! those behind it: any waiter that runs grants every turn that is due.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The number of turns within any [`PERIOD`].
const TURNS: usize = 8;
/// See [`TURNS`].
const PERIOD: Duration = Duration::from_secs(1);
/// The longest `Retry-After` that is honoured.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The purpose of a live read. Those of a later rank have their turn when none of an earlier one waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// A key or a read waits for the answer.
    Waiting,
    /// Nothing waits.
    Sweep,
}

/// A place in the line: first come, first served within a rank.
type Place = (Rank, u64);

/// The line of the live reads from the server of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Budget(Mutex<Line>);

#[derive(Debug, Default)]
struct Line {
    /// The number of the next ticket.
    next: u64,
    /// The waiting tickets, in order.
    waiting: BTreeSet<Place>,
    /// The tickets that have their turn and have not fetched it yet.
    due: BTreeSet<Place>,
    /// The times of the last [`TURNS`] turns, oldest first.
    recent: VecDeque<Instant>,
    /// No turn before then: the server sent a `Retry-After`.
    not_before: Option<Instant>,
}

/// A place in the line, given up when dropped.
#[derive(Debug)]
struct Ticket<'a> {
    budget: &'a Budget,
    place: Place,
}

// === impl Budget ===

impl Budget {
    /// Waits for the caller's turn. Dropping the future gives its place up.
    pub(crate) async fn turn(&self, rank: Rank) {
        let ticket = self.stand_in_line(rank);
        while let Some(at) = ticket.not_before(Instant::now()) {
            sleep_until(at).await;
        }
    }

    /// Grants no turn for the `Retry-After` of the server.
    pub(crate) fn pause(&self, now: Instant, retry_after: Duration) {
        let mut line = self.0.lock();
        let until = now + retry_after.min(LONGEST_PAUSE);
        line.not_before = line.not_before.max(Some(until));
    }

    fn stand_in_line(&self, rank: Rank) -> Ticket<'_> {
        let mut line = self.0.lock();
        let place = (rank, line.next);
        line.next += 1;
        line.waiting.insert(place);
        Ticket {
            budget: self,
            place,
        }
    }
}

// === impl Line ===

impl Line {
    /// Grants the turns that are due.
    fn advance(&mut self, now: Instant) {
        while self.opens(0, now) <= now
            && let Some(first) = self.waiting.pop_first()
        {
            self.due.insert(first);
            self.recent.push_back(now);
            if self.recent.len() > TURNS {
                self.recent.pop_front();
            }
        }
    }

    /// The time of the turn of the ticket at `place`, one of the first [`TURNS`] in line.
    fn opens(&self, place: usize, now: Instant) -> Instant {
        let unused = TURNS - self.recent.len();
        let used = place.checked_sub(unused);
        let used = used.and_then(|used| self.recent.get(used));
        let at = used.map_or(now, |last| *last + PERIOD);
        at.max(now).max(self.not_before.unwrap_or(now))
    }
}

// === impl Ticket ===

impl Ticket<'_> {
    /// `None` if it has its turn now, else a time before which it has none.
    fn not_before(&self, now: Instant) -> Option<Instant> {
        let mut line = self.budget.0.lock();
        line.advance(now);
        if line.due.remove(&self.place) {
            return None;
        }
        let mut first = line.waiting.iter().take(TURNS);
        Some(match first.position(|place| *place == self.place) {
            Some(place) => line.opens(place, now),
            // It may be further ahead in the line by then.
            None => line.opens(0, now),
        })
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut line = self.budget.0.lock();
        line.waiting.remove(&self.place);
        line.due.remove(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use futures::poll;

    use super::*;

    /// The seconds after which each of `count` callers has its turn.
    async fn turns(budget: &Budget, count: usize) -> Vec<u64> {
        let begin = Instant::now();
        let turns = (0..count).map(async |_| {
            budget.turn(Rank::Waiting).await;
            begin.elapsed().as_secs()
        });
        join_all(turns).await
    }

    #[tokio::test(start_paused = true)]
    async fn questions_have_their_turns_in_order_eight_a_second() {
        let budget = Budget::default();
        let expected: Vec<u64> = (0..500).map(|number| number / 8).collect();
        assert_eq!(turns(&budget, 500).await, expected);
        // In any second: not at the end of one, and at the begin of the next again.
        tokio::time::advance(Duration::from_millis(10_900)).await;
        assert_eq!(turns(&budget, 8).await, [0; 8]);
        tokio::time::advance(Duration::from_millis(200)).await;
        let begin = Instant::now();
        budget.turn(Rank::Waiting).await;
        assert_eq!(begin.elapsed().as_millis(), 800);
    }

    #[tokio::test(start_paused = true)]
    async fn no_question_has_its_turn_while_the_server_asks_for_rest() {
        let budget = Budget::default();
        assert_eq!(turns(&budget, 4).await, [0; 4]);
        let seconds = Duration::from_secs;
        budget.pause(Instant::now(), seconds(7));
        budget.pause(Instant::now(), seconds(2));
        let expected = [7, 7, 7, 7, 7, 7, 7, 7, 8, 8];
        assert_eq!(turns(&budget, 10).await, expected);
        budget.pause(Instant::now(), seconds(86_400));
        assert_eq!(turns(&budget, 1).await, [60], "a minute at most");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_given_up_makes_room_for_those_behind_it() {
        let budget = Budget::default();
        let mut ahead: Vec<_> = (0..100)
            .map(|_| Box::pin(budget.turn(Rank::Waiting)))
            .collect();
        for turn in &mut ahead {
            let _ = poll!(turn);
        }
        let mut last = Box::pin(budget.turn(Rank::Waiting));
        assert!(poll!(&mut last).is_pending());
        drop(ahead);
        let begin = Instant::now();
        last.await;
        assert!(begin.elapsed() <= PERIOD, "{:?}", begin.elapsed());
        assert!(budget.0.lock().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_does_not_fetch_its_turn_holds_up_no_other() {
        let budget = Budget::default();
        let mut idle: Vec<_> = (0..16)
            .map(|_| Box::pin(budget.turn(Rank::Waiting)))
            .collect();
        for turn in &mut idle {
            let _ = poll!(turn);
        }
        // Of the 16, 8 had their turn at once, and the others are not polled any more.
        assert_eq!(turns(&budget, 1).await, [2]);
        assert_eq!(idle.len(), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn the_sweep_has_its_turns_when_nothing_waits() {
        let budget = Budget::default();
        assert_eq!(turns(&budget, 8).await, [0; 8]);
        let begin = Instant::now();
        let sweep = async {
            budget.turn(Rank::Sweep).await;
            begin.elapsed().as_secs()
        };
        // It stands in line first.
        let (swept, waited) = futures::join!(sweep, turns(&budget, 9));
        assert_eq!((swept, waited[7], waited[8]), (2, 1, 2));
    }
}
