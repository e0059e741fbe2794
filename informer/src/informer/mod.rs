//! The shared informer: one watch, one store, many handlers.

mod builder;
mod feed;
mod namespaces;
mod run;
mod several;
mod wait;

pub use builder::Builder;
pub use feed::Within;
pub use namespaces::NamespaceSet;
pub use run::RunError;
pub use wait::WaitError;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use kube_client::Client;
use kube_core::Resource;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::entry::{Stored, ViewError};
use crate::factory::Lease;
use crate::health::{Activity, CacheHealth, HandlerHealth};
use crate::indexer::{self, IndexValues, Indexer};
use crate::key::KeyRef;
use crate::lister::Lister;
use crate::metrics::{Gauges, Recorder};
use crate::processor::{
    AsyncEventHandler, EventHandler, EventStream, Filtered, HandlerHandle, HandlerOptions,
    Listener, Processor, Receiver, channel,
};
use crate::transport::{Endpoint, Scope, Selection};
use crate::version::ResourceVersion;
use feed::{Feed, Source};

/// Keeps a store equal to what an API server holds of one kind and selection, and tells handlers what
/// changes. Cloning gives another handle to the same.
///
/// It does nothing until [`SharedInformer::run`] is awaited, by the caller or by an
/// [`InformerFactory`](crate::InformerFactory).
pub struct SharedInformer<S: Stored> {
    inner: Arc<Inner<S>>,
    /// That of a factory goes on while it is in use.
    lease: Option<Arc<Lease>>,
}

pub(crate) struct Inner<S: Stored> {
    name: Arc<str>,
    namespaces: Option<NamespaceSet>,
    default_resync: Option<Duration>,
    made: Timestamp,
    indexer: Arc<Indexer<S>>,
    source: Source<S>,
    /// In the order of their scopes. One, unless there is a set of namespaces.
    feeds: watch::Sender<Arc<[Arc<Feed<S>>]>>,
    recorder: Recorder,
    /// When something in the store changed last, in microseconds; 0 before.
    last_change: AtomicI64,
    processor: Mutex<Processor<S>>,
    /// A handler was added, or its resync schedule is new.
    handlers_changed: Notify,
    stage: watch::Sender<Stage>,
    /// Handlers were told that the first lists are in their queues.
    told_synced: AtomicBool,
    version: watch::Sender<ResourceVersion>,
    /// The store has come further, or the namespaces have changed.
    moved: watch::Sender<()>,
}

/// Where an informer is in its life. It goes one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Created,
    Running,
    Stopped,
}

/// The informer has stopped and takes no more handlers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the informer {name} has stopped; build a new one")]
pub struct Stopped {
    /// The informer's name.
    pub name: Arc<str>,
}

// === impl SharedInformer ===

impl<K> SharedInformer<K>
where
    K: Stored + Resource,
    K::DynamicType: Default,
{
    /// Begins an informer of a kind that is known at compile time.
    pub fn builder(client: Client) -> Builder<K> {
        Builder::new(client, Endpoint::of::<K>())
    }
}

impl<S: Stored> SharedInformer<S> {
    /// Begins an informer of the kind at `endpoint`.
    pub fn builder_for(client: Client, endpoint: Endpoint) -> Builder<S> {
        Builder::new(client, endpoint)
    }

    /// The same informer, in use for as long as `lease` is held.
    pub(crate) fn leased(informer: &Self, lease: Arc<Lease>) -> Self {
        Self {
            inner: Arc::clone(&informer.inner),
            lease: Some(lease),
        }
    }

    /// Whether both are handles to the same informer.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The informer's name, for logs and metrics.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The kind.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.source.endpoint
    }

    /// Which objects of the kind. With a set of namespaces the scope is the whole cluster.
    #[must_use]
    pub fn selection(&self) -> &Selection {
        &self.inner.source.selection
    }

    /// The set of namespaces, if it was made with one.
    #[must_use]
    pub fn namespaces(&self) -> Option<&NamespaceSet> {
        self.inner.namespaces.as_ref()
    }

    /// Whether the informer watches all of `scope`.
    #[must_use]
    pub fn covers(&self, scope: &Scope) -> bool {
        self.inner.covers(scope)
    }

    /// Tells `handler` of every change from now on, and first of every object that is in the store. This may
    /// be done before the informer runs and while it does; the same handler may be added many times.
    ///
    /// # Errors
    /// [`Stopped`] if the informer has stopped.
    pub fn add_handler(
        &self,
        handler: impl EventHandler<S>,
        options: HandlerOptions,
    ) -> Result<HandlerHandle<S>, Stopped> {
        self.add(Receiver::Callback(Arc::new(handler)), options)
    }

    /// As [`SharedInformer::add_handler`], for a handler that takes its time.
    ///
    /// # Errors
    /// [`Stopped`] if the informer has stopped.
    pub fn add_async_handler(
        &self,
        handler: impl AsyncEventHandler<S>,
        options: HandlerOptions,
    ) -> Result<HandlerHandle<S>, Stopped> {
        self.add(Receiver::Task(Arc::new(handler)), options)
    }

    /// Every change from now on, and first every object that is in the store, as a stream.
    ///
    /// # Errors
    /// [`Stopped`] if the informer has stopped.
    pub fn stream(&self, options: HandlerOptions) -> Result<EventStream<S>, Stopped> {
        let (sender, events) = channel();
        let handle = self.add_async_handler(sender, options)?;
        Ok(EventStream::new(events, handle))
    }

    /// As [`SharedInformer::stream`], of what concerns objects that satisfy `condition`; see [`Filtered`].
    ///
    /// # Errors
    /// [`Stopped`] if the informer has stopped.
    pub fn stream_where(
        &self,
        condition: impl Fn(&S) -> bool + Send + Sync + 'static,
        options: HandlerOptions,
    ) -> Result<EventStream<S>, Stopped> {
        let (sender, events) = channel();
        let handle = self.add_async_handler(Filtered::new(condition, sender), options)?;
        Ok(EventStream::new(events, handle))
    }

    fn add(
        &self,
        receiver: Receiver<S>,
        options: HandlerOptions,
    ) -> Result<HandlerHandle<S>, Stopped> {
        let inner = &self.inner;
        let mut processor = inner.processor.lock();
        if *inner.stage.borrow() == Stage::Stopped {
            return Err(Stopped {
                name: Arc::clone(&inner.name),
            });
        }
        let id = processor.next_id();
        let listener = Listener::new(
            id,
            receiver,
            options,
            inner.recorder.clone(),
            inner.default_resync,
            self.lease.clone(),
        );
        let listener = Arc::new(listener);
        processor.prune();
        processor.add(Arc::clone(&listener), &inner.indexer);
        drop(processor);
        inner.handlers_changed.notify_one();
        Ok(HandlerHandle::new(listener))
    }

    /// Adds a named index, before or after the start. See [`Indexer::add_index`].
    ///
    /// # Errors
    /// [`indexer::Error::Exists`] if there is an index of this name.
    pub fn add_indexer(
        &self,
        name: impl Into<Arc<str>>,
        function: impl Fn(&S) -> IndexValues + Send + Sync + 'static,
    ) -> Result<(), indexer::Error> {
        self.inner.indexer.add_index(name, function)
    }

    /// Adds an index of the values of a label, which label selectors use. See [`Indexer::add_label_index`].
    ///
    /// # Errors
    /// [`indexer::Error::Exists`] if there is one already.
    pub fn add_label_index(&self, label: impl Into<Arc<str>>) -> Result<(), indexer::Error> {
        self.inner.indexer.add_label_index(label)
    }

    /// Reads from the store.
    #[must_use]
    pub fn lister(&self) -> Lister<S> {
        Lister::new(Arc::clone(&self.inner.indexer), self.lease.clone())
    }

    /// The store itself, for reading.
    #[must_use]
    pub fn indexer(&self) -> &Arc<Indexer<S>> {
        &self.inner.indexer
    }

    /// True once the first list is in the store. It stays so, unless a namespace is added to the set: then that
    /// has to be listed too.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.inner.has_synced()
    }

    /// True once what is watched of `scope` is in the store, whatever else is still to be listed. False for what is not
    /// watched.
    #[must_use]
    pub fn has_synced_in(&self, scope: &Scope) -> bool {
        self.inner.has_synced_in(scope)
    }

    /// True once the informer has ended, or its run was dropped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.inner.stage.borrow() == Stage::Stopped
    }

    /// The version of the store's content (client-go: `LastSyncResourceVersion`): everything up to it is in the
    /// store. With a set of namespaces it is the oldest of theirs; empty until all are listed.
    #[must_use]
    pub fn last_sync_resource_version(&self) -> ResourceVersion {
        self.inner.version.borrow().clone()
    }

    /// The version of what the store holds of `scope`, whatever it holds of others: the oldest of the watches that may
    /// bring something of it. Empty until they are listed, and of what is not watched.
    #[must_use]
    pub fn resource_version_in(&self, scope: &Scope) -> ResourceVersion {
        self.inner.oldest_of(|feed| feed.meets(scope))
    }

    /// Tells of each new [version](Self::last_sync_resource_version) of the store's content, after handlers' queues
    /// have the changes.
    #[must_use]
    pub fn versions(&self) -> watch::Receiver<ResourceVersion> {
        self.inner.version.subscribe()
    }

    /// Counts and logs that an object of the store could not be read as a reader wanted it, for forms that do not find
    /// that out themselves ([`CacheHealth::unreadable`]). Say it once a version of an object.
    pub fn report_unreadable(&self, key: KeyRef<'_>, error: &ViewError) {
        self.inner.source.reading.unreadable(key, error);
    }

    /// How the informer is doing.
    #[must_use]
    pub fn health(&self) -> CacheHealth {
        self.inner.read()
    }
}

// === impl Inner ===

impl<S: Stored> Gauges for Inner<S> {
    fn read(&self) -> CacheHealth {
        let handlers = self
            .processor
            .lock()
            .listeners()
            .iter()
            // One that was removed is there until the next change.
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
            feed.health.tell_quarantined(&mut health);
            health.queued += feed.fifo.len();
        }
        health.synced = self.has_synced();
        health.was_synced = health.synced || self.told_synced.load(Ordering::Relaxed);
        health.objects = self.indexer.len();
        health.bytes = self.indexer.bytes();
        health.unreadable = self.source.reading.unreadable_count();
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

impl<S: Stored> Inner<S> {
    fn feeds(&self) -> Arc<[Arc<Feed<S>>]> {
        Arc::clone(&self.feeds.borrow())
    }

    fn covers(&self, scope: &Scope) -> bool {
        match &self.namespaces {
            Some(namespaces) => namespaces.contains(scope),
            None => self.source.selection.scope.contains(scope),
        }
    }

    fn has_synced(&self) -> bool {
        let feeds = self.feeds.borrow();
        let ran = match *self.stage.borrow() {
            Stage::Created => false,
            Stage::Running => true,
            // It may have been stopped before it ran.
            Stage::Stopped => self.told_synced.load(Ordering::Relaxed),
        };
        ran && feeds.iter().all(|feed| feed.has_synced())
            // A namespace may have come that has no watch yet.
            && self.namespaces.as_ref().is_none_or(|namespaces| {
                let parts = feeds.iter().map(|feed| (&feed.scope, &feed.part));
                parts.eq(&namespaces.parts())
            })
    }

    fn has_synced_in(&self, scope: &Scope) -> bool {
        let feeds = self.feeds.borrow();
        let mut of_scope = feeds.iter().filter(|feed| feed.meets(scope)).peekable();
        self.covers(scope) && of_scope.peek().is_some() && of_scope.all(|feed| feed.has_synced())
    }

    /// What is in the store is at least of this version.
    fn oldest_version(&self) -> ResourceVersion {
        self.oldest_of(|_| true)
    }

    /// The oldest version of those watches; empty if one was not listed, or there is none.
    fn oldest_of(&self, wanted: impl Fn(&Feed<S>) -> bool) -> ResourceVersion {
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

impl<S: Stored> Clone for SharedInformer<S> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            lease: self.lease.clone(),
        }
    }
}

impl<S: Stored> std::fmt::Debug for SharedInformer<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedInformer")
            .field("name", &self.inner.name)
            .field("synced", &self.has_synced())
            .field("objects", &self.inner.indexer.len())
            .finish_non_exhaustive()
    }
}
