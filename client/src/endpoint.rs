//! The endpoint of a kind: its path, and the form of its answers.

use std::any::{Any, TypeId};
use std::fmt;

use k8s_openapi::ClusterResourceScope;
use kube_core::metadata::{PartialObjectMeta, TypeMeta};
use kube_core::{ApiResource, DynamicObject, Resource};

/// A kind without its version: the objects of `apps/v1` and `apps/v1beta1` are the same ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKind {
    /// The group, `apps`; empty for the core group.
    pub group: String,
    /// The kind, `Deployment`.
    pub kind: String,
}

// === impl GroupKind ===

impl GroupKind {
    /// The kind `kind` of `group`, which is empty for the core group.
    #[must_use]
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
        }
    }

    /// The kind of a Rust type.
    #[must_use]
    pub fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self::new(K::group(&()), K::kind(&()))
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

impl From<&ApiResource> for GroupKind {
    fn from(resource: &ApiResource) -> Self {
        Self::new(resource.group.as_str(), resource.kind.as_str())
    }
}

/// The path of a kind, and whether requests read metadata only.
///
/// An endpoint of an [`ApiResource`] has an unknown scope; one of a [`cache::Kind`](crate::Kind) has a known
/// scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: Option<bool>,
    pub(crate) metadata_only: bool,
}

// === impl Endpoint ===

impl Endpoint {
    /// The endpoint of `K`, which may be a type known at run time only.
    #[must_use]
    pub fn of<K: Resource + 'static>(dynamic_type: &K::DynamicType) -> Self {
        let scope = TypeId::of::<K::Scope>();
        let unknown = scope == TypeId::of::<<DynamicObject as Resource>::Scope>();
        Self {
            resource: ApiResource::erase::<K>(dynamic_type),
            namespaced: (!unknown).then(|| scope != TypeId::of::<ClusterResourceScope>()),
            metadata_only: K::metadata_api(),
        }
    }

    /// Group, version, kind and plural.
    #[must_use]
    pub fn resource(&self) -> &ApiResource {
        &self.resource
    }

    /// Whether its objects have a namespace; `None` if unknown.
    #[must_use]
    pub fn namespaced(&self) -> Option<bool> {
        self.namespaced
    }

    pub(crate) fn group_kind(&self) -> GroupKind {
        GroupKind::from(&self.resource)
    }

    pub(crate) fn type_meta(&self) -> TypeMeta {
        TypeMeta {
            api_version: self.resource.api_version.clone(),
            kind: self.resource.kind.clone(),
        }
    }

    /// Writes kind and apiVersion into a dynamic object. Servers leave them out of the items of lists, and metadata
    /// has `PartialObjectMetadata`.
    pub(crate) fn stamp<K: 'static>(&self, object: &mut K) {
        let object: &mut dyn Any = object;
        if let Some(object) = object.downcast_mut::<DynamicObject>() {
            object.types = Some(self.type_meta());
        } else if let Some(object) = object.downcast_mut::<PartialObjectMeta<DynamicObject>>() {
            object.types = Some(self.type_meta());
        }
    }
}

impl From<&ApiResource> for Endpoint {
    fn from(resource: &ApiResource) -> Self {
        Self {
            resource: resource.clone(),
            namespaced: None,
            metadata_only: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Node};

    use super::*;

    #[test]
    fn a_type_says_its_scope_and_a_resource_does_not() {
        assert_eq!(Endpoint::of::<ConfigMap>(&()).namespaced, Some(true));
        assert_eq!(Endpoint::of::<Node>(&()).namespaced, Some(false));
        let metadata = Endpoint::of::<PartialObjectMeta<Deployment>>(&());
        assert!(metadata.metadata_only && metadata.namespaced == Some(true));
        let resource = ApiResource::erase::<Deployment>(&());
        assert_eq!(Endpoint::of::<DynamicObject>(&resource).namespaced, None);
        assert_eq!(GroupKind::from(&resource).to_string(), "Deployment.apps");
        assert_eq!(GroupKind::of::<Node>().to_string(), "Node");
    }
}
