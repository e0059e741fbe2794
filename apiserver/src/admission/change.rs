//! Objects that a step of admission changed.

use std::borrow::Cow;

use serde_json::Value;

use super::request::AdmissionRequest;
use super::server::Server;
use super::view::shown_as;
use crate::connect;
use crate::field::{FieldError, Path, quote};
use crate::json_text::Node;
use crate::kinds::defaults;
use crate::meta::{self, string};
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
    } else {
        connect::decode(&mut object)?;
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

/// Checks that a changed object is of the type that it had `before`. What is absent in an object of a built-in kind is that
/// of before.
///
/// # Errors
/// 500 for another type; 422 for another kind of a custom resource. (apiserver: `callAttrMutatingHook`.)
pub(super) fn check_type(
    server: &Server<'_>,
    info: &ResourceInfo,
    before: &Value,
    object: &mut Value,
) -> Result<(), Status> {
    let expected = (string(&before["apiVersion"]), string(&before["kind"]));
    if !object.is_object() {
        let found = Node::from_value(object).go_type();
        return Err(Status::internal(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        )));
    }
    if info.custom && expected.1 == info.kind {
        return check_custom_type(info, expected.0, object);
    }
    for field in ["apiVersion", "kind"] {
        if string(&object[field]).is_empty() {
            object[field] = before[field].clone();
        }
    }
    let found = (string(&object["apiVersion"]), string(&object["kind"]));
    if found == expected {
        return Ok(());
    }
    let served = server.registry.served();
    let (is_known, why) = served.other_type(info, expected.1, found.0, found.1);
    Err(if is_known {
        Status::internal_text(why)
    } else {
        Status::internal(why)
    })
}

fn check_custom_type(info: &ResourceInfo, expected: &str, object: &Value) -> Result<(), Status> {
    let (found, kind) = (string(&object["apiVersion"]), string(&object["kind"]));
    if kind.is_empty() {
        return Err(Status::internal(format!(
            "Object 'Kind' is missing in '{object}'"
        )));
    }
    if found != expected {
        let expected = quote(expected);
        return Err(Status::internal_text(format!(
            "{found}, Kind={kind} is unstructured and is not suitable for converting to {expected}"
        )));
    }
    if kind == info.kind {
        return Ok(());
    }
    let error = FieldError::invalid(&Path::new("kind"), kind, format!("must be {}", info.kind));
    let name = meta::text(object, "name");
    Err(Status::invalid(&info.group, kind, name, &[error]))
}

/// Reads the changed object as the type of its resource: unknown fields go, defaults come.
///
/// # Errors
/// 500 for an object that is not of its type.
pub(super) fn decode(info: &ResourceInfo, object: &mut Value) -> Result<(), Status> {
    if info.custom {
        drop_untyped_metadata(object);
    }
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

/// Drops metadata of another type, as the accessors of an unstructured object do. (apimachinery: `unstructured`.)
fn drop_untyped_metadata(object: &mut Value) {
    let metadata = object.get_mut("metadata");
    let Some(metadata) = metadata.and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(owners) = metadata
        .get_mut("ownerReferences")
        .and_then(Value::as_array_mut)
    {
        owners.retain(Value::is_object);
    }
    metadata.retain(|field, value| match field.as_str() {
        "labels" | "annotations" => value
            .as_object()
            .is_some_and(|map| map.values().all(Value::is_string)),
        "finalizers" => value
            .as_array()
            .is_some_and(|items| items.iter().all(Value::is_string)),
        "ownerReferences" => value.is_array(),
        _ => true,
    });
}
