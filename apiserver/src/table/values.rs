//! Numbers and ages of cells.

use std::cell::Cell;
use std::ops::Range;

use jiff::Timestamp;
use serde_json::{Number, Value};

use super::duration;

/// The time that cells are computed at. It records between which times all of them show the same text.
#[derive(Debug)]
pub(crate) struct Now {
    at: Timestamp,
    from: Cell<Timestamp>,
    until: Cell<Timestamp>,
}

// === impl Now ===

impl Now {
    pub(crate) fn new(at: Timestamp) -> Self {
        Self {
            at,
            from: Cell::new(Timestamp::MIN),
            until: Cell::new(Timestamp::MAX),
        }
    }

    /// The time since `time`, in words.
    pub(crate) fn since(&self, time: Timestamp) -> String {
        let passed = self.at.duration_since(time);
        let same = duration::same_text(passed);
        let from = time.checked_add(same.start).unwrap_or(Timestamp::MIN);
        let until = time.checked_add(same.end).unwrap_or(Timestamp::MAX);
        self.from.set(self.from.get().max(from));
        self.until.set(self.until.get().min(until));
        duration::human(passed)
    }

    /// The times at which all texts that were made are the same.
    pub(crate) fn valid(&self) -> Range<Timestamp> {
        self.from.get()..self.until.get()
    }
}

/// The number of a field, 0 when absent.
pub(crate) fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

pub(crate) fn number(value: i64) -> Value {
    Value::Number(Number::from(value))
}
