//! The request of an admission review.

use std::collections::BTreeMap;

use kube_core::gvk::{GroupVersionKind, GroupVersionResource};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

/// The operation that a request performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum Operation {
    /// An object is created, or posted to a subresource such as `pods/eviction`.
    Create,
    /// An object or a subresource is changed.
    Update,
    /// An object is deleted, alone or as one of a collection.
    Delete,
    /// A connection to a subresource such as `pods/exec`.
    Connect,
}

/// The user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct UserInfo {
    /// The name. With impersonation it is that of the impersonated user.
    pub username: String,
    /// An identifier that is unique over time. Often empty.
    pub uid: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// Further facts of the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// An admission request for objects of type `K`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Request<K = Value> {
    /// The identifier of this call. The answer carries it.
    pub uid: String,
    /// The kind of [`Request::object`]. For a subresource it is that of its body: `Scale`, `Eviction`, `PodExecOptions`.
    pub kind: GroupVersionKind,
    /// The resource, without the subresource.
    pub resource: GroupVersionResource,
    /// The subresource, if the request is for one.
    pub subresource: Option<String>,
    /// The kind in the version of the original request. It differs from [`Request::kind`] if the API server converted the
    /// object (`matchPolicy: Equivalent`).
    pub request_kind: Option<GroupVersionKind>,
    /// The resource of the original request.
    pub request_resource: Option<GroupVersionResource>,
    /// The subresource of the original request.
    pub request_subresource: Option<String>,
    /// The name of the object. If the API server sends none, it is that in the object: each object of a `deletecollection`
    /// comes in a call of its own with an empty name. It is empty for a creation with `generateName`.
    pub name: String,
    /// The namespace, `None` for an object without one. For a Namespace it is the name of that Namespace, as the API
    /// server sends it.
    pub namespace: Option<String>,
    /// The operation.
    pub operation: Operation,
    /// The user.
    pub user: UserInfo,
    /// The object as it would be stored. `None` for a deletion.
    pub object: Option<K>,
    /// The stored object, of an update or a deletion.
    pub old_object: Option<K>,
    /// Whether there is a stored object and it is no `K`: [`Request::old_object`] is `None` then. A mutating handler gets such a
    /// request, a validating one only with [`Webhook::allow_unreadable_old`](super::Webhook::allow_unreadable_old).
    pub old_unreadable: bool,
    /// Whether nothing will be stored. The handler must not have side effects then.
    pub dry_run: bool,
    /// The options of the operation, such as `DeleteOptions`.
    pub options: Option<Value>,
    /// The end of the time that the API server waits for the answer, if a server received the call.
    pub deadline: Option<Instant>,
}

// === impl Request ===

impl<K> Request<K> {
    /// The object that the request is about: the new state, or the old one of a deletion.
    #[must_use]
    pub fn subject(&self) -> Option<&K> {
        self.object.as_ref().or(self.old_object.as_ref())
    }

    /// Whether `condition` holds for the old or for the new state. A rule that protects objects with a label must see both:
    /// an update may remove the label. A stored object that [cannot be read](Request::old_unreadable) is not seen.
    #[must_use]
    pub fn either(&self, condition: impl Fn(&K) -> bool) -> bool {
        [&self.object, &self.old_object]
            .into_iter()
            .flatten()
            .any(condition)
    }

    /// Whether the request is for the subresource `name`.
    #[must_use]
    pub fn is_for_subresource(&self, name: &str) -> bool {
        self.subresource.as_deref() == Some(name)
    }
}

impl Operation {
    /// The name in reviews and in rules: `CREATE`, `UPDATE`, `DELETE`, `CONNECT`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
