//! A data directory before its first write: it is locked, read, and migrated if its format is older.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::background::Background;
use super::format::{self, End, Head, Start};
use super::snapshot::{self, Snapshot};
use super::{Found, Frozen, Log, PersistError, log_path, logs};
use crate::disk::{self, Appended};

/// A directory that was read, before its first write.
pub(in crate::store) struct Directory {
    path: PathBuf,
    lock: DirectoryLock,
    /// The number of the newest log, and its end.
    number: u64,
    end: u64,
    /// The end of the log before that.
    before: Option<End>,
    /// The logs before the newest one, oldest first.
    earlier: Vec<PathBuf>,
    reserved: u64,
    revision: u64,
    lines: usize,
    objects: usize,
    is_old: bool,
}

/// Held while the directory is in use; the system releases it when the process ends.
pub(super) struct DirectoryLock(pub(super) File);

// === impl Directory ===

impl Directory {
    /// Opens the directory at `path`, which is created if needed, and reads its content.
    pub(in crate::store) fn open(path: &Path) -> Result<(Self, Found), PersistError> {
        fs::create_dir_all(path).map_err(PersistError::new("create", path))?;
        let lock = lock(path)?;
        let mut found = Found::default();
        let snapshot = snapshot::path(path);
        if snapshot.exists() {
            let extent = format::read(&snapshot, &mut found, 0, false)?;
            if extent.torn {
                return Err(format::cut_short(&snapshot, extent.lines, None));
            }
        }
        let floor = found.revision;
        let objects = found.tables.values().map(BTreeMap::len).sum();
        let (mut lines, mut newest, mut before) = (0, None, None);
        let mut read = Vec::new();
        let mut logs = logs(path)?.into_iter().peekable();
        while let Some((number, log)) = logs.next() {
            if let (Start::Head(head), Some(last)) = (format::start(&log)?, newest)
                && head.revision > floor
                && follows_what_is_lost(&head, last)
            {
                let later = std::iter::once((number, log)).chain(logs);
                remove_lost(path, later.map(|(_, log)| log).collect())?;
                break;
            }
            let next = match logs.peek() {
                Some((_, next)) => Some(format::start(next)?),
                None => None,
            };
            let extent = format::read(&log, &mut found, floor, may_be_unsynced(number, next))?;
            if extent.torn {
                // What was cut off must not come back behind lines that are written now.
                let cut = |file: Appended| file.cut(extent.end).and_then(|()| file.sync());
                Appended::open(&log)
                    .and_then(cut)
                    .map_err(PersistError::new("repair", &log))?;
                tracing::warn!(
                    path = %log.display(), lines = extent.lost,
                    "cut off the end of the log: a line is incomplete, and so many whole lines followed it",
                );
            }
            lines += extent.lines;
            before = newest;
            newest = Some(End {
                log: number,
                at: extent.end,
            });
            read.push(log);
        }
        // Without the newest one.
        read.pop();
        let directory = Self {
            path: path.to_owned(),
            lock,
            number: newest.map_or(0, |newest| newest.log),
            end: newest.map_or(0, |newest| newest.at),
            before,
            earlier: read,
            reserved: found.reserved,
            revision: found.revision,
            lines,
            objects,
            is_old: found.oldest < format::NEWEST,
        };
        Ok((directory, found))
    }

    /// Whether a file has an older format than the one that is written.
    pub(in crate::store) fn is_old(&self) -> bool {
        self.is_old
    }

    /// Replaces all files by a snapshot in the newest format.
    pub(in crate::store) fn migrate(mut self, frozen: Frozen) -> Result<Log, PersistError> {
        tracing::info!(path = %self.path.display(), format = format::NEWEST, "migrate the data directory");
        let number = self.number + 1;
        (self.objects, self.lines) = (frozen.objects(), 0);
        let snapshot = Snapshot {
            directory: self.path.clone(),
            reserved: self.reserved,
            frozen,
            below: number,
        };
        snapshot.write()?;
        (self.number, self.end, self.before) = (number, 0, None);
        // The snapshot has replaced them.
        self.earlier.clear();
        self.start()
    }

    /// Continues in the newest log.
    pub(in crate::store) fn start(self) -> Result<Log, PersistError> {
        for path in &self.earlier {
            // A process that was killed has left them to the operating system.
            let file = Appended::open(path).map_err(PersistError::new("open", path))?;
            file.sync().map_err(PersistError::new("sync", path))?;
        }
        let number = self.number.max(1);
        let path = log_path(&self.path, number);
        let fresh = !path.exists();
        let file = Appended::open(&path).map_err(PersistError::new("open", &path))?;
        let mut log = Log {
            directory: self.path,
            lock: self.lock,
            file,
            number,
            end: if fresh { 0 } else { self.end },
            ended: Vec::new(),
            synced: false,
            torn: false,
            refused: 0,
            reserved: self.reserved,
            lines: self.lines,
            objects: self.objects,
            not_before: 0,
            background: Background::default(),
            #[cfg(test)]
            attempts: 0,
        };
        if log.end == 0 {
            let head = Head::new(self.revision, self.reserved, None);
            log.put_head(&head.after(self.before))?;
        }
        Ok(log)
    }
}

// === impl DirectoryLock ===

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that is being started shares it until it runs its program.
        let _ = self.0.unlock();
    }
}

/// Whether a power failure has kept this log and lost the end of the one before. It does not matter if a snapshot replaces
/// that one.
fn follows_what_is_lost(head: &Head, last: End) -> bool {
    let follows = head.follows.as_ref();
    follows.is_some_and(|end| end.log == last.log && end.at > last.at)
}

/// Whether a power failure may have lost pages of a log: the next one began without waiting for its sync.
fn may_be_unsynced(number: u64, next: Option<Start>) -> bool {
    match next {
        None | Some(Start::Nothing) => true,
        Some(Start::Head(head)) => head.follows.is_some_and(|end| end.log == number),
        Some(Start::Other) => false,
    }
}

/// Removes logs whose lines come after lost ones, durably, the last one first: a store without one write and with a later
/// one never existed.
fn remove_lost(directory: &Path, logs: Vec<PathBuf>) -> Result<(), PersistError> {
    for log in logs.iter().rev() {
        tracing::warn!(path = %log.display(), "remove a log: the end of the one before was lost");
        disk::remove(log).map_err(PersistError::new("remove", log))?;
        disk::sync_directory(directory).map_err(PersistError::new("sync", directory))?;
    }
    Ok(())
}

/// Keeps other processes, and other servers of this one, out of the directory.
fn lock(directory: &Path) -> Result<DirectoryLock, PersistError> {
    let path = directory.join("lock");
    let file = File::create(&path).map_err(PersistError::new("create", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(DirectoryLock(file)),
        Err(fs::TryLockError::WouldBlock) => {
            let in_use = io::Error::other("the directory is in use by another server");
            Err(PersistError::new("lock", &path)(in_use))
        }
        Err(fs::TryLockError::Error(source)) => Err(PersistError::new("lock", &path)(source)),
    }
}
