//! Indexes of caches: said of a kind, kept when its informer is replaced.

use std::sync::Arc;

use reeve_informer::indexer;

use super::super::store::{RowIndex, Store};
use super::super::{Kind, View};
use super::Caches;

#[derive(Clone)]
pub(super) struct Index {
    pub(super) kind: Kind,
    name: Arc<str>,
    /// `None` for the index of a label.
    function: Option<RowIndex>,
}

// === impl Caches ===

impl Caches {
    /// Adds an index, before or after the start: `function` names the values of each object, and
    /// [`Lister::by_index`](super::super::Lister::by_index) finds them. An index that is called as a field serves field
    /// selectors. It stays when the kind's informer is replaced (controller-runtime: `IndexField`).
    ///
    /// # Errors
    /// If the kind has an index of this name.
    pub fn add_index<V: 'static>(
        &self,
        view: &View<V>,
        name: impl Into<Arc<str>>,
        function: impl Fn(&V) -> Vec<Arc<str>> + Send + Sync + 'static,
    ) -> Result<(), indexer::Error> {
        let shown = view.clone();
        let function: RowIndex = Arc::new(move |row| {
            let mut values = Vec::new();
            shown
                .show(row, &mut |object| values = function(object))
                .map_err(|error| error.to_string())?;
            Ok(values)
        });
        self.index(Index {
            kind: view.kind.clone(),
            name: name.into(),
            function: Some(function),
        })
    }

    /// Adds an index of the values of a label, which label selectors use, before or after the start.
    ///
    /// # Errors
    /// If the kind has one already.
    pub fn add_label_index(
        &self,
        kind: &Kind,
        label: impl Into<Arc<str>>,
    ) -> Result<(), indexer::Error> {
        self.index(Index {
            kind: kind.clone(),
            name: label.into(),
            function: None,
        })
    }

    fn index(&self, index: Index) -> Result<(), indexer::Error> {
        let stores: Vec<_> = {
            let mut state = self.shared.state.lock();
            if state.indexes.iter().any(|known| known.is(&index)) {
                return Err(indexer::Error::Exists {
                    name: Arc::clone(&index.name),
                });
            }
            // A store that is made from now on gets it.
            state.indexes.push(index.clone());
            let slots = state.in_use().into_iter();
            let of_kind = slots.filter(|slot| slot.kind.is(&index.kind));
            of_kind.filter_map(|slot| slot.bare().cloned()).collect()
        };
        // Not under the lock: the function is the user's, and is run for every object there is.
        for store in stores {
            if let Err(error) = index.add_to(&*store) {
                let mut state = self.shared.state.lock();
                state.indexes.retain(|known| !known.is(&index));
                return Err(error);
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

    pub(super) fn add_to(&self, store: &dyn Store) -> Result<(), indexer::Error> {
        let name = Arc::clone(&self.name);
        match &self.function {
            Some(function) => store.add_index(name, Arc::clone(function)),
            None => store.add_label_index(name),
        }
    }
}
