//! How an entry of a store is read: [`Form`], with the options of [`Decoding`], and as a value [`EntryType`]. Every
//! Kubernetes type is an entry of itself.

use std::any::TypeId;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube_core::{DynamicObject, Resource};
use reeve_client::json::{self, Reader, SkipPath, Trimming};
use reeve_client::transport::Endpoint;
use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};

use super::packing::Packing;
use super::protobuf::{Origin, ProtobufObject};
use super::spares::Spares;
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

    /// Whether entries can be read by [`Form::decode_protobuf`]. Default: false, and an informer requests JSON only.
    const PROTOBUF: bool = false;

    /// Whether entries of [`Form::PROTOBUF`] are made from protobuf in less time than from JSON. Then protobuf is requested
    /// unless [`ReflectorOptions::protobuf`](crate::ReflectorOptions::protobuf) says otherwise. Default: false.
    #[must_use]
    fn prefers_protobuf() -> bool {
        false
    }

    /// Reads an entry from protobuf. The result must equal that of [`Form::decode`] for the same object. An object that
    /// is refused here is read once more, as JSON.
    ///
    /// # Errors
    /// The deserializer's, if the object does not describe an entry of this type.
    fn decode_protobuf<'de>(
        object: &ProtobufObject<'de>,
        decoding: &'de Decoding,
    ) -> Result<Self, reeve_wire::Error> {
        let _ = (object, decoding);
        Err(reeve_wire::Error::custom(
            "this form is read from JSON only",
        ))
    }

    /// Whether [`Form::decode_protobuf_over`] takes less time than a new entry. Then a store keeps some entries that it has no
    /// longer and that nothing else refers to, to read changes of 2 KiB or more over them: up to 128, and 512 KiB of their
    /// messages. What they hold, a former state of a Secret too, stays in memory until then. Default: false.
    #[must_use]
    fn reads_over() -> bool {
        false
    }

    /// As [`Form::decode_protobuf`], over another entry, which need not be like it: nothing of that may be left. Default: the
    /// entry is replaced.
    ///
    /// # Errors
    /// As [`Form::decode_protobuf`]. The entry has any content then.
    fn decode_protobuf_over<'de>(
        object: &ProtobufObject<'de>,
        decoding: &'de Decoding,
        entry: &mut Self,
    ) -> Result<(), reeve_wire::Error> {
        *entry = Self::decode_protobuf(object, decoding)?;
        Ok(())
    }
}

/// The options of reading objects.
#[derive(Clone, Debug, Default)]
pub struct Decoding {
    pub(crate) trimming: Trimming,
    pub(crate) origin: Arc<Origin>,
    pub(crate) packing: Option<Arc<Packing>>,
}

/// The type of the entries of a store, as a value.
pub struct EntryType<S: ?Sized> {
    id: TypeId,
    decode: Decode<S>,
    decode_protobuf: Option<DecodeProtobuf<S>>,
    decode_over: Option<DecodeOver<S>>,
    prefers_protobuf: bool,
}

type Decode<S> = for<'de> fn(&mut Reader<'de>, &'de Decoding) -> Result<Arc<S>, serde_json::Error>;

type DecodeProtobuf<S> =
    for<'de> fn(&ProtobufObject<'de>, &'de Decoding) -> Result<Arc<S>, reeve_wire::Error>;

type DecodeOver<S> =
    for<'de> fn(&ProtobufObject<'de>, &'de Decoding, &mut S) -> Result<(), reeve_wire::Error>;

/// Reads the entries of one store.
#[derive(Debug)]
pub(crate) struct EntryReader<S: ?Sized> {
    pub(crate) decoding: Decoding,
    /// Of the store that the entries are for.
    pub(crate) spares: Arc<Spares<S>>,
    of: EntryType<S>,
    /// Of objects in protobuf, once it is known that the entries can be read from it. Shared with its clones, which may be
    /// made before.
    protobuf: Arc<OnceLock<Option<Arc<Origin>>>>,
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

    /// Reads one object of a built-in kind from its protobuf, in its envelope, as an informer does: for tests of a form
    /// that reads both encodings.
    ///
    /// # Errors
    /// For a body that is not such an object, for a form that is read from JSON only, and for a part to leave out that
    /// protobuf does not describe.
    pub fn read_protobuf<S: Form>(&self, body: &[u8]) -> Result<S, reeve_wire::Error> {
        let envelope = reeve_wire::Envelope::parse(body)?;
        let (api_version, kind) = (&envelope.api_version, &envelope.kind);
        envelope.message()?;
        let cache = Arc::clone(&self.origin.cache);
        let origin = Origin::of_kind(cache, api_version, kind, &self.trimming).map(Arc::new);
        let object = origin
            .as_ref()
            .and_then(|origin| origin.object(envelope.object));
        let object = object
            .ok_or_else(|| reeve_wire::Error::custom("a part to leave out is within JSON text"))?;
        S::decode_protobuf(&object, self)
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
            decode_protobuf: reads_protobuf::<S>()
                .then_some(|object, decoding| S::decode_protobuf(object, decoding).map(Arc::new)),
            decode_over: S::reads_over().then_some(S::decode_protobuf_over),
            prefers_protobuf: S::prefers_protobuf(),
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
            decode_protobuf: reads_protobuf::<F>().then_some(|object, decoding| {
                let entry = F::decode_protobuf(object, decoding).map(Arc::new)?;
                Ok(entry)
            }),
            decode_over: F::reads_over().then_some(|object, decoding, entry| {
                let entry = entry.cast_mut::<F>();
                let entry = entry.ok_or_else(|| reeve_wire::Error::custom("another type"))?;
                F::decode_protobuf_over(object, decoding, entry)
            }),
            prefers_protobuf: F::prefers_protobuf(),
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

/// Untyped objects are those of kinds that a program does not know: they are read from JSON.
fn reads_protobuf<F: Form>() -> bool {
    F::PROTOBUF && TypeId::of::<F>() != TypeId::of::<DynamicObject>()
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
        Self {
            decoding,
            spares: Arc::default(),
            of,
            protobuf: Arc::default(),
        }
    }

    /// Whether the entries can be read from protobuf: `endpoint` has a built-in kind, and the form can read it. Called
    /// once the options of decoding are complete.
    pub(crate) fn accepts_protobuf(&self, endpoint: &Endpoint) -> bool {
        let origin = self.protobuf.get_or_init(|| {
            self.of.decode_protobuf?;
            let Decoding {
                trimming, origin, ..
            } = &self.decoding;
            let origin = Origin::protobuf(Arc::clone(&origin.cache), endpoint, trimming);
            origin.map(Arc::new)
        });
        origin.is_some()
    }

    /// Whether protobuf is requested by default.
    pub(crate) fn prefers_protobuf(&self) -> bool {
        self.of.prefers_protobuf
    }

    /// The kind of the objects in protobuf, if the entries can be read from it.
    pub(crate) fn protobuf(&self) -> Option<&Arc<Origin>> {
        self.protobuf.get()?.as_ref()
    }

    /// Reads one entry of a list from the message of an object.
    pub(crate) fn read_protobuf<'de>(
        &'de self,
        origin: &'de Arc<Origin>,
        bytes: &'de [u8],
    ) -> Result<Arc<S>, reeve_wire::Error> {
        let (Some(decode), Some(object)) = (self.of.decode_protobuf, origin.object(bytes)) else {
            return Err(reeve_wire::Error::custom("protobuf was not requested"));
        };
        decode(&object, &self.decoding)
    }

    /// Reads one entry of a watch, over a spare one if there is one. `replaces`: it takes the place of one of the store.
    pub(crate) fn read_change<'de>(
        &'de self,
        origin: &'de Arc<Origin>,
        bytes: &'de [u8],
        replaces: bool,
    ) -> Result<Arc<S>, reeve_wire::Error> {
        if let Some(decode_over) = self.of.decode_over
            && let Some(object) = origin.object(bytes)
            && let Some(mut entry) = self.spares.take(bytes.len(), replaces)
            && let Some(place) = Arc::get_mut(&mut entry)
        {
            decode_over(&object, &self.decoding, place)?;
            return Ok(entry);
        }
        self.read_protobuf(origin, bytes)
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
        Self {
            decoding: self.decoding.clone(),
            spares: Arc::clone(&self.spares),
            of: self.of,
            protobuf: Arc::clone(&self.protobuf),
        }
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

    const PROTOBUF: bool = true;

    fn prefers_protobuf() -> bool {
        reeve_wire::is_read_in_place::<K>()
    }

    fn decode_protobuf<'de>(
        object: &ProtobufObject<'de>,
        _: &'de Decoding,
    ) -> Result<Self, reeve_wire::Error> {
        object.deserializer().read()
    }

    fn reads_over() -> bool {
        reeve_wire::is_read_in_place::<K>()
    }

    fn decode_protobuf_over<'de>(
        object: &ProtobufObject<'de>,
        _: &'de Decoding,
        entry: &mut Self,
    ) -> Result<(), reeve_wire::Error> {
        object.deserializer().read_over(entry)
    }
}
