//! Why a patch was not applied.

use serde_json::Value;

/// The reason why a patch was not applied. Each variant is one HTTP status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// 400: the patch cannot be read.
    #[error("{0}")]
    Malformed(String),
    /// 413: too many operations.
    #[error("{0}")]
    TooLarge(String),
    /// 422: an operation does not fit the object. Real servers hide the reason and
    /// answer "the server rejected our request due to an error in our request".
    #[error("{0}")]
    Unprocessable(String),
    /// 500 without a reason: a directive or a merge key is invalid (as in real servers).
    #[error("{0}")]
    Directive(String),
}

/// The error for an unknown directive in `patch`.
pub(super) fn unknown_directive(directive: &Value, patch: &Value) -> Error {
    let shown = directive
        .as_str()
        .map_or_else(|| directive.to_string(), str::to_owned);
    Error::Directive(format!(
        "unknown patch type: {shown} in map: {}",
        go_map(patch)
    ))
}

/// The error for an item without the merge key `key`.
pub(super) fn no_merge_key(item: &Value, key: &str) -> Error {
    Error::Directive(format!(
        "map: {} does not contain declared merge key: {key}",
        go_map(item)
    ))
}

/// A value in the format of Go's `%v`: `map[a:1 b:[x y]]`.
pub(super) fn go_map(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_map).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(map) => {
            let members: Vec<String> = map
                .iter()
                .map(|(name, member)| format!("{name}:{}", go_map(member)))
                .collect();
            format!("map[{}]", members.join(" "))
        }
        other => other.to_string(),
    }
}
