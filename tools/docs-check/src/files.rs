//! The files that git tracks.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All tracked files, by their paths from the top directory.
pub(crate) struct Files {
    top: PathBuf,
    paths: BTreeSet<String>,
}

// === impl Files ===

impl Files {
    /// The tracked files of this repository.
    pub(crate) fn tracked() -> Result<Self, Box<dyn Error>> {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let listed = Command::new("git")
            .current_dir(&top)
            .args(["ls-files", "-z"])
            .output()?;
        if !listed.status.success() {
            return Err(String::from_utf8_lossy(&listed.stderr).into());
        }
        let listed = String::from_utf8(listed.stdout)?;
        let exists = |path: &&str| !path.is_empty() && top.join(path).is_file();
        let paths = listed.split('\0').filter(exists).map(str::to_owned);
        Ok(Self {
            paths: paths.collect(),
            top,
        })
    }

    /// Files of a test.
    #[cfg(test)]
    pub(crate) fn named(paths: &[&str]) -> Self {
        Self {
            top: PathBuf::new(),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        }
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// Whether it is a tracked file, or a directory with one.
    pub(crate) fn has(&self, path: &str) -> bool {
        let directory = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self.paths.contains(path)
            || self
                .paths
                .range(directory.clone()..)
                .next()
                .is_some_and(|next| next.starts_with(&directory))
    }

    /// Whether the path of a tracked file is or ends with these segments.
    pub(crate) fn has_end(&self, end: &str) -> bool {
        self.paths().any(|path| {
            path.strip_suffix(end)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        })
    }

    /// The text of a file; `None` if it is not text.
    pub(crate) fn text(&self, path: &str) -> Result<Option<String>, Box<dyn Error>> {
        let bytes = std::fs::read(self.top.join(path))?;
        Ok(String::from_utf8(bytes).ok())
    }
}
