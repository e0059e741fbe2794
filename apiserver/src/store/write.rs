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
    /// The write right before this one stored it.
    JustWritten,
}

/// What a write leaves.
#[derive(Debug)]
pub(crate) enum Effect {
    /// This object.
    Put(Value),
    /// None.
    Remove,
    /// None, after this one was stored: with nothing between the two.
    PutAndRemove(Value),
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

/// The bytes by which one that is larger may grow: it can be marked for its deletion, and lose its finalizers.
const OF_METADATA: usize = 1024;

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
        let content = value.map(|value| Content::new(value, self.next_version()));
        self.sequence(Write {
            storage: storage.to_owned(),
            key: Key::from(key),
            expected,
            content,
            decision: None,
        })
    }

    /// The write of a request, or of the background task: that is refused if a restore began after the `decision`. An object
    /// that is too large is refused, unless it was so before.
    pub(crate) fn commit_decided(
        &self,
        decision: Option<Decision>,
        storage: &str,
        key: &str,
        expected: Expected,
        effect: Effect,
    ) -> Result<Arc<Object>, CommitError> {
        let (value, then_removes) = match effect {
            Effect::Put(value) => (Some(value), false),
            Effect::PutAndRemove(value) => (Some(value), true),
            Effect::Remove => (None, false),
        };
        let content = value.map(|value| Content::new(value, self.next_version()));
        if let Some(content) = content.as_ref().filter(|it| it.bytes() > LARGEST) {
            let before = self.get(storage, key);
            let before = before.map_or(0, |before| before.encoded().len());
            if before <= LARGEST || content.bytes() > before + OF_METADATA {
                return Err(CommitError::TooLarge);
            }
        }
        let write = |expected, content| Write {
            storage: storage.to_owned(),
            key: Key::from(key),
            expected,
            content,
            decision,
        };
        let first = write(expected, content);
        if !then_removes {
            return self.sequence(first);
        }
        let both = self.sequence_all(vec![first, write(Expected::JustWritten, None)]);
        let results: Result<Vec<_>, _> = both.into_iter().collect();
        results?.pop().ok_or(CommitError::Closed)
    }

    /// [`Store::commit_decided`] that leaves this thread to other tasks while the disk syncs. The write goes on when the
    /// future is dropped; `held` is dropped after it.
    pub(crate) async fn commit_unblocked(
        &self,
        decision: Option<Decision>,
        storage: &str,
        key: &str,
        expected: Expected,
        effect: Effect,
        held: impl Send + 'static,
    ) -> Result<Arc<Object>, CommitError> {
        if !self.synced {
            return self.commit_decided(decision, storage, key, expected, effect);
        }
        let (store, storage, key) = (self.clone(), storage.to_owned(), key.to_owned());
        let commit = move || {
            let written = store.commit_decided(decision, &storage, &key, expected, effect);
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
