//! The results of expressions.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube_cel::cel::Value as CelValue;
use kube_cel::cel::objects::{Key, Map as CelMap};
use serde_json::{Map, Value};

use super::composition::{ObjectType, TYPE};
use super::times;

/// The value in JSON; objects without the names of their types.
///
/// # Errors
/// The type of a part that JSON does not have.
pub(crate) fn to_json(value: &CelValue) -> Result<Value, String> {
    Ok(match value {
        CelValue::Null => Value::Null,
        CelValue::Bool(bool) => (*bool).into(),
        CelValue::Int(number) => (*number).into(),
        CelValue::UInt(number) => (*number).into(),
        CelValue::Float(number) => (*number).into(),
        CelValue::String(text) => text.as_str().into(),
        CelValue::Bytes(bytes) => STANDARD.encode(&**bytes).into(),
        CelValue::List(items) => items.iter().map(to_json).collect::<Result<_, _>>()?,
        CelValue::Map(map) => {
            let mut object = Map::new();
            for (key, value) in &*map.map {
                let Key::String(name) = key else {
                    return Err(format!("map key {key:?} is not a string"));
                };
                if object_type(value).is_none() {
                    object.insert(name.to_string(), to_json(value)?);
                }
            }
            Value::Object(object)
        }
        CelValue::Timestamp(time) => times::text(&time.to_utc().to_rfc3339()).into(),
        other => return Err(format!("unsupported type: {}", other.type_of())),
    })
}

/// Whether the value is `true`.
pub(crate) fn is_true(value: &CelValue) -> bool {
    matches!(value, CelValue::Bool(true))
}

/// The text; `None` for null.
///
/// # Errors
/// The name of its type, if it is neither.
pub(crate) fn text(value: &CelValue) -> Result<Option<String>, String> {
    match value {
        CelValue::String(text) => Ok(Some(text.to_string())),
        CelValue::Null => Ok(None),
        other => Err(other.type_of().to_string()),
    }
}

/// The elements of a list.
pub(crate) fn elements(value: &CelValue) -> Option<&[CelValue]> {
    match value {
        CelValue::List(items) => Some(items),
        _ => None,
    }
}

/// The name of the type of an object: `Object.spec` of `Object.spec{…}`.
pub(crate) fn type_name(value: &CelValue) -> Option<String> {
    let CelValue::Map(map) = value else {
        return None;
    };
    object_type(member(map, TYPE)?).map(str::to_owned)
}

fn object_type(value: &CelValue) -> Option<&str> {
    match value {
        CelValue::Opaque(opaque) => {
            let of_type = opaque.downcast_ref::<ObjectType>()?;
            Some(&of_type.0)
        }
        _ => None,
    }
}

/// A member of a map or object.
pub(crate) fn field<'a>(value: &'a CelValue, name: &str) -> Option<&'a CelValue> {
    match value {
        CelValue::Map(map) => member(map, name),
        _ => None,
    }
}

fn member<'a>(map: &'a CelMap, name: &str) -> Option<&'a CelValue> {
    map.map.get(&Key::String(name.to_owned().into()))
}

/// Checks that the types of objects have the names of their fields. (apiserver: `CheckTypeNamesMatchFieldPathNames`.)
///
/// # Errors
/// The objects of other types, a line for each.
pub(crate) fn check_type_names(value: &CelValue) -> Result<(), String> {
    let mut problems = Vec::new();
    let root = type_name(value).unwrap_or_default();
    check_below(value, &root, &mut problems);
    if problems.is_empty() {
        Ok(())
    } else {
        problems.sort();
        Err(problems.join("\n"))
    }
}

fn check_below(value: &CelValue, path: &str, problems: &mut Vec<String>) {
    match value {
        CelValue::List(items) => {
            for item in &**items {
                check_below(item, path, problems);
            }
        }
        CelValue::Map(map) => {
            let name = type_name(value);
            if let Some(name) = name.as_deref().filter(|name| *name != path) {
                problems.push(format!(
                    "unexpected type name {}, expected {}, which matches field name path from root Object type",
                    crate::field::quote(name),
                    crate::field::quote(path)
                ));
            }
            for (key, value) in &*map.map {
                match (key, &name) {
                    _ if object_type(value).is_some() => {}
                    (Key::String(field), Some(_)) => {
                        check_below(value, &format!("{path}.{field}"), problems);
                    }
                    _ => check_below(value, path, problems),
                }
            }
        }
        _ => {}
    }
}
