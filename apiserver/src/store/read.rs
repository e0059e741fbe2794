//! Reads: objects now and at earlier versions, and the events between versions.

use std::sync::Arc;

use tokio::sync::watch;

use super::object::Object;
use super::objects::Store;
use super::query::{HistoryError, Page, Query};
use super::table::{Event, Past, page};

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

    /// The object of `key` at `version`.
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
        table.get_at(key, version).map(Option::<&_>::cloned)
    }

    /// Every object of a resource whose key starts with `prefix`, with the version of the read.
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

    /// Number of objects of a resource.
    pub(crate) fn count(&self, storage: &str) -> usize {
        let state = self.state.read();
        state
            .tables
            .get(storage)
            .map_or(0, |table| table.objects.len())
    }

    /// The objects that match `query`.
    pub(crate) fn page(&self, storage: &str, query: &Query<'_>) -> Result<Page, HistoryError> {
        let (version, objects) = self.objects_at(storage, query.at)?;
        let objects = objects.restore();
        // The lock is released: a selector may parse each object.
        let page = page(&objects, version, query);
        if page.last.is_some()
            && let Some(table) = self.state.read().tables.get(storage)
        {
            table.keep(version, objects);
        }
        Ok(page)
    }

    /// The objects of a resource at a version, by default the current one.
    fn objects_at(&self, storage: &str, at: Option<u64>) -> Result<(u64, Past), HistoryError> {
        let state = self.state.read();
        let table = state.tables.get(storage).ok_or(HistoryError::NoTable)?;
        let version = at.unwrap_or(state.revision);
        if version > state.revision {
            return Err(HistoryError::TooNew {
                asked: version,
                current: state.revision,
            });
        }
        if at.is_none() {
            return Ok((version, Past::of(table.objects.clone())));
        }
        Ok((version, table.at(version)?))
    }

    /// Follows the events of a resource in a scope: all (empty), those of a namespace (`namespace/`), or of one key. The
    /// receiver changes with each of them, and fails when the resource is removed.
    pub(crate) fn follow(&self, storage: &str, scope: &str) -> Option<watch::Receiver<u64>> {
        let mut state = self.state.write();
        let table = state.tables.get_mut(storage)?;
        Some(table.follow(scope))
    }

    /// Whether a watch can start after `version`.
    pub(crate) fn check_start(&self, storage: &str, version: u64) -> Result<(), HistoryError> {
        let state = self.state.read();
        let table = state.tables.get(storage).ok_or(HistoryError::NoTable)?;
        table.check_start(version)
    }

    /// At most `limit` events after `cursor`, with the version up to which they are complete.
    #[cfg(test)]
    pub(crate) fn events_after(
        &self,
        storage: &str,
        cursor: u64,
        limit: usize,
    ) -> Result<(Vec<Event>, u64), HistoryError> {
        self.events_in(storage, "", cursor, limit)
    }

    /// At most `limit` events after `cursor` of a scope that is [followed](Store::follow), with the version up to which they
    /// are complete.
    pub(crate) fn events_in(
        &self,
        storage: &str,
        scope: &str,
        cursor: u64,
        limit: usize,
    ) -> Result<(Vec<Event>, u64), HistoryError> {
        let state = self.state.read();
        let Some(table) = state.tables.get(storage) else {
            let (_, last) = state.retired.get(storage).ok_or(HistoryError::NoTable)?;
            let events = last.events_after(scope, cursor, limit)?;
            let seen = events.last().ok_or(HistoryError::NoTable)?.version;
            return Ok((events, seen));
        };
        let events = table.events_after(scope, cursor, limit)?;
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
