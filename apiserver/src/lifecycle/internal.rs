//! Requests that the server itself makes.

use std::sync::Arc;

use tokio::time::Instant;

use crate::core::Core;
use crate::http::media::{Accepted, Encoding, Shape};
use crate::http::query::Parameters;
use crate::http::warnings::Warnings;
use crate::ownership::CONTROLLERS;
use crate::rbac::User;
use crate::request::{FieldValidation, LONGEST_WRITE, Request};
use crate::resource::{Conversion, ResourceInfo};
use crate::store::Key;

/// A request of the server itself for one object.
pub(super) fn internal_request(core: &Core, info: &Arc<ResourceInfo>, key: &Key) -> Request {
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
        user: User::admin(),
        agent: CONTROLLERS.to_owned(),
        now: core.clock.now(),
        deadline: Instant::now() + LONGEST_WRITE,
        dry_run: false,
        validation: FieldValidation::Ignore,
        warnings: Warnings::default(),
        stale: None,
    }
}
