//! An entry of the store: [`Stored`].

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube_core::DynamicObject;
use reeve_client::json::Reader;

use super::decoding::Decoding;
use super::view_error::ViewError;
use reeve_client::{KeyRef, ObjectKey};

/// An entry of the store: the identity of an object, and views of it.
///
/// Every Kubernetes type (anything that implements [`Resource`](kube_core::Resource) and serde's traits) is an entry of
/// itself; its typed view costs nothing. Forms that keep less than the whole object implement this trait too, so the
/// views return a `Result`.
///
/// A struct with only some of the fields is an entry too. Nothing else of the object is decoded or kept, and
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
    /// The type that [`Stored::typed`] returns.
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
    /// [`ViewError`] if this form does not hold it.
    fn metadata(&self) -> Result<Cow<'_, ObjectMeta>, ViewError>;

    /// The object without its type.
    ///
    /// # Errors
    /// [`ViewError`] if this form does not hold all of the object, or it has no JSON form.
    fn dynamic(&self) -> Result<DynamicObject, ViewError>;

    /// Reads an entry. [`Decoding::read`] calls this for a text. A form that is read by serde leaves out what the store
    /// does not keep by [`Reader::trimming`].
    ///
    /// # Errors
    /// The reader's, if the document does not describe an entry of this type.
    fn decode<'de>(
        document: &mut Reader<'de>,
        decoding: &'de Decoding,
    ) -> Result<Self, serde_json::Error>;

    /// The bytes that the entry owns on the heap besides itself, as far as they are known without a walk through all
    /// fields. Default: 0. The number must stay the same while the entry is in a store.
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
