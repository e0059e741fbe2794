//! Records of changes by callers, and the observed changes that have none.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::object::Key;

/// The time that a record is kept: that of an Event of the cluster, by which other replicas have it. The observation of a
/// change follows its request within seconds, or when an interrupted watch goes on.
pub(super) const RECORD_KEPT: Duration = Duration::from_secs(3600);

/// The most records. The oldest one is dropped for another.
const MOST_RECORDS: usize = 100_000;

/// The most changes that wait for a record. The oldest one is reported for another.
const MOST_WAITING: usize = 100_000;

/// What happens to a production object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Its deletion begins.
    Deletion,
    /// It loses its own label.
    Unmarked,
}

/// A change that a webhook was called for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The change.
    pub change: Change,
    /// The object.
    pub key: Key,
    /// Its uid.
    pub uid: String,
    /// The caller.
    pub user: String,
}

/// An observed change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The change.
    pub change: Change,
    /// The object.
    pub key: Key,
    /// Its uid.
    pub uid: String,
}

type Id = (Change, String);

/// Records, and changes whose record is missing.
#[derive(Debug)]
pub struct Ledger {
    patience: Duration,
    records: HashMap<Id, Instant>,
    by_age: VecDeque<(Instant, Id)>,
    waiting: HashMap<Id, Observed>,
    waiting_by_age: VecDeque<(Instant, Id)>,
}

// === impl Change ===

impl Change {
    /// The word in labels and names of Events.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Deletion => "deletion",
            Self::Unmarked => "unmarked",
        }
    }

    /// The change of this word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        let mut all = [Self::Deletion, Self::Unmarked].into_iter();
        all.find(|change| change.word() == word)
    }
}

// === impl Ledger ===

impl Ledger {
    /// An empty one that waits `patience` for a record.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            records: HashMap::new(),
            by_age: VecDeque::new(),
            waiting: HashMap::new(),
            waiting_by_age: VecDeque::new(),
        }
    }

    /// Adds a record. Returns whether other replicas need it: they have the first one of an object, until half of the time
    /// that records are kept is over.
    pub fn recorded(&mut self, change: Change, uid: &str, now: Instant) -> bool {
        let id = (change, uid.to_owned());
        self.drop_records(now);
        self.waiting.remove(&id);
        let last = self.records.get(&id);
        if last.is_some_and(|last| now.duration_since(*last) < RECORD_KEPT / 2) {
            return false;
        }
        self.records.insert(id.clone(), now);
        self.by_age.push_back((now, id));
        true
    }

    fn drop_records(&mut self, now: Instant) {
        while self.by_age.len() >= MOST_RECORDS
            || self
                .by_age
                .front()
                .is_some_and(|(time, _)| now.duration_since(*time) > RECORD_KEPT)
        {
            let Some((time, id)) = self.by_age.pop_front() else {
                return;
            };
            // A later record of the same object stays.
            if self.records.get(&id) == Some(&time) {
                self.records.remove(&id);
            }
        }
    }

    /// Adds a change that was observed.
    pub fn observed(&mut self, observed: Observed, now: Instant) {
        self.drop_records(now);
        let id = (observed.change, observed.uid.clone());
        if !self.records.contains_key(&id) && self.waiting.insert(id.clone(), observed).is_none() {
            self.waiting_by_age.push_back((now, id));
        }
    }

    /// Takes the changes without a record for longer than the patience.
    pub fn overdue(&mut self, now: Instant) -> Vec<Observed> {
        let mut overdue = Vec::new();
        while let Some((time, _)) = self.waiting_by_age.front()
            && (now.duration_since(*time) >= self.patience
                || self.waiting_by_age.len() > MOST_WAITING)
        {
            let oldest = self.waiting_by_age.pop_front();
            overdue.extend(oldest.and_then(|(_, id)| self.waiting.remove(&id)));
        }
        overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELETION: Change = Change::Deletion;

    fn observed(change: Change, uid: &str) -> Observed {
        Observed {
            change,
            key: Key::default(),
            uid: uid.to_owned(),
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_change_without_a_record_is_reported_once_after_the_patience() {
        let (mut ledger, start) = (Ledger::new(seconds(30)), Instant::now());
        let change = observed(DELETION, "a");
        ledger.observed(change.clone(), start);
        ledger.observed(change.clone(), start + seconds(10));
        assert_eq!(ledger.overdue(start + seconds(29)), []);
        assert_eq!(ledger.overdue(start + seconds(30)), [change]);
        assert_eq!(ledger.overdue(start + seconds(60)), []);
    }

    #[test]
    fn a_record_may_come_before_or_after_the_observation() {
        let (mut ledger, start) = (Ledger::new(seconds(30)), Instant::now());
        assert!(ledger.recorded(DELETION, "a", start));
        assert!(
            !ledger.recorded(DELETION, "a", start),
            "replicas have it already"
        );
        ledger.observed(observed(DELETION, "a"), start + seconds(3500));
        ledger.observed(observed(DELETION, "b"), start);
        ledger.recorded(DELETION, "b", start + seconds(29));
        assert_eq!(ledger.overdue(start + seconds(7200)), []);
    }

    #[test]
    fn a_record_of_one_change_does_not_stand_for_another() {
        let (mut ledger, start) = (Ledger::new(seconds(30)), Instant::now());
        ledger.recorded(Change::Unmarked, "a", start);
        let deletion = observed(DELETION, "a");
        ledger.observed(deletion.clone(), start);
        assert_eq!(ledger.overdue(start + seconds(30)), [deletion]);
    }

    #[test]
    fn a_record_is_dropped_after_an_hour_unless_it_comes_again() {
        let (mut ledger, start) = (Ledger::new(seconds(30)), Instant::now());
        for uid in ["a", "b"] {
            ledger.recorded(DELETION, uid, start);
        }
        assert!(ledger.recorded(DELETION, "b", start + RECORD_KEPT / 2));
        let later = start + RECORD_KEPT + seconds(1);
        ledger.observed(observed(DELETION, "b"), later);
        ledger.observed(observed(DELETION, "a"), later);
        let overdue = ledger.overdue(later + seconds(30));
        assert_eq!(overdue, [observed(DELETION, "a")]);
    }

    #[test]
    fn the_oldest_change_is_reported_early_when_too_many_wait() {
        let (mut ledger, start) = (Ledger::new(seconds(30)), Instant::now());
        for number in 0..=MOST_WAITING {
            ledger.observed(observed(DELETION, &number.to_string()), start);
        }
        assert_eq!(ledger.overdue(start), [observed(DELETION, "0")]);
    }
}
