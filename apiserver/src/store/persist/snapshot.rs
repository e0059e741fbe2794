//! A snapshot of all objects in one file, which replaces the earlier logs.

use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use super::format::{Head, Line, encode, encode_write};
use super::{Frozen, PersistError, logs};
use crate::disk::{self, Appended};

/// A snapshot before it is written.
pub(super) struct Snapshot {
    pub(super) directory: PathBuf,
    pub(super) reserved: u64,
    pub(super) frozen: Frozen,
    /// Logs with smaller numbers are replaced.
    pub(super) below: u64,
}

/// The path of the snapshot in a directory.
pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join("snapshot.jsonl")
}

// === impl Snapshot ===

impl Snapshot {
    /// Writes it, and removes the replaced logs once it is durable.
    pub(super) fn write(self) -> Result<(), PersistError> {
        let path = path(&self.directory);
        let draft = self.directory.join("snapshot.jsonl.new");
        if let Err(error) = self.write_draft(&draft) {
            // On a full disk it has the last free space.
            let _ = disk::remove(&draft);
            return Err(PersistError::new("write", &draft)(error));
        }
        disk::replace(&draft, &path).map_err(PersistError::new("rename", &draft))?;
        for (number, path) in logs(&self.directory)? {
            if number < self.below {
                disk::remove(&path).map_err(PersistError::new("remove", &path))?;
            }
        }
        Ok(())
    }

    fn write_draft(&self, draft: &Path) -> io::Result<()> {
        let mut writer = BufWriter::new(Appended::create(draft)?);
        let frozen = &self.frozen;
        let head = Head::new(frozen.revision, self.reserved, Some(frozen.objects()));
        writer.write_all(&encode(&head)?)?;
        let mut lines = Vec::new();
        for (storage, objects) in &frozen.tables {
            for (key, object) in objects.iter() {
                let line = Line {
                    version: object.version(),
                    storage,
                    key,
                    object: Some(object),
                };
                lines.clear();
                encode_write(&line, &mut lines)?;
                writer.write_all(&lines)?;
            }
        }
        let file = writer
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        file.sync()
    }
}
