//! A value without some of its parts.

use serde_json::Value;

use super::super::path::Element;
use super::super::schema::{ItemsBy, Schema, TypeId};
use super::super::set::Set;
use super::item;
use super::shape::{Shape, shape};

/// `value` without the fields and items of `removed`. What has no parts left is null.
pub(crate) fn remove(schema: &Schema, of: TypeId, value: &Value, removed: &Set) -> Value {
    let Ok(shape) = shape(schema.atom(of), Some(value)) else {
        return value.clone();
    };
    match (shape, value) {
        (Shape::Scalar(_), value) => value.clone(),
        (Shape::List(list), Value::Array(items)) if list.by != ItemsBy::Nothing => {
            let mut kept = Vec::with_capacity(items.len());
            for item in items {
                let Ok(element) = item::element(schema, list, item) else {
                    kept.push(item.clone());
                    continue;
                };
                if !removed.has_member(&element) {
                    kept.push(rest(schema, list.items, item, removed, &element));
                }
            }
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Array(kept)
            }
        }
        (Shape::Map(map), Value::Object(fields)) if !map.atomic => {
            let mut kept = serde_json::Map::new();
            for (name, value) in fields {
                let element = Element::field(name.as_str());
                if removed.has_member(&element) {
                    continue;
                }
                let value = match map.entry(name) {
                    Some(of) => rest(schema, of, value, removed, &element),
                    None => value.clone(),
                };
                kept.insert(name.clone(), value);
            }
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Object(kept)
            }
        }
        _ => Value::Null,
    }
}

/// What is left of the part at `element`.
fn rest(schema: &Schema, of: TypeId, value: &Value, removed: &Set, element: &Element) -> Value {
    match removed.below(element) {
        Some(below) => remove(schema, of, value, below),
        None => value.clone(),
    }
}
