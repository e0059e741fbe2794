//! PUT, and changes by a function.

use serde_json::Value;

use super::create::check_right;
use super::pipeline::{Changed, Save, Target, write};
use super::{Written, metadata};
use crate::core::Core;
use crate::meta;
use crate::ownership::Writer;
use crate::request::Request;
use crate::status::Status;

/// Replaces an object by `body`; creates it where the resource allows that.
///
/// # Errors
/// 400, 404, 409 and 422 of the rules for updates.
pub(crate) async fn replace(
    core: &Core,
    request: &Request,
    mut body: Value,
) -> Result<Written, Status> {
    metadata::settle_namespace(request, &mut body)?;
    metadata::drop_equal_owners(request, &mut body, "");
    check_name(request, &body)?;
    let creates = request.info.create_on_update && request.subresource.is_empty();
    let target = if creates {
        Target::Any
    } else {
        Target::Present
    };
    change(core, request, target, &|old| {
        let mut body = body.clone();
        if old.is_none() {
            check_right(core, request)?;
            refuse_uid_of_nothing(request, &body)?;
            meta::metadata_mut(&mut body).remove("resourceVersion");
        }
        Ok(Changed::Object(body))
    })
    .await
}

/// A PUT with a uid is about an object that was there. (apiserver: the storage compares it with that of an empty object.)
fn refuse_uid_of_nothing(request: &Request, body: &Value) -> Result<(), Status> {
    let uid = meta::text(body, "uid");
    if uid.is_empty() {
        return Ok(());
    }
    let directory = match (&*request.info.group, &*request.info.plural) {
        ("", "services") => "services/specs",
        ("", "endpoints") => "services/endpoints",
        (_, plural) => plural,
    };
    let key = request.key();
    Err(Status::conflict(
        request.resource(),
        &request.name,
        format_args!(
            "StorageError: invalid object, Code: 4, Key: /registry/{directory}/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: ",
            key.as_str()
        ),
    ))
}

/// Checks that the body of a PUT has the name in the path.
///
/// # Errors
/// 400 when it does not.
pub(crate) fn check_name(request: &Request, body: &Value) -> Result<(), Status> {
    let name = meta::text(body, "name");
    if name.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            request.name
        )));
    }
    if name != request.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            request.name
        )));
    }
    Ok(())
}

/// Changes the named object by a function, which is called again after a race.
///
/// # Errors
/// Those of the function, and of [`write`].
pub(crate) async fn change(
    core: &Core,
    request: &Request,
    target: Target,
    change: &(dyn Fn(Option<&Value>) -> Result<Changed, Status> + Sync),
) -> Result<Written, Status> {
    let writer = Writer::new(core, request);
    let save = Save::new(&writer, target, change);
    write(core, request, &save).await
}

/// Changes the named object by a function of the present one.
///
/// # Errors
/// 404; those of the function, and of [`write`].
pub(crate) async fn modify(
    core: &Core,
    request: &Request,
    modify: &(dyn Fn(&Value) -> Result<Value, Status> + Sync),
) -> Result<Written, Status> {
    change(core, request, Target::Present, &|old| {
        modify(old.unwrap_or(&Value::Null)).map(Changed::Object)
    })
    .await
}
