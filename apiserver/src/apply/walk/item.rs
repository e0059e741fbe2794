//! The path element of a list's item.

use serde_json::Value;

use super::super::literal::Literal;
use super::super::path::Element;
use super::super::schema::{ItemsBy, List, Schema};

/// The element that identifies `item` in a list of this type.
///
/// # Errors
/// The reason why the item has no identity.
pub(super) fn element(schema: &Schema, list: &List, item: &Value) -> Result<Element, String> {
    match &list.by {
        ItemsBy::Nothing => Err("invalid indexing of non-associative list".to_owned()),
        ItemsBy::Value => of_set(item),
        ItemsBy::Keys(keys) if keys.is_empty() => of_set(item),
        ItemsBy::Keys(keys) => of_map(schema, list, keys, item),
    }
}

/// Why `item` has no identity in a list of this type.
pub(super) fn problem(schema: &Schema, list: &List, item: &Value) -> Option<String> {
    let has_identity = match (&list.by, item) {
        (ItemsBy::Keys(keys), Value::Object(fields)) if !keys.is_empty() => {
            keys.iter().all(|key| fields.contains_key(key))
        }
        (ItemsBy::Value, Value::String(_) | Value::Number(_) | Value::Bool(_)) => true,
        _ => false,
    };
    match has_identity {
        true => None,
        false => element(schema, list, item).err(),
    }
}

fn of_set(item: &Value) -> Result<Element, String> {
    match item {
        Value::Object(_) => {
            Err("associative list without keys has an element that's a map type".to_owned())
        }
        Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
        Value::Null => {
            Err("associative list without keys has an element that's an explicit null".to_owned())
        }
        scalar => Ok(Element::Value(Literal(scalar.clone()))),
    }
}

fn of_map(schema: &Schema, list: &List, keys: &[String], item: &Value) -> Result<Element, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let items = schema.atom(list.items).map.as_ref();
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        if let Some(value) = fields.get(key) {
            found.push((key.as_str(), value.clone()));
            continue;
        }
        let Some(items) = items else {
            return Err(format!(
                "couldn't find default value for {key}: associative list may not have non-map types"
            ));
        };
        // An item without an optional key is another item than one that has it.
        let default = items
            .fields
            .get(key)
            .and_then(|field| field.default.as_ref());
        if let Some(default) = default.filter(|default| !default.is_null()) {
            found.push((key.as_str(), default.clone()));
        }
    }
    if found.is_empty() {
        let quoted: Vec<String> = keys.iter().map(|key| crate::field::quote(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            quoted.join(" ")
        ));
    }
    Ok(Element::key(found))
}
