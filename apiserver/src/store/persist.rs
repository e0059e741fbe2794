//! The store on disk: a log of JSON lines and, now and then, a snapshot that replaces it.
//!
//! Each write appends one line to `log.jsonl` and hands it to the operating system before the write
//! is answered; so a process killed at any moment loses nothing that it answered. Lines are synced to
//! the disk itself with each snapshot and at shutdown only: a power failure may lose the last writes.
//! A torn last line, from a kill in the middle of a write, was never answered and is cut off.
//!
//! `snapshot.jsonl` is written beside the old one, synced and renamed, and names the version it holds;
//! log lines up to that version are skipped, so a kill between the rename and the new log is harmless.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Key, Object};

/// A snapshot replaces the log when that has this many lines more than the snapshot has objects.
const SNAPSHOT_AFTER_LINES: usize = 20_000;

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("data directory: cannot {action} {path}: {source}")]
pub struct PersistError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// What was found on disk.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) revision: u64,
    pub(super) tables: BTreeMap<String, BTreeMap<Key, Value>>,
}

/// The open log.
pub(super) struct Log {
    directory: PathBuf,
    file: File,
    /// Held while the directory is in use; the system lets go of it when the process ends.
    _lock: File,
    lines: usize,
    objects: usize,
}

#[derive(Serialize, Deserialize)]
struct Line<'a> {
    version: u64,
    storage: std::borrow::Cow<'a, str>,
    key: std::borrow::Cow<'a, str>,
    /// Absent for a removal; and in the head of a snapshot, whose `storage` is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<std::borrow::Cow<'a, Value>>,
}

// === impl PersistError ===

impl PersistError {
    fn new(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self {
            action,
            path,
            source,
        }
    }
}

// === impl Log ===

impl Log {
    /// Opens `directory`, made if need be, and reads what it holds.
    pub(super) fn open(directory: &Path) -> Result<(Self, Found), PersistError> {
        fs::create_dir_all(directory).map_err(PersistError::new("create", directory))?;
        let lock = lock(directory)?;
        let mut found = Found::default();
        let snapshot = directory.join("snapshot.jsonl");
        if snapshot.exists() {
            read_lines(&snapshot, &mut found, 0)?;
        }
        let floor = found.revision;
        let objects = found.tables.values().map(BTreeMap::len).sum();
        let path = directory.join("log.jsonl");
        let (mut lines, mut whole) = (0, 0);
        if path.exists() {
            (lines, whole) = read_lines(&path, &mut found, floor)?;
        }
        let file = private()
            .append(true)
            .open(&path)
            .map_err(PersistError::new("open", &path))?;
        file.set_len(whole)
            .map_err(PersistError::new("repair", &path))?;
        let log = Self {
            directory: directory.to_owned(),
            file,
            _lock: lock,
            lines,
            objects,
        };
        Ok((log, found))
    }

    /// Appends one write.
    pub(super) fn append(
        &mut self,
        version: u64,
        storage: &str,
        key: &Key,
        value: Option<&Value>,
    ) -> Result<(), PersistError> {
        let line = Line {
            version,
            storage: storage.into(),
            key: key.as_str().into(),
            value: value.map(std::borrow::Cow::Borrowed),
        };
        let path = self.directory.join("log.jsonl");
        let before = self
            .file
            .metadata()
            .map_err(PersistError::new("read", &path))?
            .len();
        let mut bytes = serde_json::to_vec(&line)
            .map_err(|error| PersistError::new("encode", &path)(error.into()))?;
        bytes.push(b'\n');
        if let Err(error) = self.file.write_all(&bytes) {
            // A disk that is full leaves half a line; the next write must not follow it.
            let _ = self.file.set_len(before);
            return Err(PersistError::new("append to", &path)(error));
        }
        self.lines += 1;
        Ok(())
    }

    /// Whether the log is long enough to be replaced.
    pub(super) fn wants_snapshot(&self) -> bool {
        self.lines > self.objects + SNAPSHOT_AFTER_LINES
    }

    /// Writes everything as it is now, synced, and starts the log anew.
    pub(super) fn snapshot(
        &mut self,
        revision: u64,
        tables: &BTreeMap<&str, &BTreeMap<Key, Arc<Object>>>,
    ) -> Result<(), PersistError> {
        let draft = self.directory.join("snapshot.jsonl.new");
        let path = self.directory.join("snapshot.jsonl");
        let mut objects = 0;
        {
            let file = private()
                .write(true)
                .truncate(true)
                .open(&draft)
                .map_err(PersistError::new("create", &draft))?;
            let mut writer = BufWriter::new(file);
            let mut put = |line: &Line<'_>| -> io::Result<()> {
                serde_json::to_writer(&mut writer, line)?;
                writer.write_all(b"\n")
            };
            let failed = || PersistError::new("write", &draft);
            put(&Line {
                version: revision,
                storage: "".into(),
                key: "".into(),
                value: None,
            })
            .map_err(failed())?;
            for (storage, table) in tables {
                for (key, object) in *table {
                    objects += 1;
                    put(&Line {
                        version: object.version(),
                        storage: (*storage).into(),
                        key: key.as_str().into(),
                        value: Some(std::borrow::Cow::Borrowed(object.value())),
                    })
                    .map_err(failed())?;
                }
            }
            let file = writer
                .into_inner()
                .map_err(|error| failed()(error.into_error()))?;
            file.sync_all().map_err(failed())?;
        }
        fs::rename(&draft, &path).map_err(PersistError::new("rename", &draft))?;
        let log = self.directory.join("log.jsonl");
        self.file
            .set_len(0)
            .map_err(PersistError::new("empty", &log))?;
        self.file
            .sync_all()
            .map_err(PersistError::new("sync", &log))?;
        self.lines = 0;
        self.objects = objects;
        Ok(())
    }
}

/// Options for a file that only its owner may read: Secrets are in it.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

/// Keeps other processes, and other servers of this one, out of the directory.
fn lock(directory: &Path) -> Result<File, PersistError> {
    let path = directory.join("lock");
    let file = File::create(&path).map_err(PersistError::new("create", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            let in_use = io::Error::other("the directory is in use by another server");
            Err(PersistError::new("lock", &path)(in_use))
        }
        Err(fs::TryLockError::Error(source)) => Err(PersistError::new("lock", &path)(source)),
    }
}

/// Applies the lines of `path` above `floor`; returns their number and the length of the whole ones.
fn read_lines(path: &Path, found: &mut Found, floor: u64) -> Result<(usize, u64), PersistError> {
    let file = File::open(path).map_err(PersistError::new("open", path))?;
    let mut reader = BufReader::new(file);
    let (mut lines, mut whole) = (0, 0);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = reader
            .read_until(b'\n', &mut bytes)
            .map_err(PersistError::new("read", path))?;
        if read == 0 || bytes.last() != Some(&b'\n') {
            break;
        }
        let line: Line<'_> = match serde_json::from_slice(&bytes) {
            Ok(line) => line,
            Err(error) => {
                return Err(PersistError::new("understand a line of", path)(
                    error.into(),
                ));
            }
        };
        whole += read as u64;
        lines += 1;
        if line.storage.is_empty() {
            found.revision = found.revision.max(line.version);
            continue;
        }
        if line.version <= floor && floor > 0 {
            continue;
        }
        found.revision = found.revision.max(line.version);
        let key = Key::from(&*line.key);
        match line.value {
            Some(value) => {
                found
                    .tables
                    .entry(line.storage.into_owned())
                    .or_default()
                    .insert(key, value.into_owned());
            }
            None => {
                if let Some(table) = found.tables.get_mut(&*line.storage) {
                    table.remove(&key);
                }
            }
        }
    }
    Ok((lines, whole))
}
