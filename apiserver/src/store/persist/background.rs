//! The thread of a snapshot: first it makes the next log, then, once lines go there, it writes the snapshot.
//!
//! Both wait for the disk, and no writer does.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use super::error::PersistError;
use crate::disk::{self, Appended};

/// What a thread does for the next snapshot. The directory is not released before its end.
#[derive(Default)]
pub(super) enum Background {
    #[default]
    Idle,
    /// It makes the file of the next log.
    Preparing(Thread<Appended>),
    /// The file is there, and durably so.
    Prepared(Appended),
    /// It writes the snapshot.
    Writing(Thread<()>, Replaces),
}

/// A thread that is waited for before its owner ends.
pub(super) struct Thread<T> {
    handle: Option<JoinHandle<Result<T, PersistError>>>,
    /// The file of its errors.
    path: PathBuf,
}

/// The data that a snapshot replaces.
pub(super) struct Replaces {
    /// Lines of the replaced logs.
    pub(super) lines: usize,
    /// Objects in it.
    pub(super) objects: usize,
}

// === impl Background ===

impl Background {
    /// Makes the file of the next log in a thread.
    pub(super) fn prepare(path: &Path) -> Result<Self, PersistError> {
        let next = path.to_owned();
        let prepare = move || {
            let result = prepare(&next);
            if let Err(error) = &result {
                tracing::warn!(%error, "could not make the next log of the store: the log keeps growing");
            }
            result
        };
        Thread::spawn("reeve-next-log", path, prepare).map(Self::Preparing)
    }

    /// Syncs the log that ended, and writes the snapshot, in a thread.
    pub(super) fn write(
        ended: Arc<Appended>,
        replaces: Replaces,
        snapshot: impl FnOnce() -> Result<(), PersistError> + Send + 'static,
    ) -> Result<Self, PersistError> {
        let path = ended.path().to_owned();
        let write = move || {
            // Until the snapshot is there, a power failure that loses lines of this log loses the next one too.
            let synced = ended
                .sync()
                .map_err(PersistError::new("sync", ended.path()));
            let result = synced.and_then(|()| snapshot());
            if let Err(error) = &result {
                tracing::warn!(%error, "could not write the snapshot of the store: the logs are kept");
            }
            result
        };
        let thread = Thread::spawn("reeve-snapshot", &path, write)?;
        Ok(Self::Writing(thread, replaces))
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self, Self::Idle)
    }

    pub(super) fn is_prepared(&self) -> bool {
        matches!(self, Self::Prepared(_))
    }

    /// Whether its thread has ended.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::Preparing(thread) => thread.is_finished(),
            Self::Writing(thread, _) => thread.is_finished(),
            Self::Idle | Self::Prepared(_) => false,
        }
    }
}

// === impl Thread ===

impl<T: Send + 'static> Thread<T> {
    fn spawn(
        name: &str,
        path: &Path,
        work: impl FnOnce() -> Result<T, PersistError> + Send + 'static,
    ) -> Result<Self, PersistError> {
        let thread = Builder::new().name(name.to_owned()).spawn(work);
        let thread = thread.map_err(PersistError::new("snapshot", path))?;
        Ok(Self {
            handle: Some(thread),
            path: path.to_owned(),
        })
    }

    fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl<T> Thread<T> {
    /// Waits for the result.
    pub(super) fn join(mut self) -> Result<T, PersistError> {
        let result = self.handle.take().map(JoinHandle::join);
        result.and_then(Result::ok).unwrap_or_else(|| {
            let panicked = io::Error::other("the thread panicked");
            Err(PersistError::new("snapshot", &self.path)(panicked))
        })
    }
}

impl<T> Drop for Thread<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.handle.take() {
            // Its errors are logged by the thread.
            drop(thread.join());
        }
    }
}

/// Makes an empty log, whose name is durable: a sync of its lines is worth nothing without that.
pub(super) fn prepare(path: &Path) -> Result<Appended, PersistError> {
    let make = || {
        let file = Appended::open(path)?;
        // A failed attempt may have left half a head.
        file.cut(0)?;
        Ok(file)
    };
    let file = make().map_err(|error| {
        // Lines go on in the log before, which has to be the newest.
        let _ = disk::remove(path);
        PersistError::new("create", path)(error)
    })?;
    let directory = path.parent().unwrap_or(path);
    disk::sync_directory(directory).map_err(PersistError::new("sync", directory))?;
    Ok(file)
}
