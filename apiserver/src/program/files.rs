//! Files that the program writes.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Writes a file that only its owner may read, also in the place of one that others may.
pub(super) fn write_private(path: &Path, content: &str) -> io::Result<()> {
    replace(path, content, &mut crate::disk::private())
}

/// Writes a file by a rename, so that no reader sees a part of it.
pub(super) fn write_at_once(path: &Path, content: &str) -> io::Result<()> {
    replace(path, content, OpenOptions::new().create(true))
}

fn replace(path: &Path, content: &str, options: &mut OpenOptions) -> io::Result<()> {
    // A device, such as /dev/stdout, is written to and not replaced.
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return fs::write(path, content);
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let written = options
        .write(true)
        .truncate(true)
        .open(&draft)
        .and_then(|mut file| file.write_all(content.as_bytes()))
        .and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Removes a file that an earlier run may have left.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
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

    #[cfg(unix)]
    #[test]
    fn a_private_file_is_private_also_in_the_place_of_another_one() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("reeve-private-{}", std::process::id()));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_private(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        remove(&path).unwrap();
        remove(&path).unwrap();
    }
}
