//! The component schemas of OpenAPI documents, from the table of types.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::descriptions;
use crate::kinds::data::{Data, Field, Form, ListType, Patch, Scalar, Special, Type};

/// The beginning of a reference to a component.
pub(super) const REFERENCE: &str = "#/components/schemas/";

/// The name of ObjectMeta in the table of types.
pub(super) const OBJECT_META: &str = "meta.v1.ObjectMeta";

/// Adds the component of a type, and all that it refers to; returns its name.
pub(super) fn add(of: &'static Type, components: &mut BTreeMap<String, Value>) -> String {
    let name = of.open_api_name();
    if !components.contains_key(&name) {
        // It may refer to itself.
        components.insert(name.clone(), Value::Null);
        let component = component(of, &name, components);
        components.insert(name.clone(), component);
    }
    name
}

/// The component of ListMeta.
pub(super) fn add_list_meta(components: &mut BTreeMap<String, Value>) -> String {
    let of = Data::get().named("meta.v1.ListMeta");
    of.map(|of| add(of, components)).unwrap_or_default()
}

/// The component of ObjectMeta and all that it refers to.
pub(super) fn add_object_meta(components: &mut BTreeMap<String, Value>) -> String {
    let of = Data::get().named(OBJECT_META);
    of.map(|of| add(of, components)).unwrap_or_default()
}

fn component(of: &'static Type, name: &str, components: &mut BTreeMap<String, Value>) -> Value {
    let mut schema = match of.special {
        // It may be no object, unlike the other types with any content.
        Some(Special::Any) if of.name.starts_with("apiextensions.") => json!({}),
        Some(special) => special_form(special),
        None => structure(of, name, components),
    };
    let description = descriptions::of_type(name);
    if !description.is_empty() {
        schema["description"] = json!(description);
    }
    schema
}

fn structure(of: &'static Type, name: &str, components: &mut BTreeMap<String, Value>) -> Value {
    let mut schema = json!({"type": "object"});
    let mut properties = Map::new();
    for field in &of.fields {
        let mut property = property(field, components);
        let description = descriptions::of_field(name, field.name);
        if !description.is_empty() {
            property["description"] = json!(description);
        }
        properties.insert(field.name.to_owned(), property);
    }
    if !properties.is_empty() {
        schema["properties"] = Value::Object(properties);
    }
    let required = of.fields.iter().filter(|field| field.required);
    let required: Vec<&str> = required.map(|field| field.name).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if of.atomic {
        schema["x-kubernetes-map-type"] = json!("atomic");
    }
    schema
}

fn property(field: &'static Field, components: &mut BTreeMap<String, Value>) -> Value {
    let mut schema = form(&field.form, components);
    if let Some(reference) = schema.as_object_mut().and_then(|map| map.remove("$ref")) {
        schema["allOf"] = json!([{"$ref": reference}]);
    }
    if let Some(default) = &field.default {
        schema["default"] = default.clone();
    }
    if !field.enumeration.is_empty() {
        schema["enum"] = json!(field.enumeration);
    }
    if let Some(list) = field.list {
        schema["x-kubernetes-list-type"] = json!(match list {
            ListType::Atomic => "atomic",
            ListType::Set => "set",
            ListType::Map => "map",
        });
    }
    if !field.keys.is_empty() {
        schema["x-kubernetes-list-map-keys"] = json!(field.keys);
    }
    if let Some(atomic) = field.atomic {
        schema["x-kubernetes-map-type"] = json!(if atomic { "atomic" } else { "granular" });
    }
    if !field.patch_strategy.is_empty() {
        schema["x-kubernetes-patch-strategy"] = json!(field.patch_strategy);
    }
    if let Patch::MergeBy(key) = field.patch {
        schema["x-kubernetes-patch-merge-key"] = json!(key);
    }
    schema
}

fn form(of: &'static Form, components: &mut BTreeMap<String, Value>) -> Value {
    match of {
        Form::Scalar(scalar, _) => match scalar {
            Scalar::Text => json!({"type": "string"}),
            Scalar::Bytes => json!({"type": "string", "format": "byte"}),
            Scalar::Boolean => json!({"type": "boolean"}),
            Scalar::Int32 => json!({"type": "integer", "format": "int32"}),
            Scalar::Int64 => json!({"type": "integer", "format": "int64"}),
            Scalar::Double => json!({"type": "number", "format": "double"}),
        },
        Form::List(_, items) => json!({"type": "array", "items": item(items, components)}),
        Form::Map(_, values) => {
            json!({"type": "object", "additionalProperties": item(values, components)})
        }
        Form::Named(_) => match of.named() {
            Some(of) => json!({"$ref": format!("{REFERENCE}{}", add(of, components))}),
            None => json!({}),
        },
    }
}

/// An item of a list, or a value of a map: always written, so its default is zero.
fn item(of: &'static Form, components: &mut BTreeMap<String, Value>) -> Value {
    let mut schema = form(of, components);
    let reference = schema.as_object_mut().and_then(|map| map.remove("$ref"));
    if let Some(reference) = reference {
        let is_struct = of.named().is_some_and(|of| of.special.is_none());
        if !is_struct {
            return json!({"$ref": reference});
        }
        schema["allOf"] = json!([{"$ref": reference}]);
        schema["default"] = json!({});
    } else if let Form::Scalar(scalar, _) = of {
        match scalar {
            Scalar::Text => schema["default"] = json!(""),
            Scalar::Boolean => schema["default"] = json!(false),
            Scalar::Int32 | Scalar::Int64 | Scalar::Double => schema["default"] = json!(0),
            Scalar::Bytes => {}
        }
    }
    schema
}

fn special_form(special: Special) -> Value {
    match special {
        Special::Any => json!({"type": "object"}),
        Special::SchemaOrBoolean | Special::SchemaOrList => json!({}),
        Special::IntOrString => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        Special::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Special::MicroTime | Special::Time => json!({"type": "string", "format": "date-time"}),
        Special::Text => json!({"type": "string"}),
    }
}
