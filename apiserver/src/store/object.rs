//! One stored object and its key.

use std::borrow::Borrow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

/// `namespace/name`, or `name` of a cluster-scoped object. Ordered bytewise, as etcd orders keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(Arc<str>);

/// An object as stored: immutable, shared, without `apiVersion` and `kind`.
///
/// Those two differ between the versions of one resource (and between core and events.k8s.io Events),
/// and the items of lists of built-ins have none; so they are put in front when an object is sent.
pub(crate) struct Object {
    value: Value,
    version: u64,
    encoded: OnceLock<Bytes>,
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
            if let Some(metadata) = map
                .entry("metadata")
                .or_insert_with(|| Value::Object(serde_json::Map::new()))
                .as_object_mut()
            {
                metadata.insert(
                    "resourceVersion".to_owned(),
                    Value::String(version.to_string()),
                );
            }
        }
        Self {
            value,
            version,
            encoded: OnceLock::new(),
        }
    }

    /// An object that is not stored (a dry run); it keeps the version it names, if any.
    pub(crate) fn draft(mut value: Value) -> Self {
        if let Some(map) = value.as_object_mut() {
            map.remove("apiVersion");
            map.remove("kind");
        }
        Self::stored(value)
    }

    /// An object read back from disk, at the version it names.
    pub(crate) fn stored(value: Value) -> Self {
        let version = value["metadata"]["resourceVersion"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        Self {
            value,
            version,
            encoded: OnceLock::new(),
        }
    }

    /// The same content with another version, as a DELETED event carries it.
    pub(crate) fn at_version(&self, version: u64) -> Self {
        Self::new(self.value.clone(), version)
    }

    /// The content, without `apiVersion` and `kind`.
    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// The version it was written at.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The content as JSON, made once.
    pub(crate) fn encoded(&self) -> &Bytes {
        self.encoded
            .get_or_init(|| Bytes::from(self.value.to_string().into_bytes()))
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.value.get("metadata")?.get(field)?.as_str()
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

    /// Deletion was asked for.
    pub(crate) fn is_terminating(&self) -> bool {
        self.text("deletionTimestamp").is_some()
    }

    /// `metadata.finalizers`.
    pub(crate) fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.value["metadata"]["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
    }

    /// It waits for the garbage collector.
    pub(crate) fn has_collector_finalizer(&self) -> bool {
        self.finalizers()
            .any(|finalizer| finalizer == "orphan" || finalizer == "foregroundDeletion")
    }

    /// The uids of `metadata.ownerReferences`.
    pub(crate) fn owner_uids(&self) -> impl Iterator<Item = &str> {
        self.value["metadata"]["ownerReferences"]
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
