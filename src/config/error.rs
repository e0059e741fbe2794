//! The errors of a ConfigMap: every key and line at once, so that one edit corrects them.

use std::fmt;

/// One error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// The key.
    pub key: String,
    /// The line in its text, from 1, where there are several.
    pub line: Option<usize>,
    /// The cause, and what to write.
    pub message: String,
}

/// All errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors(pub Vec<KeyError>);

// === impl KeyError ===

impl fmt::Display for KeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "{}, line {line}: {}", self.key, self.message),
            None => write!(formatter, "{}: {}", self.key, self.message),
        }
    }
}

// === impl Errors ===

impl Errors {
    pub(super) fn add(&mut self, key: &str, line: Option<usize>, message: impl fmt::Display) {
        self.0.push(KeyError {
            key: key.to_owned(),
            line,
            message: message.to_string(),
        });
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, error) in self.0.iter().enumerate() {
            if position > 0 {
                formatter.write_str("; ")?;
            }
            // An Event holds a kilobyte; the first errors are the ones that help.
            if position == 5 {
                return write!(formatter, "and {} more", self.0.len() - 5);
            }
            write!(formatter, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}
