//! Files that must be whole after a power failure, and that only their owner may read.
//!
//! A file that is written, synced and renamed over another is either the old or the new one. The rename itself is
//! durable only after its directory was synced: steps that rely on it must come after [`sync_directory`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Options for a file that only its owner may read: Secrets and keys are in it.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

/// Writes a file, completely or not at all.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = private().write(true).truncate(true).open(&draft)?;
    file.write_all(content)?;
    sync(&file)?;
    replace(&draft, path)
}

/// Moves `draft`, which is synced, to `path`, durably.
pub(crate) fn replace(draft: &Path, path: &Path) -> io::Result<()> {
    trace("rename");
    fs::rename(draft, path)?;
    match path.parent() {
        Some(directory) => sync_directory(directory),
        None => Ok(()),
    }
}

/// Makes the content of a file durable.
pub(crate) fn sync(file: &File) -> io::Result<()> {
    trace("sync file");
    file.sync_all()
}

/// Makes the content of a file durable, without its times.
pub(crate) fn sync_data(file: &File) -> io::Result<()> {
    trace("sync data");
    file.sync_data()
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    trace("sync directory");
    #[cfg(unix)]
    File::open(directory)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = directory;
    Ok(())
}

/// Removes a file.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    trace("remove");
    fs::remove_file(path)
}

#[cfg(not(test))]
fn trace(_: &'static str) {}

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::RefCell<Vec<&'static str>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[cfg(test)]
fn trace(step: &'static str) {
    STEPS.with_borrow_mut(|steps| steps.push(step));
}

/// The steps of this thread since the last call, in order.
#[cfg(test)]
pub(crate) fn steps() -> Vec<&'static str> {
    STEPS.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_synced_before_it_is_renamed_and_its_directory_after() {
        let directory = std::env::temp_dir().join(format!("reeve-disk-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("x.key");
        steps();
        write_whole(&path, b"old").unwrap();
        write_whole(&path, b"new").unwrap();
        assert_eq!(steps(), ["sync file", "rename", "sync directory"].repeat(2));
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }
}
