//! Indexes of caches: added for a kind, kept when its informer is replaced.

use std::any::TypeId;
use std::sync::Arc;

use reeve_informer::indexer;

use super::super::store::{RowIndex, Store};
use super::super::{Kind, View};
use super::Caches;

/// An index was not added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// There is an index of this name that may give other values.
    #[error(
        "{kind} has an index {name:?} already, and the two functions differ or cannot be compared; to add the same index \
         again, use a `fn` or a closure that captures nothing, else choose another name"
    )]
    Differs {
        /// The kind.
        kind: String,
        /// The name of the index.
        name: Arc<str>,
    },
    /// The informer refused it.
    #[error(transparent)]
    Informer(#[from] indexer::Error),
}

#[derive(Clone)]
pub(super) struct Index {
    pub(super) kind: Kind,
    name: Arc<str>,
    /// `None` for the index of a label.
    function: Option<RowIndex>,
    /// The type of the function, if that identifies it: the function has captured nothing.
    identity: Option<TypeId>,
}

// === impl Caches ===

impl Caches {
    /// Adds an index, before or after the start: `function` returns the values of each object, and
    /// [`Lister::by_index`](super::super::Lister::by_index) finds them. An index with the name of a field serves field
    /// selectors. It stays when the kind's informer is replaced (controller-runtime: `IndexField`), and when the
    /// controller that needed it is stopped.
    ///
    /// Adding the same index again does nothing, so that a controller can be added again with its indexes. The same
    /// index has the same function without captures: a `fn`, or the closure of one line of code. The captures of two
    /// closures of one line cannot be compared, and an index is not computed again for another function.
    ///
    /// # Errors
    /// [`IndexError::Differs`] if the kind has an index of this name with another function, or with one that has captured
    /// something.
    pub fn add_index<V: 'static, F>(
        &self,
        view: &View<V>,
        name: impl Into<Arc<str>>,
        function: F,
    ) -> Result<(), IndexError>
    where
        F: Fn(&V) -> Vec<Arc<str>> + Send + Sync + 'static,
    {
        let identity = (size_of::<F>() == 0).then(TypeId::of::<F>);
        let shown = view.clone();
        let function: RowIndex = Arc::new(move |row| {
            let mut values = Vec::new();
            shown
                .show(row, &mut |object| values = function(object))
                .map_err(|error| error.to_string())?;
            Ok(values)
        });
        self.index(Index {
            kind: view.kind().clone(),
            name: name.into(),
            function: Some(function),
            identity,
        })
    }

    /// Adds an index of the values of a label, which label selectors use, before or after the start. Adding it again
    /// does nothing.
    ///
    /// # Errors
    /// If the informer has such an index from elsewhere.
    pub fn add_label_index(
        &self,
        kind: &Kind,
        label: impl Into<Arc<str>>,
    ) -> Result<(), IndexError> {
        self.index(Index {
            kind: kind.clone(),
            name: label.into(),
            function: None,
            identity: None,
        })
    }

    fn index(&self, index: Index) -> Result<(), IndexError> {
        let stores: Vec<_> = {
            let mut state = self.shared.state.lock();
            if let Some(known) = state.indexes.iter().find(|known| known.is(&index)) {
                if known.computes_the_same(&index) {
                    return Ok(());
                }
                return Err(IndexError::Differs {
                    kind: index.kind.to_string(),
                    name: Arc::clone(&index.name),
                });
            }
            // A store made from now on gets it.
            state.indexes.push(index.clone());
            let slots = state.in_use().into_iter();
            let of_kind = slots.filter(|slot| slot.kind.is(&index.kind));
            of_kind.filter_map(|slot| slot.bare().cloned()).collect()
        };
        // Not under the lock: the function is the user's, and runs for every object of the store.
        for store in stores {
            if let Err(error) = index.add_to(&store) {
                let mut state = self.shared.state.lock();
                state.indexes.retain(|known| !known.is(&index));
                return Err(error.into());
            }
        }
        Ok(())
    }
}

// === impl Index ===

impl Index {
    /// Whether both are the index of one name, or of one label.
    fn is(&self, other: &Self) -> bool {
        self.kind.is(&other.kind)
            && self.name == other.name
            && self.function.is_none() == other.function.is_none()
    }

    /// Whether both, of one name, compute the same values for every object.
    fn computes_the_same(&self, other: &Self) -> bool {
        let labels = self.function.is_none() && other.function.is_none();
        labels || (self.identity.is_some() && self.identity == other.identity)
    }

    pub(super) fn add_to(&self, store: &Store) -> Result<(), indexer::Error> {
        let name = Arc::clone(&self.name);
        match &self.function {
            Some(function) => store.add_index(name, Arc::clone(function)),
            None => store.add_label_index(name),
        }
    }
}
