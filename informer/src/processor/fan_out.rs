//! From the store to all handlers: [`Processor`].

use std::sync::Arc;

use tokio::time::Instant;

use super::listener::Listener;
use crate::event::{Event, UpdateReason};
use crate::indexer::{Indexer, StoreSnapshot};
use crate::object::Stored;
use crate::turns::{PIECE, Turns};

/// The handlers of one informer. The informer changes its store under the lock of this list.
pub(crate) struct Processor<S: ?Sized> {
    listeners: Vec<Arc<Listener<S>>>,
    synced: bool,
    next_id: u64,
}

/// The handlers that receive the events of one large change of the store, in turns. A handler that is added meanwhile is
/// not among them: it receives the changed store.
pub(crate) struct Recipients<S: Stored + ?Sized>(Vec<Arc<Listener<S>>>);

// === impl Recipients ===

impl<S: Stored + ?Sized> Recipients<S> {
    fn new(listeners: Vec<Arc<Listener<S>>>) -> Self {
        for listener in &listeners {
            listener.begin_change();
        }
        Self(listeners)
    }

    /// Enqueues the events for each of them.
    pub(crate) async fn deliver(&self, events: impl Iterator<Item = Event<S>>) {
        let mut turns = Turns::new();
        let mut events = events;
        let handlers = self.0.len().max(1);
        loop {
            let piece = events.by_ref().take((PIECE / handlers).max(1));
            let piece: Vec<_> = piece.collect();
            if piece.is_empty() {
                return;
            }
            let queued = piece.len() * handlers;
            distribute(&self.0, piece);
            turns.spend(queued).await;
        }
    }

    /// Enqueues all objects of `store` again, for a resync.
    pub(crate) async fn resync(&self, store: &StoreSnapshot<S>) {
        if self.0.is_empty() {
            return;
        }
        let again = store.iter().map(|object| Event::Updated {
            old: Arc::clone(object),
            new: Arc::clone(object),
            reason: UpdateReason::Resync,
        });
        self.deliver(again).await;
        for listener in &self.0 {
            listener.resynced();
        }
    }
}

impl<S: Stored + ?Sized> Drop for Recipients<S> {
    fn drop(&mut self) {
        for listener in &self.0 {
            listener.end_change();
        }
    }
}

fn distribute<S: Stored + ?Sized>(listeners: &[Arc<Listener<S>>], events: Vec<Event<S>>) {
    let Some((last, rest)) = listeners.split_last() else {
        return;
    };
    for listener in rest {
        listener.extend(events.iter().cloned());
    }
    last.extend(events.into_iter());
}

// === impl Processor ===

impl<S: Stored + ?Sized> Processor<S> {
    pub(crate) fn new() -> Self {
        Self {
            listeners: Vec::new(),
            synced: false,
            next_id: 0,
        }
    }

    pub(crate) fn listeners(&self) -> &[Arc<Listener<S>>] {
        &self.listeners
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Adds a handler, which first receives all objects of `indexer`.
    pub(crate) fn add(&mut self, listener: Arc<Listener<S>>, indexer: &Indexer<S>) {
        listener.replay(indexer.snapshot());
        if self.synced {
            listener.upstream_synced();
        }
        self.listeners.push(listener);
    }

    /// Drops handlers that were removed.
    pub(crate) fn prune(&mut self) {
        self.listeners.retain(|listener| !listener.is_removed());
    }

    /// Enqueues the events for every handler; a resync event only for those whose period is over.
    pub(crate) fn distribute(&self, events: Vec<Event<S>>) {
        distribute(&self.listeners, events);
    }

    /// The handlers that receive the events of a change that the store has just made, under the same lock as this.
    pub(crate) fn recipients(&self) -> Recipients<S> {
        Recipients::new(self.listeners.clone())
    }

    /// The handlers whose period is over, which receive all objects of the store again.
    pub(crate) fn due(&self) -> Recipients<S> {
        let due = self.listeners.iter().filter(|listener| listener.is_due());
        Recipients::new(due.cloned().collect())
    }

    /// Marks handlers whose resync is due at `now`; true if there are any. `settled`: all events of former resyncs were
    /// processed (client-go: `shouldResync`, which assumes that).
    pub(crate) fn mark_due(&self, now: Instant, settled: bool) -> bool {
        // Not `any`: every handler's schedule moves.
        self.listeners
            .iter()
            .filter(|listener| listener.mark_due(now, settled))
            .count()
            > 0
    }

    /// The time of the next resync of any handler.
    pub(crate) fn next_resync(&self) -> Option<Instant> {
        self.listeners
            .iter()
            .filter_map(|listener| listener.next_resync())
            .min()
    }

    /// Everything of the first list is in the queues.
    pub(crate) fn upstream_synced(&mut self) {
        self.synced = true;
        for listener in &self.listeners {
            listener.upstream_synced();
        }
    }

    /// The handlers that run in the informer's task.
    pub(crate) fn inline(&self) -> Vec<Arc<Listener<S>>> {
        let inline = self.listeners.iter().filter(|one| one.runs_inline());
        inline.cloned().collect()
    }

    /// A handler with a blocking policy whose queue is full.
    pub(crate) fn blocking(&self) -> Option<Arc<Listener<S>>> {
        self.listeners
            .iter()
            .find(|listener| listener.is_blocking())
            .cloned()
    }

    pub(crate) fn take(&mut self) -> Vec<Arc<Listener<S>>> {
        std::mem::take(&mut self.listeners)
    }
}
