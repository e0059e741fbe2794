//! The error of a document that cannot be read, and the text of an error without the values that it quotes.

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

/// The text of an error, without the values that it quotes.
pub fn redacted(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // "missing field `x`" names a field of the type, not of the document. All other errors may quote data.
    if text.starts_with("missing field") {
        return text;
    }
    let place = format!("line {} column {}", error.line(), error.column());
    let problem = match error.classify() {
        serde_json::error::Category::Data => text
            .split([':', '`', '"'])
            .next()
            .unwrap_or_default()
            .trim(),
        serde_json::error::Category::Eof => "the document ends too early",
        serde_json::error::Category::Syntax => "not valid JSON",
        serde_json::error::Category::Io => "reading failed",
    };
    // The last ", expected " is serde's own: the text after it comes from the type.
    let expected = text.rfind(", expected ").map_or("", |at| &text[at..]);
    let expected = expected.split(" at line ").next().unwrap_or_default();
    format!("{problem}{expected} at {place}")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;

    use super::*;

    #[test]
    fn an_error_says_what_was_expected_and_never_what_was_there() {
        let document = r#"{"metadata":{"name":"s"},"data":"hunter2, expected nothing"}"#;
        let error = serde_json::from_str::<Secret>(document).unwrap_err();
        assert!(
            error.to_string().contains("hunter2"),
            "else the test proves nothing"
        );
        let text = redacted(&error);
        assert!(!text.contains("hunter2"), "{text}");
        assert!(
            text.contains("invalid type, expected a map at line 1"),
            "{text}"
        );
    }
}
