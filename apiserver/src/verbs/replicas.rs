//! The fields of an object that its scale subresource reads and sets.

use serde_json::Value;

use crate::field::{Errors, FieldError, Path};
use crate::meta;
use crate::resource::ResourceInfo;

/// Errors in the replicas of a custom resource that has the scale subresource.
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

/// The value at `path`; `Err` with the value on the way that is not an object.
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

/// The value at `path`.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.trim_start_matches('.')
        .split('.')
        .try_fold(value, |value, field| value.get(field))
}

/// Sets the value at `path`, and adds the objects that it lies in.
pub(super) fn set(value: &mut Value, path: &str, to: Value) {
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
