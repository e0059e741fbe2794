//! Server-side apply: PATCH with `application/apply-patch+yaml`.

use bytes::Bytes;
use serde_json::Value;

use super::create::check_right;
use super::patch::refuse_other_uid;
use super::pipeline::{Changed, Save, Target, write};
use super::{Written, metadata, update};
use crate::core::Core;
use crate::json_text;
use crate::meta;
use crate::ownership::Writer;
use crate::request::{FieldValidation, Request};
use crate::status::Status;
use crate::yaml;

/// Applies the object in the body: merges it into the named one, or creates it.
///
/// # Errors
/// 400 for a body that is not an object of the type; 409 for fields that other managers own; 500 for one that does
/// not fit the type; and those of a creation and an update.
pub(crate) async fn apply(core: &Core, request: &Request, body: &Bytes) -> Result<Written, Status> {
    let applied = read(body)?;
    let force = request.query.flag("force");
    let writer = Writer::new(core, request);
    let may_create = match request.subresource.as_str() {
        "" => true,
        // A kind that a PUT creates is created through its status, too.
        "status" => request.info.create_on_update,
        _ => false,
    };
    let target = if may_create {
        Target::Any
    } else {
        Target::Present
    };
    let change = |old: Option<&Value>| {
        let merge = writer.apply(old, &applied, force)?;
        let mut new = merge.object;
        refuse_duplicates(request, body)?;
        match old {
            Some(old) => {
                settle(request, &mut new)?;
                refuse_other_uid(request, old, &new)?;
            }
            None => {
                refuse_uid(request, &new)?;
                // A real server ignores the version of an object that an apply creates.
                meta::metadata_mut(&mut new).remove("resourceVersion");
                settle(request, &mut new)?;
                check_right(core, request)?;
            }
        }
        Ok(if merge.changes {
            Changed::Owned(new)
        } else {
            Changed::Owners(new)
        })
    };
    write(core, request, &Save::new(&writer, target, &change)).await
}

/// A new object has no uid.
fn refuse_uid(request: &Request, object: &Value) -> Result<(), Status> {
    let uid = meta::text(object, "uid");
    if uid.is_empty() {
        return Ok(());
    }
    Err(Status::conflict(
        request.resource(),
        &request.name,
        format_args!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        ),
    ))
}

/// Gives a merged object the form of its kind, and checks that it is the one in the path.
fn settle(request: &Request, object: &mut Value) -> Result<(), Status> {
    if let Some(schema) = request.info.structural() {
        schema.prune(object);
    }
    metadata::settle_namespace(request, object)?;
    update::check_name(request, object)
}

/// Reads the body of an apply.
///
/// # Errors
/// 400 for a body that is not an object.
pub(crate) fn read(body: &Bytes) -> Result<Value, Status> {
    let refuse = |why: String| Status::bad_request(format!("error decoding YAML: {why}"));
    let applied: Value = match serde_json::from_slice(body) {
        Ok(applied) => applied,
        Err(_) => yaml::read(body)
            .map_err(|error| refuse(format!("error converting YAML to JSON: yaml: {error}")))?,
    };
    let found = match &applied {
        Value::Object(_) => return Ok(applied),
        Value::Null => return Ok(Value::Object(serde_json::Map::new())),
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
    };
    Err(refuse(format!(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
    )))
}

/// Reports fields that the body has twice, as `fieldValidation` asks.
fn refuse_duplicates(request: &Request, body: &Bytes) -> Result<(), Status> {
    if request.validation == FieldValidation::Ignore {
        return Ok(());
    }
    let Ok(node) = json_text::parse(body) else {
        return Ok(());
    };
    let lines: Vec<String> = json_text::duplicate_fields(&node)
        .iter()
        .map(|path| {
            let field = path.rsplit('.').next().unwrap_or_default();
            format!(
                "  line 1: key {} already set in map",
                crate::field::quote(field)
            )
        })
        .collect();
    if lines.is_empty() {
        return Ok(());
    }
    let text = format!(
        "error converting YAML to JSON: yaml: unmarshal errors:\n{}",
        lines.join("\n")
    );
    if request.validation == FieldValidation::Strict {
        return Err(Status::bad_request(format!(
            "error strict decoding YAML: {text}"
        )));
    }
    request.warnings.extend([text]);
    Ok(())
}
