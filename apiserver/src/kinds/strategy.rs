//! The rules of one kind, as the verbs apply them.

use std::fmt::Debug;

use jiff::Timestamp;
use serde_json::Value;

use crate::field::Errors;
use crate::names;
use crate::rbac::User;
use crate::resource::{Column, ResourceInfo};
use crate::store::wanted::{WITHOUT_MANAGERS, Wanted};

/// What the rules of a kind see of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    /// The resource, in the version of the request.
    pub(crate) info: &'a ResourceInfo,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The user that writes.
    pub(crate) user: &'a User,
    pub(crate) now: Timestamp,
}

/// Paths of fields.
pub(crate) type Paths = &'static [&'static [&'static str]];

/// The rights that an object grants, which its writer must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grants {
    /// Those of its `rules`.
    Rules,
    /// Those of the role in its `roleRef`.
    Role,
}

/// What a write to the status cannot change, of a kind whose status is all that it changes.
pub(super) const ALL_BUT_STATUS: Paths = &[&["metadata"], &["spec"]];

/// The rules of one kind that are not in the table of types. Each method has the rule of an ordinary kind.
///
/// A write calls them in the order of this list, on an object that is pruned to its type. Afterwards the object gets
/// the form in which Go's encoder writes it: zeros and empty lists follow from the type.
pub(crate) trait Strategy: Debug + Sync {
    /// Sets the facts of the resource that discovery does not show.
    fn describe(&self, _info: &mut ResourceInfo) {}

    /// The columns of a Table after the name; empty for the age alone.
    fn columns(&self) -> Vec<Column> {
        Vec::new()
    }

    /// The rule for names.
    fn name_problems(&self, name: &str) -> Vec<String> {
        names::dns_subdomain(name)
    }

    /// Whether a new object keeps the status that the client sends.
    fn keeps_status(&self) -> bool {
        false
    }

    /// Sets the fields of a new object that the client cannot choose. Its status, if there is the subresource, is gone
    /// already.
    fn prepare_create(&self, _context: &Context<'_>, _object: &mut Value) {}

    /// Restores the fields that an update may not change from the `old` object. Spec or status, whichever the
    /// subresource does not write, is restored already.
    fn prepare_update(&self, _context: &Context<'_>, _old: &Value, _new: &mut Value) {}

    /// Sets defaults; also on objects that were stored by an earlier release.
    fn default(&self, _info: &ResourceInfo, _object: &mut Value) {}

    /// JSON pointers of the fields that [`Strategy::default`] sets and a real server sets after decoding, so that they have no
    /// owner.
    fn set_later(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether an object without labels gets those of its template.
    fn has_labels_of_template(&self) -> bool {
        false
    }

    /// The fields that a write to the object (`""`) or to a subresource cannot change, and so does not come to own; `None`
    /// for those of an ordinary kind. (kubernetes: `GetResetFields` of the strategies.)
    fn reset_fields(&self, _subresource: &str) -> Option<Paths> {
        None
    }

    /// The part of an object that the columns read.
    fn read_by_columns(&self) -> Wanted {
        WITHOUT_MANAGERS
    }

    /// Whether an object claims addresses of the cluster and ports of the nodes.
    fn claims_addresses(&self) -> bool {
        false
    }

    /// The rights that an object grants.
    fn grants(&self) -> Option<Grants> {
        None
    }

    /// Whether the rules check the spec only, so that they need not run when it stays the same.
    fn checks_spec(&self) -> bool {
        false
    }

    /// Checks an object; `old` is `None` for a new one.
    fn validate(
        &self,
        _context: &Context<'_>,
        _object: &Value,
        _old: Option<&Value>,
        _errors: &mut Errors,
    ) {
    }

    /// Checks a write to the status.
    fn validate_status(&self, _object: &Value, _old: &Value, _errors: &mut Errors) {}

    /// The object of this version after a conversion to the internal type and back, if that derives fields of it from
    /// others. The owners of fields follow from it.
    fn encoded(&self, _info: &ResourceInfo, _object: &Value) -> Option<Value> {
        None
    }

    /// Converts an object of this version to the stored form.
    fn convert_to_stored(&self, _info: &ResourceInfo, _object: &mut Value) {}

    /// Converts a stored object to this version.
    fn convert_from_stored(&self, _info: &ResourceInfo, _object: &mut Value) {}

    /// The warning of a deletion without a propagation.
    fn warning_of_deletion(&self) -> Option<&'static str> {
        None
    }

    /// Whether a terminating object without finalizers can be removed.
    fn may_go(&self, _object: &Value) -> bool {
        true
    }

    /// Whether objects have a grace period before they are removed.
    fn ends_gracefully(&self) -> bool {
        false
    }

    /// The grace period in seconds, of a kind with one.
    fn grace_period(&self, _object: &Value, _requested: Option<i64>) -> i64 {
        0
    }

    /// A finalizer that the server sets on a request for deletion.
    fn finalizer_on_deletion(&self) -> Option<&'static str> {
        None
    }

    /// Marks an object as deleted if its kind has a way of its own; returns whether it has.
    fn mark_deleted(&self, _object: &mut Value, _now: Timestamp) -> bool {
        false
    }
}

/// An ordinary kind, or a custom resource.
#[derive(Debug)]
pub(crate) struct Plain;

impl Strategy for Plain {}
