//! A set of namespaces that changes while informers watch it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tokio::sync::watch;

use crate::indexer::OTHERS;
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
///
/// A set [with the others](NamespaceSet::with_others) has every namespace: those that it names with a watch each, so
/// that each can be [selected from](crate::Builder::within) in its own way, and one watch for all the others, which
/// leaves the named ones out with `metadata.namespace!=red` (controller-runtime: the key `AllNamespaces` of
/// `DefaultNamespaces`).
#[derive(Clone)]
pub struct NamespaceSet {
    names: Arc<watch::Sender<Names>>,
}

/// Which namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    All,
    These(BTreeSet<Arc<str>>),
    /// These, each by itself, and all others as one.
    WithOthers(Arc<BTreeSet<Arc<str>>>),
}

/// What one watch fills of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Namespace(Arc<str>),
    /// All namespaces but these.
    Others(Arc<BTreeSet<Arc<str>>>),
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

    /// Has these namespaces instead of those before. One that stays is not disturbed.
    pub fn set(&self, names: impl IntoIterator<Item: Into<Arc<str>>>) {
        self.replace(Names::These(collect(names)));
    }

    /// Has all namespaces. What is known of those before stays until all are listed.
    pub fn set_all(&self) {
        self.replace(Names::All);
    }

    /// Has these namespaces, each watched by itself, and all others, which are watched as one. One that stays is not
    /// disturbed; what is known of the others stays until they are listed without those that are new here.
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

    /// Adds a namespace, to be watched by itself; false if it was there by its name, or all are watched as one.
    pub fn insert(&self, name: impl Into<Arc<str>>) -> bool {
        self.names.send_if_modified(|held| match held {
            Names::All => false,
            Names::These(names) => names.insert(name.into()),
            Names::WithOthers(names) => Arc::make_mut(names).insert(name.into()),
        })
    }

    /// Takes a namespace away; false if it was not there by its name, as in all namespaces none is. In a set with the
    /// others it is one of those then.
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

    /// Whether a namespace is watched by itself.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        match &*self.names.borrow() {
            Names::All => false,
            Names::These(names) => names.contains(name),
            Names::WithOthers(names) => names.contains(name),
        }
    }

    /// Whether it has the namespaces that it does not name, too.
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

    /// What each watch fills, by its scope.
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

    /// Returns when the set has changed since `seen` was made or told last.
    pub(super) fn changes(&self) -> NamespaceChanges {
        NamespaceChanges(self.names.subscribe())
    }
}

/// Tells when a set has changed.
pub(super) struct NamespaceChanges(watch::Receiver<Names>);

impl NamespaceChanges {
    pub(super) async fn changed(&mut self) {
        // The set is held by who waits.
        let _ = self.0.changed().await;
    }
}

fn collect(names: impl IntoIterator<Item: Into<Arc<str>>>) -> BTreeSet<Arc<str>> {
    names.into_iter().map(Into::into).collect()
}

// === impl Part ===

impl Part {
    /// What it is called where versions are kept; `None` for all of the store.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Whole => None,
            Self::Namespace(name) => Some(name),
            Self::Others(_) => Some(OTHERS),
        }
    }

    /// Whether the objects of a namespace are in it.
    pub(super) fn holds(&self, namespace: Option<&str>) -> bool {
        match self {
            Self::Whole => true,
            Self::Namespace(name) => namespace == Some(name),
            Self::Others(names) => !names.contains(namespace.unwrap_or_default()),
        }
    }

    /// Whether something in `scope` may be in it.
    pub(super) fn meets(&self, scope: &Scope) -> bool {
        match scope {
            Scope::Cluster => true,
            Scope::Namespace(name) => self.holds(Some(name)),
        }
    }

    /// The field selector that leaves out what is not in it, together with what else is selected.
    pub(super) fn fields(&self, fields: String) -> String {
        let Self::Others(names) = self else {
            return fields;
        };
        let others = names
            .iter()
            .map(|name| format!("metadata.namespace!={name}"));
        let own = (!fields.is_empty()).then_some(fields);
        own.into_iter().chain(others).collect::<Vec<_>>().join(",")
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
            Names::All => f.write_str("NamespaceSet(all)"),
            Names::These(names) => f.debug_tuple("NamespaceSet").field(names).finish(),
            Names::WithOthers(names) => {
                let mut set = f.debug_tuple("NamespaceSet");
                set.field(names).field(&"and others").finish()
            }
        }
    }
}
