//! Reading from the store.

use std::sync::Arc;

use crate::entry::{Stored, ViewError};
use crate::indexer::{self, Indexer, NAMESPACE_INDEX};
use crate::key::{KeyRef, ObjectKey};

/// Reads what an informer holds. Cloning is cheap. What is returned is shared: clone an object to change it.
pub struct Lister<S> {
    indexer: Arc<Indexer<S>>,
}

/// A read that has no answer. That an object does not exist is an answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such index.
    #[error(transparent)]
    Index(#[from] indexer::Error),
    /// The stored form cannot give the object.
    #[error(transparent)]
    View(#[from] ViewError),
}

// === impl Lister ===

impl<S: Stored> Lister<S> {
    pub(crate) fn new(indexer: Arc<Indexer<S>>) -> Self {
        Self { indexer }
    }

    /// The object with this key, or `None` if there is none.
    ///
    /// # Errors
    /// [`Error::View`] for a form that is decoded on reading and does not decode.
    pub fn get(&self, key: &ObjectKey) -> Result<Option<Arc<S>>, Error> {
        Ok(self.indexer.get(key))
    }

    /// The object of this name, in `namespace` or cluster-scoped, without an owned key.
    ///
    /// # Errors
    /// As [`Lister::get`].
    pub fn get_named(&self, namespace: Option<&str>, name: &str) -> Result<Option<Arc<S>>, Error> {
        Ok(self.indexer.get_ref(KeyRef { namespace, name }))
    }

    /// Every object, as of one moment, in no promised order.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<S>> {
        self.indexer.list()
    }

    /// The objects that satisfy `condition`. It is asked outside the store's lock.
    #[must_use]
    pub fn list_where(&self, condition: impl Fn(&S) -> bool) -> Vec<Arc<S>> {
        let mut objects = self.list();
        objects.retain(|object| condition(object));
        objects
    }

    /// The objects of one namespace.
    #[must_use]
    pub fn namespace(&self, namespace: &str) -> Vec<Arc<S>> {
        self.indexer
            .by_index(NAMESPACE_INDEX, namespace)
            .unwrap_or_default()
    }

    /// The objects that have `value` in the index called `index`.
    ///
    /// # Errors
    /// [`Error::Index`] if there is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<S>>, Error> {
        Ok(self.indexer.by_index(index, value)?)
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.indexer.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.indexer.is_empty()
    }
}

impl<S> Clone for Lister<S> {
    fn clone(&self) -> Self {
        Self {
            indexer: Arc::clone(&self.indexer),
        }
    }
}

impl<S: Stored> std::fmt::Debug for Lister<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lister")
            .field("objects", &self.len())
            .finish()
    }
}
