//! The question of a write to admission.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::reinvocation::Reinvocation;
use crate::request::Request;
use crate::resource::ResourceInfo;
use crate::store::Object;
use crate::verbs::present::whole;

/// The effect that a write would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A new object, or a subresource that is created (`pods/binding`, `pods/eviction`).
    Create,
    /// A change of an object, or of its part.
    Update,
    /// A removal, or the request for one.
    Delete,
    /// A connection to a Pod, a Service or a node: the object is its options.
    Connect,
}

/// The question of a write to admission.
pub(crate) struct AdmissionRequest<'a> {
    pub(crate) operation: Operation,
    /// The request: its resource and version, subresource, namespace, user, dry run, and the options in its query.
    pub(crate) request: &'a Request,
    /// The new object, as a client would read it: that of the subresource, where it has its own type. `None` for a
    /// deletion.
    pub(crate) object: Option<&'a mut Value>,
    /// `None` for a creation.
    pub(crate) old: Option<Old<'a>>,
    /// The options of the request: CreateOptions, UpdateOptions or DeleteOptions. Null for a connection.
    pub(crate) options: Value,
    pub(crate) reinvocation: Reinvocation,
}

// === impl Operation ===

impl Operation {
    /// The name in rules and reviews.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The present object, in the version of the request.
pub(crate) enum Old<'a> {
    /// With its type.
    Shown(&'a Value),
    /// Without its type.
    Untyped(&'a Object),
}

// === impl AdmissionRequest ===

impl AdmissionRequest<'_> {
    /// The name of the object; empty before it is generated, and for each object of a collection that is deleted.
    pub(crate) fn name(&self) -> &str {
        match &self.object {
            Some(object) if self.request.name.is_empty() => crate::meta::text(object, "name"),
            _ => &self.request.name,
        }
    }

    /// The namespace of the object: a Namespace is in itself.
    pub(crate) fn namespace(&self) -> &str {
        let info = &self.request.info;
        if info.group.is_empty() && info.plural == "namespaces" {
            return self.name();
        }
        &self.request.namespace
    }

    /// Group, version and kind of the object that is written, where the resource is requested as `info`.
    pub(crate) fn kind<'i>(&'i self, info: &'i ResourceInfo) -> (&'i str, &'i str, &'i str) {
        let of_object = self.object.as_deref().filter(|object| {
            object["kind"].is_string() && object["kind"] != *self.request.info.kind
        });
        let Some(object) = of_object else {
            return (&info.group, &info.version, &info.kind);
        };
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let api_version = text("apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        (group, version, text("kind"))
    }

    /// The time that is left for the write.
    pub(crate) fn remaining(&self) -> Duration {
        self.request
            .deadline
            .saturating_duration_since(Instant::now())
    }

    /// The present object, in the form of the new one. It is made again with each call.
    pub(crate) fn old_object(&self) -> Option<Value> {
        self.old.as_ref().map(|old| match old {
            Old::Shown(value) => (*value).clone(),
            Old::Untyped(object) => whole(&self.request.info, object),
        })
    }
}
