//! Objects, plain or shared, for functions that only read them.

use std::any::Any;
use std::sync::Arc;

use kube_core::metadata::TypeMeta;
use kube_core::{DynamicObject, PartialObjectMeta, Resource};

/// An object, or an [`Arc`] of one, as caches return it: `&object` fits in both cases.
///
/// `Form` is [`Plain`] or [`Shared`]; the compiler infers it.
///
/// ```
/// use std::sync::Arc;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use reeve_client::ObjectKey;
///
/// let mut map = ConfigMap::default();
/// map.metadata.name = Some("a".into());
/// assert_eq!(ObjectKey::of(&map), ObjectKey::cluster("a"));
/// assert_eq!(ObjectKey::of(&Arc::new(map)), ObjectKey::cluster("a"));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Kubernetes object, nor an `Arc` of one",
    label = "not a Kubernetes object",
    note = "pass a reference to the object, or to the `Arc` of a cache: `&object`"
)]
pub trait AsObject<Form> {
    /// The type of the object.
    type Object: Resource + 'static;

    /// The object.
    fn as_object(&self) -> &Self::Object;
}

/// The form of an object by itself.
#[derive(Clone, Copy, Debug)]
pub enum Plain {}

/// The form of an object in an [`Arc`].
#[derive(Clone, Copy, Debug)]
pub enum Shared {}

#[diagnostic::do_not_recommend]
impl<K: Resource + 'static> AsObject<Plain> for K {
    type Object = K;

    fn as_object(&self) -> &K {
        self
    }
}

impl<K: Resource + 'static> AsObject<Shared> for Arc<K> {
    type Object = K;

    fn as_object(&self) -> &K {
        self
    }
}

/// Kind and apiVersion of an object: those of its type, or for a [`DynamicObject`] and its metadata, those that it names.
/// `None` for a dynamic object without them; objects of this crate's calls and of caches have them.
#[must_use]
pub fn types_of<K: Resource + 'static>(object: &K) -> Option<TypeMeta> {
    let unit: &dyn Any = &();
    if let Some(dynamic_type) = unit.downcast_ref::<K::DynamicType>() {
        return Some(TypeMeta {
            api_version: K::api_version(dynamic_type).into_owned(),
            kind: K::kind(dynamic_type).into_owned(),
        });
    }
    let object: &dyn Any = object;
    let types = match object.downcast_ref::<DynamicObject>() {
        Some(object) => &object.types,
        None => {
            let metadata = object.downcast_ref::<PartialObjectMeta<DynamicObject>>()?;
            &metadata.types
        }
    };
    // Servers send metadata with a kind of its own.
    let named = |types: &&TypeMeta| !types.kind.is_empty() && types.kind != "PartialObjectMetadata";
    types.as_ref().filter(named).cloned()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use kube_core::{ApiResource, ObjectMeta, PartialObjectMetaExt};

    use super::*;

    fn is(types: Option<TypeMeta>, api_version: &str, kind: &str) -> bool {
        types.is_some_and(|types| (&*types.api_version, &*types.kind) == (api_version, kind))
    }

    #[test]
    fn the_types_are_those_of_the_type_or_of_the_object() {
        let web = Deployment::default();
        assert!(is(types_of(&web), "apps/v1", "Deployment"));
        let metadata = PartialObjectMeta::<Deployment>::default();
        assert!(is(types_of(&metadata), "apps/v1", "Deployment"));
        let resource = ApiResource::erase::<Deployment>(&());
        let mut dynamic = DynamicObject::new("web", &resource);
        assert!(is(types_of(&dynamic), "apps/v1", "Deployment"));
        dynamic.types = None;
        assert!(types_of(&dynamic).is_none());
        // As servers send it.
        let mut metadata = ObjectMeta::default().into_response_partial::<DynamicObject>();
        assert!(metadata.types.is_some() && types_of(&metadata).is_none());
        metadata.types = None;
        assert!(types_of(&metadata).is_none());
        metadata.types = Some(TypeMeta {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
        });
        assert!(is(types_of(&metadata), "apps/v1", "Deployment"));
    }
}
