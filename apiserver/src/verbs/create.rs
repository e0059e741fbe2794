//! POST.

use serde_json::Value;

use super::pipeline::{Changed, Target};
use super::{Written, metadata, update};
use crate::access;
use crate::core::Core;
use crate::rbac::Attributes;
use crate::request::Request;
use crate::status::Status;

/// Stores a new object.
///
/// # Errors
/// 400, 403, 404 (of the namespace), 409 and 422 of the rules for creation.
pub(crate) async fn create(
    core: &Core,
    request: &Request,
    mut object: Value,
) -> Result<Written, Status> {
    metadata::settle_namespace(request, &mut object)?;
    metadata::drop_equal_owners(request, &mut object, "");
    update::change(core, request, Target::Absent, &|_| {
        Ok(Changed::Object(object.clone()))
    })
    .await
}

/// A write that creates an object by another verb than `create` needs the right to create. (apiserver: `withAuthorization`.)
///
/// # Errors
/// 403.
pub(crate) fn check_right(core: &Core, request: &Request) -> Result<(), Status> {
    let Some(policy) = access::policy(core) else {
        return Ok(());
    };
    let info = &request.info;
    let attributes = Attributes {
        version: info.version.clone(),
        ..Attributes::resource("create", &info.group, &info.plural)
            .subresource(&request.subresource)
            .in_namespace(&request.namespace)
            .named(&request.name)
    };
    let decision = policy.authorize(&request.user, &attributes);
    if decision.allowed {
        return Ok(());
    }
    Err(Status::forbidden(
        request.resource(),
        &request.name,
        decision.reason,
    ))
}
