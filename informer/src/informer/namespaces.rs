//! A set of namespaces that changes while informers watch it.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tokio::sync::watch;

use crate::transport::Scope;

/// The namespaces that one or more informers watch, and that may be changed while they do. Cloning gives
/// another handle to the same set; two are equal if they are handles to the same.
///
/// ```
/// use reeve_informer::{NamespaceSet, Scope};
/// let tenants = NamespaceSet::new(["red", "blue"]);
/// assert!(tenants.insert("green") && tenants.remove("red"));
/// assert!(tenants.contains(&Scope::namespace("green")));
/// assert!(!tenants.contains(&Scope::Cluster));
/// ```
///
/// Each informer that has the set ([`Builder::namespaces`](crate::Builder::namespaces),
/// [`InformerFactory::informer_within`](crate::InformerFactory::informer_within)) keeps one watch a namespace.
/// A namespace that comes is listed and then watched; handlers are told of its objects as of any first list. Of
/// one that goes, handlers are told that its objects are deleted, as tombstones, and the store forgets them.
#[derive(Clone)]
pub struct NamespaceSet {
    /// `None` for all.
    names: Arc<watch::Sender<Option<BTreeSet<Arc<str>>>>>,
}

// === impl NamespaceSet ===

impl NamespaceSet {
    /// A set of these namespaces.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item: Into<Arc<str>>>) -> Self {
        Self::of(Some(names.into_iter().map(Into::into).collect()))
    }

    /// All namespaces, which are watched as one.
    #[must_use]
    pub fn all() -> Self {
        Self::of(None)
    }

    fn of(names: Option<BTreeSet<Arc<str>>>) -> Self {
        Self {
            names: Arc::new(watch::Sender::new(names)),
        }
    }

    /// Has these namespaces instead of those before. One that stays is not disturbed.
    pub fn set(&self, names: impl IntoIterator<Item: Into<Arc<str>>>) {
        self.replace(Some(names.into_iter().map(Into::into).collect()));
    }

    /// Has all namespaces. What is known of those before stays until all are listed.
    pub fn set_all(&self) {
        self.replace(None);
    }

    fn replace(&self, names: Option<BTreeSet<Arc<str>>>) {
        self.names.send_if_modified(|held| {
            let news = *held != names;
            *held = names;
            news
        });
    }

    /// Adds a namespace; false if it was there.
    pub fn insert(&self, name: impl Into<Arc<str>>) -> bool {
        self.names
            .send_if_modified(|held| held.as_mut().is_some_and(|names| names.insert(name.into())))
    }

    /// Takes a namespace away; false if it was not there by its name, as in all namespaces none is.
    pub fn remove(&self, name: &str) -> bool {
        self.names
            .send_if_modified(|held| held.as_mut().is_some_and(|names| names.remove(name)))
    }

    /// The namespaces in their order, or `None` for all.
    #[must_use]
    pub fn names(&self) -> Option<Vec<Arc<str>>> {
        let names = self.names.borrow();
        Some(names.as_ref()?.iter().cloned().collect())
    }

    /// True if everything in `scope` is in the set.
    #[must_use]
    pub fn contains(&self, scope: &Scope) -> bool {
        match (&*self.names.borrow(), scope) {
            (None, _) => true,
            (Some(_), Scope::Cluster) => false,
            (Some(names), Scope::Namespace(name)) => names.contains(name),
        }
    }

    /// One scope a watch.
    pub(super) fn scopes(&self) -> BTreeSet<Scope> {
        match &*self.names.borrow() {
            None => BTreeSet::from([Scope::Cluster]),
            Some(names) => names.iter().cloned().map(Scope::Namespace).collect(),
        }
    }

    /// Returns when the set has changed since `seen` was made or told last.
    pub(super) fn changes(&self) -> watch::Receiver<Option<BTreeSet<Arc<str>>>> {
        self.names.subscribe()
    }
}

impl PartialEq for NamespaceSet {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.names, &other.names)
    }
}

impl Eq for NamespaceSet {}

impl Hash for NamespaceSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.names).hash(state);
    }
}

impl fmt::Debug for NamespaceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.names.borrow() {
            None => f.write_str("NamespaceSet(all)"),
            Some(names) => f.debug_tuple("NamespaceSet").field(names).finish(),
        }
    }
}
