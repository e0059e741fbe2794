//! Files that the program writes.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Writes a file that only its owner may read.
pub(super) fn write_private(path: &Path, content: &str) -> io::Result<()> {
    let mut file = crate::disk::private()
        .write(true)
        .truncate(true)
        .open(path)?;
    file.write_all(content.as_bytes())
}

/// Writes a file by a rename, so that no reader sees a part of it.
pub(super) fn write_at_once(path: &Path, content: &str) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let written = std::fs::write(&draft, content).and_then(|()| std::fs::rename(&draft, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&draft);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_no_draft_stays() {
        let folder = std::env::temp_dir().join(format!("reeve-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("port");
        for content in ["1\n", "2\n"] {
            write_at_once(&path, content).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        // A folder cannot be replaced by a file.
        std::fs::create_dir(folder.join("taken")).unwrap();
        write_at_once(&folder.join("taken"), "3\n").unwrap_err();
        let mut names: Vec<_> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["port", "taken"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
