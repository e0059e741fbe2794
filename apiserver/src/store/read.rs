//! Reading: objects now and as they were, and the events that lead from one version to the next.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Event, Key, Object, Store};

/// A part of the past that is asked for and gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HistoryError {
    /// Events after `oldest` only are kept.
    #[error("version {asked} is older than {oldest}")]
    TooOld {
        /// What was asked for.
        asked: u64,
        /// The oldest version from which history is whole.
        oldest: u64,
    },
    /// The version lies in the future.
    #[error("version {asked} is above {current}")]
    TooNew {
        /// What was asked for.
        asked: u64,
        /// The current version.
        current: u64,
    },
    /// The resource is no longer there.
    #[error("the resource has no table")]
    NoTable,
}

/// Some objects of a resource as they were at one version.
#[derive(Debug)]
pub(crate) struct Page {
    /// The version they were read at.
    pub(crate) version: u64,
    /// In the order of their keys.
    pub(crate) objects: Vec<Arc<Object>>,
    /// The key to go on after, when more remain.
    pub(crate) last: Option<Key>,
    /// How many more remain, whether the filter accepts them or not.
    pub(crate) remaining: usize,
}

/// Which objects of a resource are wanted.
pub(crate) struct Query<'a> {
    /// Keys that start with this: `namespace/`, or everything.
    pub(crate) prefix: &'a str,
    /// Keys after this one.
    pub(crate) after: Option<&'a str>,
    /// Read as of this version; `None` is now.
    pub(crate) at: Option<u64>,
    /// At most this many; `None` is all.
    pub(crate) limit: Option<usize>,
    /// Only objects that this accepts.
    pub(crate) accept: &'a dyn Fn(&Object) -> bool,
}

// === impl Store ===

impl Store {
    /// The object of `key`.
    pub(crate) fn get(&self, storage: &str, key: &str) -> Option<Arc<Object>> {
        self.state
            .read()
            .tables
            .get(storage)?
            .objects
            .get(key)
            .cloned()
    }

    /// The object of `key` as it was at `version`.
    pub(crate) fn get_at(
        &self,
        storage: &str,
        key: &str,
        version: u64,
    ) -> Result<Option<Arc<Object>>, HistoryError> {
        let state = self.state.read();
        let table = state.tables.get(storage).ok_or(HistoryError::NoTable)?;
        if version > state.revision {
            return Err(HistoryError::TooNew {
                asked: version,
                current: state.revision,
            });
        }
        let undone = table.undo_to(version, key)?;
        Ok(match undone.get(key) {
            Some(then) => then.clone(),
            None => table.objects.get(key).cloned(),
        })
    }

    /// Every object of a resource whose key starts with `prefix`, with the version read at.
    pub(crate) fn list(&self, storage: &str, prefix: &str) -> (u64, Vec<Arc<Object>>) {
        let query = Query {
            prefix,
            after: None,
            at: None,
            limit: None,
            accept: &|_| true,
        };
        match self.page(storage, &query) {
            Ok(page) => (page.version, page.objects),
            Err(_) => (self.revision(), Vec::new()),
        }
    }

    /// How many objects a resource has.
    #[cfg(test)]
    pub(crate) fn count(&self, storage: &str) -> usize {
        let state = self.state.read();
        state
            .tables
            .get(storage)
            .map_or(0, |table| table.objects.len())
    }

    /// The objects that `query` asks for.
    pub(crate) fn page(&self, storage: &str, query: &Query<'_>) -> Result<Page, HistoryError> {
        let state = self.state.read();
        let table = state.tables.get(storage).ok_or(HistoryError::NoTable)?;
        let version = query.at.unwrap_or(state.revision);
        if version > state.revision {
            return Err(HistoryError::TooNew {
                asked: version,
                current: state.revision,
            });
        }
        table.page(version, query)
    }

    /// Follows a resource: the receiver changes with each of its events, and fails when it goes.
    pub(crate) fn follow(&self, storage: &str) -> Option<watch::Receiver<u64>> {
        let state = self.state.read();
        state
            .tables
            .get(storage)
            .map(|table| table.signal.subscribe())
    }

    /// Whether a watch can start after `version`.
    pub(crate) fn check_start(&self, storage: &str, version: u64) -> Result<(), HistoryError> {
        let state = self.state.read();
        let table = state.tables.get(storage).ok_or(HistoryError::NoTable)?;
        table.check_start(version)
    }

    /// At most `limit` events after `cursor`, with the version up to which nothing else happened.
    pub(crate) fn events_after(
        &self,
        storage: &str,
        cursor: u64,
        limit: usize,
    ) -> Result<(Vec<Event>, u64), HistoryError> {
        let state = self.state.read();
        let Some(table) = state.tables.get(storage) else {
            let (_, last) = state.retired.get(storage).ok_or(HistoryError::NoTable)?;
            let events = last.events_after(cursor, limit)?;
            let seen = events.last().ok_or(HistoryError::NoTable)?.version;
            return Ok((events, seen));
        };
        let events = table.events_after(cursor, limit)?;
        let whole = events.len() < limit;
        let seen = match events.last() {
            Some(last) if !whole => last.version,
            _ => state.revision.max(cursor),
        };
        Ok((events, seen))
    }

    /// The version of the last event of `storage`.
    pub(crate) fn last_change(&self, storage: &str) -> u64 {
        let state = self.state.read();
        state
            .tables
            .get(storage)
            .map_or(0, |table| *table.signal.borrow())
    }
}
