//! Objects that a step of admission changed.

use std::borrow::Cow;

use serde_json::Value;

use super::request::AdmissionRequest;
use super::server::Server;
use super::view::shown_as;
use crate::json_text::Node;
use crate::kinds::defaults;
use crate::resource::ResourceInfo;
use crate::status::Status;

/// The changed object in the version of the request, from that of `info`; `None` if it is the object of the request.
///
/// # Errors
/// 500 for an object that is not of its type, or that cannot be converted.
pub(super) async fn accepted(
    server: &Server<'_>,
    asked: &AdmissionRequest<'_>,
    info: &ResourceInfo,
    mut object: Value,
) -> Result<Option<Value>, Status> {
    if object["kind"] == *info.kind {
        decode(info, &mut object)?;
    }
    let back = shown_as(server, Some(&object), info, &asked.request.info).await?;
    let is_changed = asked.object.as_deref() != back.as_deref();
    Ok(back.filter(|_| is_changed).map(Cow::into_owned))
}

/// Checks that a built-in object has only fields of its type. (apiserver: `mutating/patch/json_patch.go` decodes strictly.)
///
/// # Errors
/// 500 with the fields.
pub(super) fn decode_strictly(info: &ResourceInfo, object: &Value) -> Result<(), Status> {
    let schema = info.structural().filter(|_| !info.custom);
    let errors = schema.map_or_else(Vec::new, |schema| schema.strict_errors_of(object));
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::internal(format!(
        "strict decoding error: {}",
        errors.join(", ")
    )))
}

/// Reads the changed object as the type of its resource: unknown fields go, defaults come.
///
/// # Errors
/// 500 for an object that is not of its type.
pub(super) fn decode(info: &ResourceInfo, object: &mut Value) -> Result<(), Status> {
    if let Some(schema) = info.structural() {
        // A custom resource is checked after admission.
        if !info.custom
            && let Some(why) = schema.decode_error(&Node::from_value(object))
        {
            return Err(Status::internal(why));
        }
        schema.prune(object);
        schema.default(object);
    }
    defaults::set(info, object);
    Ok(())
}
