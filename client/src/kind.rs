//! Kinds as values: their names, and whether their objects are in namespaces.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::ClusterResourceScope;
use kube_core::{ApiResource, GroupVersionKind};
use parking_lot::{Mutex, RwLock};

use crate::endpoint::{Endpoint, GroupKind};
use crate::object::Object;

/// A kind, known at compile time ([`Kind::of`]) or at run time only. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind(Arc<Described>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Described {
    resource: ApiResource,
    namespaced: bool,
}

/// Whether the objects of `K` are in namespaces.
#[must_use]
pub fn is_namespaced<K: Object>() -> bool {
    TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>()
}

/// The kinds that are known at run time only, by group, version and kind (like controller-runtime's scheme for
/// unstructured objects). A handle: clones are one registry.
///
/// ```
/// use kube_core::{ApiResource, GroupVersionKind};
/// use reeve_client::{Kind, Kinds};
/// let kinds = Kinds::default();
/// let widget = GroupVersionKind::gvk("example.com", "v1", "Widget");
/// kinds.add(Kind::namespaced(ApiResource::from_gvk_with_plural(&widget, "widgets")));
/// assert!(kinds.get(&widget).is_some_and(|kind| kind.is_namespaced()));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Kinds(Arc<Mutex<Vec<Kind>>>);

// === impl Kind ===

impl Kind {
    /// The kind of a Rust type.
    #[must_use]
    pub fn of<K: Object>() -> Self {
        /// The kind of each type, because reconciles look it up often.
        static KNOWN: RwLock<Vec<(TypeId, Kind)>> = RwLock::new(Vec::new());
        let of = TypeId::of::<K>();
        let known = |kinds: &[(TypeId, Self)]| {
            let kind = kinds.iter().find(|(known, _)| *known == of);
            kind.map(|(_, kind)| kind.clone())
        };
        if let Some(kind) = known(&KNOWN.read()) {
            return kind;
        }
        let kind = Self::new(ApiResource::erase::<K>(&()), is_namespaced::<K>());
        let mut kinds = KNOWN.write();
        known(&kinds).unwrap_or_else(|| {
            kinds.push((of, kind.clone()));
            kind
        })
    }

    /// A kind whose objects are in namespaces.
    #[must_use]
    pub fn namespaced(resource: ApiResource) -> Self {
        Self::new(resource, true)
    }

    /// A kind whose objects are in no namespace.
    #[must_use]
    pub fn cluster_scoped(resource: ApiResource) -> Self {
        Self::new(resource, false)
    }

    fn new(resource: ApiResource, namespaced: bool) -> Self {
        Self(Arc::new(Described {
            resource,
            namespaced,
        }))
    }

    /// Its names at the API server.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.0.resource
    }

    /// Whether its objects are in namespaces.
    #[must_use]
    pub fn is_namespaced(&self) -> bool {
        self.0.namespaced
    }

    /// Group, version and kind.
    #[must_use]
    pub fn gvk(&self) -> GroupVersionKind {
        let ApiResource {
            group,
            version,
            kind,
            ..
        } = self.resource();
        GroupVersionKind::gvk(group, version, kind)
    }

    /// Whether both have the same group, version and kind.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let (a, b) = (self.resource(), other.resource());
        (&a.group, &a.version, &a.kind) == (&b.group, &b.version, &b.kind)
    }

    /// Whether both have the same objects, in any version.
    #[must_use]
    pub fn is_of_objects(&self, objects: &GroupKind) -> bool {
        let resource = self.resource();
        resource.group == objects.group && resource.kind == objects.kind
    }
}

impl fmt::Display for Kind {
    /// `Deployment (apps/v1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({})",
            self.0.resource.kind, self.0.resource.api_version
        )
    }
}

impl From<&Kind> for Endpoint {
    fn from(kind: &Kind) -> Self {
        Self {
            resource: kind.resource().clone(),
            namespaced: Some(kind.is_namespaced()),
            metadata_only: false,
        }
    }
}

// === impl Kinds ===

impl Kinds {
    /// Adds a kind; replaces one of the same name.
    pub fn add(&self, kind: Kind) {
        let mut kinds = self.0.lock();
        kinds.retain(|known| !known.is(&kind));
        kinds.push(kind);
    }

    /// The kind with this name, if it was added.
    #[must_use]
    pub fn get(&self, gvk: &GroupVersionKind) -> Option<Kind> {
        let kinds = self.0.lock();
        kinds.iter().find(|kind| kind.gvk() == *gvk).cloned()
    }

    /// Every kind, in the order they were added.
    #[must_use]
    pub fn all(&self) -> Vec<Kind> {
        self.0.lock().clone()
    }
}
