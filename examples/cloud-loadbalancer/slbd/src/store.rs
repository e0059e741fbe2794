//! The state in one file.
//!
//! Each change writes a new file beside the old one, flushes it to the disk and renames it. A process that is killed at any moment
//! leaves the old file or the new one, and an answer is sent only after the rename. The state has private keys: only the owner can read
//! the file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::cloud::State;

/// The file of a state.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
}

// === impl Store ===

impl Store {
    /// The state in `path`; empty if there is no file.
    ///
    /// # Errors
    /// When the file cannot be read, or holds something else: then nothing is overwritten.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<(Self, State)> {
        let path = path.into();
        let state = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let text = format!("{} holds no state: {error}", path.display());
                io::Error::new(io::ErrorKind::InvalidData, text)
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => State::default(),
            Err(error) => {
                let text = format!("cannot read {}: {error}", path.display());
                return Err(io::Error::new(error.kind(), text));
            }
        };
        Ok((Self { path }, state))
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// When it cannot be written: then the old file is still there.
    pub fn save(&self, state: &State) -> io::Result<()> {
        let bytes = serde_json::to_vec(state)?;
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let new = Path::new(&new);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(new)?;
        // A file that a killed process left behind keeps its mode.
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(new, &self.path)?;
        let folder = self
            .path
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::{Cloud, Rules};
    use crate::parameters::Parameters;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("slbd-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let folder = folder("store");
        let path = folder.join("state.json");
        let (store, state) = Store::open(&path).unwrap();
        assert_eq!(state, State::default());
        let mut cloud = Cloud::new(Rules::default(), state);
        let call = Parameters::action("CreateLoadBalancer").with("ClientToken", "t");
        cloud.call(jiff::Timestamp::UNIX_EPOCH, &call).unwrap();
        store.save(cloud.state()).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (_, read) = Store::open(&path).unwrap();
        assert_eq!(&read, cloud.state());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_holds_something_else_is_kept() {
        let folder = folder("kept");
        let path = folder.join("state.json");
        fs::write(&path, "a letter").unwrap();
        let error = Store::open(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a letter");
        fs::remove_dir_all(folder).unwrap();
    }
}
