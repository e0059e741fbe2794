//! One stored object and its key.

use std::borrow::Borrow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use reeve_wire::Message;
use serde_json::Value;

/// `namespace/name`, or `name` of a cluster-scoped object. Ordered bytewise, as etcd orders keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(Arc<str>);

/// An object as stored: immutable, shared, without `apiVersion` and `kind`.
///
/// Those two differ between the versions of one resource (and between core and events.k8s.io Events),
/// and the items of lists of built-ins have none; so they are added when an object is sent.
pub(crate) struct Object {
    /// Set from `last` on demand in a removal; always set otherwise.
    value: OnceLock<Value>,
    /// For a removal: the last stored state, which differs in its version only.
    last: Option<Arc<Object>>,
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
        if let Some(map) = value.as_object_mut() {
            map.remove("apiVersion");
            map.remove("kind");
        }
        set_version(&mut value, version);
        Self::of(value, version)
    }

    fn of(value: Value, version: u64) -> Self {
        Self {
            weight: weight(&value),
            value: OnceLock::from(value),
            last: None,
            version,
            encoded: OnceLock::new(),
            message: OnceLock::new(),
        }
    }

    /// An object that is not stored (a dry run); it keeps its version, if any.
    pub(crate) fn draft(mut value: Value) -> Self {
        if let Some(map) = value.as_object_mut() {
            map.remove("apiVersion");
            map.remove("kind");
        }
        Self::stored(value)
    }

    /// An object read back from disk, with its version.
    pub(crate) fn stored(value: Value) -> Self {
        let version = value["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        Self::of(value, version)
    }

    /// The content of `last` with another version, for a DELETED event. Nothing is copied until it is read.
    pub(crate) fn at_version(last: &Arc<Self>, version: u64) -> Self {
        Self {
            value: OnceLock::new(),
            last: Some(last.clone()),
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
        let mut value = self.base().clone();
        set_version(&mut value, self.version);
        value
    }

    /// The content except for the version.
    fn base(&self) -> &Value {
        match &self.last {
            Some(last) => last.value(),
            None => self.value.get().unwrap_or(&Value::Null),
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
        self.base().get("metadata")?.get(field)?.as_str()
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
        self.base()["metadata"]["finalizers"]
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
        self.base()["metadata"]["ownerReferences"]
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
