//! The objects of one resource and the ring of its latest events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::history::{History, earlier};
use super::map::Map;
use super::object::{Key, Object};
use super::query::{HistoryError, Page, Query};
use super::scopes::{Scopes, contains};

/// The effect of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The object is new.
    Added,
    /// It existed already.
    Modified,
    /// It was removed.
    Deleted,
}

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The write's version.
    pub(crate) version: u64,
    /// The time of the write.
    pub(crate) at: Instant,
    /// The object's key.
    pub(crate) key: Key,
    /// The effect.
    pub(crate) change: Change,
    /// The object after it; for a removal the last state, at the removal's version.
    pub(crate) object: Arc<Object>,
    /// The object before it.
    pub(crate) previous: Option<Arc<Object>>,
}

/// The objects of a resource in the past.
pub(super) struct Past {
    objects: Map<Arc<Object>>,
    /// The keys of the events since then, with the objects before them.
    later: Vec<(Key, Option<Arc<Object>>)>,
}

/// Maximum number of lists whose further pages need no event to be undone. What is only in their versions is in the ring,
/// too.
const MAX_ROOTS: usize = 64;
/// Capacity that a shrinking ring keeps.
const SPARE_EVENTS: usize = 1024;

/// The objects of one resource and its recent history.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) objects: Map<Arc<Object>>,
    /// The objects at the versions of lists that may have further pages.
    roots: Mutex<BTreeMap<u64, Map<Arc<Object>>>>,
    events: VecDeque<Event>,
    /// Approximate size of the events without the objects, in bytes.
    held: usize,
    /// Every event after this version is in the ring: a watch that has seen all events up to here can go on.
    dropped: u64,
    /// The oldest version that a watch can start from.
    pub(super) oldest: u64,
    /// The oldest version that can be read.
    compacted: u64,
    /// Whether no object can be added any more.
    pub(super) sealed: bool,
    pub(super) signal: watch::Sender<u64>,
    scopes: Scopes,
}

// === impl Event ===

impl Event {
    /// Its approximate size without the objects: a state is in the ring once, as the one before the next.
    fn weight(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |object| object.weight());
        size_of::<Self>() + self.key.as_str().len() + previous
    }
}

// === impl Table ===

impl Table {
    /// An empty table whose history starts at `revision`.
    pub(super) fn new(revision: u64) -> Self {
        Self {
            objects: Map::new(),
            roots: Mutex::default(),
            events: VecDeque::new(),
            held: 0,
            dropped: revision,
            oldest: revision,
            compacted: revision,
            sealed: false,
            signal: watch::Sender::new(revision),
            scopes: Scopes::default(),
        }
    }

    /// A table with the same objects, whose history starts at `revision`.
    pub(super) fn without_history(&self, revision: u64) -> Self {
        Self {
            objects: self.objects.clone(),
            sealed: self.sealed,
            ..Self::new(revision)
        }
    }

    /// Applies `event` and appends it to the ring; returns the signals to raise to its version.
    pub(super) fn record(
        &mut self,
        event: Event,
        history: &History,
    ) -> impl Iterator<Item = watch::Sender<u64>> + use<> {
        if event.change == Change::Deleted {
            self.objects.remove(event.key.as_str());
        } else {
            self.objects.insert(event.key.clone(), event.object.clone());
        }
        let now = event.at;
        self.held += event.weight();
        let signals = self.scopes.record(&event);
        self.events.push_back(event);
        self.prune(now, history);
        std::iter::once(self.signal.clone()).chain(signals)
    }

    /// Follows the events of a scope: everything (empty), `namespace/`, or one key.
    pub(super) fn follow(&mut self, scope: &str) -> watch::Receiver<u64> {
        if scope.is_empty() {
            return self.signal.subscribe();
        }
        self.scopes.follow(scope, self.events.iter(), self.dropped)
    }

    #[cfg(test)]
    pub(super) fn scopes(&self) -> usize {
        self.scopes.len()
    }

    /// Drops events beyond the limits of number, size and age at `now`.
    pub(super) fn prune(&mut self, now: Instant, history: &History) {
        while let Some(first) = self.events.front() {
            let old = now.saturating_duration_since(first.at) >= history.age;
            let count = self.events.len();
            let much = count > history.max_events || self.held > history.max_bytes;
            if !(much || (old && count > history.min_events)) {
                break;
            }
            self.forget(first.version);
        }
        if self.events.capacity() > SPARE_EVENTS.max(self.events.len() * 4) {
            self.events.shrink_to(self.events.len() * 2);
        }
    }

    /// When the oldest event is too old; `None` while there are too few for that.
    pub(super) fn prune_due(&self, history: &History) -> Option<Instant> {
        let first = self.events.front()?;
        (self.events.len() > history.min_events).then(|| first.at + history.age)
    }

    /// Makes all events older.
    pub(super) fn age(&mut self, by: Duration) {
        for event in &mut self.events {
            event.at = earlier(event.at, by);
        }
    }

    /// Wakes all watches for the last time.
    pub(super) fn end(&self, version: u64) {
        self.scopes.end(version);
        self.signal
            .send_modify(|published| *published = version.max(*published));
    }

    /// The number of kept events, and their approximate size in bytes.
    #[cfg(test)]
    pub(super) fn ring(&self) -> (usize, usize) {
        (self.events.len(), self.held)
    }

    /// Refuses reads at versions before `version`.
    pub(super) fn compact(&mut self, version: u64) {
        self.compacted = self.compacted.max(version);
        let roots = self.roots.get_mut();
        while let Some(first) = roots.first_entry()
            && *first.key() < self.compacted
        {
            first.remove();
        }
    }

    /// Drops events up to and including `version`.
    pub(super) fn forget(&mut self, version: u64) {
        while let Some(first) = self.events.front()
            && first.version <= version
        {
            self.dropped = first.version;
            self.held = self.held.saturating_sub(first.weight());
            self.scopes.forget(first);
            self.events.pop_front();
        }
        self.oldest = self.oldest.max(version);
        self.compact(version);
    }

    /// Whether a watch can start after `version`.
    pub(super) fn check_start(&self, version: u64) -> Result<(), HistoryError> {
        not_before(version, self.oldest)
    }

    /// At most `limit` events of a scope after `cursor`.
    pub(super) fn events_after(
        &self,
        scope: &str,
        cursor: u64,
        limit: usize,
    ) -> Result<Vec<Event>, HistoryError> {
        if let Some(scope) = self.scopes.get(scope) {
            not_before(cursor, scope.dropped)?;
            let event = |version: u64| {
                let at = self
                    .events
                    .binary_search_by_key(&version, |event| event.version);
                self.events.get(at.ok()?).cloned()
            };
            return Ok(scope.after(cursor).filter_map(event).take(limit).collect());
        }
        not_before(cursor, self.dropped)?;
        let start = self.events.partition_point(|event| event.version <= cursor);
        let later = self.events.range(start..);
        let of_scope =
            later.filter(|event| scope.is_empty() || contains(scope, event.key.as_str()));
        Ok(of_scope.take(limit).cloned().collect())
    }

    /// The object of `key` at `version`.
    pub(super) fn get_at(
        &self,
        key: &str,
        version: u64,
    ) -> Result<Option<&Arc<Object>>, HistoryError> {
        not_before(version, self.compacted)?;
        let mut later = self.events_since(version);
        Ok(match later.find(|event| event.key.as_str() == key) {
            Some(event) => event.previous.as_ref(),
            None => self.objects.get(key),
        })
    }

    /// All objects at `version`.
    pub(super) fn at(&self, version: u64) -> Result<Past, HistoryError> {
        not_before(version, self.compacted)?;
        if let Some(objects) = self.roots.lock().get(&version) {
            return Ok(Past::of(objects.clone()));
        }
        Ok(Past {
            objects: self.objects.clone(),
            later: self
                .events_since(version)
                .map(|event| (event.key.clone(), event.previous.clone()))
                .collect(),
        })
    }

    fn events_since(&self, version: u64) -> impl DoubleEndedIterator<Item = &Event> {
        let start = self
            .events
            .partition_point(|event| event.version <= version);
        self.events.range(start..)
    }

    /// Keeps the objects of `version` for further pages.
    pub(super) fn keep(&self, version: u64, objects: Map<Arc<Object>>) {
        if version < self.compacted {
            return;
        }
        let mut roots = self.roots.lock();
        roots.insert(version, objects);
        if roots.len() > MAX_ROOTS {
            roots.pop_first();
        }
    }

    /// The number of versions that are kept for further pages.
    #[cfg(test)]
    pub(super) fn roots(&self) -> usize {
        self.roots.lock().len()
    }
}

// === impl Past ===

impl Past {
    /// All objects now.
    pub(super) fn of(objects: Map<Arc<Object>>) -> Self {
        let later = Vec::new();
        Self { objects, later }
    }

    /// The objects, with the later events undone.
    pub(super) fn restore(self) -> Map<Arc<Object>> {
        let mut objects = self.objects;
        for (key, previous) in self.later.into_iter().rev() {
            match previous {
                Some(previous) => objects.insert(key, previous),
                None => objects.remove(key.as_str()),
            };
        }
        objects
    }
}

/// The objects that match `query`, of all those at `version`.
pub(super) fn page(objects: &Map<Arc<Object>>, version: u64, query: &Query<'_>) -> Page {
    let prefix = query.prefix;
    let mut rest = match query.after {
        Some(after) if after >= prefix => objects.iter_from(|key| key <= after),
        _ => objects.iter_from(|key| key < prefix),
    }
    .take_while(|(key, _)| key.as_str().starts_with(prefix));
    let limit = query.limit.unwrap_or(usize::MAX);
    let mut page = Page {
        version,
        objects: Vec::new(),
        last: None,
        remaining: 0,
    };
    while page.objects.len() < limit {
        let Some((_, object)) = rest.next() else {
            return page;
        };
        if (query.accept)(object) {
            page.objects.push(object.clone());
        }
    }
    // The rest may not be selected: as with etcd, that shows on the next page.
    if let Some(last) = page.objects.last().map(|object| object.key().clone()) {
        let end = objects.rank(|key| key <= last.as_str() || key.starts_with(prefix));
        page.remaining = end - objects.rank(|key| key <= last.as_str());
        page.last = (page.remaining > 0).then_some(last);
    }
    page
}

fn not_before(asked: u64, oldest: u64) -> Result<(), HistoryError> {
    if asked < oldest {
        return Err(HistoryError::TooOld { asked, oldest });
    }
    Ok(())
}

/// Raises the value of `sender` to `version`. Writers publish after they release the lock, in any order.
pub(super) fn publish(sender: &watch::Sender<u64>, version: u64) {
    sender.send_if_modified(|published| {
        let newer = *published < version;
        *published = version.max(*published);
        newer
    });
}
