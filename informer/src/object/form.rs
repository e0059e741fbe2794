//! How an entry of a store is read: [`Form`], and as a value [`EntryType`].

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use reeve_client::json::Reader;

use super::decoding::Decoding;
use super::stored::Stored;
use super::view_error::ViewError;

/// A form in which objects are stored: how an entry is read, and its typed view.
///
/// Every Kubernetes type (anything that implements [`Resource`](kube_core::Resource) and serde's traits) is a form of
/// itself; its typed view costs nothing. Types that keep less than the whole object implement this trait too, so the
/// views return a `Result`.
///
/// A struct with only some of the fields is a form too. Nothing else of the object is decoded or kept, and
/// `SharedInformer::<Placed>::builder(client)` works as for the whole type:
///
/// ```
/// # use reeve_informer::Decoding;
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
pub trait Form: Stored + Sized {
    /// The type that [`Form::typed`] returns.
    type Typed: Send + Sync + 'static;

    /// The object as its own type.
    ///
    /// # Errors
    /// [`ViewError`] if this form does not hold all of the object.
    fn typed(self: &Arc<Self>) -> Result<Arc<Self::Typed>, ViewError>;

    /// Reads an entry. [`Decoding::read`] calls this for a text. A form that is read by serde leaves out what the store
    /// does not keep by [`Reader::trimming`].
    ///
    /// # Errors
    /// The reader's, if the document does not describe an entry of this type.
    fn decode<'de>(
        document: &mut Reader<'de>,
        decoding: &'de Decoding,
    ) -> Result<Self, serde_json::Error>;
}

/// The type of the entries of a store, as a value.
pub struct EntryType<S: ?Sized> {
    id: TypeId,
    decode: Decode<S>,
}

type Decode<S> = for<'de> fn(&mut Reader<'de>, &'de Decoding) -> Result<Arc<S>, serde_json::Error>;

/// Reads the entries of one store.
#[derive(Debug)]
pub(crate) struct EntryReader<S: ?Sized> {
    pub(crate) decoding: Decoding,
    of: EntryType<S>,
}

// === impl EntryType ===

impl<S: Form> EntryType<S> {
    /// `S` itself.
    #[must_use]
    pub fn known() -> Self {
        Self {
            id: TypeId::of::<S>(),
            // Into its final place: it is half a kilobyte or more, too much to move.
            decode: |document, decoding| S::decode(document, decoding).map(Arc::new),
        }
    }
}

impl EntryType<dyn Stored> {
    /// `F`, of which a store knows only that it is [`Stored`].
    #[must_use]
    pub fn erased<F: Form>() -> Self {
        Self {
            id: TypeId::of::<F>(),
            decode: |document, decoding| {
                let entry = F::decode(document, decoding).map(Arc::new)?;
                Ok(entry)
            },
        }
    }
}

impl<S: ?Sized + 'static> EntryType<S> {
    /// True for entries of the type `F`.
    #[must_use]
    pub fn is<F: Form>(&self) -> bool {
        self.id == TypeId::of::<F>()
    }

    /// Equal for stores of the same type.
    pub(crate) fn id(&self) -> (TypeId, TypeId) {
        (TypeId::of::<S>(), self.id)
    }
}

impl<S: ?Sized> Copy for EntryType<S> {}

impl<S: ?Sized> Clone for EntryType<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: ?Sized> fmt::Debug for EntryType<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EntryType").field(&self.id).finish()
    }
}

// === impl EntryReader ===

impl<S: ?Sized> EntryReader<S> {
    pub(crate) fn new(of: EntryType<S>, decoding: Decoding) -> Self {
        Self { decoding, of }
    }

    /// Reads one entry.
    pub(crate) fn read<'de>(
        &'de self,
        document: &mut Reader<'de>,
    ) -> Result<Arc<S>, serde_json::Error> {
        (self.of.decode)(document, &self.decoding)
    }
}

#[cfg(any(test, fuzzing))]
impl<S: Form> From<Decoding> for EntryReader<S> {
    fn from(decoding: Decoding) -> Self {
        Self::new(EntryType::known(), decoding)
    }
}
