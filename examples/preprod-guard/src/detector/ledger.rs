//! Records of deletions, and the objects that disappeared.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::object::Key;

/// The time that a record is kept: finalizers and grace periods delay the end of an object.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// The most records. The oldest one is dropped for another.
const MOST: usize = 100_000;

/// A deletion that a webhook was called for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The object.
    pub key: Key,
    /// Its uid.
    pub uid: String,
    /// The caller.
    pub user: String,
}

/// A production object that disappeared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The object.
    pub key: Key,
    /// Its uid.
    pub uid: String,
}

/// Records by uid, and objects whose record is missing.
#[derive(Debug)]
pub struct Ledger {
    patience: Duration,
    records: HashSet<String>,
    order: VecDeque<(Instant, String)>,
    waiting: VecDeque<(Instant, Gone)>,
}

// === impl Ledger ===

impl Ledger {
    /// An empty one that waits `patience` for a record.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            records: HashSet::new(),
            order: VecDeque::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Adds a record. Returns whether it is the first one of this object.
    pub fn recorded(&mut self, uid: &str, now: Instant) -> bool {
        while self.order.len() >= MOST
            || self
                .order
                .front()
                .is_some_and(|(time, _)| now.duration_since(*time) > KEPT)
        {
            if let Some((_, oldest)) = self.order.pop_front() {
                self.records.remove(&oldest);
            }
        }
        self.waiting.retain(|(_, gone)| gone.uid != uid);
        let is_new = self.records.insert(uid.to_owned());
        if is_new {
            self.order.push_back((now, uid.to_owned()));
        }
        is_new
    }

    /// Adds an object that disappeared.
    pub fn gone(&mut self, gone: Gone, now: Instant) {
        if !self.records.contains(&gone.uid) {
            self.waiting.push_back((now, gone));
        }
    }

    /// Takes the objects without a record for longer than the patience.
    pub fn overdue(&mut self, now: Instant) -> Vec<Gone> {
        let mut overdue = Vec::new();
        while let Some((time, _)) = self.waiting.front()
            && now.duration_since(*time) >= self.patience
        {
            overdue.extend(self.waiting.pop_front().map(|(_, gone)| gone));
        }
        overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(uid: &str) -> Gone {
        let key = Key::default();
        let uid = uid.to_owned();
        Gone { key, uid }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_object_without_a_record_is_reported_once_after_the_patience() {
        let (mut ledger, start) = (Ledger::new(seconds(30)), Instant::now());
        ledger.gone(gone("a"), start);
        assert_eq!(ledger.overdue(start + seconds(29)), []);
        assert_eq!(ledger.overdue(start + seconds(30)), [gone("a")]);
        assert_eq!(ledger.overdue(start + seconds(60)), []);
    }

    #[test]
    fn a_record_may_come_before_or_after_the_end_of_the_object() {
        let (mut ledger, start) = (Ledger::new(seconds(30)), Instant::now());
        assert!(ledger.recorded("a", start));
        assert!(!ledger.recorded("a", start), "the kubelet deletes again");
        ledger.gone(gone("a"), start + seconds(3600));
        ledger.gone(gone("b"), start);
        ledger.recorded("b", start + seconds(29));
        assert_eq!(ledger.overdue(start + seconds(7200)), []);
    }

    #[test]
    fn a_record_is_dropped_after_a_day() {
        let (mut ledger, start) = (Ledger::new(seconds(30)), Instant::now());
        ledger.recorded("a", start);
        let later = start + KEPT + seconds(1);
        ledger.recorded("b", later);
        ledger.gone(gone("a"), later);
        assert_eq!(ledger.overdue(later + seconds(30)), [gone("a")]);
    }
}
