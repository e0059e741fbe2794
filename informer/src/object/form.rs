//! How an entry of a store is read: [`Form`], with the options of [`Decoding`], and as a value [`EntryType`]. Every
//! Kubernetes type is an entry of itself.

use std::any::TypeId;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube_core::{DynamicObject, Resource};
use reeve_client::json::{self, Reader, SkipPath, Trimming};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::decode_cache::DecodeCache;
use super::packing::Packing;
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

/// The options of reading objects.
#[derive(Clone, Debug, Default)]
pub struct Decoding {
    pub(crate) trimming: Trimming,
    pub(crate) cache: Arc<DecodeCache>,
    pub(crate) packing: Option<Arc<Packing>>,
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

// === impl Decoding ===

impl Decoding {
    /// Adds these to an object without `apiVersion` and `kind`, as the items of a built-in kind's list are. Empty and
    /// null count as missing, as in Go.
    #[must_use]
    pub fn of(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            trimming: Trimming::of(api_version, kind),
            ..Self::default()
        }
    }

    /// Refuses objects that name another type (client-go: the type guard of `NewReflector`).
    pub(crate) fn guarded(mut self) -> Self {
        self.trimming = self.trimming.guarded();
        self
    }

    /// Leaves out `path` too.
    #[must_use]
    pub fn skip(mut self, path: &SkipPath) -> Self {
        self.trimming = self.trimming.skip(path);
        self
    }

    /// The fields that are left out of each object, and the type that is added to it.
    #[must_use]
    pub fn trimming(&self) -> &Trimming {
        &self.trimming
    }

    /// Reads one object from its JSON text, as an informer does: faster than serde_json, and with each `Vec` of exactly
    /// the needed size.
    ///
    /// # Errors
    /// [`json::read`]'s. It may quote the object, which may be a secret, if the type does.
    pub fn read<S: Form>(&self, document: &str) -> Result<S, serde_json::Error> {
        json::read(document, |reader| S::decode(reader, self))
    }
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

impl<S: ?Sized> Clone for EntryReader<S> {
    fn clone(&self) -> Self {
        Self::new(self.of, self.decoding.clone())
    }
}

#[cfg(any(test, fuzzing))]
impl<S: Form> From<Decoding> for EntryReader<S> {
    fn from(decoding: Decoding) -> Self {
        Self::new(EntryType::known(), decoding)
    }
}

// === impl K: a Kubernetes type as an entry of itself ===

impl<K> Stored for K
where
    K: Resource + Serialize + DeserializeOwned + Send + Sync + 'static,
{
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

    fn metadata(&self) -> Result<Cow<'_, ObjectMeta>, ViewError> {
        Ok(Cow::Borrowed(self.meta()))
    }

    fn metadata_mut(&mut self) -> Option<&mut ObjectMeta> {
        Some(self.meta_mut())
    }

    fn dynamic(&self) -> Result<DynamicObject, ViewError> {
        json::reencode(self).map_err(|error| ViewError::Encode(json::redacted(&error)))
    }
}

impl<K> Form for K
where
    K: Resource + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    type Typed = K;

    fn typed(self: &Arc<Self>) -> Result<Arc<K>, ViewError> {
        Ok(Arc::clone(self))
    }

    fn decode<'de>(
        document: &mut Reader<'de>,
        decoding: &'de Decoding,
    ) -> Result<Self, serde_json::Error> {
        K::deserialize(document.trimming(&decoding.trimming))
    }
}
