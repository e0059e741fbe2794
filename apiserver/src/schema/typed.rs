//! The form that Go's types give a decoded object: without the fields that they lack, without nulls, and with texts in their
//! canonical form. One walk does all of it, since most of its time goes into finding the fields' schemas.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::node::{Additional, Kind, Schema};
use super::prune::prune_all;
use super::{format, meta, quantity};

/// Gives an object of a built-in kind the form of its type; `apiVersion`, `kind` and the fields of ObjectMeta stay. Top-level
/// fields that are not `changed` have it already.
pub(super) fn settle_object(root: &Schema, object: &mut Value, changed: &dyn Fn(&str) -> bool) {
    let Value::Object(map) = object else { return };
    map.retain(|name, value| {
        if value.is_null() {
            return false;
        }
        match (root.properties.get(name), name.as_str()) {
            (Some(_), name) if !changed(name) => {}
            (Some(of), _) => settle(of, value),
            (None, "metadata") => settle(meta::schema(), value),
            (None, "apiVersion" | "kind") => {}
            (None, _) => return root.preserve_unknown,
        }
        true
    });
}

/// Gives a value the form of the type that `schema` describes.
pub(super) fn settle(schema: &Schema, value: &mut Value) {
    settle_in(schema, value, false);
}

/// [`settle`] of a value; `of_map`: it is an entry of a map.
fn settle_in(schema: &Schema, value: &mut Value, of_map: bool) {
    let schema = schema.target();
    if schema.preserve_unknown {
        return;
    }
    match value {
        Value::Object(map) => settle_map(schema, map),
        Value::Array(items) if schema.is_bytes() => {
            let bytes = items.iter().map(|item| item.as_u64().unwrap_or_default());
            let bytes: Vec<u8> = bytes.filter_map(|byte| byte.try_into().ok()).collect();
            *value = STANDARD.encode(bytes).into();
        }
        Value::Array(items) => {
            for item in items {
                match &schema.items {
                    Some(of) => {
                        fill_null(of, item);
                        settle_in(of, item, false);
                    }
                    None => prune_all(item),
                }
            }
        }
        Value::String(text) => {
            if let Some(canonical) = canonical_text(schema, text, of_map) {
                *text = canonical;
            }
        }
        Value::Number(number) => {
            if schema.limits.format.as_deref() == Some("quantity") {
                let text = number.to_string();
                *value = quantity::canonical(&text, of_map).unwrap_or(text).into();
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// A null field is absent; a null entry of a map is the empty value of its type.
fn settle_map(schema: &Schema, map: &mut Map<String, Value>) {
    map.retain(|name, value| {
        if let Some(of) = schema.properties.get(name) {
            if value.is_null() {
                return false;
            }
            settle_in(of, value, false);
            return true;
        }
        let Additional::Of(of) = &schema.additional else {
            return false;
        };
        if value.is_null() && of.kind.is_none() {
            return false;
        }
        fill_null(of, value);
        settle_in(of, value, true);
        true
    });
}

fn fill_null(schema: &Schema, value: &mut Value) {
    if value.is_null() {
        *value = match schema.kind {
            Some(Kind::String) => Value::String(String::new()),
            Some(Kind::Integer | Kind::Number) => Value::from(0),
            Some(Kind::Boolean) => Value::Bool(false),
            Some(Kind::Object) => Value::Object(Map::new()),
            Some(Kind::Array) | None => Value::Null,
        };
    }
}

/// The canonical form of a text, where it has another one: times in UTC, with six digits after the second or none, bytes, and
/// quantities.
fn canonical_text(schema: &Schema, text: &str, of_map: bool) -> Option<String> {
    match schema.limits.format.as_deref()? {
        "date-time" => format::canonical_time(text, false),
        "micro-time" => format::canonical_time(text, true),
        "byte" => format::canonical_bytes(text),
        "quantity" => quantity::canonical(text, of_map),
        _ => None,
    }
}
