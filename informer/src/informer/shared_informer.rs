//! The handle to an informer: [`SharedInformer`].

use std::sync::Arc;

use kube_client::Client;
use kube_core::Resource;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::builder::Builder;
use super::error::{RunError, Stopped, WaitError};
use super::inner::{Inner, Stage};
use super::metrics_provider::Gauges;
use super::namespaces::NamespaceSet;
use super::pipeline;
use super::stopping::StopUnlessRun;
use crate::health::CacheHealth;
use crate::indexer::{self, IndexValues, Indexer};
use crate::lister::Lister;
use crate::object::{EntryType, Form, Stored, ViewError};
use crate::processor::{
    AsyncEventHandler, EventHandler, EventStream, Filtered, HandlerHandle, HandlerOptions,
    Listener, Receiver, channel,
};
use crate::use_count::InUse;
use reeve_client::transport::{Endpoint, Scope, Selection};
use reeve_client::{KeyRef, ResourceVersion};

/// Keeps a store equal to what an API server holds of one kind and selection, and delivers each change to handlers.
/// A clone is another handle to the same informer.
///
/// It does nothing until [`SharedInformer::run`] is awaited, by the caller or by an
/// [`InformerFactory`](crate::InformerFactory).
pub struct SharedInformer<S: Stored + ?Sized> {
    pub(super) inner: Arc<Inner<S>>,
    /// An informer of a factory runs while it is in use.
    pub(super) in_use: Option<Arc<InUse>>,
}

// === impl SharedInformer ===

impl<K> SharedInformer<K>
where
    K: Form + Resource,
    K::DynamicType: Default,
{
    /// Begins an informer of a kind that is known at compile time.
    pub fn builder(client: Client) -> Builder<K> {
        Self::builder_for(client, Endpoint::of::<K>())
    }
}

impl<S: Form> SharedInformer<S> {
    /// Begins an informer of the kind at `endpoint`.
    pub fn builder_for(client: Client, endpoint: Endpoint) -> Builder<S> {
        Self::builder_of(EntryType::known(), client, endpoint)
    }
}

impl<S: Stored + ?Sized> SharedInformer<S> {
    /// Begins an informer of the kind at `endpoint`, with entries of a type that is a value.
    pub fn builder_of(entry_type: EntryType<S>, client: Client, endpoint: Endpoint) -> Builder<S> {
        Builder::new(entry_type, client, endpoint)
    }

    /// The same informer, in use while the handle lives.
    pub(crate) fn used(informer: &Self, in_use: Arc<InUse>) -> Self {
        Self {
            inner: Arc::clone(&informer.inner),
            in_use: Some(in_use),
        }
    }

    /// True if both are handles to the same informer.
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

    /// True if the informer watches all of `scope`.
    #[must_use]
    pub fn covers(&self, scope: &Scope) -> bool {
        self.inner.covers(scope)
    }
}

// === impl SharedInformer: its run ===

impl<S: Stored + ?Sized> SharedInformer<S> {
    /// Runs until `stop` is cancelled; then drops the events that wait for handlers, and returns when the callbacks in
    /// flight are over. Dropping the future stops the informer too, at once.
    ///
    /// # Errors
    /// [`RunError::StartedBefore`] if it ran before.
    pub fn run(
        &self,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<(), RunError>> + Send + use<'_, S> {
        // Made here and not in the future, which may be dropped before it is polled.
        let end = self.end_unless_run();
        async move {
            let _end = end;
            self.inner.begin()?;
            pipeline::run(&self.inner, stop).await;
            Ok(())
        }
    }

    /// A guard that stops the informer when it is dropped, unless the informer has run by then.
    pub(crate) fn end_unless_run(&self) -> StopUnlessRun<S> {
        StopUnlessRun(Arc::clone(&self.inner))
    }
}

// === impl SharedInformer: waits ===

impl<S: Stored + ?Sized> SharedInformer<S> {
    /// Returns once everything in scope is in the store: the first list, or the first lists of all namespaces that the
    /// set has then. After a change of the set it waits for the lists of the new namespaces, and until the objects of
    /// others are gone. A handler with [`Policy::Block`](crate::Policy::Block) must not wait for it: the objects wait for
    /// its queue.
    ///
    /// # Errors
    /// [`WaitError::Stopped`] if the informer ends before.
    pub async fn wait_synced(&self) -> Result<(), WaitError> {
        self.until(|inner| inner.has_settled().then_some(Ok(())))
            .await
    }

    /// Returns once everything watched of `scope` is in the store, whatever else is still to be listed.
    ///
    /// # Errors
    /// [`WaitError::OutOfScope`] if the informer does not watch the scope (any more), [`WaitError::Stopped`] if it ends
    /// before.
    pub async fn wait_synced_in(&self, scope: &Scope) -> Result<(), WaitError> {
        self.until(|inner| {
            if !inner.covers(scope) {
                return Some(Err(WaitError::OutOfScope {
                    name: Arc::clone(&inner.name),
                    scope: scope.clone(),
                }));
            }
            inner.has_synced_in(scope).then_some(Ok(()))
        })
        .await
    }

    /// Returns once the store holds everything that happened in `scope` up to `version`, the version of an object or a
    /// list: after that, readers see it. Without other changes of the kind this may take until the next
    /// bookmark, about a minute, unless `version` is of an object that this informer watches.
    ///
    /// An opaque version counts as reached.
    ///
    /// # Errors
    /// [`WaitError::OutOfScope`] if the informer does not watch the scope (any more), or watches only some
    /// namespaces of it; [`WaitError::Stopped`] if it ends before.
    pub async fn wait_for_resource_version(
        &self,
        scope: &Scope,
        version: &ResourceVersion,
    ) -> Result<(), WaitError> {
        self.until(|inner| {
            if !inner.covers(scope) {
                return Some(Err(WaitError::OutOfScope {
                    name: Arc::clone(&inner.name),
                    scope: scope.clone(),
                }));
            }
            let feeds = inner.feeds();
            let mut of_scope = feeds.iter().filter(|feed| feed.meets(scope)).peekable();
            of_scope.peek()?;
            of_scope
                .all(|feed| feed.has_synced() && feed.version().reaches(version))
                .then_some(Ok(()))
        })
        .await
    }

    /// Returns the first result of `done`, which is called after each step of the store, or that the informer stopped.
    async fn until<T>(
        &self,
        done: impl Fn(&Inner<S>) -> Option<Result<T, WaitError>>,
    ) -> Result<T, WaitError> {
        let mut stage = self.inner.stage.subscribe();
        loop {
            // Made before the look: it receives every later notice, also before it is polled.
            let moved = self.inner.moved.notified();
            if let Some(result) = done(&self.inner) {
                return result;
            }
            // The sender lives as long as `self`.
            tokio::select! {
                biased;
                () = moved => {}
                _ = stage.wait_for(|stage| *stage == Stage::Stopped) => {
                    return Err(WaitError::Stopped {
                        name: Arc::clone(&self.inner.name),
                    });
                }
            }
        }
    }
}

// === impl SharedInformer: handlers ===

impl<S: Stored + ?Sized> SharedInformer<S> {
    /// Delivers every change from now on to `handler`, after every object that is in the store. Handlers may be added
    /// before the informer runs and while it does; the same handler may be added many times.
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

    /// As [`SharedInformer::add_handler`], for a handler that is asynchronous.
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

    /// As [`SharedInformer::stream`], for objects that satisfy `condition`; see [`Filtered`].
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
        let mut processor = inner.lock_processor();
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
            self.in_use.clone(),
        );
        let listener = Arc::new(listener);
        processor.prune();
        processor.add(Arc::clone(&listener), &inner.indexer);
        drop(processor);
        inner.handlers_changed.notify_one();
        Ok(HandlerHandle::new(listener))
    }
}

// === impl SharedInformer: its store and its state ===

impl<S: Stored + ?Sized> SharedInformer<S> {
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

    /// As [`SharedInformer::add_indexer`], for a store that may hold thousands of objects: other tasks run meanwhile. See
    /// [`Indexer::add_index_in_turns`].
    ///
    /// # Errors
    /// [`indexer::Error::Exists`] if there is an index of this name.
    pub async fn add_indexer_in_turns(
        &self,
        name: impl Into<Arc<str>>,
        function: impl Fn(&S) -> IndexValues + Send + Sync + 'static,
    ) -> Result<(), indexer::Error> {
        self.inner.indexer.add_index_in_turns(name, function).await
    }

    /// Adds an index of the values of a label, which label selectors use. See [`Indexer::add_label_index`].
    ///
    /// # Errors
    /// [`indexer::Error::Exists`] if there is one already.
    pub fn add_label_index(&self, label: impl Into<Arc<str>>) -> Result<(), indexer::Error> {
        self.inner.indexer.add_label_index(label)
    }

    /// Removes an index of [`SharedInformer::add_indexer`], and returns whether there was one. See
    /// [`Indexer::remove_index`].
    pub fn remove_indexer(&self, name: &str) -> bool {
        self.inner.indexer.remove_index(name)
    }

    /// Removes an index of [`SharedInformer::add_label_index`], and returns whether there was one. See
    /// [`Indexer::remove_label_index`].
    pub fn remove_label_index(&self, label: &str) -> bool {
        self.inner.indexer.remove_label_index(label)
    }

    /// A reader of the store.
    #[must_use]
    pub fn lister(&self) -> Lister<S> {
        Lister::new(Arc::clone(&self.inner.indexer), self.in_use.clone())
    }

    /// The store itself, for reading.
    #[must_use]
    pub fn indexer(&self) -> &Arc<Indexer<S>> {
        &self.inner.indexer
    }

    /// True once the first list is in the store. It stays true, unless a namespace is added to the set: then the
    /// list of that namespace has to be in the store too. Objects of a namespace that was removed may still be there.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.inner.has_synced()
    }

    /// True once everything watched of `scope` is in the store, whatever else is still to be listed. False for a scope
    /// that is not watched.
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
    /// bring something of it. Empty until they are listed, and for a scope that is not watched.
    #[must_use]
    pub fn resource_version_in(&self, scope: &Scope) -> ResourceVersion {
        self.inner.oldest_version(|feed| feed.meets(scope))
    }

    /// Sends each new [version](Self::last_sync_resource_version) of the store's content, after the changes are in the
    /// handlers' queues.
    #[must_use]
    pub fn versions(&self) -> watch::Receiver<ResourceVersion> {
        self.inner.version.subscribe()
    }

    /// Counts and logs that an object of the store could not be read as another type, for forms that do not report
    /// that themselves ([`CacheHealth::unreadable`]). Call it once for each version of an object.
    pub fn report_unreadable(&self, key: KeyRef<'_>, error: &ViewError) {
        self.inner.source.cache.unreadable(key, error);
    }

    /// The state of the informer.
    #[must_use]
    pub fn health(&self) -> CacheHealth {
        self.inner.read()
    }
}

impl<S: Stored + ?Sized> Clone for SharedInformer<S> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            in_use: self.in_use.clone(),
        }
    }
}

impl<S: Stored + ?Sized> std::fmt::Debug for SharedInformer<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedInformer")
            .field("name", &self.inner.name)
            .field("synced", &self.has_synced())
            .field("objects", &self.inner.indexer.len())
            .finish_non_exhaustive()
    }
}
