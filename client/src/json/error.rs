//! The error of a document that cannot be read.

use serde::de::{Error as _, IgnoredAny};
use serde_json::Error;

/// The error of a document at which the reader stopped with `error`, `at` bytes from its begin.
#[cold]
pub(super) fn explain(document: &str, at: usize, error: &Error) -> Error {
    // The syntax comes first: whatever the reader expected, a text that is not JSON has no right type.
    // From bytes: from a text serde_json assumes that each part that it cuts out is valid UTF-8.
    if let Err(syntax) = serde_json::from_slice::<IgnoredAny>(document.as_bytes()) {
        return syntax;
    }
    let text = error.to_string();
    // A value that serde_json read by itself has a place of its own.
    let problem = match text.rsplit_once(" at line ") {
        Some((problem, _)) if error.line() != 0 => problem,
        _ => &text,
    };
    located(document.as_bytes(), at, problem)
}

/// The error of a document that is not UTF-8 from `at` on.
#[cold]
pub(super) fn explain_bytes(document: &[u8], at: usize) -> Error {
    match serde_json::from_slice::<IgnoredAny>(document) {
        Err(syntax) => syntax,
        Ok(IgnoredAny) => located(document, at, "not valid UTF-8"),
    }
}

/// An error with the line and column of a place.
fn located(document: &[u8], at: usize, problem: &str) -> Error {
    let before = &document[..at.min(document.len())];
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let column = before
        .iter()
        .rev()
        .take_while(|byte| **byte != b'\n')
        .count();
    // serde_json takes the place out of the text.
    Error::custom(format_args!("{problem} at line {line} column {column}"))
}
