//! When claims end: the alarms, which bring each due block its lift.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::Notify;

use super::Coverage;

// === impl Coverage ===

impl Coverage {
    /// The blocks whose claims ended by `now`, the earliest first, each once: a due ban is lifted before new ones are
    /// made, however many of those wait.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<Arc<str>> {
        let mut due = Vec::new();
        while let Some(first) = self.alarms.pop_first() {
            if first.0 > now {
                self.alarms.insert(first);
                break;
            }
            due.push(first.1);
        }
        due
    }

    /// The earliest time that [`Coverage::take_due`] waits for, and the notification of its changes.
    #[must_use]
    pub fn next_due(&self) -> (Option<Timestamp>, Arc<Notify>) {
        let next = self.alarms.first().map(|(at, _)| *at);
        (next, Arc::clone(&self.changed))
    }

    /// Sets the alarms of all claims again: the clock was set, and a past end may lie ahead.
    pub fn rearm(&mut self) {
        let ends = self
            .claims
            .iter()
            .filter_map(|(key, claim)| Some((claim.until?, key)));
        self.alarms
            .extend(ends.map(|(until, key)| (until, Arc::clone(key))));
        self.changed.notify_one();
    }

    pub(super) fn arm(&mut self, key: Arc<str>, at: Option<Timestamp>) {
        let Some(at) = at else { return };
        if self.alarms.first().is_none_or(|(first, _)| at < *first) {
            self.changed.notify_one();
        }
        self.alarms.insert((at, key));
    }

    pub(super) fn disarm(&mut self, key: &Arc<str>, at: Option<Timestamp>) {
        if let Some(at) = at {
            self.alarms.remove(&(at, Arc::clone(key)));
        }
    }
}
