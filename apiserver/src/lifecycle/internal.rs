//! Requests that the server itself makes.

use std::sync::Arc;

use super::work::Work;
use crate::http::media::{Accepted, Encoding, Shape};
use crate::http::query::Parameters;
use crate::http::warnings::Warnings;
use crate::ownership::CONTROLLERS;
use crate::rbac::{AUTHENTICATED, MASTERS, User};
use crate::request::{FieldValidation, LONGEST_WRITE, Request};
use crate::resource::{Conversion, ResourceInfo};
use crate::store::{Key, Object};
use tokio::time::Instant;

/// The part of the server that writes, which is a program of its own in a cluster. Admission sees its user.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    ApiServer,
    GarbageCollector,
    NamespaceController,
    ServiceAccountController,
}

// === impl Part ===

impl Part {
    fn user(self) -> User {
        let controller = match self {
            Self::ApiServer => return User::new("system:apiserver", [MASTERS, AUTHENTICATED]),
            Self::GarbageCollector => "generic-garbage-collector",
            Self::NamespaceController => "namespace-controller",
            Self::ServiceAccountController => "service-account-controller",
        };
        User::service_account("kube-system", controller, "")
    }
}

/// Whether an object is stored still. A status of 404 or 409 does not say so: a webhook may refuse a write with any code.
pub(super) fn is_stored(work: &Work<'_>, info: &ResourceInfo, object: &Object) -> bool {
    let stored = work.store.get(&info.storage, object.key().as_str());
    stored.is_some_and(|stored| stored.uid() == object.uid())
}

/// A request of a part of the server for one object. It is not checked against rights.
pub(super) fn internal_request(
    work: &Work<'_>,
    info: &Arc<ResourceInfo>,
    key: &Key,
    part: Part,
) -> Request {
    // The server ends objects also if no webhook converts them.
    let info = match info.conversion {
        Conversion::Webhook => Arc::new(ResourceInfo {
            conversion: Conversion::Kept,
            ..ResourceInfo::clone(info)
        }),
        _ => info.clone(),
    };
    Request {
        info,
        namespace: key.namespace().to_owned(),
        name: key.name().to_owned(),
        subresource: String::new(),
        query: Parameters::default(),
        accepted: Accepted {
            encoding: Encoding::Json,
            shape: Shape::Whole,
        },
        user: part.user(),
        agent: CONTROLLERS.to_owned(),
        now: work.clock.now(),
        deadline: Instant::now() + LONGEST_WRITE,
        dry_run: false,
        validation: FieldValidation::Ignore,
        warnings: Warnings::default(),
        stale: None,
        decision: Some(work.decision()),
    }
}
