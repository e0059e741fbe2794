//! The types that the client reads and writes.

use std::fmt;

use kube_core::{ObjectMeta, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::key::ObjectKey;

/// A kind of the client's calls: a Rust type with its group, version and plural.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of Kubernetes objects",
    label = "not a type of Kubernetes objects",
    note = "a type of k8s-openapi or of the derive `CustomResource` is one; the objects of a cache are in an `Arc`: name \
            the type inside, or pass `&*object`",
    note = "a kind that is known only when the program runs has `Client::dynamic` and `View::dynamic`"
)]
pub trait Object:
    Resource<DynamicType = ()>
    + Serialize
    + DeserializeOwned
    + Clone
    + fmt::Debug
    + Send
    + Sync
    + 'static
{
}

#[diagnostic::do_not_recommend]
impl<K> Object for K where
    K: Resource<DynamicType = ()>
        + Serialize
        + DeserializeOwned
        + Clone
        + fmt::Debug
        + Send
        + Sync
        + 'static
{
}

/// A type of a client's answers: an [`Object`](crate::Object), a
/// [`DynamicObject`](kube_core::DynamicObject), or the [`PartialObjectMeta`](kube_core::PartialObjectMeta) of either.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of Kubernetes objects",
    label = "not a type of Kubernetes objects",
    note = "the objects of a cache are in an `Arc`: name the type inside, or pass `&*object`"
)]
pub trait AnyObject:
    Resource + Serialize + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static
{
}

#[diagnostic::do_not_recommend]
impl<K> AnyObject for K where
    K: Resource + Serialize + DeserializeOwned + Clone + fmt::Debug + Send + Sync + 'static
{
}

/// The key of the object with `meta`.
#[must_use]
pub fn key_of(meta: &ObjectMeta) -> ObjectKey {
    let name = meta.name.as_deref().unwrap_or_default();
    match meta.namespace.as_deref() {
        Some(namespace) if !namespace.is_empty() => ObjectKey::namespaced(namespace, name),
        _ => ObjectKey::cluster(name),
    }
}
