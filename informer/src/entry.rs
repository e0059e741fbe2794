//! What the store keeps of an object.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube_core::{DynamicObject, Resource};
use serde::Serialize;
use serde::de::{DeserializeOwned, Deserializer};

use crate::decode::{Decoding, Trimmed};
use crate::key::{KeyRef, ObjectKey};

/// An entry of the store: who the object is, and views of it.
///
/// Every Kubernetes type (anything that is [`Resource`] and speaks serde) is an entry of itself; its typed
/// view costs nothing. Forms that keep less than the whole object implement this trait too, which is why the
/// views return a `Result`.
///
/// So is a struct that names only what is of interest. Nothing else of the object is decoded or kept, and
/// `SharedInformer::<Placed>::builder(client)` works as for the whole type:
///
/// ```
/// # use reeve_informer::{Decoding, Stored};
/// use k8s_openapi::api::core::v1::Pod;
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
/// use kube_derive::Resource;
/// use serde::{Deserialize, Serialize};
///
/// /// Where a Pod runs.
/// #[derive(Resource, Serialize, Deserialize)]
/// #[resource(inherit = Pod, crates(kube_core = "::kube_core"))] // with the crate `kube`: `inherit = Pod` alone
/// struct Placed {
///     metadata: ObjectMeta,
///     spec: Placement,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// #[serde(rename_all = "camelCase")]
/// struct Placement {
///     node_name: Option<String>,
/// }
///
/// let pod = r#"{"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": []}, "status": {}}"#;
/// let placed = Decoding::default().read::<Placed>(pod)?; // as the informer does
/// assert_eq!(placed.spec.node_name.as_deref(), Some("n1"));
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// Annotations come with `metadata`; [`Builder::skip`](crate::Builder::skip) leaves them out.
pub trait Stored: Sized + Send + Sync + 'static {
    /// The type that [`Stored::typed`] gives.
    type Typed: Send + Sync + 'static;

    /// The object's name.
    fn name(&self) -> &str;

    /// The object's namespace; `None` for a cluster-scoped one.
    fn namespace(&self) -> Option<&str>;

    /// The object's uid; empty if the server sent none.
    fn uid(&self) -> &str;

    /// The object's version; empty if the server sent none.
    fn resource_version(&self) -> &str;

    /// The value of a label.
    fn label(&self, name: &str) -> Option<&str>;

    /// Calls `visit` with each label, in the order of their names.
    fn each_label(&self, visit: &mut dyn FnMut(&str, &str));

    /// The owners of the object.
    fn owner_references(&self) -> Cow<'_, [OwnerReference]>;

    /// The object as its own type.
    ///
    /// # Errors
    /// [`ViewError`] if this form does not hold all of the object.
    fn typed(self: &Arc<Self>) -> Result<Arc<Self::Typed>, ViewError>;

    /// The object's metadata. Fields that were skipped while decoding (`managedFields`) are absent.
    ///
    /// # Errors
    /// [`ViewError`] if this form cannot give them.
    fn metadata(&self) -> Result<Cow<'_, ObjectMeta>, ViewError>;

    /// The object without its type.
    ///
    /// # Errors
    /// [`ViewError`] if this form does not hold all of the object, or it has no JSON form.
    fn dynamic(&self) -> Result<DynamicObject, ViewError>;

    /// Reads an entry. [`Decoding::read`] does so from a text; informers give it the same reader, whose arrays tell
    /// their length before their first element.
    ///
    /// # Errors
    /// The deserializer's, if the document does not describe an entry of this type.
    fn decode<'de, D: Deserializer<'de>>(
        document: D,
        decoding: &Decoding,
    ) -> Result<Self, D::Error>;

    /// The bytes that the entry owns on the heap besides itself, as far as it knows them without walking through
    /// all its fields. Default: none. It must stay the same while the entry is in a store.
    fn owned_bytes(&self) -> usize {
        0
    }

    /// The key, borrowed.
    fn key_ref(&self) -> KeyRef<'_> {
        KeyRef {
            namespace: self.namespace(),
            name: self.name(),
        }
    }

    /// The key.
    fn key(&self) -> ObjectKey {
        self.key_ref().to_key()
    }
}

/// A view that this form of the object cannot give.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The object has no JSON form.
    #[error("the object cannot be written as JSON: {0}")]
    Encode(String),
    /// The stored form holds the object as it came, and it is not what was asked for.
    #[error("the object cannot be read as its {view}: {error}")]
    Undecodable {
        /// What was asked for.
        view: &'static str,
        /// What was wrong, without any of the object's content.
        error: String,
    },
    /// The stored form does not hold what the view needs.
    #[error("the stored form holds no {view}; store the kind as {option} to have it")]
    NotHeld {
        /// What was asked for.
        view: &'static str,
        /// The store option that keeps it.
        option: &'static str,
    },
}

impl<K> Stored for K
where
    K: Resource + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    type Typed = K;

    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> Option<&str> {
        self.meta()
            .namespace
            .as_deref()
            .filter(|namespace| !namespace.is_empty())
    }

    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    fn resource_version(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or_default()
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.meta().labels.as_ref()?.get(name).map(String::as_str)
    }

    fn each_label(&self, visit: &mut dyn FnMut(&str, &str)) {
        for (name, value) in self.meta().labels.iter().flatten() {
            visit(name, value);
        }
    }

    fn owner_references(&self) -> Cow<'_, [OwnerReference]> {
        Cow::Borrowed(self.meta().owner_references.as_deref().unwrap_or_default())
    }

    fn typed(self: &Arc<Self>) -> Result<Arc<K>, ViewError> {
        Ok(Arc::clone(self))
    }

    fn metadata(&self) -> Result<Cow<'_, ObjectMeta>, ViewError> {
        Ok(Cow::Borrowed(self.meta()))
    }

    fn dynamic(&self) -> Result<DynamicObject, ViewError> {
        serde_json::to_value(self)
            .and_then(serde_json::from_value)
            .map_err(|error| ViewError::Encode(crate::decode::redacted(&error)))
    }

    fn decode<'de, D: Deserializer<'de>>(
        document: D,
        decoding: &Decoding,
    ) -> Result<Self, D::Error> {
        K::deserialize(Trimmed::object(document, decoding))
    }
}
