//! The store at one moment: [`StoreSnapshot`].

use std::sync::Arc;

use kube_core::Selector;

use super::index::Error;
use super::ordered::Ordered;
use super::replaced::Freed;
use super::state::State;
use crate::object::{FieldSelector, Stored};
use reeve_client::ResourceVersion;
use reeve_client::{KeyRef, ObjectKey};

/// The content of the store at one moment, at one resourceVersion. It stays the same while the store moves on.
///
/// Taking and cloning it copies nothing. While it is held, a change to the store copies what it changes: a chunk of 128
/// pointers an object, and once, at the first addition or deletion, the table of keys (about a millisecond for a
/// million objects). Objects that are replaced meanwhile stay in memory, so do not keep it.
///
/// All methods return objects in the order of the keys: by namespace, cluster-scoped objects first, then by name.
pub struct StoreSnapshot<S: ?Sized>(pub(super) Arc<State<S>>);

// === impl StoreSnapshot ===

impl<S: Stored + ?Sized> StoreSnapshot<S> {
    /// The version of the content.
    #[must_use]
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.0.resource_version
    }

    /// The version up to which everything of `namespace` is here. It differs from that of the whole only where a
    /// set of namespaces is watched, each by itself: that of the whole is then the newest of theirs. Empty for a
    /// namespace that was not listed yet.
    #[must_use]
    pub fn resource_version_of(&self, namespace: Option<&str>) -> &ResourceVersion {
        self.0.version_of(namespace)
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The object with this key.
    #[must_use]
    pub fn get(&self, key: KeyRef<'_>) -> Option<&Arc<S>> {
        self.0.get(key)
    }

    /// Every object.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<S>> {
        self.0.iter()
    }

    /// Every key.
    pub fn keys(&self) -> impl Iterator<Item = ObjectKey> {
        self.0.keys()
    }

    /// The objects of one namespace, or of all, that come after `after`.
    pub fn range<'a>(
        &'a self,
        namespace: Option<&'a str>,
        after: Option<KeyRef<'a>>,
    ) -> impl Iterator<Item = &'a Arc<S>> + 'a {
        self.0.range(namespace, after)
    }

    /// The objects that have `value` in the index called `name`.
    ///
    /// # Errors
    /// [`Error::Unknown`] if there is no such index.
    pub fn by_index(
        &self,
        name: &str,
        value: &str,
    ) -> Result<impl Iterator<Item = &Arc<S>>, Error> {
        let slots = self.0.part(name, value)?;
        Ok(self.0.at(slots.into_iter().flat_map(Ordered::iter)))
    }

    /// The objects of one namespace, or of all, whose labels satisfy `labels`. See
    /// [`Lister::select`](crate::Lister::select).
    #[must_use]
    pub fn select(&self, namespace: Option<&str>, labels: &Selector) -> Vec<Arc<S>> {
        // Without fields there is no error.
        self.0
            .select(namespace, labels, &FieldSelector::default())
            .unwrap_or_default()
    }

    /// The same, for labels and fields. See [`Lister::select_fields`](crate::Lister::select_fields).
    ///
    /// # Errors
    /// [`Error::UnknownField`] if a field is neither built in nor the name of an index.
    pub fn select_fields(
        &self,
        namespace: Option<&str>,
        labels: &Selector,
        fields: &FieldSelector,
    ) -> Result<Vec<Arc<S>>, Error> {
        self.0.select(namespace, labels, fields)
    }
}

impl<S: Stored + ?Sized> StoreSnapshot<S> {
    /// Drops it, in turns of a task of its own if it is large: it may be the last reference to many objects.
    pub(crate) fn free(self) {
        Freed::new(self.0).free();
    }

    /// The values of `object` in the index called `name`, whether it is here or not.
    pub(crate) fn values_of(&self, name: &str, object: &S) -> Result<Vec<Arc<str>>, Error> {
        self.0.values_of(name, object)
    }
}

impl<S: ?Sized> Clone for StoreSnapshot<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Stored + ?Sized> std::fmt::Debug for StoreSnapshot<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreSnapshot")
            .field("objects", &self.len())
            .field("resource_version", self.resource_version())
            .finish()
    }
}
