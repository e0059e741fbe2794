//! The state that all handles to one informer share: [`Inner`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::error::RunError;
use super::feed::Feed;
use super::handlers::RunningHandlers;
use super::metrics_provider::Gauges;
use super::namespaces::NamespaceSet;
use super::part::{self, Part};
use super::source::Source;
use crate::health::{Activity, CacheHealth, HandlerHealth};
use crate::indexer::{Indexer, NAMESPACE_INDEX};
use crate::metrics::Recorder;
use crate::object::Stored;
use crate::processor::{Listener, Processor};
use crate::turns::PIECE;
use reeve_client::ResourceVersion;
use reeve_client::transport::Scope;

/// The state that all handles to one informer share.
pub(crate) struct Inner<S: Stored + ?Sized> {
    pub(super) name: Arc<str>,
    pub(super) namespaces: Option<NamespaceSet>,
    pub(super) default_resync: Option<Duration>,
    pub(super) made: Timestamp,
    pub(super) indexer: Arc<Indexer<S>>,
    pub(super) source: Source<S>,
    /// In the order of their scopes. One, unless there is a set of namespaces.
    pub(super) feeds: watch::Sender<Arc<[Arc<Feed<S>>]>>,
    pub(super) recorder: Recorder,
    /// The time of the last change of the store, in microseconds; 0 before.
    pub(super) last_change: AtomicI64,
    pub(super) processor: Mutex<Processor<S>>,
    /// Held while a batch is applied to the store, which may take several turns of the task, and while the watches change.
    pub(super) applying: tokio::sync::Mutex<()>,
    /// The namespaces that no watch covers any more, until the store has none of their objects.
    pub(super) leaving: Mutex<BTreeSet<Arc<str>>>,
    /// Notified when a handler was added, or has a new resync schedule.
    pub(super) handlers_changed: Notify,
    pub(super) stage: watch::Sender<Stage>,
    /// All of the first lists is in the handlers' queues.
    pub(super) handlers_synced: AtomicBool,
    pub(super) version: watch::Sender<ResourceVersion>,
    /// Notified when the store has come further, or the namespaces have changed.
    pub(super) moved: Notify,
}

/// The stage of an informer's life. It goes one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Created,
    Running,
    Stopped,
}

// === impl Inner: stages ===

impl<S: Stored + ?Sized> Inner<S> {
    /// Moves from `Created` to `Running`.
    pub(super) fn begin(&self) -> Result<(), RunError> {
        let begun = self.stage.send_if_modified(|stage| {
            let created = *stage == Stage::Created;
            if created {
                *stage = Stage::Running;
            }
            created
        });
        if begun {
            return Ok(());
        }
        Err(RunError::StartedBefore {
            name: Arc::clone(&self.name),
        })
    }

    /// Moves to `Stopped` if `from` accepts the present stage, wakes all pending waits, and closes all handlers.
    pub(super) fn end(&self, from: impl FnOnce(Stage) -> bool) {
        let listeners = {
            let mut processor = self.processor.lock();
            let ends = self.stage.send_if_modified(|stage| {
                let ends = from(*stage);
                if ends {
                    *stage = Stage::Stopped;
                }
                ends
            });
            if !ends {
                return;
            }
            processor.take()
        };
        // After the lock: the drop of what a handler holds may call the informer.
        for listener in listeners {
            listener.close();
        }
    }

    pub(super) fn end_unless_run(&self) {
        self.end(|stage| stage == Stage::Created);
    }
}

impl<S: Stored + ?Sized> Drop for Inner<S> {
    fn drop(&mut self) {
        // Handles of handlers may be left, and wait for the end.
        self.end_unless_run();
    }
}

// === impl Inner: watches ===

impl<S: Stored + ?Sized> Inner<S> {
    pub(super) fn feeds(&self) -> Arc<[Arc<Feed<S>>]> {
        Arc::clone(&self.feeds.borrow())
    }

    /// Makes the watches equal to the namespaces of the set: one for each. Returns the new ones. The objects of the others
    /// are still to be removed, before anything else changes the store: [`Inner::remove_piece`].
    ///
    /// The store keeps its objects of a namespace that stays in view, also when all namespaces become one watch or stop
    /// being one. A new watch accepts nothing older than the newest version that any other has brought.
    pub(super) async fn follow_namespaces(&self) -> Vec<Arc<Feed<S>>> {
        let Some(namespaces) = &self.namespaces else {
            return Vec::new();
        };
        let _applying = self.applying.lock().await;
        let wanted = namespaces.parts();
        let (new, gone) = self.set_feeds(&wanted);
        if gone && !wanted.contains_key(&Scope::Cluster) {
            let mut names = self
                .indexer
                .index_values(NAMESPACE_INDEX)
                .unwrap_or_default();
            names.retain(|name| !wanted.contains_key(&Scope::Namespace(Arc::clone(name))));
            self.leaving.lock().extend(names);
        }
        new
    }

    /// Makes one watch for each of these parts, and stops the others. Returns the new ones, and whether any was stopped.
    /// The caller prevents other changes of the watches, and removes the objects that no watch covers any more.
    pub(super) fn set_feeds(&self, wanted: &BTreeMap<Scope, Part>) -> (Vec<Arc<Feed<S>>>, bool) {
        let (mut feeds, gone): (Vec<_>, Vec<_>) = self
            .feeds()
            .iter()
            .cloned()
            .partition(|feed| wanted.get(&feed.scope) == Some(&feed.part));
        let newest = self.indexer.resource_version();
        let leaving = self.leaving.lock().clone();
        // What such a feed held is read again by one that leaves out other parts.
        let rereads = |scope: &Scope| {
            let mut names = leaving.clone();
            for former in &gone {
                names.extend(former.rereads().iter().cloned());
                // What a watch of all leaves to another one, or gets from it, is the namespace of that.
                let name = match (&former.scope, scope) {
                    (Scope::Namespace(name), Scope::Cluster)
                    | (Scope::Cluster, Scope::Namespace(name)) => Some(name),
                    _ => None,
                };
                let differ = !self.source.skips_alike(&former.scope, scope);
                names.extend(name.filter(|_| differ).cloned());
            }
            if let Scope::Namespace(name) = scope {
                names.retain(|one| one == name);
            }
            Arc::new(names)
        };
        let new: Vec<_> = wanted
            .iter()
            .filter(|(scope, _)| {
                // The feeds are in the order of their scopes.
                let held = feeds.binary_search_by(|feed| feed.scope.cmp(scope));
                held.is_err()
            })
            .map(|(scope, part)| {
                let rereads = rereads(scope);
                let (scope, part) = (scope.clone(), part.clone());
                self.source.feed(scope, part, newest.clone(), rereads)
            })
            .collect();
        feeds.extend(new.iter().cloned());
        feeds.sort_by(|a, b| a.scope.cmp(&b.scope));
        for feed in &gone {
            feed.stop();
        }
        let parts = feeds.iter().filter_map(|feed| feed.part.name());
        let parts: Vec<Arc<str>> = parts.map(Arc::from).collect();
        self.feeds.send_replace(feeds.into());
        self.indexer
            .change(|change| change.set_parts(parts.into_iter()));
        (new, !gone.is_empty())
    }

    /// Removes objects of a namespace that was watched, in one step. A handler that is added between two steps receives
    /// the objects that are left, and then their deletions. Returns their number; `None` if there is no such namespace.
    pub(super) fn remove_piece(&self) -> Option<usize> {
        // Only the pipeline changes `leaving`, and it is not locked meanwhile: readers of the store ask for it.
        let namespace = self.leaving.lock().first().cloned()?;
        let processor = self.processor.lock();
        let events = part::remove_piece(&self.indexer, &namespace);
        let removed = events.len();
        if removed > 0 {
            self.record_change();
        }
        processor.distribute(events);
        drop(processor);
        if removed < PIECE {
            self.leaving.lock().remove(&namespace);
        }
        Some(removed)
    }

    pub(super) fn covers(&self, scope: &Scope) -> bool {
        match &self.namespaces {
            Some(namespaces) => namespaces.contains(scope),
            None => self.source.selection.scope.contains(scope),
        }
    }

    pub(super) fn has_synced(&self) -> bool {
        let feeds = self.feeds.borrow();
        let ran = match *self.stage.borrow() {
            Stage::Created => false,
            Stage::Running => true,
            // It may have been stopped before it ran.
            Stage::Stopped => self.handlers_synced.load(Ordering::Relaxed),
        };
        ran && feeds.iter().all(|feed| feed.has_synced())
            // A namespace of the set may have no watch yet.
            && self.namespaces.as_ref().is_none_or(|namespaces| {
                let parts = feeds.iter().map(|feed| (&feed.scope, &feed.part));
                parts.eq(&namespaces.parts())
            })
    }

    /// True once the store has everything in scope, and nothing else.
    pub(super) fn has_settled(&self) -> bool {
        self.has_synced() && self.leaving.lock().is_empty()
    }

    pub(super) fn has_synced_in(&self, scope: &Scope) -> bool {
        let feeds = self.feeds.borrow();
        let mut of_scope = feeds.iter().filter(|feed| feed.meets(scope)).peekable();
        self.covers(scope) && of_scope.peek().is_some() && of_scope.all(|feed| feed.has_synced())
    }

    /// The oldest version of the watches that `wanted` accepts; empty if one of them was not listed, or there is none.
    pub(super) fn oldest_version(&self, wanted: impl Fn(&Feed<S>) -> bool) -> ResourceVersion {
        let feeds = self.feeds.borrow();
        let wanted = feeds.iter().filter(|feed| wanted(feed));
        let mut versions = wanted.map(|feed| feed.version());
        let first = versions.next().unwrap_or_default();
        versions.fold(first, |oldest, version| {
            let older = version.is_empty() || version.is_older_than(&oldest);
            if older && !oldest.is_empty() {
                version
            } else {
                oldest
            }
        })
    }
}

// === impl Inner: steps of the pipeline ===

impl<S: Stored + ?Sized> Inner<S> {
    /// Publishes how far the store has come: the version, and that it has synced.
    pub(super) fn publish(&self) {
        if !self.handlers_synced.load(Ordering::Relaxed) && self.has_synced() {
            self.processor.lock().upstream_synced();
            self.handlers_synced.store(true, Ordering::Relaxed);
        }
        let version = self.oldest_version(|_| true);
        self.version.send_if_modified(|held| {
            let news = *held != version;
            if news {
                *held = version;
            }
            // A receiver that is made later begins with this version. Without one, nothing has to be woken.
            news && self.version.receiver_count() > 0
        });
        self.moved.notify_waiters();
    }

    /// Records the time of a change.
    pub(super) fn record_change(&self) {
        let now = self.source.clock.now().as_microsecond();
        self.last_change.store(now, Ordering::Relaxed);
    }

    /// Starts the handlers that were added.
    pub(super) fn start_handlers(self: &Arc<Self>, handlers: &mut RunningHandlers) {
        let mut processor = self.processor.lock();
        processor.prune();
        for listener in processor.listeners() {
            if listener.start() {
                let inner = Arc::clone(self);
                let running = Arc::clone(listener).run(move |listener| inner.catch_up(listener));
                handlers.start(Box::pin(running), listener.is_inline());
            }
        }
    }

    /// True if there is something to process: in a FIFO, or of a namespace that was watched.
    pub(super) fn has_queued(&self) -> bool {
        let feeds = self.feeds();
        feeds.iter().any(|feed| !feed.fifo.is_empty()) || !self.leaving.lock().is_empty()
    }

    /// Enqueues a resync in each FIFO, if the resync of a handler is due.
    pub(super) fn resync_due(&self) {
        let feeds = self.feeds();
        let settled = feeds.iter().all(|feed| feed.fifo.is_empty());
        if self.processor.lock().mark_due(Instant::now(), settled) {
            for feed in feeds.iter() {
                feed.fifo.resync();
            }
        }
    }

    /// The processor, for a caller that may be any code. The pipeline changes the store under this lock, and waits for the
    /// loans of the store.
    ///
    /// # Panics
    /// Within a loan of the store: both would wait for each other.
    pub(super) fn lock_processor(&self) -> MutexGuard<'_, Processor<S>> {
        self.indexer.check_not_lent();
        self.processor.lock()
    }

    /// Makes up for the events that were dropped from a handler's queue.
    pub(super) fn catch_up(&self, listener: &Listener<S>) {
        // Under the processor's lock the store does not change.
        let _unchanging = self.processor.lock();
        listener.catch_up(|key| self.indexer.get(key));
    }
}

// === impl Inner: health ===

impl<S: Stored + ?Sized> Gauges for Inner<S> {
    fn read(&self) -> CacheHealth {
        let handlers = self
            .lock_processor()
            .listeners()
            .iter()
            // A removed one stays in the list until the next change.
            .filter(|listener| !listener.is_removed())
            .map(|listener| HandlerHealth {
                name: Arc::clone(&listener.name),
                synced: listener.has_synced(),
                backlog: listener.backlog(),
                delivered: listener.delivered(),
                dropped: listener.dropped(),
                panics: listener.panics(),
            })
            .collect();
        let feeds = self.feeds();
        let watches = feeds.iter().map(|feed| feed.health()).collect();
        let mut health = CacheHealth::of(Arc::clone(&self.name), self.made, watches);
        for feed in feeds.iter() {
            feed.health.add_quarantined_to(&mut health);
            health.queued += feed.fifo.len();
        }
        health.synced = self.has_synced();
        health.was_synced = health.synced || self.handlers_synced.load(Ordering::Relaxed);
        health.objects = self.indexer.len();
        health.bytes = self.indexer.bytes();
        health.unreadable = self.source.cache.unreadable_count();
        health.resource_version = self.version.borrow().clone();
        health.handlers = handlers;
        let last_change = self.last_change.load(Ordering::Relaxed);
        health.last_change = (last_change != 0)
            .then(|| Timestamp::from_microsecond(last_change).ok())
            .flatten();
        match *self.stage.borrow() {
            Stage::Created => health.activity = Activity::Idle,
            Stage::Running => {}
            Stage::Stopped => health.activity = Activity::Stopped,
        }
        health
    }
}
