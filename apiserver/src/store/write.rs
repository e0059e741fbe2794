//! Writing: one object at a time, if it is still at the version that the writer has read.

use std::sync::Arc;

use serde_json::Value;

use super::epoch::Decision;
use super::object::{Content, Key, Object};
use super::objects::Store;
use super::persist::PersistError;
use super::sequencer::Write;

/// The precondition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// No object has the key, and its namespace, if it has one, accepts new objects.
    Absent,
    /// The object is at this version.
    Version(u64),
}

/// A write of one of several objects.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) storage: String,
    pub(crate) key: Key,
    pub(crate) expected: Expected,
    /// `None` to remove the object.
    pub(crate) value: Option<Value>,
}

/// The most bytes of an object. (etcd: `--max-request-bytes`, of which the key and the frame of a request take a few. A built-in
/// kind has fewer bytes there, in protobuf.)
const LARGEST: usize = 1_572_864;

/// The reason why nothing was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    /// The expectation did not hold: another write came first.
    #[error("the object changed meanwhile")]
    Raced,
    /// A restore began after the decision of the background task to write this.
    #[error("the server is brought back to an earlier state")]
    Restored,
    /// The namespace of a new object does not exist, or is being deleted.
    #[error("the namespace takes no new objects")]
    Namespace,
    /// The resource does not exist any more.
    #[error("the resource {0} has no table")]
    NoTable(String),
    /// The object has more bytes than etcd takes.
    #[error("etcdserver: request is too large")]
    TooLarge,
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Closed,
    /// The log on disk could not be written; memory is unchanged.
    #[error(transparent)]
    Persist(#[from] PersistError),
}

// === impl Store ===

impl Store {
    /// Writes `value`, or removes the object when it is `None`, if `expected` holds.
    ///
    /// The `apiVersion` of `value` is the one that it has the form of; without it, the object keeps the present one.
    ///
    /// Returns the object as stored; after a removal, the last state with the removal's version. It is in the log then,
    /// and with [synced writes](Store::with_synced_writes) on the disk.
    pub(crate) fn commit(
        &self,
        storage: &str,
        key: &str,
        expected: Expected,
        value: Option<Value>,
    ) -> Result<Arc<Object>, CommitError> {
        self.commit_decided(None, storage, key, expected, value)
    }

    /// [`Store::commit`] of the background task: it is refused if a restore began after the decision.
    pub(crate) fn commit_decided(
        &self,
        decision: Option<Decision>,
        storage: &str,
        key: &str,
        expected: Expected,
        value: Option<Value>,
    ) -> Result<Arc<Object>, CommitError> {
        let content = value.map(|value| Content::new(value, self.next_version()));
        if content.as_ref().is_some_and(|it| it.bytes() > LARGEST) {
            return Err(CommitError::TooLarge);
        }
        self.sequence(Write {
            storage: storage.to_owned(),
            key: Key::from(key),
            expected,
            content,
            decision,
        })
    }

    /// [`Store::commit_decided`] that leaves this thread to other tasks while the disk syncs. The write goes on when the
    /// future is dropped; `held` is dropped after it.
    pub(crate) async fn commit_unblocked(
        &self,
        decision: Option<Decision>,
        storage: &str,
        key: &str,
        expected: Expected,
        value: Option<Value>,
        held: impl Send + 'static,
    ) -> Result<Arc<Object>, CommitError> {
        if !self.synced {
            return self.commit_decided(decision, storage, key, expected, value);
        }
        let (store, storage, key) = (self.clone(), storage.to_owned(), key.to_owned());
        let commit = move || {
            let written = store.commit_decided(decision, &storage, &key, expected, value);
            drop(held);
            written
        };
        let written = tokio::task::spawn_blocking(commit).await;
        written.unwrap_or(Err(CommitError::Closed))
    }

    /// Writes several objects in this order, each by itself as [`Store::commit`] does. They share batches of the log, and
    /// so its syncs.
    pub(crate) fn commit_all(&self, writes: Vec<Wanted>) -> Vec<Result<Arc<Object>, CommitError>> {
        let version = self.next_version();
        let writes = writes.into_iter().map(|one| Write {
            storage: one.storage,
            key: one.key,
            expected: one.expected,
            content: one.value.map(|value| Content::new(value, version)),
            decision: None,
        });
        self.sequence_all(writes.collect())
    }

    /// The version of the next write, if no other comes first.
    fn next_version(&self) -> u64 {
        self.revision().saturating_add(self.step)
    }
}
