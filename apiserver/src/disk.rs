//! Files that must be whole after a power failure, and that only their owner may read.
//!
//! A file that is written, synced and renamed over another is either the old or the new one. The rename itself is
//! durable only after its directory was synced: steps that rely on it must come after [`sync_directory`].

#[cfg(test)]
pub(crate) mod simulated;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is written at its end.
#[derive(Debug)]
pub(crate) struct Appended {
    file: File,
    path: PathBuf,
}

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
    let mut file = Appended::create(&draft)?;
    file.write_all(content)?;
    file.sync()?;
    replace(&draft, path)
}

/// Moves `draft`, which is synced, to `path`, durably.
pub(crate) fn replace(draft: &Path, path: &Path) -> io::Result<()> {
    trace("rename");
    #[cfg(test)]
    simulated::renamed(draft, path);
    fs::rename(draft, path)?;
    match path.parent() {
        Some(directory) => sync_directory(directory),
        None => Ok(()),
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    trace("sync directory");
    #[cfg(unix)]
    File::open(directory)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = directory;
    #[cfg(test)]
    simulated::synced_directory(directory);
    Ok(())
}

/// Removes a file.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    trace("remove");
    #[cfg(test)]
    simulated::note(path, simulated::Step::Remove);
    fs::remove_file(path)
}

// === impl Appended ===

impl Appended {
    /// Opens a file, and creates it if it is absent.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = private().append(true).open(path)?;
        Ok(Self::of(file, path))
    }

    /// Creates a file, or empties it.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = private().write(true).truncate(true).open(path)?;
        let file = Self::of(file, path);
        #[cfg(test)]
        simulated::note(path, simulated::Step::Cut(0));
        Ok(file)
    }

    fn of(file: File, path: &Path) -> Self {
        #[cfg(test)]
        simulated::note(path, simulated::Step::Open);
        let path = path.to_owned();
        Self { file, path }
    }

    /// Where it was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Cuts off what is behind `length`.
    pub(crate) fn cut(&self, length: u64) -> io::Result<()> {
        #[cfg(test)]
        simulated::check(&self.path, |failing| failing.cut)?;
        self.file.set_len(length)?;
        #[cfg(test)]
        simulated::note(&self.path, simulated::Step::Cut(length));
        Ok(())
    }

    /// Makes the content durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        trace("sync file");
        #[cfg(test)]
        simulated::check(&self.path, |failing| failing.sync)?;
        self.file.sync_all()?;
        #[cfg(test)]
        simulated::note(&self.path, simulated::Step::Sync);
        Ok(())
    }

    /// Makes the content durable, without the times of the file.
    pub(crate) fn sync_data(&self) -> io::Result<()> {
        trace("sync data");
        #[cfg(test)]
        simulated::check(&self.path, |failing| failing.sync)?;
        self.file.sync_data()?;
        #[cfg(test)]
        simulated::note(&self.path, simulated::Step::Sync);
        Ok(())
    }

    /// Writes to a device that is always full, or to the file again.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn fill(&mut self, full: bool) {
        let path = if full {
            Path::new("/dev/full")
        } else {
            &self.path
        };
        self.file = OpenOptions::new().append(true).open(path).unwrap();
    }
}

impl Write for Appended {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(test)]
        let bytes = simulated::room(&self.path, bytes)?;
        let written = self.file.write(bytes)?;
        #[cfg(test)]
        simulated::note(
            &self.path,
            simulated::Step::Append(bytes[..written].to_vec()),
        );
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
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
