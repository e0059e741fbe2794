//! Indexes of caches: added for a kind, kept when its informer is replaced, until they are removed.
//!
//! The state has the indexes that each kind gets, and changes under its lock. The functions of indexes are the user's
//! and may use the caches, so stores change after it. A change of a store therefore ends with a look at the state: if it has
//! another index of that name by then, the store changes again ([`Caches::settle`]).

use std::any::TypeId;
use std::sync::Arc;

use reeve_informer::{NAMESPACE_INDEX, indexer};

use super::super::store::{RowIndex, Store};
use super::super::{Kind, View};
use super::{Caches, State};

/// An index was not added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// There is an index of this name that may give other values.
    #[error(
        "{kind} has an index {name:?} already, and the two functions differ or cannot be compared; to add the same index \
         again, use a `fn` or a closure that captures nothing; to replace it, call remove_index first; else choose another name"
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

/// The name under which a store has an index of a kind.
#[derive(Clone)]
pub(super) struct Name {
    kind: Kind,
    stored: Arc<str>,
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
    /// closures of one line cannot be compared, and an index is not computed again for another function: remove it first
    /// ([`Caches::remove_index`]).
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

    /// Removes an index of [`Caches::add_index`], and returns whether there was one. Its name is free then, also for another
    /// function or one that has captured something (controller-runtime: indexes stay).
    ///
    /// [`Lister::by_index`](super::super::Lister::by_index) and field selectors of that name end with an error from then on. A
    /// reconcile may still use it, so remove it after `handle.stop().await` of the controllers that do.
    pub fn remove_index(&self, kind: &Kind, name: &str) -> bool {
        self.remove(|index| index.kind.is(kind) && index.is_named(name))
    }

    /// Removes an index of [`Caches::add_label_index`], and returns whether there was one. Label selectors find the same
    /// without it, and check more objects.
    pub fn remove_label_index(&self, kind: &Kind, label: &str) -> bool {
        self.remove(|index| index.kind.is(kind) && index.is_of_label(label))
    }

    fn index(&self, index: Index) -> Result<(), IndexError> {
        let name = index.stored_name();
        let (stores, removed) = {
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
            let taken = state.indexes.iter().any(|known| name.is_of(known));
            if taken || &*name.stored == NAMESPACE_INDEX {
                return Err(indexer::Error::Exists { name: name.stored }.into());
            }
            // A store made from now on gets it.
            state.indexes.push(index.clone());
            let removed = state.former_indexes.iter().any(|former| former.is(&name));
            (state.stores_of(&index.kind), removed)
        };
        // Not under the lock: the function is the user's, and runs for every object of the store.
        for (number, store) in stores.iter().enumerate() {
            match index.add_to(store) {
                Ok(()) => self.settle(store, &name, Some(index.clone())),
                // A call that began before the removal has added the former one.
                Err(indexer::Error::Exists { .. }) if removed => self.settle(store, &name, None),
                Err(error) => {
                    let mut state = self.shared.state.lock();
                    state.indexes.retain(|known| !known.is(&index));
                    drop(state);
                    for store in &stores[..number] {
                        self.settle(store, &name, Some(index.clone()));
                    }
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    fn remove(&self, which: impl Fn(&Index) -> bool) -> bool {
        let (stores, name) = {
            let mut state = self.shared.state.lock();
            let Some(at) = state.indexes.iter().position(which) else {
                return false;
            };
            let index = state.indexes.remove(at);
            let name = index.stored_name();
            if !state.former_indexes.iter().any(|former| former.is(&name)) {
                state.former_indexes.push(name.clone());
            }
            (state.stores_of(&index.kind), name)
        };
        for store in stores {
            store.remove_index(&name.stored);
            self.settle(&store, &name, None);
        }
        true
    }

    /// Adds the indexes of the state to a store that was made just now, perhaps on an informer that has been in use before.
    pub(super) fn add_indexes(&self, store: &Store, indexes: Vec<Index>, former: &[Name]) {
        for name in former {
            store.remove_index(&name.stored);
            self.settle(store, name, None);
        }
        for index in indexes {
            // Otherwise the informer, which was in use before, has it already.
            if index.add_to(store).is_ok() {
                let name = index.stored_name();
                self.settle(store, &name, Some(index));
            }
        }
    }

    /// Changes the index of this name of `store`, which has `current`, until it is that of the state.
    fn settle(&self, store: &Store, name: &Name, mut current: Option<Index>) {
        loop {
            let state = self.shared.state.lock();
            let wanted = state.indexes.iter().find(|index| name.is_of(index));
            let wanted = wanted.cloned();
            drop(state);
            if wanted.as_ref().map(Index::function) == current.as_ref().map(Index::function) {
                return;
            }
            store.remove_index(&name.stored);
            if let Some(index) = &wanted {
                // If another call was faster, it has yet to look at the state.
                let _ = index.add_to(store);
            }
            current = wanted;
        }
    }
}

// === impl State ===

impl State {
    /// The stores of a kind that are in use.
    fn stores_of(&self, kind: &Kind) -> Vec<Arc<Store>> {
        let slots = self.in_use().into_iter();
        let of_kind = slots.filter(|slot| slot.kind.is(kind));
        of_kind.filter_map(|slot| slot.bare().cloned()).collect()
    }
}

// === impl Name ===

impl Name {
    fn is(&self, other: &Self) -> bool {
        self.kind.is(&other.kind) && self.stored == other.stored
    }

    fn is_of(&self, index: &Index) -> bool {
        self.is(&index.stored_name())
    }

    pub(super) fn is_of_kind(&self, kind: &Kind) -> bool {
        self.kind.is(kind)
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

    fn is_named(&self, name: &str) -> bool {
        self.function.is_some() && &*self.name == name
    }

    fn is_of_label(&self, label: &str) -> bool {
        self.function.is_none() && &*self.name == label
    }

    fn stored_name(&self) -> Name {
        let stored = match self.function {
            Some(_) => Arc::clone(&self.name),
            // See `Indexer::add_label_index`.
            None => format!("label:{}", self.name).into(),
        };
        Name {
            kind: self.kind.clone(),
            stored,
        }
    }

    /// The address of the function, which identifies the index among those of its name; `None` for the index of a label.
    fn function(&self) -> Option<*const ()> {
        let function = self.function.as_ref()?;
        Some(Arc::as_ptr(function).cast())
    }

    fn add_to(&self, store: &Store) -> Result<(), indexer::Error> {
        let name = Arc::clone(&self.name);
        match &self.function {
            Some(function) => store.add_index(name, Arc::clone(function)),
            None => store.add_label_index(name),
        }
    }
}
