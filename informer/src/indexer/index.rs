//! One named index: [`Index`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::objects::{Names, Slot};
use super::ordered::Ordered;
use super::postings::{Building, Postings};
use super::state::State;
use crate::object::Stored;
use crate::turns::Turns;
use reeve_client::KeyRef;

/// The index that every store has: objects by namespace. Cluster-scoped objects have the value "".
pub const NAMESPACE_INDEX: &str = "namespace";

/// The values of an object in an index, or the reason why there are none.
pub type IndexValues = Result<Vec<Arc<str>>, String>;

/// Returns the values of an object in an index. It must return the same for the same object.
pub type IndexFunction<S> = Arc<dyn Fn(&S) -> IndexValues + Send + Sync>;

/// The error of an unknown index, a name that exists, or an index function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such index.
    #[error(
        "there is no index {name:?}; there are {known:?}. Add it with `add_index` before using it"
    )]
    Unknown {
        /// The requested index.
        name: Arc<str>,
        /// The existing indexes.
        known: Vec<Arc<str>>,
    },
    /// There is an index of this name already.
    #[error("there is already an index {name:?}; choose another name")]
    Exists {
        /// The name.
        name: Arc<str>,
    },
    /// A field selector names a field without an index.
    #[error(
        "the field {field:?} has no index; there are {known:?}. Add an index of this name with `add_indexer`"
    )]
    UnknownField {
        /// The field.
        field: String,
        /// The known fields.
        known: Vec<Arc<str>>,
    },
    /// The index function failed for the object.
    #[error("the index {name:?} has no values for the object: {error}")]
    Function {
        /// The index.
        name: Arc<str>,
        /// The error of its function.
        error: String,
    },
}

/// One named index.
pub(super) struct Index<S: ?Sized> {
    pub(super) name: Arc<str>,
    function: IndexFunction<S>,
    /// The label of an index of a label's values, so that selectors can use the index.
    pub(super) label: Option<Arc<str>>,
    postings: Postings,
    pub(super) failures: u64,
    pub(super) last_failure: Option<String>,
}

// === impl Index ===

impl<S: ?Sized> Clone for Index<S> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            function: Arc::clone(&self.function),
            label: self.label.clone(),
            postings: self.postings.clone(),
            failures: self.failures,
            last_failure: self.last_failure.clone(),
        }
    }
}

impl<S: Stored + ?Sized> Index<S> {
    pub(super) fn new(name: Arc<str>, function: IndexFunction<S>) -> Self {
        Self {
            name,
            function,
            label: None,
            postings: Postings::default(),
            failures: 0,
            last_failure: None,
        }
    }

    /// An index of the values of a label.
    pub(super) fn of_label(name: Arc<str>, label: Arc<str>) -> Self {
        let read = Arc::clone(&label);
        let function =
            move |object: &S| Ok(object.label(&read).map(Arc::from).into_iter().collect());
        Self {
            label: Some(label),
            ..Self::new(name, Arc::new(function))
        }
    }

    /// The same index of other objects, which come in the order of their keys. The count of failures stays.
    ///
    /// An object that this index has comes with its slot here: its values are known, so the function is not called.
    pub(super) async fn rebuilt<'a>(
        &self,
        objects: impl Iterator<Item = (Slot, &'a S, Option<Slot>)>,
        turns: &mut Turns,
    ) -> Self {
        let mut rebuilt = Self {
            label: self.label.clone(),
            failures: self.failures,
            last_failure: self.last_failure.clone(),
            ..Self::new(Arc::clone(&self.name), Arc::clone(&self.function))
        };
        let mut building = Building::default();
        for (slot, object, same) in objects {
            turns.spend(1).await;
            if let Some(same) = same {
                building.keep(slot, self.postings.remembered(same));
                continue;
            }
            let values = rebuilt.values_of(object);
            building.add(
                slot,
                values.unwrap_or_else(|error| rebuilt.failed(object.key_ref(), error)),
            );
        }
        rebuilt.postings = building.finish(turns).await;
        rebuilt
    }

    /// True if both have the same name and function: one is the other for other objects.
    pub(super) fn is_rebuilt(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.function, &other.function)
    }

    /// The values of `object`, or the reason why there are none.
    pub(super) fn values_of(&self, object: &S) -> IndexValues {
        catch_unwind(AssertUnwindSafe(|| (self.function)(object)))
            .unwrap_or_else(|_| Err("the index function panicked".to_owned()))
    }

    /// Counts a failure of the function for `object`, which therefore has no values.
    fn failed(&mut self, key: KeyRef<'_>, error: String) -> Vec<Arc<str>> {
        self.failures += 1;
        self.last_failure = Some(format!("{key}: {error}"));
        Vec::new()
    }

    /// The objects with this value.
    pub(super) fn value(&self, value: &str) -> Option<&Ordered> {
        self.postings.value(value)
    }

    /// All values.
    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<str>> {
        self.postings.values()
    }

    /// The bytes that it takes on the heap.
    pub(super) fn bytes(&self) -> usize {
        self.postings.bytes()
    }

    /// Records that the object in `slot`, whose key is `key`, is `new`, or is gone. The function is called for `new`
    /// alone.
    pub(super) fn change(
        this: &mut Arc<Self>,
        names: &Names,
        slot: Slot,
        key: KeyRef<'_>,
        new: Option<&S>,
    ) {
        let after = new.map_or_else(Vec::new, |new| {
            let values = this.values_of(new);
            values.unwrap_or_else(|error| Arc::make_mut(this).failed(key, error))
        });
        // Nearly always: most updates do not change the values.
        if this.postings.of(slot) != after {
            Arc::make_mut(this).postings.change(names, slot, key, after);
        }
    }

    /// Follows the changes from `old`, whose index this is, to `new`. Returns their number.
    pub(super) async fn follow(
        this: &mut Arc<Self>,
        old: &State<S>,
        new: &State<S>,
        turns: &mut Turns,
    ) -> usize {
        let changed = old.objects.changed(&new.objects, turns).await;
        // First what is gone, by its old key: a slot may have another key in `new`.
        for slot in &changed {
            turns.spend(1).await;
            let key = old.objects.get(*slot).map(|object| object.key_ref());
            if let Some(key) = key {
                Self::change(this, &old.objects.names, *slot, key, None);
            }
        }
        for slot in &changed {
            turns.spend(1).await;
            if let Some(object) = new.objects.get(*slot) {
                let key = object.key_ref();
                Self::change(this, &new.objects.names, *slot, key, Some(object));
            }
        }
        changed.len()
    }

    /// Frees it in turns, unless it is in use elsewhere.
    pub(super) async fn free(this: Arc<Self>, turns: &mut Turns) {
        if let Some(index) = Arc::into_inner(this) {
            index.postings.free(turns).await;
        }
    }
}
