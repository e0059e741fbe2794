//! The directory of a control plane.

use std::path::PathBuf;

use super::error::Error;

/// The directory of data and logs, removed when dropped unless something failed.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) keep: bool,
}

// === impl Directory ===

impl Directory {
    /// Creates a directory of its own for each control plane.
    pub(super) fn new() -> Result<Self, Error> {
        let unique = reeve_clock::Clock::system().random().next_u64();
        let path = std::env::temp_dir().join(format!(
            "reeve-control-plane-{}-{unique:016x}",
            std::process::id()
        ));
        let prepare = |source| Error::Prepare {
            what: path.display().to_string(),
            source,
        };
        std::fs::create_dir_all(&path).map_err(prepare)?;
        Ok(Self { path, keep: false })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.keep || std::thread::panicking() {
            tracing::warn!(directory = %self.path.display(), "data and logs of the control plane are kept");
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(directory = %self.path.display(), %error, "cannot remove the control plane's data");
        }
    }
}
