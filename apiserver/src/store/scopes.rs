//! The events of one namespace or one object, for the watches that follow no more than that.
//!
//! A write wakes the watches of the resource, of its namespace and of its object, and no others. A scope has the versions
//! of its events in the ring of the resource, so that a watch that wakes does not search in the events of others, and
//! misses one only when an event of its own was dropped.

use std::collections::{HashMap, VecDeque};

use tokio::sync::watch;

use super::object::Key;
use super::table::Event;

/// Number of scopes that are kept before those without a watch are removed.
const FEW: usize = 16;

/// The scopes of a resource by their text: `namespace/`, or a whole key.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    all: HashMap<String, Scope>,
    /// Scopes without a watch are removed when there are this many.
    sweep_at: usize,
}

#[derive(Debug)]
pub(super) struct Scope {
    signal: watch::Sender<u64>,
    /// Versions of the events in the ring.
    versions: VecDeque<u64>,
    /// The last event that was dropped from the ring, or one before it: every event after this version is in the ring.
    pub(super) dropped: u64,
}

/// Whether an event of `key` is in the scope.
pub(super) fn contains(scope: &str, key: &str) -> bool {
    match scope.ends_with('/') {
        true => key.starts_with(scope),
        false => key == scope,
    }
}

/// The scopes that an object is in, besides that of all.
fn of_key(key: &Key) -> impl Iterator<Item = &str> {
    let text = key.as_str();
    let namespace = text.find('/').map(|slash| &text[..=slash]);
    std::iter::once(text).chain(namespace)
}

// === impl Scopes ===

impl Scopes {
    /// Follows a scope; `events` and `dropped` are those of the resource.
    pub(super) fn follow<'a>(
        &mut self,
        scope: &str,
        events: impl Iterator<Item = &'a Event>,
        dropped: u64,
    ) -> watch::Receiver<u64> {
        if let Some(known) = self.all.get(scope) {
            return known.signal.subscribe();
        }
        if self.all.len() >= self.sweep_at.max(FEW) {
            self.all
                .retain(|_, scope| scope.signal.receiver_count() > 0);
            self.sweep_at = self.all.len() * 2;
        }
        let versions = events.filter(|event| contains(scope, event.key.as_str()));
        let versions: VecDeque<u64> = versions.map(|event| event.version).collect();
        let newest = versions.back().copied().unwrap_or(dropped);
        let (signal, follow) = watch::channel(newest);
        let added = Scope {
            signal,
            versions,
            dropped,
        };
        self.all.insert(scope.to_owned(), added);
        follow
    }

    pub(super) fn get(&self, scope: &str) -> Option<&Scope> {
        self.all.get(scope)
    }

    /// Adds an event; returns the signals to raise.
    pub(super) fn record(
        &mut self,
        event: &Event,
    ) -> impl Iterator<Item = watch::Sender<u64>> + use<> {
        let mut signals = [None, None];
        if !self.all.is_empty() {
            for (scope, found) in of_key(&event.key).zip(&mut signals) {
                if let Some(scope) = self.all.get_mut(scope) {
                    scope.versions.push_back(event.version);
                    *found = Some(scope.signal.clone());
                }
            }
        }
        signals.into_iter().flatten()
    }

    /// Drops an event, the oldest one.
    pub(super) fn forget(&mut self, event: &Event) {
        if self.all.is_empty() {
            return;
        }
        for scope in of_key(&event.key) {
            if let Some(scope) = self.all.get_mut(scope) {
                scope.dropped = event.version;
                while scope
                    .versions
                    .front()
                    .is_some_and(|&first| first <= event.version)
                {
                    scope.versions.pop_front();
                }
            }
        }
    }

    /// Wakes all watches.
    pub(super) fn end(&self, version: u64) {
        for scope in self.all.values() {
            // Also those that have seen the version.
            scope
                .signal
                .send_modify(|published| *published = version.max(*published));
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

// === impl Scope ===

impl Scope {
    /// The versions of the events after `cursor`.
    pub(super) fn after(&self, cursor: u64) -> impl Iterator<Item = u64> {
        let start = self.versions.partition_point(|&version| version <= cursor);
        self.versions.range(start..).copied()
    }
}
