//! An error and its sources on one line.

use std::fmt;

/// Displays an error and its sources, separated by `: `, each text once. Made by [`error_chain`].
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(&'a (dyn std::error::Error + 'static));

/// Displays `error` and its sources on one line.
///
/// Some errors print their source themselves, others leave it to the caller. A source whose text was printed already
/// is left out.
#[must_use]
pub fn error_chain<'a>(error: &'a (dyn std::error::Error + 'static)) -> Chain<'a> {
    Chain(error)
}

// === impl Chain ===

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = self.0.to_string();
        f.write_str(&printed)?;
        let mut next = self.0.source();
        while let Some(error) = next {
            let text = error.to_string();
            if !printed.contains(&text) {
                write!(f, ": {text}")?;
                printed.push_str(&text);
            }
            next = error.source();
        }
        Ok(())
    }
}
