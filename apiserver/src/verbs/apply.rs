//! Server-side apply: PATCH with `application/apply-patch+yaml`.

use bytes::Bytes;
use serde_json::Value;

use super::create::{check_right, create_owned};
use super::patch::refuse_other_uid;
use super::update::{self, Changed};
use super::{Written, metadata};
use crate::core::Core;
use crate::json_text;
use crate::meta;
use crate::ownership::Writer;
use crate::request::{FieldValidation, Request};
use crate::status::Status;
use crate::yaml;

/// How often an apply is tried again after the object appeared or went meanwhile.
const TRIES: usize = 5;

/// Applies the object in the body: merges it into the named one, or creates it.
///
/// # Errors
/// 400 for a body that is not an object of the type; 409 for fields that other managers own; 500 for one that does
/// not fit the type; and those of a creation and an update.
pub(crate) fn apply(core: &Core, request: &Request, body: &Bytes) -> Result<Written, Status> {
    let applied = read(body)?;
    let force = request.query.flag("force");
    let writer = Writer::new(core, request);
    let key = request.key();
    let may_create = match request.subresource.as_str() {
        "" => true,
        // A kind that a PUT creates is created through its status, too.
        "status" => request.info.create_on_update,
        _ => false,
    };
    let mut last = None;
    for _ in 0..TRIES {
        let creates = may_create
            && core
                .store
                .get(&request.info.storage, key.as_str())
                .is_none();
        let result = if creates {
            create(core, request, &writer, &applied, body)
        } else {
            update::change(core, request, &|old| {
                let mut new = writer.apply(Some(old), &applied, force)?;
                refuse_duplicates(request, body)?;
                settle(request, &mut new)?;
                refuse_other_uid(request, old, &new)?;
                Ok(Changed::Owned(new))
            })
        };
        let is_race = result.as_ref().is_err_and(|status| {
            let raced = if creates { "AlreadyExists" } else { "NotFound" };
            may_create && status.reason == raced
        });
        if !is_race {
            return result;
        }
        last = Some(result);
    }
    last.unwrap_or_else(|| Err(request.not_found()))
}

fn create(
    core: &Core,
    request: &Request,
    writer: &Writer<'_>,
    applied: &Value,
    body: &Bytes,
) -> Result<Written, Status> {
    let mut object = writer.apply(None, applied, request.query.flag("force"))?;
    refuse_duplicates(request, body)?;
    let uid = meta::text(&object, "uid");
    if !uid.is_empty() {
        return Err(Status::conflict(
            request.resource(),
            &request.name,
            format_args!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            ),
        ));
    }
    settle(request, &mut object)?;
    check_right(core, request)?;
    let managers = object["metadata"].get("managedFields").cloned();
    // Also through its status, an object is created as a whole.
    let whole = Request {
        subresource: String::new(),
        ..request.clone()
    };
    create_owned(core, &whole, object, managers)
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
