//! The result of the last read of a file.

use std::path::Path;

use super::Error;

/// The result of the last read, so that nothing is done or logged twice.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) in_use: [u8; 32],
    pub(super) problem: Option<String>,
}

// === impl Seen ===

impl Seen {
    /// Logs the result of a read of `path`, and each problem once.
    pub(super) fn log(&mut self, path: &Path, result: Result<bool, Error>) {
        match result {
            Ok(changed) => {
                if changed {
                    tracing::info!(certificate = %path.display(), "another certificate is in use");
                }
                self.problem = None;
            }
            Err(error) => {
                let problem = error.to_string();
                if self.problem.as_ref() != Some(&problem) {
                    tracing::warn!(
                        error = problem,
                        "the certificate was not renewed; the one in use stays"
                    );
                    self.problem = Some(problem);
                }
            }
        }
    }
}
