//! Reads from the caches through a client, which see the client's own writes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube_core::Selector;
use reeve_informer::{FieldSelector, ObjectKey};
use tokio::time::{Instant, sleep};

use reeve_client::{GroupKind, Object};

use super::asking::Asking;
use super::client::Client;
use super::effect::{FIRST_LOOK, LAST_LOOK, Notes, Write};
use crate::cache::{Caches, Lister, NotCached, ReadError, View};
use crate::metrics::Metrics;

/// The default time that a cached read waits for own writes, and for a cache that is not filled yet.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(10);

/// The limit in place of one beyond all time: thirty years.
pub(super) const FOREVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The reason why a read from the caches failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CachedError {
    /// No cache holds this kind.
    #[error(transparent)]
    NotCached(#[from] NotCached),
    /// The client belongs to no manager, so it has no caches to read.
    #[error(
        "{kind} cannot be read from a cache: this client has none; take that of Manager::client or Context::client"
    )]
    NoCaches {
        /// The kind.
        kind: String,
    },
    /// The cache is not filled, or does not watch the namespace.
    #[error(transparent)]
    Unread(#[from] ReadError),
}

/// The caches that a client reads, and the metrics of its waiting.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) caches: Caches,
    pub(crate) metrics: Metrics,
    /// The controller that reads.
    pub(crate) controller: String,
}

impl Reading {
    pub(crate) fn new(caches: &Caches, metrics: &Metrics, controller: &str) -> Self {
        Self {
            caches: caches.clone(),
            metrics: metrics.clone(),
            controller: controller.to_owned(),
        }
    }
}

/// Reads of one kind from the cache, as `V`. The returned objects are shared: clone one to change it.
///
/// A read first waits until the cache shows the earlier writes of this client to the same objects, so that a program
/// never decides on a state from before its own write. [`Client::cached`] lists the condition for each write. A read
/// does not wait for the writes of other clients, and a write does not wait.
#[derive(Clone)]
#[must_use]
pub struct Cached<V> {
    lister: Lister<V>,
    kind: GroupKind,
    client: Client,
    wait: Option<Duration>,
}

// === impl Client ===

impl Client {
    /// Reads of the type `K` from the caches of the manager this client belongs to
    /// ([`Manager::client`](crate::Manager::client), [`Context::client`](crate::Context::client)).
    ///
    /// A kind without a watch or a kept cache is an error: a read never makes an informer (controller-runtime does,
    /// unless `ReaderFailOnMissingInformer`).
    ///
    /// A read waits for this client's own writes (controller-runtime: `EnableReadYourWritesConsistency`), at most
    /// [`DEFAULT_WAIT`], or [a limit](Cached::wait_at_most), or [not at all](Cached::without_waiting):
    ///
    /// | the write | is seen when the cache |
    /// |---|---|
    /// | create, update, patch, apply, of a subresource too | holds the answered version of the object or a later one, or has passed that version: the object is outside its selector then, or gone |
    /// | one that changes nothing | as above, so at once |
    /// | delete | does not hold that uid any more; one that waits for finalizers is a change like others, and so is that of a Namespace |
    /// | one that removes the last finalizer of a deleted object | as a delete |
    /// | one that was refused, or never sent | at once: nothing happened |
    /// | one that may have happened (no answer, a server error, cancelled) | shows what one live read of the object found; a read that is not answered is made again after 250 ms, each further one after twice as long, and not before a `Retry-After` |
    /// | a delete of many that failed or may have happened | shows what one live list of their metadata found |
    /// | of an object that the labels of its answer leave out of the cache | does not hold it, or no older state of it |
    /// | of an object outside the cached namespaces, or a dry run | at once |
    /// | a create that leaves the name to the server and has no answer | at once: its object is unknown. Name objects that must not be created twice |
    /// | to more than 1,024 objects | for those that were written last; of one reconcile, or of one client outside of reconciles |
    ///
    /// The server of a cluster gets eight such live reads a second from all controllers and readers together. Further
    /// reads wait in line, no longer than the read or the key that needs them.
    ///
    /// When the time is over the read returns the state of the cache, and
    /// `reeve_read_your_writes_timeouts_total` counts it; those writes are not waited for again. With an informer
    /// that has no other traffic, "has passed" may take until the next bookmark, about a minute.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use reeve_controller::{Manager, ObjectKey, cache::View, client};
    /// # use std::time::Duration;
    /// # async fn example(manager: &Manager, key: &ObjectKey) -> Result<(), Box<dyn std::error::Error>> {
    /// // Once, before or while the manager runs; a controller that watches the kind does it, too.
    /// manager.caches().keep(&View::<ConfigMap>::typed())?;
    ///
    /// let maps = manager.client().cached::<ConfigMap>()?;
    /// let map = maps.get(key).await?; // an Option<Arc<ConfigMap>>
    /// let all = maps.wait_at_most(Duration::from_secs(1)).list(Some("default")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CachedError::NotCached`], and [`CachedError::NoCaches`] for a client that belongs to no manager.
    pub fn cached<K: Object>(&self) -> Result<Cached<K>, CachedError> {
        self.cached_as(&View::typed())
    }

    /// Reads through a view from the caches: dynamic objects, or metadata only.
    ///
    /// # Errors
    /// As [`Client::cached`].
    pub fn cached_as<V: 'static>(&self, view: &View<V>) -> Result<Cached<V>, CachedError> {
        let kind = GroupKind::from(view.kind().resource());
        let Some(reading) = self.reading() else {
            return Err(CachedError::NoCaches {
                kind: kind.to_string(),
            });
        };
        Ok(Cached {
            lister: reading.caches.view(view)?,
            kind,
            client: self.clone(),
            wait: Some(DEFAULT_WAIT),
        })
    }
}

// === impl Cached ===

impl<V: 'static> Cached<V> {
    /// Reads the present state of the cache, whatever this client wrote. A cache that is not filled is an error then.
    pub fn without_waiting(mut self) -> Self {
        self.wait = None;
        self
    }

    /// Waits for own writes for `limit` at most, and as long again for a cache that is not filled. [`Duration::MAX`]
    /// waits for as long as it takes.
    pub fn wait_at_most(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// The object with this key, or `None` if the cache has none.
    ///
    /// # Errors
    /// [`CachedError::Unread`] when the cache is not filled, or does not watch the namespace.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Arc<V>>, CachedError> {
        self.settled(key.namespace.as_deref(), |written| {
            (written.name == key.name || written.name.is_empty()) && same_namespace(written, key)
        })
        .await;
        Ok(self.lister.get(key)?)
    }

    /// The objects of one namespace, or of all that are cached.
    ///
    /// # Errors
    /// As [`Cached::get`].
    pub async fn list(&self, namespace: Option<&str>) -> Result<Vec<Arc<V>>, CachedError> {
        self.select(namespace, &Selector::default()).await
    }

    /// The objects whose labels satisfy `labels`, of one namespace or of all that are cached.
    ///
    /// # Errors
    /// As [`Cached::get`].
    pub async fn select(
        &self,
        namespace: Option<&str>,
        labels: &Selector,
    ) -> Result<Vec<Arc<V>>, CachedError> {
        self.select_fields(namespace, labels, &FieldSelector::default())
            .await
    }

    /// The objects whose labels and fields satisfy both selectors, of one namespace or of all that are cached.
    ///
    /// # Errors
    /// As [`Cached::get`], and for a field without an index.
    pub async fn select_fields(
        &self,
        namespace: Option<&str>,
        labels: &Selector,
        fields: &FieldSelector,
    ) -> Result<Vec<Arc<V>>, CachedError> {
        self.settled(namespace, |written| {
            namespace.is_none_or(|namespace| written.namespace.as_deref() == Some(namespace))
        })
        .await;
        Ok(self.lister.select_fields(namespace, labels, fields)?)
    }

    /// The lister of the kind, once it shows all writes of this client to the kind: for several reads of one state, and
    /// for reads that only the lister offers.
    pub async fn lister(&self) -> &Lister<V> {
        self.settled(None, |_| true).await;
        &self.lister
    }

    /// Whether the cache is filled where it is read.
    pub(super) fn answers(&self, namespace: Option<&str>) -> bool {
        self.lister.answers(namespace)
    }

    /// Waits until the cache is filled where it is read and shows this client's writes of the objects `concerned`, or
    /// the time is over.
    async fn settled(&self, namespace: Option<&str>, concerned: impl Fn(&ObjectKey) -> bool) {
        let (Some(limit), Some(reading)) = (self.wait, self.client.reading()) else {
            return;
        };
        if !self.lister.answers(namespace) {
            self.lister.wait_to_answer(namespace, limit).await;
        }
        let Some(notes) = self.client.notes() else {
            return;
        };
        // Later writes are not waited for.
        let mut writes = notes.of(&self.kind, concerned);
        let now = Instant::now();
        let deadline = now.checked_add(limit).unwrap_or_else(|| now + FOREVER);
        let mut look = FIRST_LOOK;
        let mut asking = Asking::after(0);
        let mut waited = false;
        loop {
            let unseen = self
                .look(reading, notes, writes, &mut asking, deadline)
                .await;
            let Some(first) = unseen.first() else { return };
            let now = Instant::now();
            if now >= deadline {
                reading.metrics.own_writes(&reading.controller, true);
                tracing::warn!(
                    kind = %self.kind, written = %first.key, waited = ?limit,
                    "the cache does not show an own write in time; reading all the same"
                );
                unseen.iter().for_each(|write| notes.forget(write));
                return;
            }
            if !waited {
                reading.metrics.own_writes(&reading.controller, false);
                waited = true;
            }
            sleep(look.min(deadline - now)).await;
            look = (look * 2).min(LAST_LOOK);
            writes = unseen;
        }
    }

    /// The writes that the caches do not show; forgets the others.
    async fn look(
        &self,
        reading: &Reading,
        notes: &Notes,
        writes: Vec<Write>,
        asking: &mut Asking,
        deadline: Instant,
    ) -> Vec<Write> {
        let caches = &reading.caches;
        let mut checked = writes.clone();
        if asking.is_due() {
            let answers = caches.ask_for_lost(&self.client, &mut checked, deadline);
            asking.note(answers.await);
        }
        for (write, checked) in writes.iter().zip(&checked) {
            if write != checked {
                notes.replace(write, checked);
            }
        }
        checked.retain(|write| {
            let seen = caches.has_seen(write);
            if seen {
                notes.forget(write);
            }
            !seen
        });
        checked
    }
}

/// Whether both keys are in one namespace; a key of a kind without namespaces may have one all the same.
fn same_namespace(written: &ObjectKey, key: &ObjectKey) -> bool {
    written.namespace.is_none() || written.namespace == key.namespace
}

impl<V> fmt::Debug for Cached<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached")
            .field("kind", &self.kind)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
