//! One stored object and its key.
//!
//! An object is its JSON. The few facts that the store itself needs are read from it once; the tree of values is parsed
//! for a reader that needs it, and [kept for a while](super::recent).

use std::borrow::{Borrow, Cow};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use reeve_wire::Message;
use serde_json::Value;

use super::facts::Facts;
use super::recent::{BYTES, Forms, Recent, TREES};
use super::scan;
use super::wanted::{WITH_MANAGERS_AS_TEXT, read};

/// `namespace/name`, or `name` of a cluster-scoped object. Ordered bytewise, as etcd orders keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(Arc<str>);

/// An object as stored: immutable, shared. Its content has no `apiVersion` and `kind`.
///
/// Those two differ between the versions of one resource (and between core and events.k8s.io Events),
/// and the items of lists of built-ins have none; so they are added when an object is sent.
pub(crate) struct Object {
    key: Key,
    /// The `apiVersion` that the content has the form of; empty if it is not known.
    api_version: Arc<str>,
    version: u64,
    /// The content. Made from `last` on demand in a removal; always set otherwise.
    json: OnceLock<Bytes>,
    facts: Facts,
    /// For a removal: the last stored state, which differs in its version only.
    last: Option<Arc<Object>>,
    /// For an object in the form of another `apiVersion`: the stored one.
    stored: Option<Arc<Object>>,
    parsed: Recent<Value>,
    /// The content as this message.
    message: Recent<(&'static Message, Bytes)>,
    forms: Forms,
    /// Apart from the other forms, which would be kept as long as a row.
    rows: Forms,
}

/// The content of a write, encoded before the write has a version.
pub(super) struct Content {
    api_version: Option<String>,
    value: Value,
    json: Vec<u8>,
    facts: Facts,
}

/// The size in memory of the tree of values for a byte of JSON, measured for Pods.
const TREE_PER_BYTE: usize = 6;

/// JSON as bytes: its text by `Display` would go through a formatter, piece by piece.
fn encode(value: &Value) -> Vec<u8> {
    // A tree of values has no keys that JSON lacks.
    serde_json::to_vec(value).unwrap_or_default()
}

// === impl Key ===

impl Key {
    /// The key of an object; `namespace` is `None` or empty for a cluster-scoped one.
    pub(crate) fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) if !namespace.is_empty() => Self(format!("{namespace}/{name}").into()),
            _ => Self(name.into()),
        }
    }

    /// The namespace; empty for a cluster-scoped object.
    pub(crate) fn namespace(&self) -> &str {
        self.0
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    pub(crate) fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }

    /// The whole key.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Content ===

impl Content {
    /// Encodes `value`, which may have its `apiVersion` and `kind`, for the version that it will probably get.
    pub(super) fn new(mut value: Value, version: u64) -> Self {
        let api_version = take_type(&mut value);
        set_version(&mut value, version);
        let json = encode(&value);
        Self {
            api_version,
            value,
            facts: Facts::of(&json),
            json,
        }
    }

    /// The `apiVersion` that the content has the form of.
    pub(super) fn api_version(&self) -> Option<&str> {
        self.api_version.as_deref()
    }

    /// The bytes of its JSON.
    pub(super) fn bytes(&self) -> usize {
        self.json.len()
    }

    /// The object that is written at `version`.
    pub(super) fn at(mut self, key: Key, api_version: Arc<str>, version: u64) -> Object {
        let digits = version.to_string();
        let place = self.facts.version_place();
        set_version(&mut self.value, version);
        match place.and_then(|place| self.json.get_mut(place)) {
            Some(place) if place.len() == digits.len() => {
                place.copy_from_slice(digits.as_bytes());
            }
            // One more digit, once for each power of ten.
            _ => {
                self.json = encode(&self.value);
                self.facts = Facts::of(&self.json);
            }
        }
        let weight = self.json.len() * TREE_PER_BYTE;
        let object = Object {
            key,
            api_version,
            version,
            // Without the spare room that writing left.
            json: OnceLock::from(Bytes::from(self.json.into_boxed_slice())),
            facts: self.facts,
            last: None,
            stored: None,
            parsed: Recent::default(),
            message: Recent::default(),
            forms: Forms::default(),
            rows: Forms::default(),
        };
        object.parsed.set(Arc::new(self.value), weight, &TREES);
        object
    }
}

// === impl Object ===

impl Object {
    /// An object written at `version`; its `metadata.resourceVersion` is set to it.
    pub(crate) fn new(value: Value, version: u64) -> Self {
        let key = key_of(&value);
        let mut content = Content::new(value, version);
        let api_version = content.api_version.take().unwrap_or_default();
        content.at(key, api_version.into(), version)
    }

    /// `stored` in the form of another `api_version`: `value`, which may have its `apiVersion` and `kind`.
    pub(crate) fn converted(stored: &Arc<Self>, api_version: &str, mut value: Value) -> Self {
        take_type(&mut value);
        Self {
            version: stored.version,
            stored: Some(stored.clone()),
            ..Self::of(stored.key.clone(), api_version.into(), value)
        }
    }

    /// An object that is not stored (a dry run); it keeps its version, if any.
    pub(crate) fn draft(mut value: Value) -> Self {
        let api_version = take_type(&mut value).unwrap_or_default();
        Self::of(key_of(&value), api_version.into(), value)
    }

    /// The content of an object, without `apiVersion` and `kind`; its version is in it.
    fn of(key: Key, api_version: Arc<str>, value: Value) -> Self {
        let json = Bytes::from(encode(&value));
        let weight = json.len() * TREE_PER_BYTE;
        let object = Self::stored(key, api_version, json);
        object.parsed.set(Arc::new(value), weight, &TREES);
        object
    }

    /// An object by its JSON, as [`Object::encoded`] returned it.
    pub(super) fn stored(key: Key, api_version: Arc<str>, json: Bytes) -> Self {
        let facts = Facts::of(&json);
        Self {
            key,
            api_version,
            version: facts.version(&json),
            json: OnceLock::from(json),
            facts,
            last: None,
            stored: None,
            parsed: Recent::default(),
            message: Recent::default(),
            forms: Forms::default(),
            rows: Forms::default(),
        }
    }

    /// The content of `last` with another version, for a DELETED event. Nothing is copied until it is read.
    pub(crate) fn at_version(last: &Arc<Self>, version: u64) -> Self {
        Self {
            key: last.key.clone(),
            api_version: last.api_version.clone(),
            version,
            json: OnceLock::new(),
            facts: Facts::default(),
            last: Some(last.clone()),
            stored: None,
            parsed: Recent::default(),
            message: Recent::default(),
            forms: Forms::default(),
            rows: Forms::default(),
        }
    }

    /// A form of the object that its readers share for a while, under a key of their own type. One of them makes it, of about
    /// `weight` bytes.
    ///
    /// # Errors
    /// Of `make`.
    pub(crate) fn form<K, V, E>(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, E>,
        weight: impl FnOnce(&V) -> usize,
    ) -> Result<V, E>
    where
        K: PartialEq + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        self.forms.get_or_make(key, make, weight)
    }

    /// Like [`Object::form`], for a row of a Table. A row that is no longer `current` is made again.
    pub(crate) fn row_while<K, V>(
        &self,
        key: K,
        current: impl FnOnce(&V) -> bool,
        make: impl FnOnce() -> V,
        weight: impl FnOnce(&V) -> usize,
    ) -> V
    where
        K: PartialEq + Send + Sync + 'static,
        V: Clone + Send + Sync + 'static,
    {
        let make = || Ok::<_, Infallible>(make());
        let Ok(row) = self.rows.get_or_renew(key, current, make, weight);
        row
    }

    /// Keeps the rows for as long as the result.
    #[cfg(test)]
    pub(crate) fn hold_rows(&self) -> Arc<dyn std::any::Any + Send + Sync> {
        self.rows.hold()
    }

    /// Whether this is another form of a stored object, made for one answer.
    pub(crate) fn is_converted(&self) -> bool {
        self.stored.is_some()
    }

    /// The content, without `apiVersion` and `kind`. It is parsed if no reader needed it lately.
    pub(crate) fn value(&self) -> Arc<Value> {
        if let Some(value) = self.parsed.get() {
            return value;
        }
        let value = Arc::new(self.parse());
        let weight = self.encoded().len() * TREE_PER_BYTE;
        self.parsed.set(value.clone(), weight, &TREES);
        value
    }

    /// The content, if a reader needed it lately.
    pub(crate) fn known_value(&self) -> Option<Arc<Value>> {
        self.parsed.get()
    }

    /// The same for a reader that changes it, or needs it once.
    pub(crate) fn to_value(&self) -> Value {
        match self.parsed.get() {
            Some(value) => Value::clone(&value),
            None => self.parse(),
        }
    }

    fn parse(&self) -> Value {
        // It was encoded here.
        serde_json::from_slice(self.encoded()).unwrap_or_default()
    }

    /// The content in the form in which it is stored.
    pub(crate) fn stored_value(&self) -> Arc<Value> {
        match &self.stored {
            Some(stored) if stored.api_version != self.api_version => stored.value(),
            _ => self.value(),
        }
    }

    #[cfg(test)]
    pub(crate) fn is_copied(&self) -> bool {
        self.json.get().is_some() || self.parsed.get().is_some()
    }

    /// The approximate size in memory, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let json = self.unversioned().json.get();
        size_of::<Self>() + json.map_or(0, Bytes::len) + self.key.as_str().len()
    }

    /// The `apiVersion` that the content has the form of; empty if it is not known.
    pub(crate) fn api_version(&self) -> &str {
        &self.api_version
    }

    /// The same, shared between objects.
    pub(super) fn shared_api_version(&self) -> Arc<str> {
        self.api_version.clone()
    }

    /// The version it was written at.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The content as JSON.
    pub(crate) fn encoded(&self) -> &Bytes {
        self.json.get_or_init(|| match &self.last {
            Some(last) => last.with_version(self.version),
            None => Bytes::new(),
        })
    }

    /// The content as JSON, without `metadata.managedFields` where their place is known: they are often half of it.
    pub(crate) fn encoded_without_managers(&self) -> Cow<'_, [u8]> {
        let json: &[u8] = self.encoded();
        match self.facts.managers() {
            Some(place) if self.last.is_none() => {
                [&json[..place.start], &json[place.end..]].concat().into()
            }
            _ => json.into(),
        }
    }

    /// Whether two objects are one write. Another server gives the same versions to its own objects.
    pub(crate) fn is_the_same(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let one = || self.version == other.version && self.encoded() == other.encoded();
        Arc::ptr_eq(self, other) || one()
    }

    /// The content with another version.
    fn with_version(&self, version: u64) -> Bytes {
        let json = self.encoded();
        if let Some(place) = self.facts().version_place() {
            let version = version.to_string();
            return [&json[..place.start], version.as_bytes(), &json[place.end..]]
                .concat()
                .into();
        }
        let mut value = self.to_value();
        set_version(&mut value, version);
        value.to_string().into()
    }

    /// The content in protobuf as `message`.
    ///
    /// # Errors
    /// For content that the message cannot hold.
    pub(crate) fn encoded_as(&self, message: &'static Message) -> Result<Bytes, reeve_wire::Error> {
        let made = self.message.get();
        if let Some(made) = made.filter(|made| std::ptr::eq(made.0, message)) {
            return Ok(made.1.clone());
        }
        let bytes = match self.parsed.get() {
            Some(value) => reeve_wire::encode(message, &value),
            // The fields of managers are JSON in protobuf, too.
            None => reeve_wire::encode(message, &read(self.encoded(), WITH_MANAGERS_AS_TEXT)),
        };
        let bytes = Bytes::from(bytes?);
        let weight = bytes.len();
        self.message
            .set(Arc::new((message, bytes.clone())), weight, &BYTES);
        Ok(bytes)
    }

    /// The object with the same content except for the version, and with facts.
    fn unversioned(&self) -> &Self {
        self.last.as_deref().unwrap_or(self)
    }

    fn facts(&self) -> &Facts {
        &self.unversioned().facts
    }

    /// `metadata` as JSON; `None` if it is absent.
    pub(crate) fn metadata(&self) -> Option<&[u8]> {
        let mut place = self.facts().metadata()?;
        let json = self.encoded();
        // A version with more digits moves the end.
        place.end = (place.end + json.len()).checked_sub(self.unversioned().encoded().len())?;
        json.get(place)
    }

    /// The label `name`. Names of labels are never escaped.
    pub(crate) fn label(&self, name: &str) -> Option<Cow<'_, str>> {
        let json: &[u8] = self.unversioned().encoded();
        let place = scan::field(json, self.facts().labels()?, name)?;
        scan::text(json, place)
    }

    /// The value at `path`, names with dots between them; null if it is absent.
    pub(crate) fn field(&self, path: &str) -> Value {
        match self.parsed.get() {
            Some(value) => {
                let found = path.split('.').fold(&*value, |value, name| &value[name]);
                found.clone()
            }
            None => scan::value_at(self.encoded(), path),
        }
    }

    /// `metadata.name`.
    pub(crate) fn name(&self) -> &str {
        self.key.name()
    }

    /// `metadata.namespace`; empty for a cluster-scoped object.
    pub(crate) fn namespace(&self) -> &str {
        self.key.namespace()
    }

    /// `metadata.uid`.
    pub(crate) fn uid(&self) -> Option<&str> {
        self.facts().uid.as_deref()
    }

    /// Its key.
    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Whether deletion was requested.
    pub(crate) fn is_terminating(&self) -> bool {
        self.facts().terminating
    }

    /// `metadata.finalizers`.
    pub(crate) fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.facts().finalizers.iter().map(|text| &**text)
    }

    /// Whether it waits for the garbage collector.
    pub(crate) fn has_collector_finalizer(&self) -> bool {
        self.finalizers()
            .any(|finalizer| finalizer == "orphan" || finalizer == "foregroundDeletion")
    }

    /// The uids of `metadata.ownerReferences`.
    pub(crate) fn owner_uids(&self) -> impl Iterator<Item = &str> {
        self.facts().owners.iter().map(|text| &**text)
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key(), self.version)
    }
}

/// The key that the content names.
fn key_of(value: &Value) -> Key {
    let text = |field: &str| value["metadata"][field].as_str();
    Key::new(text("namespace"), text("name").unwrap_or_default())
}

/// Removes `apiVersion` and `kind`; returns the former.
pub(super) fn take_type(value: &mut Value) -> Option<String> {
    let map = value.as_object_mut()?;
    map.remove("kind");
    match map.remove("apiVersion") {
        Some(Value::String(api_version)) => Some(api_version),
        _ => None,
    }
}

/// The text in `all`, which gets it if it is new.
pub(super) fn shared(all: &mut BTreeSet<Arc<str>>, text: &str) -> Arc<str> {
    if let Some(known) = all.get(text) {
        return known.clone();
    }
    let text: Arc<str> = text.into();
    all.insert(text.clone());
    text
}

fn set_version(value: &mut Value, version: u64) {
    let Some(map) = value.as_object_mut() else {
        return;
    };
    let metadata = map
        .entry("metadata")
        .or_insert_with(|| Value::Object(serde_json::Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert(
            "resourceVersion".to_owned(),
            Value::String(version.to_string()),
        );
    }
}
