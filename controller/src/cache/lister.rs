//! Reading a kind from its cache.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube_core::Selector;
use reeve_informer::{
    CacheHealth, FieldSelector, KeyRef, ObjectKey, ResourceVersion, Scope, ViewError, indexer,
};

use super::View;
use super::slot::Slot;
use super::store::{Query, Store};

/// Reads the objects of a kind, as `V`, from the manager's cache. Cheap to clone; while one exists, the kind stays
/// cached. The returned objects are shared: clone one to change it.
///
/// A read has an answer only once the cache was filled: before that every read is [`ReadError::NotSynced`] with the
/// cause, so that an object of unknown state is never reported as missing (controller-runtime: `ErrCacheNotStarted`,
/// and blocking reads).
pub struct Lister<V> {
    slot: Arc<Slot>,
    view: View<V>,
}

/// A read without an answer. The absence of an object is an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The cache was not started, or its indexes are being made.
    #[error(
        "{kind} is not cached yet: the manager has not started its caches, or makes its indexes"
    )]
    NotStarted {
        /// The kind.
        kind: String,
    },
    /// The first list is not in the store.
    #[error("{kind} is not cached yet: {cause}")]
    NotSynced {
        /// The kind.
        kind: String,
        /// The cause.
        cause: String,
    },
    /// The namespace is not watched, so its objects are unknown.
    #[error(
        "{kind} is not cached in the namespace {namespace:?}, only in {cached:?}: add it to the namespaces of the \
         CacheOptions, or at run time with Caches::namespaces"
    )]
    Namespace {
        /// The kind.
        kind: String,
        /// The requested namespace.
        namespace: String,
        /// The namespaces that are cached.
        cached: Vec<String>,
    },
    /// There is no such index.
    #[error(transparent)]
    Index(#[from] indexer::Error),
    /// The stored form does not hold the requested data, or the object does not decode.
    #[error(transparent)]
    View(#[from] ViewError),
}

// === impl Lister ===

impl<V: 'static> Lister<V> {
    pub(super) fn new(slot: Arc<Slot>, view: View<V>) -> Self {
        Self { slot, view }
    }

    /// The object with this key, or `None` if there is none. For a kind without namespaces, the namespace of the key is
    /// ignored.
    ///
    /// # Errors
    /// [`ReadError`]; a missing object is not an error.
    pub fn get(&self, key: &ObjectKey) -> Result<Option<Arc<V>>, ReadError> {
        self.get_named(key.namespace.as_deref(), &key.name)
    }

    /// The object of this name, in `namespace` or cluster-scoped, without an owned key.
    ///
    /// # Errors
    /// As [`Lister::get`].
    pub fn get_named(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<V>>, ReadError> {
        let namespace = namespace.filter(|_| self.slot.kind.is_namespaced());
        let store = self.store(namespace)?;
        match store.get(KeyRef { namespace, name }) {
            Some(row) => Ok(Some(self.view.of_store(store, row)?)),
            None => Ok(None),
        }
    }

    /// Every object that is cached, in the order of the keys.
    ///
    /// Skips objects that do not decode, as a store of types does; [`Lister::health`] counts them.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn list(&self) -> Result<Vec<Arc<V>>, ReadError> {
        self.find(None, &Query::All)
    }

    /// The objects that satisfy `condition`.
    ///
    /// # Errors
    /// As [`Lister::list`].
    pub fn list_where(&self, condition: impl Fn(&V) -> bool) -> Result<Vec<Arc<V>>, ReadError> {
        let mut objects = self.list()?;
        objects.retain(|object| condition(object));
        Ok(objects)
    }

    /// The objects of one namespace.
    ///
    /// # Errors
    /// As [`Lister::list`].
    pub fn namespace(&self, namespace: &str) -> Result<Vec<Arc<V>>, ReadError> {
        self.find(Some(namespace), &Query::Namespace(namespace))
    }

    /// The objects whose labels satisfy `labels`, of one namespace or of all that are cached. A label with an
    /// index ([`Caches::add_label_index`](super::Caches::add_label_index)) is looked up there.
    ///
    /// # Errors
    /// As [`Lister::list`].
    pub fn select(
        &self,
        namespace: Option<&str>,
        labels: &Selector,
    ) -> Result<Vec<Arc<V>>, ReadError> {
        self.select_fields(namespace, labels, &FieldSelector::default())
    }

    /// The objects whose labels and fields satisfy both selectors, of one namespace or of all that are cached. Fields
    /// other than name and namespace need an index with the name of the field
    /// ([`Caches::add_index`](super::Caches::add_index)).
    ///
    /// # Errors
    /// As [`Lister::list`], and for a field without an index; the error names those with one.
    pub fn select_fields(
        &self,
        namespace: Option<&str>,
        labels: &Selector,
        fields: &FieldSelector,
    ) -> Result<Vec<Arc<V>>, ReadError> {
        let query = Query::Select {
            namespace,
            labels,
            fields,
        };
        self.find(namespace, &query)
    }

    /// The objects that have `value` in the index called `name`.
    ///
    /// # Errors
    /// As [`Lister::list`], and for an index that does not exist; the error names those that do.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<V>>, ReadError> {
        self.find(None, &Query::Index { name, value })
    }

    /// At most `limit` objects of one namespace, or of all, whose keys come after `after`: a page.
    ///
    /// # Errors
    /// As [`Lister::list`].
    pub fn list_range(
        &self,
        namespace: Option<&str>,
        after: Option<KeyRef<'_>>,
        limit: usize,
    ) -> Result<Vec<Arc<V>>, ReadError> {
        let query = Query::Range {
            namespace,
            after,
            limit,
        };
        self.find(namespace, &query)
    }

    /// The number of stored objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slot.store().map_or(0, |store| store.len())
    }

    /// True if none are stored, or the cache was not filled yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version of the store's content, which includes every change up to it. Empty before the first list.
    #[must_use]
    pub fn resource_version(&self) -> ResourceVersion {
        let store = self.slot.store();
        store.map_or_else(ResourceVersion::default, |store| store.resource_version())
    }

    /// Whether the cache was filled.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.slot.store().is_some_and(|store| store.has_synced())
    }

    /// Waits until the cache is filled, at most for `limit`. Before the manager runs it waits for the start, too.
    ///
    /// # Errors
    /// [`ReadError::NotSynced`] with the cause.
    pub async fn wait_synced(&self, limit: Duration) -> Result<(), ReadError> {
        let synced = async { self.slot.made().await.synced().await };
        match tokio::time::timeout(limit, synced).await {
            Ok(true) => Ok(()),
            _ => self.store(None).map(|_| ()),
        }
    }

    /// Whether the cache can answer for `namespace`, or for all that is watched; true, too, for a namespace that is not
    /// watched, because that is an answer.
    pub(crate) fn answers(&self, namespace: Option<&str>) -> bool {
        let (Some(store), scope) = (self.slot.store(), self.scope(namespace)) else {
            return false;
        };
        match scope {
            None => store.has_synced(),
            Some(scope) => !store.covers(&scope) || store.has_synced_in(&scope),
        }
    }

    /// Waits until it can, at most for `limit`. After a timeout the next read returns the cause.
    pub(crate) async fn wait_to_answer(&self, namespace: Option<&str>, limit: Duration) {
        let answers = async {
            let store = self.slot.made().await;
            match self.scope(namespace) {
                None => store.synced().await,
                Some(scope) => store.synced_in(&scope).await,
            }
        };
        let _ = tokio::time::timeout(limit, answers).await;
    }

    /// A namespace is ignored for a kind without namespaces.
    fn scope(&self, namespace: Option<&str>) -> Option<Scope> {
        let namespace = namespace.filter(|_| self.slot.kind.is_namespaced())?;
        Some(Scope::namespace(namespace))
    }

    /// The health of the cache; `None` before the manager has started it.
    #[must_use]
    pub fn health(&self) -> Option<CacheHealth> {
        self.slot.store().map(|store| store.health())
    }

    fn find(&self, namespace: Option<&str>, query: &Query<'_>) -> Result<Vec<Arc<V>>, ReadError> {
        let store = self.store(namespace)?;
        let rows = store.find(query)?;
        let mut objects = Vec::with_capacity(rows.len());
        for row in rows {
            match self.view.of_store(store, row) {
                Ok(object) => objects.push(object),
                Err(ViewError::Undecodable { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(objects)
    }

    /// The store, if it can answer for this namespace, or for all that it watches.
    fn store(&self, namespace: Option<&str>) -> Result<&Arc<Store>, ReadError> {
        let kind = || self.slot.kind.to_string();
        let store = self
            .slot
            .store()
            .ok_or_else(|| ReadError::NotStarted { kind: kind() })?;
        let synced = match namespace {
            None => store.has_synced(),
            Some(namespace) => {
                let scope = Scope::namespace(namespace);
                if !store.covers(&scope) {
                    return Err(ReadError::Namespace {
                        kind: kind(),
                        namespace: namespace.to_owned(),
                        cached: cached(store),
                    });
                }
                store.has_synced_in(&scope)
            }
        };
        if synced {
            return Ok(store);
        }
        let health = store.health();
        Err(ReadError::NotSynced {
            kind: kind(),
            cause: health.trouble().unwrap_or_else(|| "not synced".to_owned()),
        })
    }
}

/// The namespaces that a store watches.
fn cached(store: &Store) -> Vec<String> {
    let watches = store.health().watches;
    watches
        .iter()
        .filter_map(|watch| match &watch.scope {
            Scope::Cluster => None,
            Scope::Namespace(name) => Some(name.to_string()),
        })
        .collect()
}

impl<V> Clone for Lister<V> {
    fn clone(&self) -> Self {
        Self {
            slot: Arc::clone(&self.slot),
            view: self.view.clone(),
        }
    }
}

impl<V> fmt::Debug for Lister<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lister")
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}
