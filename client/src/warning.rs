//! Warnings in the answers of the server: deprecated versions, unknown fields, invalid names.

use std::collections::HashSet;

use http::HeaderMap;
use parking_lot::Mutex;

/// Maximum number of distinct warnings to log. Later ones are not logged.
const LIMIT: usize = 1000;

/// Logs each warning once (controller-runtime logs each time, or once with unbounded memory).
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<HashSet<String>>);

// === impl Warnings ===

impl Warnings {
    /// Logs the new warnings of an answer to `request`.
    pub(crate) fn log(&self, request: impl Fn() -> String, headers: &HeaderMap) {
        for value in headers.get_all(http::header::WARNING) {
            let Some(text) = value.to_str().ok().and_then(text_of) else {
                continue;
            };
            if self.is_new(&text) {
                let request = request();
                tracing::warn!(request, "the API server warns: {text}");
            }
        }
    }

    fn is_new(&self, text: &str) -> bool {
        let mut logged = self.0.lock();
        logged.len() < LIMIT && logged.insert(text.to_owned())
    }
}

/// The text of `299 agent "text"`, unescaped; other codes belong to HTTP caches (client-go:
/// `ParseWarningHeader`).
fn text_of(value: &str) -> Option<String> {
    let rest = value.strip_prefix("299 ")?;
    let mut characters = rest[rest.find('"')? + 1..].chars();
    let mut text = String::new();
    loop {
        match characters.next()? {
            '"' => return Some(text),
            '\\' => text.push(characters.next()?),
            // The log shows it on one line.
            character if character.is_control() => text.push(' '),
            character => text.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_read_as_client_go_reads_them() {
        for (value, text) in [
            (
                r#"299 - "unknown field \"spec.x\"""#,
                Some(r#"unknown field "spec.x""#),
            ),
            (
                r#"299 kube "a\\b" "Wed, 21 Oct 2015 07:28:00 GMT""#,
                Some(r"a\b"),
            ),
            (r#"110 - "stale""#, None),
            (r#"299 - "open"#, None),
            ("299 -", None),
        ] {
            assert_eq!(text_of(value).as_deref(), text, "{value}");
        }
    }

    #[test]
    fn each_is_reported_once_and_at_most_a_thousand_are_remembered() {
        let warnings = Warnings::default();
        assert!(warnings.is_new("a") && !warnings.is_new("a"));
        for number in 0..2 * LIMIT {
            let _ = warnings.is_new(&number.to_string());
        }
        assert_eq!(warnings.0.lock().len(), LIMIT);
    }
}
