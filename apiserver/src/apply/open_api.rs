//! Types from OpenAPI v3 schemas, with Kubernetes' extensions.
//!
//! (kube-openapi: `schemaconv.ToSchemaFromOpenAPI`; apiextensions-apiserver: `builder.BuildOpenAPIV3`.)

use std::collections::HashMap;

use serde_json::{Map as Object, Value};

use super::schema::{Atom, DEDUCED, Field, ItemsBy, List, Map, Scalar, Schema, TypeId, UNTYPED};

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
/// The component of one value of any type.
pub(crate) const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
/// The component of the metadata of an object.
pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The components that schemas refer to, by name.
pub(crate) type Components<'a> = &'a dyn Fn(&str) -> Option<Value>;

/// The types of a component and everything it refers to.
pub(crate) fn of_component(name: &str, components: Components<'_>) -> Schema {
    let mut reader = Reader::new(components);
    let root = reader.named(name);
    reader.schema.with_root(root)
}

/// The types of a custom resource, from the schema of its definition.
pub(crate) fn of_custom_resource(schema: Option<&Value>, components: Components<'_>) -> Schema {
    let Some(schema) = schema else {
        return Schema::new();
    };
    let mut reader = Reader::new(components);
    let mut schema = schema.clone();
    if let Some(schema) = schema.as_object_mut() {
        declare_object(schema);
    }
    let root = reader.inline(&schema, false);
    reader.schema.with_root(root)
}

/// Declares the fields that every object has.
fn declare_object(schema: &mut Object<String, Value>) {
    let text = serde_json::json!({"type": "string"});
    let metadata = serde_json::json!({"$ref": format!("#/components/schemas/{OBJECT_META}")});
    let properties = schema
        .entry("properties")
        .or_insert_with(|| Value::Object(Object::new()));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("apiVersion".to_owned(), text.clone());
        properties.insert("kind".to_owned(), text);
        properties.insert("metadata".to_owned(), metadata);
    }
}

struct Reader<'a> {
    schema: Schema,
    components: Components<'a>,
    named: HashMap<String, TypeId>,
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn new(components: Components<'a>) -> Self {
        Self {
            schema: Schema::new(),
            components,
            named: HashMap::new(),
        }
    }

    fn named(&mut self, name: &str) -> TypeId {
        match name {
            RAW_EXTENSION => return UNTYPED,
            QUANTITY => return self.schema.add(scalar(Scalar::Any)),
            _ => {}
        }
        if let Some(known) = self.named.get(name) {
            return *known;
        }
        let Some(source) = (self.components)(name) else {
            return DEDUCED;
        };
        let of = self.schema.add(Atom::default());
        self.named.insert(name.to_owned(), of);
        let atom = self.atom(&source, false);
        self.schema.set(of, atom);
        of
    }

    /// The type of a schema; `preserved` below a node that preserves unknown fields.
    fn inline(&mut self, source: &Value, preserved: bool) -> TypeId {
        if let Some(name) = reference(source) {
            let of = self.named(name);
            return match source["x-kubernetes-map-type"].as_str() {
                Some(kind) => self.with_map_type(of, kind == "atomic"),
                None => of,
            };
        }
        let atom = self.atom(source, preserved);
        self.schema.add(atom)
    }

    /// The type with the map type of the field that refers to it.
    fn with_map_type(&mut self, of: TypeId, atomic: bool) -> TypeId {
        let mut atom = self.schema.atom(of).clone();
        match &mut atom.map {
            Some(map) => map.atomic = atomic,
            None => return of,
        }
        self.schema.add(atom)
    }

    fn atom(&mut self, source: &Value, preserved: bool) -> Atom {
        let preserved =
            preserved || source["x-kubernetes-preserve-unknown-fields"] == Value::Bool(true);
        let format = source["format"].as_str().unwrap_or_default();
        match source["type"].as_str().unwrap_or_default() {
            "" => Atom {
                scalar: Some(Scalar::Any),
                list: Some(self.list(source, preserved)),
                map: Some(self.map(source, preserved)),
            },
            "object" => Atom {
                map: Some(self.map(source, preserved)),
                ..Atom::default()
            },
            "array" => Atom {
                list: Some(self.list(source, preserved)),
                ..Atom::default()
            },
            "integer" | "number" => scalar(Scalar::Number),
            "boolean" => scalar(Scalar::Boolean),
            "string" if matches!(format, "" | "byte") => scalar(Scalar::Text),
            _ => scalar(Scalar::Any),
        }
    }

    fn map(&mut self, source: &Value, preserved: bool) -> Map {
        let mut properties = source["properties"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        if source["x-kubernetes-embedded-resource"] == Value::Bool(true) {
            let mut embedded = Object::new();
            embedded.insert("properties".to_owned(), Value::Object(properties));
            declare_object(&mut embedded);
            properties = match embedded.remove("properties") {
                Some(Value::Object(properties)) => properties,
                _ => Object::new(),
            };
        }
        let fields = properties
            .iter()
            .map(|(name, source)| {
                let field = Field {
                    of: self.inline(source, preserved),
                    default: source.get("default").cloned(),
                };
                (name.clone(), field)
            })
            .collect();
        let others = match source.get("additionalProperties") {
            None if preserved || properties.is_empty() => Some(DEDUCED),
            None | Some(Value::Bool(false)) => None,
            Some(of @ Value::Object(_)) => Some(self.inline(of, preserved)),
            Some(_) => Some(DEDUCED),
        };
        Map {
            atomic: source["x-kubernetes-map-type"] == "atomic",
            fields,
            others,
        }
    }

    fn list(&mut self, source: &Value, preserved: bool) -> List {
        List {
            items: match source.get("items") {
                Some(items) => self.inline(items, preserved),
                None => UNTYPED,
            },
            by: items_by(source),
        }
    }
}

fn scalar(of: Scalar) -> Atom {
    Atom {
        scalar: Some(of),
        ..Atom::default()
    }
}

/// The component that a schema refers to, directly or as its only part.
fn reference(source: &Value) -> Option<&str> {
    let parts = source["allOf"].as_array();
    let part = parts
        .filter(|parts| parts.len() == 1)
        .map(|parts| &parts[0]);
    source["$ref"]
        .as_str()
        .or_else(|| part?["$ref"].as_str())
        .and_then(|reference| reference.rsplit('/').next())
}

/// The list type, or the strategy of older documents.
fn items_by(source: &Value) -> ItemsBy {
    let keys = |keys: &Value| {
        let keys = keys.as_array().into_iter().flatten();
        keys.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    match source["x-kubernetes-list-type"].as_str() {
        Some("set") => return ItemsBy::Value,
        Some("map") => return ItemsBy::Keys(keys(&source["x-kubernetes-list-map-keys"])),
        Some(_) => return ItemsBy::Nothing,
        None => {}
    }
    match source["x-kubernetes-patch-strategy"].as_str() {
        Some("merge" | "merge,retainKeys") => match source["x-kubernetes-patch-merge-key"].as_str()
        {
            Some(key) => ItemsBy::Keys(vec![key.to_owned()]),
            None => ItemsBy::Value,
        },
        _ => ItemsBy::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(schema: Value) -> Schema {
        of_custom_resource(Some(&schema), &|name| match name {
            OBJECT_META => Some(json!({"type": "object", "properties": {
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            }})),
            "a.Pair" => Some(json!({"type": "object", "properties": {
                "x": {"type": "integer"},
                "next": {"allOf": [{"$ref": "#/components/schemas/a.Pair"}], "default": {}},
            }})),
            _ => None,
        })
    }

    fn at<'a>(schema: &'a Schema, path: &[&str]) -> &'a Atom {
        let of = path.iter().fold(schema.root(), |of, name| {
            let atom = schema.atom(of);
            match *name {
                "[]" => atom.list.as_ref().unwrap().items,
                name => atom.map.as_ref().unwrap().entry(name).unwrap(),
            }
        });
        schema.atom(of)
    }

    #[test]
    fn lists_are_identified_as_their_type_says() {
        let schema = read(json!({"type": "object", "properties": {
            "plain": {"type": "array", "items": {"type": "string"}},
            "atomic": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic", "x-kubernetes-patch-strategy": "merge"},
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"], "items": {
                "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string", "default": "x"}},
            }},
            "merged": {"type": "array", "items": {"type": "string"}, "x-kubernetes-patch-strategy": "merge"},
            "merged-by": {"type": "array", "items": {"type": "object"}, "x-kubernetes-patch-strategy": "merge,retainKeys", "x-kubernetes-patch-merge-key": "name"},
        }}));
        let by = |name: &str| at(&schema, &[name]).list.as_ref().unwrap().by.clone();
        assert_eq!(by("plain"), ItemsBy::Nothing);
        assert_eq!(by("atomic"), ItemsBy::Nothing);
        assert_eq!(by("set"), ItemsBy::Value);
        assert_eq!(
            by("map"),
            ItemsBy::Keys(vec!["a".to_owned(), "b".to_owned()])
        );
        assert_eq!(by("merged"), ItemsBy::Value);
        assert_eq!(by("merged-by"), ItemsBy::Keys(vec!["name".to_owned()]));
        let items = at(&schema, &["map", "[]"]).map.as_ref().unwrap();
        assert_eq!(items.fields["b"].default, Some(json!("x")));
    }

    #[test]
    fn a_custom_resource_has_the_fields_of_every_object() {
        let schema = read(
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}),
        );
        assert_eq!(at(&schema, &["apiVersion"]).scalar, Some(Scalar::Text));
        assert_eq!(
            at(&schema, &["metadata", "labels", "x"]).scalar,
            Some(Scalar::Text)
        );
        let spec = at(&schema, &["spec"]).map.as_ref().unwrap();
        assert_eq!(spec.entry("unknown"), None);
        let without = of_custom_resource(None, &|_| None);
        assert_eq!(without.root(), DEDUCED);
    }

    #[test]
    fn references_follow_and_the_field_overrides_their_map_type() {
        let pair = "#/components/schemas/a.Pair";
        let schema = read(json!({"type": "object", "properties": {
            "whole": {"$ref": pair, "x-kubernetes-map-type": "atomic"},
            "parts": {"allOf": [{"$ref": pair}]},
        }}));
        assert!(at(&schema, &["whole"]).map.as_ref().unwrap().atomic);
        assert!(
            !at(&schema, &["parts", "next", "next"])
                .map
                .as_ref()
                .unwrap()
                .atomic
        );
        assert_eq!(
            at(&schema, &["parts", "next", "x"]).scalar,
            Some(Scalar::Number)
        );
    }

    #[test]
    fn values_without_a_declared_type_are_deduced() {
        let schema = read(json!({"type": "object", "properties": {
            "free": {"type": "object"},
            "kept": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "inner": {"type": "object", "properties": {"a": {"type": "string"}}},
            }},
            "either": {"x-kubernetes-int-or-string": true},
            "time": {"type": "string", "format": "date-time"},
            "bytes": {"type": "string", "format": "byte"},
        }}));
        let others = |path: &[&str]| at(&schema, path).map.as_ref().unwrap().others;
        assert_eq!(others(&["free"]), Some(DEDUCED));
        assert_eq!(others(&["kept"]), Some(DEDUCED));
        assert_eq!(others(&["kept", "inner"]), Some(DEDUCED));
        let either = at(&schema, &["either"]);
        assert_eq!(either.scalar, Some(Scalar::Any));
        assert!(either.list.is_some() && either.map.is_some());
        assert_eq!(at(&schema, &["time"]).scalar, Some(Scalar::Any));
        assert_eq!(at(&schema, &["bytes"]).scalar, Some(Scalar::Text));
    }

    #[test]
    fn an_embedded_object_has_a_type_and_metadata() {
        let schema = read(json!({"type": "object", "properties": {
            "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        }}));
        let template = at(&schema, &["template"]).map.as_ref().unwrap();
        assert!(template.fields.contains_key("metadata"));
        assert_eq!(template.others, Some(DEDUCED));
    }
}
