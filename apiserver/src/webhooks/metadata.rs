//! The metadata of converted objects: only labels and annotations may differ.

use serde_json::Value;

use crate::field::{Errors, Path, aggregate};
use crate::labels::{check_annotations, check_labels};
use crate::meta;

/// Checks that name, namespace and uid are the same. (apiextensions-apiserver: `validateConvertedObject`.)
///
/// # Errors
/// The first field that differs.
pub(super) fn check(object: &Value, new: &Value) -> Result<(), String> {
    for (field, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (before, after) = (meta::text(object, field), meta::text(new, field));
        if before != after {
            return Err(format!("must have the same {shown}: {before} != {after}"));
        }
    }
    Ok(())
}

/// Restores all metadata but labels and annotations. (apiextensions-apiserver: `restoreObjectMeta`.)
///
/// # Errors
/// Metadata, labels or annotations that are none.
pub(super) fn restore(object: &Value, new: &mut Value) -> Result<(), String> {
    let Some(answered) = new.get_mut("metadata").map(Value::take) else {
        return Err("missing metadata in converted object".to_owned());
    };
    let Value::Object(mut answered) = answered else {
        return Err(format!(
            "invalid metadata of type {} in converted object",
            go_type(&answered)
        ));
    };
    let mut metadata = object["metadata"].clone();
    let map = meta::object_mut(&mut metadata);
    for field in ["labels", "annotations"] {
        let value = match answered.remove(field) {
            None | Some(Value::Null) => {
                map.remove(field);
                continue;
            }
            Some(value) => value,
        };
        let Some(entries) = value.as_object() else {
            return Err(format!(
                "invalid metadata.{field} of type {} in converted object",
                go_type(&value)
            ));
        };
        for (key, value) in entries {
            if !value.is_string() {
                return Err(format!(
                    "metadata.{field}[{key}] must be a string, but is {} in converted object",
                    go_type(value)
                ));
            }
        }
        if map.get(field) != Some(&value) {
            let mut errors = Errors::default();
            let path = Path::new("metadata");
            if field == "labels" {
                check_labels(&value, &path.child("labels"), &mut errors);
            } else {
                // The path of a real server.
                check_annotations(&value, &path.child("annotation"), &mut errors);
            }
            if !errors.is_empty() {
                return Err(aggregate(&errors));
            }
        }
        map.insert(field.to_owned(), value);
    }
    new["metadata"] = metadata;
    Ok(())
}

/// The type of a decoded value in Go.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
