//! The `scale` subresource: an `autoscaling/v1 Scale` that shows and sets the number of replicas.

use bytes::Bytes;
use serde_json::{Value, json};

use super::patch::{apply, format};
use super::{Content, Request, Written, read, update};
use crate::core::Core;
use crate::field::{Errors, FieldError, Path};
use crate::meta;
use crate::resource::{ResourceInfo, Scale};
use crate::status::Status;
use crate::store::Object;

/// GET of a scale.
///
/// # Errors
/// As of the object.
pub(crate) async fn get(core: &Core, request: &Request, scale: &Scale) -> Result<Value, Status> {
    let object = read::get(core, request).await?;
    Ok(show(scale, &object))
}

/// The Scale of an object.
pub(crate) fn show(scale: &Scale, object: &Object) -> Value {
    let value = object.value();
    let replicas = |path: &str| at(value, path).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = json!({
        "name": object.name(),
        "uid": object.uid(),
        "resourceVersion": object.version().to_string(),
        "creationTimestamp": value["metadata"]["creationTimestamp"],
    });
    if !object.namespace().is_empty() {
        metadata["namespace"] = json!(object.namespace());
    }
    let mut shown = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {},
        "status": {"replicas": replicas(&scale.status_replicas)},
    });
    // Zero is left out, as encoding the Go type does.
    let wanted = replicas(&scale.spec_replicas);
    if wanted != 0 {
        shown["spec"]["replicas"] = json!(wanted);
    }
    if let Some(selector) = scale
        .label_selector
        .as_deref()
        .and_then(|path| at(value, path))
    {
        let text = match selector {
            Value::String(text) => text.clone(),
            other => selector_text(other),
        };
        if !text.is_empty() {
            shown["status"]["selector"] = json!(text);
        }
    }
    shown
}

/// `matchLabels` and `matchExpressions` as one text.
fn selector_text(selector: &Value) -> String {
    let mut parts: Vec<String> = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<&str> = expression["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        parts.push(match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.join(",")
}

/// PUT of a scale.
///
/// # Errors
/// As of an update of the object.
pub(crate) fn replace(
    core: &Core,
    request: &Request,
    scale: &Scale,
    body: &Value,
) -> Result<Written, Status> {
    update::check_name(request, body)?;
    write(core, request, scale, &|_| Ok(body.clone()))
}

/// PATCH of a scale.
///
/// # Errors
/// As of a patch of the object.
pub(crate) fn patch(
    core: &Core,
    request: &Request,
    scale: &Scale,
    content_type: Option<&str>,
    body: &Bytes,
) -> Result<Written, Status> {
    let format = format(request, content_type)?;
    write(core, request, scale, &|current| {
        apply(request, format, current, body)
    })
}

fn write(
    core: &Core,
    request: &Request,
    scale: &Scale,
    wanted: &dyn Fn(&Value) -> Result<Value, Status>,
) -> Result<Written, Status> {
    let main = Request {
        subresource: String::new(),
        ..request.clone()
    };
    let written = update::change(core, &main, &|old| {
        let current = Object::draft(old.clone());
        let wanted = wanted(&show(scale, &current))?;
        let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 && !request.info.custom {
            return Err(Status::invalid(
                "autoscaling",
                "Scale",
                &request.name,
                &[FieldError::invalid(
                    &Path::new("spec").child("replicas"),
                    replicas,
                    "must be greater than or equal to 0",
                )],
            ));
        }
        let mut new = old.clone();
        for field in ["resourceVersion", "uid"] {
            let text = meta::text(&wanted, field);
            if !text.is_empty() {
                meta::metadata_mut(&mut new).insert(field.to_owned(), text.into());
            }
        }
        set(&mut new, &scale.spec_replicas, json!(replicas));
        Ok(new)
    })?;
    let Content::Object(object) = &written.content else {
        return Ok(written);
    };
    let document = show(scale, object);
    Ok(Written {
        content: Content::Document(document),
        ..written
    })
}

/// What is wrong with the replicas of an object that can be scaled.
pub(crate) fn validate(info: &ResourceInfo, object: &Value) -> Errors {
    let Some(scale) = info.scale.as_ref().filter(|_| info.custom) else {
        return Errors::new();
    };
    let mut errors = Errors::new();
    for path in [&scale.spec_replicas, &scale.status_replicas] {
        let field = Path::new(path);
        let found = match reach(object, path) {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(other) => {
                let detail = format!(
                    "{path} accessor error: {} is of the type {}, expected map[string]interface{{}}",
                    shown(other),
                    go_type(other)
                );
                errors.push(FieldError::invalid(&field, 0, detail));
                continue;
            }
        };
        match found.as_i64() {
            Some(replicas) if replicas < 0 => {
                errors.push(FieldError::invalid(
                    &field,
                    replicas,
                    "should be a non-negative integer",
                ));
            }
            Some(_) => {}
            None => errors.push(FieldError::invalid(
                &field,
                0,
                format!(
                    "{path} accessor error: {} is of the type {}, expected int64",
                    shown(found),
                    go_type(found)
                ),
            )),
        }
    }
    errors
}

/// What is at `path`; `Err` with what stands in the way, where an object should.
fn reach<'a>(value: &'a Value, path: &str) -> Result<Option<&'a Value>, &'a Value> {
    let mut at = value;
    for field in path.trim_start_matches('.').split('.') {
        match at {
            Value::Object(map) => match map.get(field) {
                Some(found) => at = found,
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            other => return Err(other),
        }
    }
    Ok(Some(at))
}

fn shown(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        Value::Null => "<nil>",
    }
}

fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.')
        .split('.')
        .try_fold(value, |value, field| value.get(field))
}

fn set(value: &mut Value, path: &str, to: Value) {
    let mut map = meta::object_mut(value);
    let mut fields = path.trim_start_matches('.').split('.').peekable();
    while let Some(field) = fields.next() {
        if fields.peek().is_none() {
            map.insert(field.to_owned(), to);
            return;
        }
        map = meta::map_at(map, field);
    }
}
