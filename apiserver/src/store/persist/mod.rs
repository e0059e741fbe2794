//! The store on disk: logs of lines and, now and then, a snapshot that replaces them.
//!
//! Each write appends one line to the newest log, and each batch of writes is synced before it is answered: neither a
//! killed process nor a power failure loses an answered write. Without synced writes (`--unsafe-no-fsync`) a line is
//! passed to the operating system before the write is answered, and logs are synced with each snapshot and at shutdown
//! only: a kill loses nothing, a power failure may lose the last writes. Their versions are not used again, because
//! versions are reserved in blocks and each block is synced before its first version is used.
//!
//! No writer waits for a snapshot. A thread makes the next log, durably; then lines go there, and a thread syncs the log
//! before and writes the earlier objects. A power failure meanwhile may keep lines of the new log and lose earlier ones:
//! the head of the new log says where the log before ended, and a log that follows lost lines is removed, so that no write
//! is there without those before it. So a log that is removed must hold nothing that was promised: before a block of
//! versions or a synced write goes to a log, the logs before it are synced. The snapshot is synced, renamed, and its
//! directory synced; only then the replaced logs are removed. Lines up to the snapshot's version are skipped, so a kill in
//! between is harmless.
//!
//! A write that the disk refuses is cut off, and the cut is synced; as long as that fails, all writes are refused. Its
//! version is not used again, because its line may be found all the same after a kill.
//!
//! A directory of an older format is migrated when it is opened: a snapshot of all objects is written and renamed as any
//! other, which replaces all older files, before a log of the new format begins. So a kill leaves the old files, or the
//! new snapshot with some of them; both are read, and migrated again. A directory of a newer format is refused.
//!
//! Recovery: data behind the last whole line of a log was never answered, or lost its sync; it is cut off. A power failure
//! may lose pages of a log that was not synced before others, which are zeroes then: the log is cut off at the first zero,
//! because a store without one write and with a later one never existed. Any other damaged line before a whole one is refused, with
//! the file, the line and the remedies.

mod background;
mod directory;
mod error;
mod format;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::map::Map;
use super::object::{Key, Object, shared};
use crate::disk::{self, Appended};
use background::{Background, Replaces};
pub(super) use directory::Directory;
use directory::DirectoryLock;
pub use error::PersistError;
pub(super) use format::Line;
use format::{End, Head, encode, encode_write};
use snapshot::Snapshot;

/// A snapshot replaces the logs when they have this many lines more than the snapshot has objects.
const SNAPSHOT_AFTER_LINES: usize = 20_000;
/// Number of further lines before a failed snapshot is retried.
const RETRY_AFTER_LINES: usize = 1_000;
/// Number of versions in a block: each costs a sync, and a start after a kill skips the rest of one.
const RESERVED_AHEAD: u64 = 100_000;

/// The `apiVersion` of the objects of a storage in a format that does not have it; empty if that is not known.
pub(crate) type FormerVersion<'a> = &'a dyn Fn(&str, &Found) -> String;

/// The content of the disk.
#[derive(Debug)]
pub(crate) struct Found {
    pub(super) revision: u64,
    /// Versions up to this one may have been used.
    pub(super) reserved: u64,
    pub(super) tables: BTreeMap<String, BTreeMap<Key, Content>>,
    /// The `apiVersion`s of the objects.
    pub(super) api_versions: BTreeSet<Arc<str>>,
    /// The oldest format of a file.
    oldest: u32,
}

/// The content of an object on disk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// Empty if it is not known.
    pub(super) api_version: Arc<str>,
    pub(super) json: Bytes,
}

/// All objects at one version.
pub(super) struct Frozen {
    pub(super) revision: u64,
    pub(super) tables: BTreeMap<String, Map<Arc<Object>>>,
}

/// The open directory.
pub(super) struct Log {
    background: Background,
    directory: PathBuf,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "it is held until it is dropped")
    )]
    lock: DirectoryLock,
    /// The newest log, which lines are appended to.
    file: Appended,
    number: u64,
    /// The end of its last whole line.
    end: u64,
    /// Logs before it that may not be synced yet, at most one for each snapshot that failed within a block of versions.
    ended: Vec<Arc<Appended>>,
    /// Whether each write is synced.
    synced: bool,
    /// A write failed and left data behind that, which could not be cut off.
    torn: bool,
    /// Versions up to this one may be those of lines that were refused, and found all the same after a kill.
    refused: u64,
    /// Versions up to this one may be used.
    reserved: u64,
    /// Lines in all logs, and objects in the snapshot.
    lines: usize,
    objects: usize,
    /// After a failure no snapshot is tried before there are this many lines.
    not_before: usize,
    /// Number of times that a snapshot was due.
    #[cfg(test)]
    pub(super) attempts: usize,
}

// === impl Frozen ===

impl Frozen {
    fn objects(&self) -> usize {
        self.tables.values().map(Map::len).sum()
    }
}

// === impl Found ===

impl Default for Found {
    fn default() -> Self {
        Self {
            revision: 0,
            reserved: 0,
            tables: BTreeMap::new(),
            api_versions: BTreeSet::new(),
            oldest: format::NEWEST,
        }
    }
}

impl Found {
    /// The content of an object, without its type.
    pub(crate) fn object(&self, storage: &str, key: &str) -> Option<Value> {
        serde_json::from_slice(&self.tables.get(storage)?.get(key)?.json).ok()
    }

    /// Sets the `apiVersion` of all objects that have none.
    pub(super) fn set_versions(&mut self, former: FormerVersion<'_>) {
        let storages: Vec<String> = self.tables.keys().cloned().collect();
        for storage in storages {
            let api_version = former(&storage, self);
            let api_version = shared(&mut self.api_versions, &api_version);
            let objects = self.tables.get_mut(&storage).into_iter().flatten();
            for (_, content) in objects.filter(|(_, content)| content.api_version.is_empty()) {
                content.api_version = api_version.clone();
            }
        }
    }
}

// === impl Log ===

impl Log {
    /// Syncs each write, from now on and those before.
    pub(super) fn sync_writes(&mut self, synced: bool) -> Result<(), PersistError> {
        self.synced = synced;
        if synced {
            self.sync_ended()?;
            self.file
                .sync()
                .map_err(PersistError::new("sync", self.file.path()))?;
            self.sync_directory()?;
        }
        Ok(())
    }

    /// Versions up to this one are not used by later writes, because refused ones had them.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Appends writes, all or none.
    pub(super) fn append(&mut self, writes: &[Line<'_>]) -> Result<(), PersistError> {
        let appended = self.try_append(writes);
        if let (Err(_), Some(last)) = (&appended, writes.last()) {
            self.refused = self.refused.max(last.version);
        }
        appended
    }

    fn try_append(&mut self, writes: &[Line<'_>]) -> Result<(), PersistError> {
        let (Some(first), Some(last)) = (writes.first(), writes.last()) else {
            return Ok(());
        };
        if last.version > self.reserved {
            self.reserve(first.version, last.version)?;
        }
        let mut lines = Vec::new();
        for write in writes {
            encode_write(write, &mut lines)
                .map_err(PersistError::new("encode a line of", self.file.path()))?;
        }
        self.put(&lines, self.synced)?;
        self.lines += writes.len();
        Ok(())
    }

    /// Syncs the logs before the newest one: if a power failure loses the end of one, all later ones are removed.
    fn sync_ended(&mut self) -> Result<(), PersistError> {
        for ended in &self.ended {
            ended
                .sync_data()
                .map_err(PersistError::new("sync", ended.path()))?;
        }
        self.ended.clear();
        Ok(())
    }

    fn sync_directory(&self) -> Result<(), PersistError> {
        disk::sync_directory(&self.directory).map_err(PersistError::new("sync", &self.directory))
    }

    /// Reserves versions from `first` to `last` and a block behind them, durably.
    fn reserve(&mut self, first: u64, last: u64) -> Result<(), PersistError> {
        let reserved = last.saturating_add(RESERVED_AHEAD);
        self.sync_ended()?;
        let end = self.end;
        self.put_head(&Head::new(first.saturating_sub(1), reserved, None))?;
        if let Err(error) = self.file.sync() {
            self.take_back(end);
            return Err(PersistError::new("sync", self.file.path())(error));
        }
        self.sync_directory()?;
        self.reserved = reserved;
        Ok(())
    }

    fn put_head(&mut self, head: &Head) -> Result<(), PersistError> {
        let head = encode(head).map_err(PersistError::new("encode a line of", self.file.path()))?;
        self.put(&head, false)
    }

    /// Cuts off what a failed write left: its lines were refused.
    fn repair(&mut self) -> Result<(), PersistError> {
        if self.torn {
            // Without the sync a power failure might mix what is cut off with what follows.
            let cut = self.file.cut(self.end).and_then(|()| self.file.sync());
            cut.map_err(PersistError::new("repair", self.file.path()))?;
            self.torn = false;
        }
        Ok(())
    }

    /// Cuts off what a write that failed has left behind `end`; if that fails too, no line is appended before it works.
    fn take_back(&mut self, end: u64) {
        (self.end, self.torn) = (end, true);
        if let Err(error) = self.repair() {
            tracing::warn!(%error, "a refused write may be in the log: writes are refused until it can be cut off");
        }
    }

    /// Appends lines. Failed ones leave no data that would precede the next one.
    fn put(&mut self, bytes: &[u8], sync: bool) -> Result<(), PersistError> {
        self.repair()?;
        if sync {
            self.sync_ended()?;
        }
        if let Err(error) = self.file.write_all(bytes) {
            // A full disk leaves half a line.
            self.take_back(self.end);
            return Err(PersistError::new("append to", self.file.path())(error));
        }
        if sync && let Err(error) = self.file.sync_data() {
            // What is on the disk now is not known, and no answer may rely on it.
            self.take_back(self.end);
            return Err(PersistError::new("sync", self.file.path())(error));
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Whether the logs are long enough to be replaced, and the next log is there. A thread makes it before.
    pub(super) fn wants_snapshot(&mut self) -> bool {
        if self.background.has_ended() {
            // A failure was logged by the thread.
            let _ = self.wait();
        }
        let is_due =
            self.lines > self.objects + SNAPSHOT_AFTER_LINES && self.lines >= self.not_before;
        if is_due && self.background.is_idle() {
            #[cfg(test)]
            {
                self.attempts += 1;
            }
            match Background::prepare(&self.next_path()) {
                Ok(preparing) => self.background = preparing,
                Err(error) => self.put_off(&error),
            }
        }
        is_due && self.background.is_prepared()
    }

    fn next_path(&self) -> PathBuf {
        log_path(&self.directory, self.number + 1)
    }

    /// Tries the next snapshot some lines later.
    fn put_off(&mut self, error: &PersistError) {
        tracing::warn!(%error, "could not begin a snapshot of the store: the log keeps growing");
        self.not_before = self.lines + RETRY_AFTER_LINES;
    }

    /// Continues in a new log, and writes the current objects in a thread.
    pub(super) fn begin_snapshot(&mut self, frozen: Frozen) -> Result<(), PersistError> {
        // An earlier failure was logged, and this snapshot replaces more.
        let _ = self.wait();
        let result = self.try_begin_snapshot(frozen);
        if result.is_err() {
            self.not_before = self.lines + RETRY_AFTER_LINES;
        }
        result
    }

    fn try_begin_snapshot(&mut self, mut frozen: Frozen) -> Result<(), PersistError> {
        self.repair()?;
        // Lines of refused writes are not those of later ones.
        frozen.revision = frozen.revision.max(self.refused);
        let (number, path) = (self.number + 1, self.next_path());
        let mut next = match std::mem::take(&mut self.background) {
            Background::Prepared(file) => file,
            _ => background::prepare(&path)?,
        };
        let follows = End {
            log: self.number,
            at: self.end,
        };
        let head = Head::new(frozen.revision, self.reserved, None);
        let head = encode(&head.after(Some(follows)));
        let head = head.map_err(PersistError::new("encode a line of", &path))?;
        if let Err(error) = next.write_all(&head) {
            // Lines go on in the log before, which has to be the newest. If the file stays, the next attempt takes it.
            let _ = disk::remove(&path);
            return Err(PersistError::new("begin", &path)(error));
        }
        let ended = Arc::new(std::mem::replace(&mut self.file, next));
        self.ended.push(Arc::clone(&ended));
        (self.number, self.end) = (number, head.len() as u64);
        let replaces = Replaces {
            lines: self.lines,
            objects: frozen.objects(),
        };
        let snapshot = Snapshot {
            directory: self.directory.clone(),
            reserved: self.reserved,
            frozen,
            below: number,
        };
        let write = move || snapshot.write();
        self.background = Background::write(ended, replaces, write)?;
        Ok(())
    }

    /// Waits for the thread. Once a snapshot is written, counts the replaced lines; what failed is retried some lines
    /// later.
    pub(super) fn wait(&mut self) -> Result<(), PersistError> {
        let result = match std::mem::take(&mut self.background) {
            Background::Idle => Ok(()),
            Background::Preparing(thread) => thread
                .join()
                .map(|file| self.background = Background::Prepared(file)),
            prepared @ Background::Prepared(_) => {
                self.background = prepared;
                Ok(())
            }
            Background::Writing(thread, replaces) => thread.join().map(|()| {
                // The snapshot replaces them.
                self.ended.clear();
                self.lines = self.lines.saturating_sub(replaces.lines);
                self.objects = replaces.objects;
            }),
        };
        if result.is_err() {
            self.not_before = self.lines + RETRY_AFTER_LINES;
        }
        result
    }

    #[cfg(test)]
    pub(super) fn share_lock(&self) -> fs::File {
        self.lock.0.try_clone().unwrap()
    }

    /// Sends lines to a device that is always full, or to the log again.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn fill(&mut self, full: bool) {
        self.file.fill(full);
    }

    /// Writes the last snapshot. After it no version needs to be skipped.
    pub(super) fn close(mut self, mut frozen: Frozen) -> Result<(), PersistError> {
        let _ = self.wait();
        // Where it fails, the snapshot replaces the log all the same.
        let _ = self.repair();
        frozen.revision = frozen.revision.max(self.refused);
        self.file
            .sync()
            .map_err(PersistError::new("sync", self.file.path()))?;
        Snapshot {
            directory: self.directory,
            reserved: frozen.revision,
            frozen,
            // The next log may have been made.
            below: self.number + 2,
        }
        .write()
    }
}

/// The logs in a directory by their numbers, oldest first.
fn logs(directory: &Path) -> Result<Vec<(u64, PathBuf)>, PersistError> {
    let failed = || PersistError::new("list", directory);
    let mut logs = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed())? {
        let name = entry.map_err(failed())?.file_name();
        let number = match name.to_str() {
            Some("log.jsonl") => Some(0),
            Some(name) => name
                .strip_prefix("log.")
                .and_then(|rest| rest.strip_suffix(".jsonl"))
                .and_then(|number| number.parse().ok()),
            None => None,
        };
        if let Some(number) = number {
            logs.push((number, directory.join(name)));
        }
    }
    logs.sort();
    Ok(logs)
}

fn log_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("log.{number}.jsonl"))
}
