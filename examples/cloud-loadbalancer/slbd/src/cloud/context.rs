//! What actions have in common.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::refusal::Refusal;
use super::rules::Rules;

/// What an action knows besides the state and its parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) rules: &'a Rules,
    pub(super) now: Timestamp,
    /// The name of the action.
    pub(super) action: &'a str,
}

/// The answer of an action, without the id of the request.
pub(super) type Answered = Result<Map<String, Value>, Refusal>;

/// An object as a map.
pub(super) fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// A time as the API writes it: minutes, in UTC.
pub(super) fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%MZ").to_string()
}
