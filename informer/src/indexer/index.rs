//! One named index.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Map;
use crate::entry::Stored;
use crate::key::ObjectKey;

/// The index that every store has: objects by namespace. Cluster-scoped objects have the value "".
pub const NAMESPACE_INDEX: &str = "namespace";

/// The values of an object in an index, or why there are none.
pub type IndexValues = Result<Vec<Arc<str>>, String>;

/// Gives the values of an object in an index. It must give the same for the same object.
pub type IndexFunction<S> = Arc<dyn Fn(&S) -> IndexValues + Send + Sync>;

/// A question about an index that has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such index.
    #[error(
        "there is no index {name:?}; there are {known:?}. Add it with `add_index` before using it"
    )]
    Unknown {
        /// What was asked for.
        name: Arc<str>,
        /// What there is.
        known: Vec<Arc<str>>,
    },
    /// There is one already.
    #[error("there is already an index {name:?}; choose another name")]
    Exists {
        /// The name.
        name: Arc<str>,
    },
}

enum Function<S> {
    /// By namespace: its only value is in the key.
    Namespace,
    Custom(IndexFunction<S>),
}

pub(super) struct Index<S> {
    pub(super) name: Arc<str>,
    function: Function<S>,
    pub(super) values: Map<Arc<str>, Map<ObjectKey, Arc<S>>>,
    pub(super) failures: u64,
    pub(super) last_failure: Option<String>,
}

// === impl Index ===

impl<S: Stored> Index<S> {
    pub(super) fn new(name: Arc<str>, function: IndexFunction<S>) -> Self {
        Self::of(name, Function::Custom(function))
    }

    fn of(name: Arc<str>, function: Function<S>) -> Self {
        Self {
            name,
            function,
            values: Map::default(),
            failures: 0,
            last_failure: None,
        }
    }

    pub(super) fn by_namespace() -> Self {
        Self::of(Arc::from(NAMESPACE_INDEX), Function::Namespace)
    }

    /// The same index without objects; failures stay counted.
    pub(super) fn emptied(&self) -> Self {
        let function = match &self.function {
            Function::Namespace => Function::Namespace,
            Function::Custom(function) => Function::Custom(Arc::clone(function)),
        };
        Self {
            failures: self.failures,
            last_failure: self.last_failure.clone(),
            ..Self::of(Arc::clone(&self.name), function)
        }
    }

    /// The values of `object`; none if the function fails, which is counted if `count`.
    fn values_of(&mut self, object: &S, count: bool) -> Vec<Arc<str>> {
        let Function::Custom(function) = &self.function else {
            return Vec::new();
        };
        let values = catch_unwind(AssertUnwindSafe(|| function(object)))
            .unwrap_or_else(|_| Err("the index function panicked".to_owned()));
        values.unwrap_or_else(|error| {
            if count {
                self.failures += 1;
                self.last_failure = Some(format!("{}: {error}", object.key()));
            }
            Vec::new()
        })
    }

    pub(super) fn insert(&mut self, key: &ObjectKey, object: &Arc<S>) {
        if let Function::Namespace = self.function {
            let namespace = key.namespace.clone().unwrap_or_else(|| Arc::from(""));
            return self.put(namespace, key, object);
        }
        for value in self.values_of(object, true) {
            self.put(value, key, object);
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectKey, object: &S) {
        if let Function::Namespace = self.function {
            return self.take(key.namespace.as_deref().unwrap_or_default(), key);
        }
        for value in self.values_of(object, false) {
            self.take(&value, key);
        }
    }

    pub(super) fn update(&mut self, key: &ObjectKey, old: &S, new: &Arc<S>) {
        if let Function::Namespace = self.function {
            return self.insert(key, new);
        }
        let after = self.values_of(new, true);
        for value in self.values_of(old, false) {
            if !after.contains(&value) {
                self.take(&value, key);
            }
        }
        for value in after {
            self.put(value, key, new);
        }
    }

    fn put(&mut self, value: Arc<str>, key: &ObjectKey, object: &Arc<S>) {
        self.values
            .entry(value)
            .or_default()
            .insert(key.clone(), Arc::clone(object));
    }

    fn take(&mut self, value: &str, key: &ObjectKey) {
        if let Some(objects) = self.values.get_mut(value) {
            objects.swap_remove(key);
            // An empty set left behind would grow without end (kubernetes#84959).
            if objects.is_empty() {
                self.values.swap_remove(value);
            }
        }
    }
}
