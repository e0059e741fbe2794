//! Why a data directory cannot be used.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The reason why the directory cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[error("data directory: cannot {action} {path}: {source}")]
pub struct PersistError {
    action: &'static str,
    path: PathBuf,
    source: Arc<io::Error>,
}

// === impl PersistError ===

impl PersistError {
    pub(super) fn new(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self {
            action,
            path,
            source: Arc::new(source),
        }
    }

    /// For tests of a full disk.
    #[cfg(test)]
    pub(in crate::store) fn injected() -> Self {
        let source = io::Error::from(io::ErrorKind::StorageFull);
        Self::new("append to", Path::new("log.jsonl"))(source)
    }
}
