//! Warnings of an answer: texts of `Warning` headers, collected while a request is handled.
//!
//! (apiserver: `filters.WithWarningRecorder`.)

use std::sync::Arc;

use http::HeaderValue;
use parking_lot::Mutex;

/// Maximum length of all texts together, in characters. Beyond it each is cut and the last are left out.
const LONGEST_TOGETHER: usize = 4 * 1024;
/// Length of a cut text, in characters.
const CUT_TO: usize = 256;

/// The warnings of one request; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

// === impl Warnings ===

impl Warnings {
    /// Adds `text` once: a write that is retried adds it again.
    pub(crate) fn add(&self, text: impl Into<String>) {
        let text = text.into();
        let mut texts = self.0.lock();
        if !text.is_empty() && !texts.contains(&text) {
            texts.push(text);
        }
    }

    /// Adds each text.
    pub(crate) fn extend(&self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            self.add(text);
        }
    }

    /// The headers, in the order of the warnings. Characters that are invalid in a header are left out.
    pub(crate) fn headers(&self) -> Vec<HeaderValue> {
        let texts = self.0.lock();
        let together: usize = texts.iter().map(|text| text.chars().count()).sum();
        let cut_to = if together > LONGEST_TOGETHER {
            CUT_TO
        } else {
            usize::MAX
        };
        let mut length = 0;
        let mut headers = Vec::new();
        for text in texts.iter() {
            if length >= LONGEST_TOGETHER {
                break;
            }
            let text: String = text.chars().take(cut_to).collect();
            if let Some(header) = header(&text) {
                length += text.chars().count();
                headers.push(header);
            }
        }
        headers
    }
}

fn header(text: &str) -> Option<HeaderValue> {
    if text.chars().any(char::is_control) {
        return None;
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_bytes(format!("299 - \"{escaped}\"").as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(texts: &[&str]) -> Vec<String> {
        let warnings = Warnings::default();
        warnings.extend(texts.iter().map(|&text| text.to_owned()));
        let headers = warnings.headers();
        headers
            .iter()
            .map(|header| String::from_utf8_lossy(header.as_bytes()).into_owned())
            .collect()
    }

    #[test]
    fn a_warning_is_said_once_and_quoted() {
        assert_eq!(
            headers(&["a \"b\" \\c", "ü", "a \"b\" \\c", "", "not\nthis"]),
            [r#"299 - "a \"b\" \\c""#, r#"299 - "ü""#]
        );
    }

    #[test]
    fn too_many_are_cut_and_the_last_left_out() {
        let long: Vec<String> = (0..30)
            .map(|at| format!("{at}{}", "x".repeat(300)))
            .collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let whole = headers(&long[..13]);
        assert!(whole.len() == 13 && whole[0].len() > 300);
        let cut = headers(&long);
        assert_eq!(cut.len(), 16);
        assert!(
            cut.iter()
                .all(|header| header.len() == "299 - \"\"".len() + 256)
        );
    }
}
