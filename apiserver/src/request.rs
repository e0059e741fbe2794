//! One request for objects of a resource, as every verb needs it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::field::FieldError;
use crate::http::media::Accepted;
use crate::http::query::Parameters;
use crate::http::warnings::Warnings;
use crate::meta;
use crate::rbac::User;
use crate::resource::ResourceInfo;
use crate::status::{GroupResource, Status};
use crate::store::{Decision, Key};
use crate::table::IncludeObject;

/// The longest time of a write. (apiserver: `requestTimeoutUpperBound`.)
pub(crate) const LONGEST_WRITE: Duration = Duration::from_secs(34);
/// The longest time of any other request, except for watches. (apiserver: `--request-timeout`.)
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// One request for objects of a resource, routed, with its query and its headers parsed.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The resource.
    pub(crate) info: Arc<ResourceInfo>,
    /// Namespace; empty for a cluster-scoped resource or all namespaces.
    pub(crate) namespace: String,
    /// Name; empty for a collection.
    pub(crate) name: String,
    /// `status`, `scale` or empty.
    pub(crate) subresource: String,
    /// The query.
    pub(crate) query: Parameters,
    /// The encoding and the shape of the answer.
    pub(crate) accepted: Accepted,
    /// The user that sends it.
    pub(crate) user: User,
    /// `User-Agent`.
    pub(crate) agent: String,
    /// Now.
    pub(crate) now: Timestamp,
    /// The end of its time: what is not stored by then is not stored.
    pub(crate) deadline: Instant,
    /// Whether nothing is stored.
    pub(crate) dry_run: bool,
    /// The treatment of unknown fields.
    pub(crate) validation: FieldValidation,
    /// Warnings of the answer, also of a refusal.
    pub(crate) warnings: Warnings,
    /// The version of reads (a stale replica, by a fault rule).
    pub(crate) stale: Option<u64>,
    /// For a request of the background task: nothing is written when a restore began after this decision.
    pub(crate) decision: Option<Decision>,
}

/// `fieldValidation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Unknown fields are dropped without a warning.
    Ignore,
    /// They are dropped with a warning.
    Warn,
    /// They are refused.
    Strict,
}

// === impl Request ===

impl Request {
    /// The key of the named object.
    pub(crate) fn key(&self) -> Key {
        Key::new(Some(&self.namespace_of_object()), &self.name)
    }

    /// The prefix of the keys of the collection.
    pub(crate) fn prefix(&self) -> String {
        if self.info.namespaced && !self.namespace.is_empty() {
            format!("{}/", self.namespace)
        } else {
            String::new()
        }
    }

    /// The namespace of the resource's objects: empty for cluster-scoped ones, Namespaces included.
    pub(crate) fn namespace_of_object(&self) -> String {
        if self.info.namespaced {
            self.namespace.clone()
        } else {
            String::new()
        }
    }

    /// Group and plural, for texts.
    pub(crate) fn resource(&self) -> GroupResource<'_> {
        self.info.group_resource()
    }

    /// 404 for the named object.
    pub(crate) fn not_found(&self) -> Status {
        Status::not_found(self.resource(), &self.name)
    }

    /// 422 for an object of the resource.
    pub(crate) fn invalid(&self, name: &str, errors: &[FieldError]) -> Status {
        // Events of either group are one kind to the code that checks them.
        let group = if self.info.storage == "events" {
            ""
        } else {
            &self.info.group
        };
        Status::invalid(group, &self.info.kind, name, errors)
    }

    /// The content of rows of a Table besides their cells.
    ///
    /// # Errors
    /// 400 for an unknown `includeObject`.
    pub(crate) fn include_object(&self) -> Result<IncludeObject, Status> {
        IncludeObject::parse(self.query.get("includeObject").unwrap_or_default())
            .map_err(Status::bad_request)
    }

    /// The current time in the format of `metadata`.
    pub(crate) fn time(&self) -> String {
        meta::time(self.now)
    }
}
