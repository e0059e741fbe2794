//! Numbers and ages of cells.

use jiff::Timestamp;
use serde_json::{Number, Value};

use super::duration;

/// The time since `time`, in words.
pub(crate) fn since(time: Timestamp, now: Timestamp) -> String {
    duration::human(now.duration_since(time))
}

/// The number of a field, 0 when absent.
pub(crate) fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

pub(crate) fn number(value: i64) -> Value {
    Value::Number(Number::from(value))
}
