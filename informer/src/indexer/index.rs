//! One named index: [`Index`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use indexmap::IndexMap;

use super::objects::{Names, Slot};
use super::ordered::Ordered;
use crate::object::Stored;
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

/// The slots of each value, the values in the order of their first occurrence, so that the same history makes the same
/// lists. Nothing here depends on the type of the objects.
#[derive(Clone, Default)]
struct Postings(IndexMap<Arc<str>, Arc<Ordered>, foldhash::fast::RandomState>);

/// Postings that are made for all objects at once.
#[derive(Default)]
struct Building(IndexMap<Arc<str>, Vec<Slot>, foldhash::fast::RandomState>);

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
    pub(super) fn rebuilt<'a>(&self, objects: impl Iterator<Item = (Slot, &'a S)>) -> Self {
        let mut rebuilt = Self {
            label: self.label.clone(),
            failures: self.failures,
            last_failure: self.last_failure.clone(),
            ..Self::new(Arc::clone(&self.name), Arc::clone(&self.function))
        };
        let mut building = Building::default();
        for (slot, object) in objects {
            let values = rebuilt.values_of(object);
            building.add(
                slot,
                values.unwrap_or_else(|error| rebuilt.failed(object.key_ref(), error)),
            );
        }
        rebuilt.postings = building.finish();
        rebuilt
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

    /// Records that the object in `slot` changed from `old` to `new`.
    pub(super) fn change(
        this: &mut Arc<Self>,
        names: &Names,
        slot: Slot,
        old: Option<&S>,
        new: Option<&S>,
    ) {
        let before = old.map_or_else(Vec::new, |old| this.values_of(old).unwrap_or_default());
        let after = new.map_or_else(Vec::new, |new| {
            let values = this.values_of(new);
            values.unwrap_or_else(|error| Arc::make_mut(this).failed(new.key_ref(), error))
        });
        // Nearly always: most updates do not change the values.
        if before == after {
            return;
        }
        let Some(key) = new.or(old).map(Stored::key_ref) else {
            return;
        };
        Arc::make_mut(this)
            .postings
            .change(names, slot, key, &before, after);
    }
}

// === impl Postings ===

impl Postings {
    fn value(&self, value: &str) -> Option<&Ordered> {
        self.0.get(value).map(Arc::as_ref)
    }

    fn values(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    /// The bytes on the heap.
    fn bytes(&self) -> usize {
        // Each value has its text, its hash and pointers, its part of the table, and its slots.
        let each = |(value, slots): (&Arc<str>, &Arc<Ordered>)| {
            value.len() + 16 + size_of::<Ordered>() + 16 + slots.bytes()
        };
        self.0.capacity() * (8 + 16 + 8 + 10) + self.0.iter().map(each).sum::<usize>()
    }

    /// Records that the object in `slot`, whose key is `key`, has the values `after` instead of `before`.
    fn change(
        &mut self,
        names: &Names,
        slot: Slot,
        key: KeyRef<'_>,
        before: &[Arc<str>],
        after: Vec<Arc<str>>,
    ) {
        for value in before.iter().filter(|value| !after.contains(value)) {
            if let Some(slots) = self.0.get_mut(value) {
                let slots = Arc::make_mut(slots);
                names.remove_from(slots, key);
                // An empty set left behind would grow without end (kubernetes#84959).
                if slots.len() == 0 {
                    self.0.swap_remove(value);
                }
            }
        }
        for value in after {
            let slots = self.0.entry(value).or_default();
            names.add_to(Arc::make_mut(slots), slot, key);
        }
    }
}

// === impl Building ===

impl Building {
    /// Adds an object. Objects come in the order of their keys.
    fn add(&mut self, slot: Slot, values: Vec<Arc<str>>) {
        for value in values {
            let of_value = self.0.entry(value).or_default();
            if of_value.last() != Some(&slot) {
                of_value.push(slot);
            }
        }
    }

    fn finish(self) -> Postings {
        let values = self.0.into_iter();
        Postings(
            values
                .map(|(value, slots)| (value, Arc::new(Ordered::from_sorted(&slots))))
                .collect(),
        )
    }
}
