//! The verbs: what GET, LIST, WATCH, POST, PUT, PATCH and DELETE do to stored objects.

pub(crate) mod continuation;
mod conversion;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod list;
pub(crate) mod metadata;
pub(crate) mod patch;
pub(crate) mod prepare;
pub(crate) mod present;
pub(crate) mod read;
pub(crate) mod scale;
pub(crate) mod selection;
pub(crate) mod update;
pub(crate) mod watch;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::http::media::Accepted;
use crate::http::query::Parameters;
use crate::http::warnings::Warnings;
use crate::meta;
use crate::rbac::User;
use crate::resource::ResourceInfo;
use crate::status::{GroupResource, Status};
use crate::store::{HistoryError, Key, Object};
use crate::table::IncludeObject;

/// One request for objects of a resource, routed and read as far as every verb needs it.
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
    /// What the answer looks like.
    pub(crate) accepted: Accepted,
    /// Who asks.
    pub(crate) user: User,
    /// `User-Agent`.
    pub(crate) agent: String,
    /// Now.
    pub(crate) now: Timestamp,
    /// Nothing is stored.
    pub(crate) dry_run: bool,
    /// What happens to unknown fields.
    pub(crate) validation: FieldValidation,
    /// What the answer warns of, also when it refuses.
    pub(crate) warnings: Warnings,
    /// Reads are served as of this version (a stale replica, by a fault rule).
    pub(crate) stale: Option<u64>,
}

/// `fieldValidation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Unknown fields are dropped in silence.
    Ignore,
    /// They are dropped with a warning.
    Warn,
    /// They are refused.
    Strict,
}

/// What a write answers.
#[derive(Debug)]
pub(crate) struct Written {
    /// 200 or 201.
    pub(crate) code: u16,
    /// The answer's content.
    pub(crate) content: Content,
}

/// The content of a write's answer.
#[derive(Debug)]
pub(crate) enum Content {
    /// An object of the resource.
    Object(Arc<Object>),
    /// Some other document, complete with `apiVersion` and `kind`.
    Document(Value),
}

// === impl Request ===

impl Request {
    /// The key of the named object.
    pub(crate) fn key(&self) -> Key {
        Key::new(Some(&self.namespace_of_object()), &self.name)
    }

    /// What keys of the collection start with.
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
    pub(crate) fn invalid(&self, name: &str, errors: &[crate::field::FieldError]) -> Status {
        // Events of either group are one kind to the code that checks them.
        let group = if self.info.storage == "events" {
            ""
        } else {
            &self.info.group
        };
        Status::invalid(group, &self.info.kind, name, errors)
    }

    /// What rows of a Table carry.
    ///
    /// # Errors
    /// 400 for an `includeObject` that is none.
    pub(crate) fn include_object(&self) -> Result<IncludeObject, Status> {
        IncludeObject::parse(self.query.get("includeObject").unwrap_or_default())
            .map_err(Status::bad_request)
    }

    /// Now, as `metadata` writes it.
    pub(crate) fn time(&self) -> String {
        meta::time(self.now)
    }
}

// === impl Written ===

impl Written {
    pub(crate) fn object(code: u16, object: Arc<Object>) -> Self {
        Self {
            code,
            content: Content::Object(object),
        }
    }

    pub(crate) fn document(code: u16, document: Value) -> Self {
        Self {
            code,
            content: Content::Document(document),
        }
    }
}

/// What a read of the past that is gone is answered with.
pub(crate) fn history_status(error: HistoryError) -> Status {
    match error {
        HistoryError::TooOld { .. } => {
            Status::expired("The resourceVersion for the provided list is too old.")
        }
        HistoryError::TooNew { asked, current } => {
            Status::too_large_resource_version(asked, current)
        }
        HistoryError::NoTable => Status::no_such_resource(),
    }
}
