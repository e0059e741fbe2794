//! The question of a write to admission.

use serde_json::Value;

use crate::request::Request;
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

    /// The present object, in the form of the new one. It is made again with each call.
    #[cfg_attr(not(test), expect(dead_code, reason = "for webhooks, which send it"))]
    pub(crate) fn old_object(&self) -> Option<Value> {
        self.old.as_ref().map(|old| match old {
            Old::Shown(value) => (*value).clone(),
            Old::Untyped(object) => whole(&self.request.info, object),
        })
    }
}
