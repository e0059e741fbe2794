//! The name of an object within its kind.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use kube_core::Resource;

use crate::as_object::AsObject;

/// Namespace and name of an object; without a namespace for cluster-scoped kinds.
///
/// The uid is not part of it (client-go: `cache.ObjectName`): an object that was deleted and created again
/// has the same key. Cloning copies no text. Displays as `namespace/name`, or `name` alone, and parses from the
/// same (client-go: `MetaNamespaceKeyFunc`, `ParseObjectName`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The namespace, `None` for a cluster-scoped object.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
}

/// A borrowed [`ObjectKey`]: looks an object up without allocating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyRef<'a> {
    /// The namespace, `None` for a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// The name.
    pub name: &'a str,
}

/// A text that is not `name` or `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an object key: expected \"name\" or \"namespace/name\"")]
pub struct ParseKeyError(pub String);

// === impl ObjectKey ===

impl ObjectKey {
    /// The key of `object`, of any kind. An object that `generateName` will name has an empty name.
    #[must_use]
    pub fn of<Form>(object: &impl AsObject<Form>) -> Self {
        let meta = object.as_object().meta();
        let name = meta.name.as_deref().unwrap_or_default();
        Self::namespaced(meta.namespace.as_deref().unwrap_or_default(), name)
    }

    /// The key of a namespaced object. An empty namespace makes it cluster-scoped.
    #[must_use]
    pub fn namespaced(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        let namespace = namespace.into();
        Self {
            namespace: (!namespace.is_empty()).then_some(namespace),
            name: name.into(),
        }
    }

    /// The key of a cluster-scoped object.
    #[must_use]
    pub fn cluster(name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: None,
            name: name.into(),
        }
    }

    /// The key without its allocations.
    #[must_use]
    pub fn as_ref(&self) -> KeyRef<'_> {
        KeyRef {
            namespace: self.namespace.as_deref(),
            name: &self.name,
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl FromStr for ObjectKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            None if !text.is_empty() => Ok(Self::cluster(text)),
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self::namespaced(namespace, name))
            }
            _ => Err(ParseKeyError(text.to_owned())),
        }
    }
}

// === impl KeyRef ===

impl KeyRef<'_> {
    /// The owned key; this allocates.
    #[must_use]
    pub fn to_key(self) -> ObjectKey {
        ObjectKey {
            namespace: self.namespace.map(Arc::from),
            name: Arc::from(self.name),
        }
    }
}

impl fmt::Display for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(self.name),
        }
    }
}

impl indexmap::Equivalent<ObjectKey> for KeyRef<'_> {
    fn equivalent(&self, key: &ObjectKey) -> bool {
        *self == key.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn the_key_of_an_object_is_that_of_its_metadata() {
        use k8s_openapi::api::core::v1::{ConfigMap, Node};
        let mut map = ConfigMap::default();
        assert_eq!(ObjectKey::of(&map), ObjectKey::cluster(""));
        map.metadata.name = Some("a".into());
        map.metadata.namespace = Some("ns".into());
        assert_eq!(ObjectKey::of(&map), ObjectKey::namespaced("ns", "a"));
        let mut node = Node::default();
        node.metadata.name = Some("a".into());
        assert_eq!(ObjectKey::of(&node), ObjectKey::cluster("a"));
    }

    #[test]
    fn a_key_prints_and_parses() {
        for (text, key) in [
            ("ns/name", ObjectKey::namespaced("ns", "name")),
            ("node", ObjectKey::cluster("node")),
        ] {
            assert_eq!(key.to_string(), text);
            assert_eq!(text.parse::<ObjectKey>(), Ok(key));
        }
    }

    #[test]
    fn a_text_with_missing_or_extra_parts_is_refused() {
        for text in ["", "/", "ns/", "/name", "a/b/c"] {
            assert!(text.parse::<ObjectKey>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_borrowed_key_hashes_as_the_owned_one() {
        let hasher = std::hash::RandomState::new();
        for key in [ObjectKey::namespaced("ns", "a"), ObjectKey::cluster("a")] {
            assert_eq!(hasher.hash_one(&key), hasher.hash_one(key.as_ref()));
        }
    }

    #[test]
    fn an_empty_namespace_is_cluster_scope() {
        assert_eq!(ObjectKey::namespaced("", "a"), ObjectKey::cluster("a"));
    }
}
