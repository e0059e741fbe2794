//! The types of the built-in kinds for server-side apply, from the table of types.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::apply::{self, RAW_EXTENSION, Schema};
use crate::kinds::canonical;
use crate::kinds::data::{Data, Field, Form, ListType, Scalar, Special, Type};

/// The name of ObjectMeta in the table of types.
const OBJECT_META: &str = "meta.v1.ObjectMeta";

static SCHEMAS: LazyLock<Mutex<HashMap<&'static str, Arc<Schema>>>> = LazyLock::new(Mutex::default);

/// The types of a built-in kind, made on first use.
pub(super) fn schema(of: &'static Type) -> Arc<Schema> {
    if let Some(known) = SCHEMAS.lock().get(of.name) {
        return known.clone();
    }
    let made = Arc::new(apply::of_component(of.name, &component));
    SCHEMAS.lock().insert(of.name, made.clone());
    made
}

/// An object of a built-in kind as its Go type has it without any field set.
pub(super) fn empty(of: &Type, api_version: String, kind: &str) -> Value {
    let mut empty = json!({"metadata": {}});
    canonical::write(of, &mut empty);
    empty["apiVersion"] = api_version.into();
    empty["kind"] = kind.into();
    empty
}

/// A type as OpenAPI describes it, with the extensions that apply reads.
pub(super) fn component(name: &str) -> Option<Value> {
    let name = if name.ends_with(OBJECT_META) {
        OBJECT_META
    } else {
        name
    };
    let of = Data::get().named(name)?;
    let properties: Map<String, Value> = of
        .fields
        .iter()
        .map(|field| (field.name.to_owned(), property(field)))
        .collect();
    let mut component = json!({"type": "object", "properties": properties});
    if of.atomic {
        component["x-kubernetes-map-type"] = json!("atomic");
    }
    Some(component)
}

fn property(field: &Field) -> Value {
    let mut property = form(&field.form);
    if let Some(default) = &field.default {
        property["default"] = default.clone();
    }
    match field.list {
        Some(ListType::Set) => property["x-kubernetes-list-type"] = json!("set"),
        Some(ListType::Map) => {
            property["x-kubernetes-list-type"] = json!("map");
            property["x-kubernetes-list-map-keys"] = json!(field.keys);
        }
        Some(ListType::Atomic) | None => {}
    }
    if let Some(atomic) = field.atomic {
        let kind = if atomic { "atomic" } else { "granular" };
        property["x-kubernetes-map-type"] = json!(kind);
    }
    property
}

fn form(of: &Form) -> Value {
    match of {
        Form::Scalar(Scalar::Text | Scalar::Bytes, _) => json!({"type": "string"}),
        Form::Scalar(Scalar::Boolean, _) => json!({"type": "boolean"}),
        Form::Scalar(_, _) => json!({"type": "number"}),
        Form::List(_, items) => json!({"type": "array", "items": form(items)}),
        Form::Map(_, values) => json!({"type": "object", "additionalProperties": form(values)}),
        Form::Named(_) => of.named().map_or_else(|| json!({}), named),
    }
}

fn named(of: &Type) -> Value {
    let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    match of.special {
        None => reference(of.name),
        Some(Special::Any) if of.name.ends_with("RawExtension") => reference(RAW_EXTENSION),
        Some(Special::Text) => json!({"type": "string"}),
        Some(Special::MicroTime | Special::Quantity | Special::Time) => {
            json!({"type": "string", "format": "other"})
        }
        Some(_) => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::data::root;

    #[test]
    fn an_empty_object_has_what_go_writes_always() {
        let of = |group: &str, kind: &str| {
            let of = root(group, "v1", kind).unwrap();
            empty(of, format!("{group}/v1"), kind)
        };
        assert_eq!(
            of("apps", "Deployment"),
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "status": {},
                "spec": {
                    "selector": null, "strategy": {},
                    "template": {"metadata": {}, "spec": {"containers": null}},
                },
            })
        );
        let service = of("", "Service");
        assert_eq!(service["spec"], json!({}));
        assert_eq!(service["status"], json!({"loadBalancer": {}}));
        assert_eq!(of("", "ConfigMap").as_object().unwrap().len(), 3);
    }

    #[test]
    fn every_kind_has_a_schema() {
        for version in &Data::get().versions {
            for resource in &version.resources {
                if let Some(of) = resource.root() {
                    let schema = schema(of);
                    let root = schema.atom(schema.root()).map.as_ref();
                    assert!(
                        root.is_some_and(|map| !map.fields.is_empty()),
                        "{}",
                        of.name
                    );
                }
            }
        }
    }
}
