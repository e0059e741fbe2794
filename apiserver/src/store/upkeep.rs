//! Changes by time alone: history that is too old is removed, and Events expire.
//!
//! Writes prune the ring of their own resource. A resource without further writes needs the background task for
//! that; the store computes when, and wakes the task only if upkeep is due.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::map::Map;
use super::object::Key;
use super::objects::Store;
use super::state::{EVENTS, State};
use super::write::{Expected, Wanted};

/// The shortest time between two upkeeps.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of Events expired at once; the others follow at the next upkeep.
const EXPIRED_AT_ONCE: usize = 1_000;
/// The number of removed resources whose last events are kept.
const MAX_RETIRED: usize = 100;

// === impl Store ===

impl Store {
    /// Deletes Events this long after their last write; `None` keeps them.
    pub(crate) fn with_event_ttl(mut self, ttl: Option<Duration>) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            shared.event_ttl = ttl;
            let state = shared.state.get_mut();
            // Of a directory or a copy: no write plans their end.
            state.upkeep_at = ttl.and_then(|ttl| Some(state.ages.oldest()? + ttl));
        }
        self
    }

    /// When upkeep is due.
    pub(super) fn upkeep_at(&self) -> Option<Instant> {
        self.state.read().upkeep_at
    }

    /// Does the upkeep that is due, and leaves this thread to other tasks while the disk syncs.
    pub(crate) async fn upkeep_unblocked(&self) {
        let is_due = self.upkeep_at().is_some_and(|at| at <= Instant::now());
        if !is_due || !self.synced {
            return self.upkeep();
        }
        let store = self.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || store.upkeep()).await {
            tracing::warn!(%error, "the upkeep of the store ended early: it is retried");
        }
    }

    /// Does the upkeep that is due.
    pub(crate) fn upkeep(&self) {
        let now = Instant::now();
        if self.upkeep_at().is_none_or(|at| now < at) {
            return;
        }
        // Without the pipeline of a write: on a real server the lease of the object ends in etcd, below admission and
        // finalizers.
        let old = self.forget_the_old(now);
        let removals = old.iter().map(|(key, version)| Wanted {
            storage: EVENTS.to_owned(),
            key: key.clone(),
            expected: Expected::Version(*version),
            value: None,
        });
        for ((key, _), removed) in old.iter().zip(self.commit_all(removals.collect())) {
            if let Err(error) = removed {
                tracing::debug!(%error, %key, "could not remove an expired Event: it is retried");
            }
        }
        let mut guard = self.state.write();
        let state = &mut *guard;
        state.upkeep_at = None;
        if let Some(due) = self.next_upkeep(state) {
            state.upkeep_at = Some(due.max(now + UPKEEP_INTERVAL));
        }
    }

    /// Drops old history; returns the expired Events.
    fn forget_the_old(&self, now: Instant) -> Vec<(Key, u64)> {
        let mut guard = self.state.write();
        let state = &mut *guard;
        for table in state.tables.values_mut() {
            table.prune(now, &self.history);
        }
        let age = self.history.age;
        state
            .retired
            .retain(|_, (since, _)| now.saturating_duration_since(*since) < age);
        let old = self
            .event_ttl
            .and_then(|ttl| now.checked_sub(ttl))
            .map(|time| state.ages.until(time, EXPIRED_AT_ONCE))
            .unwrap_or_default();
        let events = state.tables.get(EVENTS);
        old.into_iter()
            .filter_map(|key| {
                let object = events?.objects.get(key.as_str())?;
                Some((key, object.version()))
            })
            .collect()
    }

    /// When upkeep is due next.
    fn next_upkeep(&self, state: &State) -> Option<Instant> {
        let rings = state.tables.values();
        let rings = rings.filter_map(|table| table.prune_due(&self.history));
        let retired = state.retired.values();
        let retired = retired.map(|(since, _)| *since + self.history.age);
        rings.chain(retired).chain(self.expiry(state)).min()
    }

    fn expiry(&self, state: &State) -> Option<Instant> {
        Some(state.ages.oldest()? + self.event_ttl?)
    }

    /// Plans upkeep after a write of `storage`; `true` when the background task must wake earlier.
    pub(super) fn plan_upkeep(&self, state: &mut State, storage: &str) -> bool {
        let table = state.tables.get(storage);
        let pruned = table.and_then(|table| table.prune_due(&self.history));
        let expires = (storage == EVENTS).then(|| self.expiry(state)).flatten();
        let Some(due) = pruned.into_iter().chain(expires).min() else {
            return false;
        };
        if state.upkeep_at.is_some_and(|at| at <= due) {
            return false;
        }
        state.upkeep_at = Some(due);
        true
    }

    /// Keeps the last events of a removed resource for a while.
    pub(super) fn retire(&self, state: &mut State, storage: &str) {
        let Some(mut table) = state.tables.remove(storage) else {
            return;
        };
        table.objects = Map::new();
        table.end(state.revision);
        let now = Instant::now();
        state.retired.insert(storage.to_owned(), (now, table));
        if state.retired.len() > MAX_RETIRED {
            let oldest = state.retired.iter().min_by_key(|(_, (since, _))| *since);
            if let Some(storage) = oldest.map(|(storage, _)| storage.clone()) {
                state.retired.remove(&storage);
            }
        }
        let due = now + self.history.age;
        state.upkeep_at = Some(state.upkeep_at.map_or(due, |at| at.min(due)));
        self.chores.notify_one();
    }
}
