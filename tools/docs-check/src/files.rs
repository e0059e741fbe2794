//! The files that git tracks.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All tracked files, by their paths from the top directory.
pub(crate) struct Files {
    top: PathBuf,
    paths: BTreeSet<String>,
    /// Symbolic links, whose targets are in `paths` themselves.
    links: BTreeSet<String>,
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
        let linked = |path: &&str| top.join(path).is_symlink();
        let all = listed
            .split('\0')
            .filter(|path| exists(path) || linked(path));
        let (links, paths): (Vec<_>, Vec<_>) = all.partition(linked);
        Ok(Self {
            paths: paths.into_iter().map(str::to_owned).collect(),
            links: links.into_iter().map(str::to_owned).collect(),
            top,
        })
    }

    /// Files of a test.
    #[cfg(test)]
    pub(crate) fn named(paths: &[&str]) -> Self {
        Self {
            top: PathBuf::new(),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            links: BTreeSet::new(),
        }
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// Whether it exists, and is a symbolic link or in a directory that is one.
    fn is_linked(&self, path: &str) -> bool {
        let mut parts = Path::new(path).ancestors().filter_map(Path::to_str);
        parts.any(|part| self.links.contains(part)) && self.top.join(path).exists()
    }

    /// Whether it is a tracked file, or a directory with one.
    pub(crate) fn has(&self, path: &str) -> bool {
        let directory = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self.paths.contains(path)
            || self.is_linked(path)
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
