//! The compact form: the bytes of an object without the skipped fields, decoded on reading. They are a JSON text, or a
//! message of protobuf where the object came as that, which is about half as long.
//!
//! An entry is the bytes in one allocation, and the positions of name, namespace, uid, version, labels and owners in it.
//! Nothing is decoded on arrival, so an entry costs its bytes and 120 more; a Pod of 3.5 KB takes 18.1 KB as its type
//! (`benches/peers`, `sync`). Each [`Form::typed`] pays for decoding instead: the form suits kinds with many objects
//! that are read seldom, or by key. Nothing is interned, since nothing is copied out of the text: namespaces and labels
//! are read in place.
//!
//! A packed entry ([`Builder::pack`](crate::Builder::pack)) has name, namespace, uid, version and labels as they are, and
//! the text in a short form: [`packing`](super::packing).
//!
//! A reader of the same objects again and again needs a cache of those decoded last
//! ([`Builder::cache_decoded`](crate::Builder::cache_decoded)). The store has one such cache, which is bounded: decoded
//! objects kept with their entries would sooner or later be all of them.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube_core::DynamicObject;
use reeve_client::json::{self, Reader, attempt, read_alone};
use serde::de::{DeserializeOwned, Deserializer, Error, MapAccess, Visitor};

use super::body::{Body, Header, Places, Span};
use super::compact_text;
use super::form::{Decoding, Form};
use super::protobuf::{self, Origin, ProtobufKind, ProtobufObject};
use super::stored::Stored;
use super::view_error::ViewError;

/// An entry that holds an object's bytes, trimmed, and decodes them as a `K` when it is read.
///
/// `SharedInformer::<Compact<Pod>>::builder_for(client, Endpoint::of::<Pod>())` keeps Pods in this form. Skipped fields
/// (`managedFields`, and those of [`Builder::skip`](crate::Builder::skip)) are not in the text. An object whose text is
/// not a `K` is stored, too: a typed read returns [`ViewError::Undecodable`], and the first one is counted
/// ([`CacheHealth::unreadable`](crate::CacheHealth::unreadable)).
pub struct Compact<K> {
    body: Body,
    places: Places,
    /// Set once the failure to decode this version was reported.
    reported: AtomicBool,
    /// Says the encoding of the bytes.
    origin: Arc<Origin>,
    kind: PhantomData<fn() -> K>,
}

// === impl Compact ===

impl<K> Compact<K> {
    /// The text: a JSON object. Of an object that came as protobuf it is made by this call, without fields that this version
    /// of the crate does not know; it is `{}` if the bytes turn out to be damaged.
    #[must_use]
    pub fn json(&self) -> Cow<'_, str> {
        match (&self.origin.protobuf, self.body.whole()) {
            (Some(kind), whole) => Cow::Owned(kind.text(&whole).unwrap_or_else(|| "{}".to_owned())),
            // It was a text when it came.
            (None, Cow::Borrowed(text)) => str::from_utf8(text).unwrap_or_default().into(),
            (None, Cow::Owned(text)) => String::from_utf8(text).unwrap_or_default().into(),
        }
    }

    /// The size of the entry in bytes, without the allocator's overhead.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.body.bytes()
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Compact<K> {
    /// A part of the metadata; empty if it cannot be read, which is reported.
    fn part<'a, T: serde::Deserialize<'a> + Default>(
        &self,
        text: &'a str,
        view: &'static str,
    ) -> T {
        if text.is_empty() {
            return T::default();
        }
        let part: Option<T> = self.read(text, view).unwrap_or_default();
        part.unwrap_or_default()
    }

    fn labels(&self) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        let span = self.places.labels;
        if self.origin.protobuf.is_some() {
            return protobuf::labels(self.body.of(span));
        }
        let Pairs(pairs) = self.part(self.body.text(span), "labels");
        let pairs = pairs.into_iter();
        pairs
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    /// The object as a `T`.
    fn decode<T: DeserializeOwned + 'static>(&self, view: &'static str) -> Result<T, ViewError> {
        let Some(kind) = &self.origin.protobuf else {
            return self.read(&self.json(), view);
        };
        let whole = self.body.whole();
        if let Some(read) = attempt(|| kind.deserializer(&whole).read()) {
            return Ok(read);
        }
        self.read_text(kind.text(&whole), view)
    }

    /// Reads what could not be read as protobuf: as a text it has the same errors in either encoding.
    fn read_text<T: DeserializeOwned>(
        &self,
        text: Option<String>,
        view: &'static str,
    ) -> Result<T, ViewError> {
        match text {
            Some(text) => self.read(&text, view),
            None => self.refuse("its bytes are not a message of its kind".to_owned(), view),
        }
    }

    /// The error of a view, which is reported if it is the first one.
    fn refuse<T>(&self, error: String, view: &'static str) -> Result<T, ViewError> {
        let error = ViewError::Undecodable { view, error };
        if !self.reported.swap(true, Ordering::Relaxed) {
            self.origin.cache.unreadable(self.key_ref(), &error);
        }
        Err(error)
    }

    /// A part of `metadata` in protobuf as a `T`.
    fn decode_metadata<T: DeserializeOwned + 'static>(
        &self,
        kind: &ProtobufKind,
        bytes: &[u8],
        view: &'static str,
    ) -> Result<T, ViewError> {
        if let Some(read) = attempt(|| kind.metadata(bytes).read()) {
            return Ok(read);
        }
        self.read_text(protobuf::text(kind.metadata(bytes)), view)
    }

    fn read<'a, T: serde::Deserialize<'a>>(
        &self,
        text: &'a str,
        view: &'static str,
    ) -> Result<T, ViewError> {
        read_alone(|| json::from_str(text)).or_else(|error| self.refuse(error, view))
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Compact<K> {
    /// The object as any type, from the cache of decoded objects if it was read as this type last.
    ///
    /// # Errors
    /// [`ViewError::Undecodable`] if the text is not one of the type.
    pub fn typed_as<T: DeserializeOwned + Send + Sync + 'static>(
        self: &Arc<Self>,
    ) -> Result<Arc<T>, ViewError> {
        let decode = || self.decode("type");
        self.origin.cache.decoded(self, decode)
    }
}

impl<K> fmt::Debug for Compact<K> {
    /// Prints the key only: the content may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compact")
            .field("namespace", &self.body.text(self.places.namespace()))
            .field("name", &self.body.text(self.places.name()))
            .field("bytes", &self.body.bytes())
            .finish_non_exhaustive()
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Stored for Compact<K> {
    fn name(&self) -> &str {
        self.body.text(self.places.name())
    }

    fn namespace(&self) -> Option<&str> {
        let namespace = self.body.text(self.places.namespace());
        (!namespace.is_empty()).then_some(namespace)
    }

    fn uid(&self) -> &str {
        self.body.text(self.places.uid())
    }

    fn resource_version(&self) -> &str {
        self.body.text(self.places.resource_version())
    }

    fn label(&self, name: &str) -> Option<&str> {
        let span = self.places.labels;
        if self.origin.protobuf.is_some() {
            return protobuf::label(self.body.of(span), name);
        }
        let Pairs(labels) = self.part(self.body.text(span), "labels");
        let mut labels = labels.into_iter().rev();
        let found = labels.find(|(key, _)| *key == name);
        found.map(|(_, value)| value)
    }

    fn each_label(&self, visit: &mut dyn FnMut(&str, &str)) {
        let mut labels = self.labels();
        // The later of two labels of one name counts, as in the typed form.
        labels.reverse();
        labels.sort_by(|(one, _), (other, _)| one.cmp(other));
        labels.dedup_by(|(one, _), (other, _)| one == other);
        for (name, value) in labels {
            visit(&name, &value);
        }
    }

    fn owner_references(&self) -> Cow<'_, [OwnerReference]> {
        if self.places.owner_references == Span::default() {
            return Cow::Owned(Vec::new());
        }
        let whole = self.body.whole();
        let owners = self.places.owner_references.of(&whole);
        let view = "owner references";
        if let Some(kind) = &self.origin.protobuf {
            let read = self.decode_metadata(kind, owners, view);
            return Cow::Owned(read.map_or_else(
                |_| Vec::new(),
                |Owners { owner_references }| owner_references,
            ));
        }
        Cow::Owned(self.part(str::from_utf8(owners).unwrap_or_default(), view))
    }

    fn owned_bytes(&self) -> usize {
        self.body.bytes()
    }

    fn metadata(&self) -> Result<Cow<'_, ObjectMeta>, ViewError> {
        let whole = self.body.whole();
        let metadata = self.places.metadata.of(&whole);
        if metadata.is_empty() {
            return Ok(Cow::Owned(ObjectMeta::default()));
        }
        let metadata = match &self.origin.protobuf {
            Some(kind) => self.decode_metadata(kind, metadata, "metadata"),
            None => self.read(str::from_utf8(metadata).unwrap_or_default(), "metadata"),
        };
        metadata.map(Cow::Owned)
    }

    fn dynamic(&self) -> Result<DynamicObject, ViewError> {
        self.decode("untyped object")
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Form for Compact<K> {
    type Typed = K;

    fn typed(self: &Arc<Self>) -> Result<Arc<K>, ViewError> {
        self.typed_as()
    }

    fn decode<'de>(
        document: &mut Reader<'de>,
        decoding: &'de Decoding,
    ) -> Result<Self, serde_json::Error> {
        let (text, header) = compact_text::read(document, decoding)?;
        let origin = Arc::clone(&decoding.origin);
        Self::new(text.into_bytes(), header, origin, decoding).map_err(Error::custom)
    }

    const PROTOBUF: bool = true;

    fn prefers_protobuf() -> bool {
        true
    }

    fn decode_protobuf<'de>(
        object: &ProtobufObject<'de>,
        decoding: &'de Decoding,
    ) -> Result<Self, reeve_wire::Error> {
        let whole = object.trimmed()?;
        let header = protobuf::header(&whole)?;
        let origin = Arc::clone(object.origin);
        Self::new(whole, header, origin, decoding).map_err(Error::custom)
    }
}

impl<K> Compact<K> {
    fn new(
        whole: Vec<u8>,
        header: Header,
        origin: Arc<Origin>,
        decoding: &Decoding,
    ) -> Result<Self, &'static str> {
        if u32::try_from(whole.len()).is_err() {
            return Err("the object is larger than 4 GiB");
        }
        let (body, header) = Body::new(whole, header, decoding.packing.as_deref());
        let places = header.places();
        Ok(Self {
            body,
            places: places.ok_or("a name, a uid or a version is longer than 64 KB")?,
            reported: AtomicBool::new(false),
            origin,
            kind: PhantomData,
        })
    }
}

/// Names and values of labels.
#[derive(Default)]
struct Pairs<'a>(Vec<(&'a str, &'a str)>);

/// The owners alone.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owners {
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
}

// === impl Pairs ===

impl<'de> serde::Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(document: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        document.deserialize_map(PairsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::sample::{TestPath, any_path, any_value, cases};

    fn read(document: &str, decoding: &Decoding) -> Result<Arc<Compact<Pod>>, serde_json::Error> {
        decoding.read(document).map(Arc::new)
    }

    fn pod() -> Value {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "5",
                "labels": {"tier": "web", "app": "shop"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "o", "controller": true}],
                "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}}],
                "annotations": {"quoted": "say \"hi\"\\"}
            },
            "spec": {"containers": [{"name": "c", "env": [{"name": "managedFields"}]}]}
        })
    }

    #[test]
    fn every_view_equals_that_of_the_typed_form() {
        let document = pod().to_string();
        let compact = read(&document, &Decoding::default()).unwrap();
        let typed = Arc::new(Decoding::default().read::<Pod>(&document).unwrap());
        assert_eq!(*compact.typed().unwrap(), *typed);
        assert_eq!(*compact.metadata().unwrap(), *typed.metadata().unwrap());
        assert_eq!(compact.dynamic().unwrap(), typed.dynamic().unwrap());
        assert_eq!(compact.key(), typed.key());
        assert_eq!((compact.uid(), compact.resource_version()), ("u", "5"));
        assert_eq!(compact.owner_references(), typed.owner_references());
        assert_eq!(
            (compact.label("app"), compact.label("none")),
            (Some("shop"), None)
        );
        assert_eq!(labels(&*compact), labels(&*typed));
    }

    fn labels<S: Stored + ?Sized>(object: &S) -> Vec<String> {
        let mut labels = Vec::new();
        object.each_label(&mut |name, value| labels.push(format!("{name}={value}")));
        labels
    }

    #[test]
    fn managed_fields_are_left_out_and_nothing_else() {
        let mut wanted = pod();
        let compact = read(&wanted.to_string(), &Decoding::default()).unwrap();
        wanted["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("managedFields");
        assert_eq!(
            serde_json::from_str::<Value>(&compact.json()).unwrap(),
            wanted
        );
        assert!(compact.bytes() > compact.json().len());
    }

    #[test]
    fn a_missing_type_is_put_in_and_a_given_one_kept() {
        let decoding = Decoding::of("v1", "Pod");
        let compact = read(r#"{"metadata":{"name":"p"}}"#, &decoding).unwrap();
        assert_eq!(
            compact.json(),
            r#"{"metadata":{"name":"p"},"apiVersion":"v1","kind":"Pod"}"#
        );
        let compact = read(r#"{"kind":"Other","apiVersion":"x"}"#, &decoding).unwrap();
        assert_eq!(compact.json(), r#"{"kind":"Other","apiVersion":"x"}"#);
        assert_eq!(compact.name(), "", "the list refuses it");
        let compact = read(r#"{"metadata":null,"\u0073pec":{}}"#, &Decoding::default()).unwrap();
        assert_eq!(compact.json(), r#"{"metadata":null,"spec":{}}"#);
        assert!(compact.metadata().unwrap().name.is_none());
        let compact = read("{}", &Decoding::default()).unwrap();
        assert_eq!(compact.json(), "{}");
    }

    #[test]
    fn text_that_is_not_of_the_kind_is_kept_and_an_error_for_its_reader() {
        let document =
            r#"{"metadata":{"name":"p","labels":{"a":1},"ownerReferences":7},"spec":"hunter2"}"#;
        let compact = read(document, &Decoding::default()).unwrap();
        assert_eq!((compact.name(), compact.label("a")), ("p", None));
        assert!(compact.owner_references().is_empty());
        let error = compact.typed().unwrap_err().to_string();
        assert!(
            !error.contains("hunter2") && error.contains("type"),
            "{error}"
        );
        assert!(!format!("{compact:?}").contains("hunter2"));
    }

    #[test]
    fn a_header_that_no_server_writes_is_refused() {
        for (document, said) in [
            (r#"{"metadata":{"name":"a\u0041"}}"#, "metadata.name"),
            (r#"{"metadata":{"name":5}}"#, "metadata.name"),
            (
                r#"{"metadata":{"name":"p","labels":{"a":"\u0041"}}}"#,
                "metadata.labels",
            ),
            (r#"{"metadata":[]}"#, "metadata"),
            (r#"[]"#, "an object"),
        ] {
            let error = read(document, &Decoding::default())
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "{document}: {error}");
        }
    }

    #[test]
    fn an_entry_takes_no_more_than_88_bytes_beside_its_text() {
        assert!(
            size_of::<Compact<Pod>>() <= 88,
            "{}",
            size_of::<Compact<Pod>>()
        );
    }

    #[test]
    fn every_view_of_a_packed_entry_equals_that_of_the_text() {
        let packing = Decoding {
            packing: Some(Arc::default()),
            ..Decoding::default()
        };
        let mut pod = pod();
        for number in 0..9 {
            pod["metadata"]["name"] = format!("pod-{number}").into();
            let document = pod.to_string();
            let packed = read(&document, &packing).unwrap();
            let text = read(&document, &Decoding::default()).unwrap();
            assert!(packed.bytes() * 2 < text.bytes(), "{packed:?} {text:?}");
            assert_eq!(packed.json(), text.json());
            assert_eq!(*packed.typed().unwrap(), *text.typed().unwrap());
            assert_eq!(*packed.metadata().unwrap(), *text.metadata().unwrap());
            assert_eq!(packed.dynamic().unwrap(), text.dynamic().unwrap());
            assert_eq!(packed.key(), text.key());
            assert_eq!((packed.uid(), packed.resource_version()), ("u", "5"));
            assert_eq!(packed.owner_references(), text.owner_references());
            assert_eq!(packed.label("app"), Some("shop"));
            assert_eq!(labels(&*packed), labels(&*text));
        }
        let empty = read("{}", &packing).unwrap();
        assert_eq!((empty.name(), &*empty.json()), ("", "{}"));
    }

    proptest! {
        #![proptest_config(cases(2000))]

        /// The text holds the same as the document, without the skipped fields.
        #[test]
        fn the_text_equals_the_document(
            fields in proptest::collection::btree_map(".{0,8}|[a-d]", any_value(), 0..5),
            metadata in proptest::collection::btree_map("[a-z\"]{1,5}|[a-d]", any_value(), 0..5),
            name in "[a-z0-9.-]{1,10}",
            paths in proptest::collection::vec(any_path(), 0..3),
            pretty: bool,
            packed: bool,
        ) {
            let mut object: serde_json::Map<String, Value> = fields.into_iter().collect();
            let mut metadata: serde_json::Map<String, Value> = metadata.into_iter().collect();
            metadata.insert("name".to_owned(), name.as_str().into());
            metadata.remove("uid");
            object.insert("metadata".to_owned(), metadata.into());
            let mut object = Value::from(object);
            let document = if pretty { format!("{object:#}") } else { object.to_string() };
            let within_metadata = [".metadata.a", ".metadata.b[*].c"].map(TestPath::of);
            let mut decoding = Decoding {
                packing: packed.then(Arc::default),
                ..Decoding::default()
            };
            for path in paths.iter().chain(&within_metadata) {
                decoding = decoding.skip(&path.skip());
                path.leave_out(&mut object);
            }
            let compact = read(&document, &decoding).unwrap();
            prop_assert_eq!(compact.name(), name);
            prop_assert_eq!(serde_json::from_str::<Value>(&compact.json()).unwrap(), object);
        }
    }
}
