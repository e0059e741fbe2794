//! When claims end: the alarms, which bring each due block its lift.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::Notify;

use super::Coverage;
use super::claims::Number;

/// The end of a claim. Seconds and nanoseconds are apart, so that it takes 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Alarm {
    second: i64,
    nanosecond: i32,
    number: Number,
}

// === impl Alarm ===

impl Alarm {
    fn new(at: Timestamp, number: Number) -> Self {
        Self {
            second: at.as_second(),
            nanosecond: at.subsec_nanosecond(),
            number,
        }
    }

    fn at(self) -> Timestamp {
        Timestamp::new(self.second, self.nanosecond).unwrap_or(Timestamp::MAX)
    }
}

// === impl Coverage ===

impl Coverage {
    /// The blocks whose claims ended by `now`, the earliest first and equal ends in no particular order, each once: a due ban is lifted before new ones are
    /// made, however many of those wait.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<Arc<str>> {
        let mut due = Vec::new();
        while let Some(first) = self.alarms.pop_first() {
            if first.at() > now {
                self.alarms.insert(first);
                break;
            }
            due.extend(self.claims.key(first.number).cloned());
        }
        due
    }

    /// The earliest time that [`Coverage::take_due`] waits for, and the notification of its changes.
    #[must_use]
    pub fn next_due(&self) -> (Option<Timestamp>, Arc<Notify>) {
        let next = self.alarms.first().map(|first| first.at());
        (next, Arc::clone(&self.changed))
    }

    /// Sets the alarms of all claims again: the clock was set, and a past end may lie ahead.
    pub fn rearm(&mut self) {
        let claims = self.claims.iter();
        let alarms = claims.filter_map(|(number, _, claim)| Some(Alarm::new(claim.until?, number)));
        self.alarms.extend(alarms);
        self.changed.notify_one();
    }

    pub(super) fn arm(&mut self, number: Number, at: Option<Timestamp>) {
        let Some(at) = at else { return };
        if self.alarms.first().is_none_or(|first| at < first.at()) {
            self.changed.notify_one();
        }
        self.alarms.insert(Alarm::new(at, number));
    }

    pub(super) fn disarm(&mut self, number: Number, at: Option<Timestamp>) {
        if let Some(at) = at {
            self.alarms.remove(&Alarm::new(at, number));
        }
    }
}
