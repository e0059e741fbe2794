//! A set of namespaces that changes while informers watch it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tokio::sync::watch;

use super::part::Part;
use reeve_client::transport::Scope;

/// The namespaces that one or more informers watch, and that may be changed while they do. A clone is another handle
/// to the same set; two handles are equal if they are of the same set.
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
/// A namespace that is added is listed and then watched; handlers receive its objects as from any first list. When a
/// namespace is removed, handlers receive a deletion of each of its objects, as tombstones, and the store drops them.
///
/// A set [with the others](NamespaceSet::with_others) has every namespace: those that it names with a watch each, so
/// that each can be [selected from](crate::Builder::within) in its own way, and one watch for all the others, which
/// excludes the named ones with `metadata.namespace!=red` (controller-runtime: the key `AllNamespaces` of
/// `DefaultNamespaces`).
#[derive(Clone)]
pub struct NamespaceSet {
    names: Arc<watch::Sender<Names>>,
}

/// The namespaces of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    All,
    These(BTreeSet<Arc<str>>),
    /// These with a watch each, and all others as one.
    WithOthers(Arc<BTreeSet<Arc<str>>>),
}

// === impl NamespaceSet ===

impl NamespaceSet {
    /// A set of these namespaces.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item: Into<Arc<str>>>) -> Self {
        Self::of(Names::These(collect(names)))
    }

    /// All namespaces, which are watched as one.
    #[must_use]
    pub fn all() -> Self {
        Self::of(Names::All)
    }

    /// These namespaces, each watched by itself, and all others, which are watched as one.
    #[must_use]
    pub fn with_others(names: impl IntoIterator<Item: Into<Arc<str>>>) -> Self {
        Self::of(Names::WithOthers(Arc::new(collect(names))))
    }

    fn of(names: Names) -> Self {
        Self {
            names: Arc::new(watch::Sender::new(names)),
        }
    }

    /// Replaces the set by these namespaces. One that stays is not disturbed.
    pub fn set(&self, names: impl IntoIterator<Item: Into<Arc<str>>>) {
        self.replace(Names::These(collect(names)));
    }

    /// Replaces the set by all namespaces. The objects of those before stay until all are listed.
    pub fn set_all(&self) {
        self.replace(Names::All);
    }

    /// Replaces the set by these namespaces, each watched by itself, and all others, watched as one. One that stays is
    /// not disturbed; the objects of the others stay until they are listed without the namespaces that are new here.
    pub fn set_with_others(&self, names: impl IntoIterator<Item: Into<Arc<str>>>) {
        self.replace(Names::WithOthers(Arc::new(collect(names))));
    }

    fn replace(&self, names: Names) {
        self.names.send_if_modified(|held| {
            let news = *held != names;
            *held = names;
            news
        });
    }

    /// Adds a namespace, to be watched by itself; false if the set names it already, or all are watched as one.
    pub fn insert(&self, name: impl Into<Arc<str>>) -> bool {
        self.names.send_if_modified(|held| match held {
            Names::All => false,
            Names::These(names) => names.insert(name.into()),
            Names::WithOthers(names) => Arc::make_mut(names).insert(name.into()),
        })
    }

    /// Removes a namespace; false if the set does not name it, as a set of all namespaces names none. In a set with the
    /// others it becomes one of those.
    pub fn remove(&self, name: &str) -> bool {
        self.names.send_if_modified(|held| match held {
            Names::All => false,
            Names::These(names) => names.remove(name),
            Names::WithOthers(names) => names.contains(name) && Arc::make_mut(names).remove(name),
        })
    }

    /// The namespaces that are watched each by itself, in their order, or `None` if all are watched as one.
    #[must_use]
    pub fn names(&self) -> Option<Vec<Arc<str>>> {
        match &*self.names.borrow() {
            Names::All => None,
            Names::These(names) => Some(names.iter().cloned().collect()),
            Names::WithOthers(names) => Some(names.iter().cloned().collect()),
        }
    }

    /// True if a namespace is watched by itself.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        match &*self.names.borrow() {
            Names::All => false,
            Names::These(names) => names.contains(name),
            Names::WithOthers(names) => names.contains(name),
        }
    }

    /// True if the set has the namespaces that it does not name, too.
    #[must_use]
    pub fn has_others(&self) -> bool {
        !matches!(&*self.names.borrow(), Names::These(_))
    }

    /// True if everything in `scope` is in the set.
    #[must_use]
    pub fn contains(&self, scope: &Scope) -> bool {
        match (&*self.names.borrow(), scope) {
            (Names::All | Names::WithOthers(_), _) => true,
            (Names::These(_), Scope::Cluster) => false,
            (Names::These(names), Scope::Namespace(name)) => names.contains(name),
        }
    }

    /// The part of the store that each watch fills, by its scope.
    pub(super) fn parts(&self) -> BTreeMap<Scope, Part> {
        let each = |names: &BTreeSet<Arc<str>>| -> BTreeMap<Scope, Part> {
            let part = |name: &Arc<str>| {
                (
                    Scope::Namespace(Arc::clone(name)),
                    Part::Namespace(Arc::clone(name)),
                )
            };
            names.iter().map(part).collect()
        };
        match &*self.names.borrow() {
            Names::All => BTreeMap::from([(Scope::Cluster, Part::Whole)]),
            Names::These(names) => each(names),
            Names::WithOthers(names) if names.is_empty() => {
                BTreeMap::from([(Scope::Cluster, Part::Whole)])
            }
            Names::WithOthers(names) => {
                let mut parts = each(names);
                parts.insert(Scope::Cluster, Part::Others(Arc::clone(names)));
                parts
            }
        }
    }

    /// Reports changes from now on.
    pub(super) fn changes(&self) -> NamespaceChanges {
        NamespaceChanges(self.names.subscribe())
    }
}

/// The changes of a set.
pub(super) struct NamespaceChanges(watch::Receiver<Names>);

impl NamespaceChanges {
    /// Returns when the set has changed since the last call, or since this was made.
    pub(super) async fn changed(&mut self) {
        // The informer that waits holds the set, and so the sender.
        let _ = self.0.changed().await;
    }
}

fn collect(names: impl IntoIterator<Item: Into<Arc<str>>>) -> BTreeSet<Arc<str>> {
    names.into_iter().map(Into::into).collect()
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
            Names::All => f.write_str("NamespaceSet(all)"),
            Names::These(names) => f.debug_tuple("NamespaceSet").field(names).finish(),
            Names::WithOthers(names) => {
                let mut set = f.debug_tuple("NamespaceSet");
                set.field(names).field(&"and others").finish()
            }
        }
    }
}
