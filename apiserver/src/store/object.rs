//! One stored object and its key.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use reeve_wire::Message;
use serde_json::Value;

/// `namespace/name`, or `name` of a cluster-scoped object. Ordered bytewise, as etcd orders keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(Arc<str>);

/// An object as stored: immutable, shared. Its content has no `apiVersion` and `kind`.
///
/// Those two differ between the versions of one resource (and between core and events.k8s.io Events),
/// and the items of lists of built-ins have none; so they are added when an object is sent.
pub(crate) struct Object {
    /// The `apiVersion` that the content has the form of; empty if it is not known.
    api_version: Arc<str>,
    /// Set from `base` on demand in a removal; always set otherwise.
    value: OnceLock<Value>,
    /// For a removal: the last stored state, which differs in its version only. For an object in the form of another
    /// `apiVersion`: the stored one.
    base: Option<Arc<Object>>,
    version: u64,
    weight: usize,
    encoded: OnceLock<Bytes>,
    /// The content as this message.
    message: OnceLock<(&'static Message, Bytes)>,
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

// === impl Object ===

impl Object {
    /// An object written at `version`; its `metadata.resourceVersion` is set to it.
    pub(crate) fn new(mut value: Value, version: u64) -> Self {
        let api_version = take_type(&mut value).unwrap_or_default();
        Self::written(api_version.into(), value, version)
    }

    /// The content of a write in the form of `api_version`, without `apiVersion` and `kind`.
    pub(super) fn written(api_version: Arc<str>, mut value: Value, version: u64) -> Self {
        set_version(&mut value, version);
        Self::of(api_version, value, version)
    }

    /// `stored` in the form of another `api_version`: `value`, which may have its `apiVersion` and `kind`.
    pub(crate) fn converted(stored: &Arc<Self>, api_version: &str, mut value: Value) -> Self {
        take_type(&mut value);
        Self {
            base: Some(stored.clone()),
            ..Self::of(api_version.into(), value, stored.version)
        }
    }

    fn of(api_version: Arc<str>, value: Value, version: u64) -> Self {
        Self {
            api_version,
            weight: weight(&value),
            value: OnceLock::from(value),
            base: None,
            version,
            encoded: OnceLock::new(),
            message: OnceLock::new(),
        }
    }

    /// An object that is not stored (a dry run); it keeps its version, if any.
    pub(crate) fn draft(mut value: Value) -> Self {
        let api_version = take_type(&mut value).unwrap_or_default();
        Self::stored(api_version.into(), value)
    }

    /// An object read back from disk, with its version.
    pub(crate) fn stored(api_version: Arc<str>, value: Value) -> Self {
        let version = value["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        Self::of(api_version, value, version)
    }

    /// The content of `last` with another version, for a DELETED event. Nothing is copied until it is read.
    pub(crate) fn at_version(last: &Arc<Self>, version: u64) -> Self {
        Self {
            api_version: last.api_version.clone(),
            value: OnceLock::new(),
            base: Some(last.clone()),
            version,
            weight: last.weight,
            encoded: OnceLock::new(),
            message: OnceLock::new(),
        }
    }

    /// The content, without `apiVersion` and `kind`.
    pub(crate) fn value(&self) -> &Value {
        self.value.get_or_init(|| self.copied())
    }

    /// The content of a removal.
    fn copied(&self) -> Value {
        let mut value = self.unversioned().clone();
        set_version(&mut value, self.version);
        value
    }

    /// The content except for the version.
    fn unversioned(&self) -> &Value {
        match (self.value.get(), &self.base) {
            (Some(value), _) => value,
            (None, Some(last)) => last.value(),
            (None, None) => &Value::Null,
        }
    }

    /// The content in the form in which it is stored.
    pub(crate) fn stored_value(&self) -> &Value {
        match &self.base {
            Some(base) if base.api_version != self.api_version => base.value(),
            _ => self.value(),
        }
    }

    #[cfg(test)]
    pub(crate) fn is_copied(&self) -> bool {
        self.value.get().is_some()
    }

    /// The approximate size of the content in memory, in bytes.
    pub(crate) fn weight(&self) -> usize {
        self.weight
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

    /// The content as JSON, made once.
    pub(crate) fn encoded(&self) -> &Bytes {
        self.encoded.get_or_init(|| {
            let text = match self.value.get() {
                Some(value) => value.to_string(),
                None => self.copied().to_string(),
            };
            Bytes::from(text.into_bytes())
        })
    }

    /// The content in protobuf as `message`, made once for the first such message.
    ///
    /// # Errors
    /// For content that the message cannot hold.
    pub(crate) fn encoded_as(&self, message: &'static Message) -> Result<Bytes, reeve_wire::Error> {
        let made = self.message.get();
        if let Some((_, bytes)) = made.filter(|(of, _)| std::ptr::eq(*of, message)) {
            return Ok(bytes.clone());
        }
        let bytes = match self.value.get() {
            Some(value) => reeve_wire::encode(message, value),
            None => reeve_wire::encode(message, &self.copied()),
        };
        let bytes = Bytes::from(bytes?);
        // Of two messages at once, either stays.
        let _ = self.message.set((message, bytes.clone()));
        Ok(bytes)
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.unversioned().get("metadata")?.get(field)?.as_str()
    }

    /// `metadata.name`.
    pub(crate) fn name(&self) -> &str {
        self.text("name").unwrap_or_default()
    }

    /// `metadata.namespace`; empty for a cluster-scoped object.
    pub(crate) fn namespace(&self) -> &str {
        self.text("namespace").unwrap_or_default()
    }

    /// `metadata.uid`.
    pub(crate) fn uid(&self) -> Option<&str> {
        self.text("uid")
    }

    /// Its key.
    pub(crate) fn key(&self) -> Key {
        Key::new(Some(self.namespace()), self.name())
    }

    /// Whether deletion was requested.
    pub(crate) fn is_terminating(&self) -> bool {
        self.text("deletionTimestamp").is_some()
    }

    /// `metadata.finalizers`.
    pub(crate) fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.unversioned()["metadata"]["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
    }

    /// Whether it waits for the garbage collector.
    pub(crate) fn has_collector_finalizer(&self) -> bool {
        self.finalizers()
            .any(|finalizer| finalizer == "orphan" || finalizer == "foregroundDeletion")
    }

    /// The uids of `metadata.ownerReferences`.
    pub(crate) fn owner_uids(&self) -> impl Iterator<Item = &str> {
        self.unversioned()["metadata"]["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|reference| reference["uid"].as_str())
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.key(), self.version)
    }
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

/// The approximate size of `value` in memory: its texts, and its nodes with their share of the maps.
fn weight(value: &Value) -> usize {
    const NODE: usize = size_of::<Value>();
    NODE + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| size_of::<String>() + name.len() + weight(value))
            .sum(),
    }
}
