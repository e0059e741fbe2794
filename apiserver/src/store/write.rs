//! Writing: one object at a time, if it is still at the version that the writer has read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::time::Instant;

use super::object::{Key, Object, take_type};
use super::objects::Store;
use super::persist::{Log, PersistError};
use super::table::{Change, Event, publish};

/// The precondition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// No object has the key, and its namespace, if it has one, accepts new objects.
    Absent,
    /// The object is at this version.
    Version(u64),
}

/// The reason why nothing was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    /// The expectation did not hold: another write came first.
    #[error("the object changed meanwhile")]
    Raced,
    /// The namespace of a new object does not exist, or is being deleted.
    #[error("the namespace takes no new objects")]
    Namespace,
    /// The resource does not exist any more.
    #[error("the resource {0} has no table")]
    NoTable(String),
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
    /// Returns the object as stored; after a removal, the last state with the removal's version.
    pub(crate) fn commit(
        &self,
        storage: &str,
        key: &str,
        expected: Expected,
        value: Option<Value>,
    ) -> Result<Arc<Object>, CommitError> {
        let mut guard = self.state.write();
        let state = &mut *guard;
        if state.closed {
            return Err(CommitError::Closed);
        }
        let table = state
            .tables
            .get_mut(storage)
            .ok_or_else(|| CommitError::NoTable(storage.to_owned()))?;
        let previous = table.objects.get(key).cloned();
        if table.sealed && previous.is_none() {
            return Err(CommitError::NoTable(storage.to_owned()));
        }
        let holds = match (&previous, expected) {
            (None, Expected::Absent) => value.is_some(),
            (Some(object), Expected::Version(version)) => object.version() == version,
            _ => false,
        };
        if !holds {
            return Err(CommitError::Raced);
        }
        if expected == Expected::Absent && !state.takes_new_objects(Key::from(key).namespace()) {
            return Err(CommitError::Namespace);
        }
        let version = state.revision.saturating_add(self.step);
        let key = Key::from(key);
        let (change, object) = match (value, &previous) {
            (Some(mut value), previous) => {
                let change = match previous {
                    None => Change::Added,
                    Some(_) => Change::Modified,
                };
                let api_version = match (take_type(&mut value), previous) {
                    (Some(api_version), _) => state.shared(&api_version),
                    (None, Some(previous)) => previous.shared_api_version(),
                    (None, None) => Arc::default(),
                };
                (
                    change,
                    Object::written(key.clone(), api_version, value, version),
                )
            }
            (None, Some(previous)) => (Change::Deleted, Object::at_version(previous, version)),
            (None, None) => return Err(CommitError::Raced),
        };
        let object = Arc::new(object);
        let stays = (change != Change::Deleted).then_some(&object);
        #[cfg(test)]
        if state.broken {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err(PersistError::injected().into());
        }
        if let Some(log) = &mut state.log
            && let Err(error) = log.append(version, storage, &key, stays.map(|object| &**object))
        {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err(error.into());
        }
        let table = state
            .tables
            .get_mut(storage)
            .ok_or_else(|| CommitError::NoTable(storage.to_owned()))?;
        table.record(
            Event {
                version,
                at: Instant::now(),
                key: key.clone(),
                change,
                object: object.clone(),
                previous: previous.clone(),
            },
            &self.history,
        );
        state.revision = version;
        state.note(
            storage,
            &key,
            previous.as_deref(),
            stays.map(|object| &**object),
        );
        if state.log.as_mut().is_some_and(Log::wants_snapshot) {
            state.snapshot();
        }
        let chores = self.plan_upkeep(state, storage) | !state.chores.is_empty();
        let signal = state.tables.get(storage).map(|table| table.signal.clone());
        drop(guard);
        publish(&self.revision, version);
        if let Some(signal) = signal {
            publish(&signal, version);
        }
        if chores {
            self.chores.notify_one();
        }
        Ok(object)
    }
}
