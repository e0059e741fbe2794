//! From the store to the handlers: every handler has its own bounded queue, task and fate.
//!
//! A change is put into the queues of all handlers under one lock, in the same step in which it enters the
//! store; handlers run later, each in a task of its own (or, if it asks for that, in the informer's), one event
//! after the other. What happens when a handler does not keep up is its own [`Policy`]. A panic of a handler is caught and counted, and the next
//! event is delivered.

mod handle;
mod handler;
mod listener;
mod queue;
mod stream;

pub use handle::{HandlerEnded, HandlerHandle};
pub(crate) use handler::Receiver;
pub use handler::{AsyncEventHandler, EventHandler, Filtered, HandlerOptions, Policy};
pub(crate) use listener::Listener;
pub use stream::EventStream;
pub(crate) use stream::channel;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::entry::Stored;
use crate::event::{Event, UpdateReason};
use crate::indexer::Indexer;

/// The handlers of one informer. Kept under one lock, with which the store changes too.
pub(crate) struct Processor<S> {
    listeners: Vec<Arc<Listener<S>>>,
    synced: bool,
    next_id: u64,
}

// === impl Processor ===

impl<S: Stored> Processor<S> {
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

    /// Adds a handler, which is first told of everything in `indexer`.
    pub(crate) fn add(&mut self, listener: Arc<Listener<S>>, indexer: &Indexer<S>) {
        listener.replay(indexer.list());
        if self.synced {
            listener.upstream_synced();
        }
        self.listeners.push(listener);
    }

    /// Forgets handlers that were removed.
    pub(crate) fn prune(&mut self) {
        self.listeners.retain(|listener| !listener.is_removed());
    }

    /// Tells every handler; of an object that is only shown again, those whose period is over.
    pub(crate) fn distribute(&self, events: Vec<Event<S>>) {
        let Some((last, rest)) = self.listeners.split_last() else {
            return;
        };
        for listener in rest {
            listener.extend(events.iter().cloned());
        }
        last.extend(events.into_iter());
    }

    /// Shows everything in `indexer` again to the handlers whose period is over.
    pub(crate) fn resync(&self, indexer: &Indexer<S>) {
        let mut objects = None;
        for listener in self.listeners.iter().filter(|listener| listener.is_due()) {
            let objects = objects.get_or_insert_with(|| indexer.list());
            listener.extend(objects.iter().map(|object| Event::Updated {
                old: Arc::clone(object),
                new: Arc::clone(object),
                reason: UpdateReason::Resync,
            }));
            listener.resynced();
        }
    }

    /// Marks handlers whose resync is due at `now`; true if there are any. `settled` says that all former ones were
    /// shown (client-go: `shouldResync`, which takes that for granted).
    pub(crate) fn mark_due(&self, now: Instant, settled: bool) -> bool {
        // Not `any`: every handler's schedule moves.
        self.listeners
            .iter()
            .filter(|listener| listener.mark_due(now, settled))
            .count()
            > 0
    }

    /// When the next handler wants a resync.
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

    /// Has the handlers that share the informer's task look at their queues.
    pub(crate) fn wake_inline(&self) {
        for listener in self.inline() {
            listener.wake();
        }
    }

    /// A handler that wants to be waited for and whose queue is full.
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

/// The shortest resync period (client-go: `minimumResyncPeriod`).
pub(crate) const MINIMUM_RESYNC: Duration = Duration::from_secs(1);
