//! Validation of the schema of a CustomResourceDefinition.
//!
//! Two passes, as in a real server: features that are never supported, and, without any of those, the rules
//! of structural schemas.

use serde_json::{Map, Value};

use super::fields::{member, text};
use super::rules;
use crate::field::{Errors, FieldError, Path};
use crate::schema::{Pattern, Schema, errors_of, would_prune};

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];

/// Fields of OpenAPI that CRDs do not have.
const UNSUPPORTED: &[&str] = &[
    "$ref",
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
];

/// Fields that are not allowed below `allOf`, `anyOf`, `oneOf` and `not`.
const NOT_IN_COMPOSITION: &[&str] = &[
    "type",
    "title",
    "description",
    "additionalProperties",
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
];

/// The role of a node in the one above it.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Root,
    Field,
    Item,
    Entry,
}

/// Validates the schema of a version.
pub(super) fn validate(schema: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    supported(schema, path, true, &mut errors);
    if errors.is_empty() {
        structural(schema, Place::Root, path, &mut errors);
    }
    if errors.is_empty() {
        defaults(schema, path, &mut errors);
        rules::validate(schema, path, &mut errors);
    }
    errors
}

fn children(schema: &Map<String, Value>, path: &Path, visit: &mut dyn FnMut(&Value, &Path, Place)) {
    for (name, of) in member(schema, "properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        visit(of, &path.child("properties").key(name), Place::Field);
    }
    if let Some(of) = member(schema, "additionalProperties").filter(|of| of.is_object()) {
        visit(of, &path.child("additionalProperties"), Place::Entry);
    }
    if let Some(of) = member(schema, "items").filter(|of| of.is_object()) {
        visit(of, &path.child("items"), Place::Item);
    }
}

fn composed(schema: &Map<String, Value>, path: &Path, visit: &mut dyn FnMut(&Value, &Path)) {
    for name in ["allOf", "anyOf", "oneOf"] {
        let list = member(schema, name).and_then(Value::as_array);
        for (index, of) in list.into_iter().flatten().enumerate() {
            visit(of, &path.child(name).index(index));
        }
    }
    if let Some(of) = member(schema, "not") {
        visit(of, &path.child("not"));
    }
}

// === what is never supported ===

fn supported(schema: &Value, path: &Path, root: bool, errors: &mut Errors) {
    let Value::Object(map) = schema else { return };
    for name in UNSUPPORTED {
        if member(map, name).is_some_and(|value| *value != "") {
            errors.push(FieldError::forbidden(
                &path.child(name),
                format!("{name} is not supported"),
            ));
        }
    }
    if member(map, "uniqueItems") == Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden(
            &path.child("uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    if root && member(map, "nullable") == Some(&Value::Bool(true)) {
        errors.push(FieldError::forbidden(
            &path.child("nullable"),
            "nullable cannot be true at the root",
        ));
    }
    if let Some(additional) = member(map, "additionalProperties") {
        let place = path.child("additionalProperties");
        if root && *additional != Value::Bool(false) {
            errors.push(FieldError::forbidden(
                &place,
                "must not be used at the root",
            ));
        }
        let properties = member(map, "properties").and_then(Value::as_object);
        if properties.is_some_and(|properties| !properties.is_empty())
            && *additional != Value::Bool(false)
        {
            errors.push(FieldError::forbidden(
                &place,
                "additionalProperties and properties are mutual exclusive",
            ));
        }
    }
    if member(map, "items").is_some_and(Value::is_array) {
        errors.push(FieldError::forbidden(
            &path.child("items"),
            "items must be a schema object and not an array",
        ));
    }
    let kind = text(map.get("type"));
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(&path.child("type"), kind, TYPES));
    }
    if let Some(pattern) = map.get("pattern").and_then(Value::as_str)
        && let Some(why) = Pattern::error(pattern)
    {
        errors.push(FieldError::invalid(
            &path.child("pattern"),
            pattern,
            format!("must be a valid regular expression, but isn't: {why}"),
        ));
    }
    list_type(map, path, errors);
    map_type(map, path, errors);
    children(map, path, &mut |of, path, _| {
        supported(of, path, false, errors);
    });
    composed(map, path, &mut |of, path| {
        supported(of, path, false, errors);
    });
}

fn list_type(map: &Map<String, Value>, path: &Path, errors: &mut Errors) {
    let keys = member(map, "x-kubernetes-list-map-keys");
    let Some(list_type) = member(map, "x-kubernetes-list-type").and_then(Value::as_str) else {
        if keys.is_some() {
            errors.push(FieldError::required(
                &path.child("x-kubernetes-list-type"),
                "must be map if x-kubernetes-list-map-keys is non-empty",
            ));
        }
        return;
    };
    let place = path.child("x-kubernetes-list-type");
    if !["atomic", "set", "map"].contains(&list_type) {
        errors.push(FieldError::not_supported(
            &place,
            list_type,
            &["atomic", "set", "map"],
        ));
        return;
    }
    if text(map.get("type")) != "array" {
        let path = path.child("type");
        let wrong = "must be array if x-kubernetes-list-type is specified";
        errors.push(match text(map.get("type")) {
            "" => FieldError::required(&path, wrong),
            kind => FieldError::invalid(&path, kind, wrong),
        });
        return;
    }
    let item = member(map, "items").and_then(Value::as_object);
    match (list_type, item) {
        ("set", Some(item)) => {
            let path = path.child("items");
            let is_map = text(item.get("type")) == "object";
            if is_map && text(item.get("x-kubernetes-map-type")) != "atomic" {
                let found = item
                    .get("x-kubernetes-map-type")
                    .cloned()
                    .unwrap_or_default();
                errors.push(FieldError::invalid(
                    &path.child("x-kubernetes-map-type"),
                    found,
                    "must be atomic as item of a list with x-kubernetes-list-type=set",
                ));
            }
            if item.get("nullable") == Some(&Value::Bool(true)) {
                errors.push(FieldError::forbidden(
                    &path.child("nullable"),
                    "cannot be nullable when x-kubernetes-list-type is set",
                ));
            }
        }
        ("map", Some(item)) => map_keys(map, item, path, errors),
        _ => {}
    }
}

fn map_keys(map: &Map<String, Value>, item: &Map<String, Value>, path: &Path, errors: &mut Errors) {
    let place = path.child("x-kubernetes-list-map-keys");
    let all = member(map, "x-kubernetes-list-map-keys")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    if all.is_empty() {
        errors.push(FieldError::required(
            &place,
            "must not be empty if x-kubernetes-list-type is map",
        ));
        return;
    }
    let kind = text(item.get("type"));
    if kind != "object" {
        errors.push(FieldError::invalid(
            &path.child("items").child("type"),
            kind,
            "must be object if parent array's x-kubernetes-list-type is map",
        ));
        return;
    }
    let properties = member(item, "properties").and_then(Value::as_object);
    let required = item
        .get("required")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    for (index, key) in all.iter().enumerate() {
        if all[..index].contains(key) {
            errors.push(FieldError::duplicate(&place.index(index), key.clone()));
        }
        let name = key.as_str().unwrap_or_default();
        let Some(property) = properties.and_then(|properties| properties.get(name)) else {
            errors.push(FieldError::invalid(
                &place,
                Value::Array(all.to_vec()),
                "entries must all be names of item properties",
            ));
            continue;
        };
        let path = path.child("items").child("properties").key(name);
        let kind = text(property.get("type"));
        if matches!(kind, "array" | "object") {
            errors.push(FieldError::invalid(
                &path.child("type"),
                kind,
                "must be a scalar type if parent array's x-kubernetes-list-type is map",
            ));
        }
        if property.get("default").is_none() && !required.contains(key) {
            errors.push(FieldError::required(
                &path.child("default"),
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ));
        }
    }
}

fn map_type(map: &Map<String, Value>, path: &Path, errors: &mut Errors) {
    let Some(map_type) = member(map, "x-kubernetes-map-type").and_then(Value::as_str) else {
        return;
    };
    if !["atomic", "granular"].contains(&map_type) {
        errors.push(FieldError::not_supported(
            &path.child("x-kubernetes-map-type"),
            map_type,
            &["atomic", "granular"],
        ));
        return;
    }
    let kind = text(map.get("type"));
    if kind != "object" {
        let path = path.child("type");
        let wrong = "must be object if x-kubernetes-map-type is specified";
        errors.push(match kind {
            "" => FieldError::required(&path, wrong),
            kind => FieldError::invalid(&path, kind, wrong),
        });
    }
}

// === what makes a schema structural ===

fn structural(schema: &Value, place: Place, path: &Path, errors: &mut Errors) {
    let empty = Map::new();
    let map = schema.as_object().unwrap_or(&empty);
    let flag = |name: &str| map.get(name) == Some(&Value::Bool(true));
    let kind = text(map.get("type"));
    let free = flag("x-kubernetes-int-or-string") || flag("x-kubernetes-preserve-unknown-fields");
    match (kind, place) {
        ("", Place::Root) => errors.push(FieldError::required(
            &path.child("type"),
            "must not be empty at the root",
        )),
        ("object", Place::Root) => {}
        (other, Place::Root) => errors.push(FieldError::invalid(
            &path.child("type"),
            other,
            "must be object at the root",
        )),
        ("", _) if free => {}
        ("", Place::Item) => errors.push(FieldError::required(
            &path.child("type"),
            "must not be empty for specified array items",
        )),
        ("", _) => errors.push(FieldError::required(
            &path.child("type"),
            "must not be empty for specified object fields",
        )),
        _ => {}
    }
    if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        errors.push(FieldError::invalid(
            &path.child("x-kubernetes-preserve-unknown-fields"),
            false,
            "must be true or undefined",
        ));
    }
    if kind == "array" && member(map, "items").is_none() {
        errors.push(FieldError::required(
            &path.child("items"),
            "must be specified",
        ));
    }
    let embedded = flag("x-kubernetes-embedded-resource");
    let properties = member(map, "properties").and_then(Value::as_object);
    if embedded {
        if !matches!(kind, "object" | "") {
            errors.push(FieldError::invalid(
                &path.child("type"),
                kind,
                "must be object if x-kubernetes-embedded-resource is true",
            ));
        }
        let none = properties.is_none_or(Map::is_empty);
        if none && !flag("x-kubernetes-preserve-unknown-fields") {
            errors.push(FieldError::required(
                &path.child("properties"),
                "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ));
        }
    }
    if embedded || place == Place::Root {
        type_and_metadata(properties, path, errors);
    }
    children(map, path, &mut |of, path, place| {
        structural(of, place, path, errors);
    });
    let int_or_string = flag("x-kubernetes-int-or-string");
    composed(map, path, &mut |of, path| {
        in_composition(of, path, int_or_string, errors);
    });
}

/// Type and metadata of an object are fixed.
fn type_and_metadata(properties: Option<&Map<String, Value>>, path: &Path, errors: &mut Errors) {
    let Some(properties) = properties else { return };
    for (name, wanted) in [
        ("apiVersion", "string"),
        ("kind", "string"),
        ("metadata", "object"),
    ] {
        let Some(of) = properties.get(name) else {
            continue;
        };
        let kind = text(of.get("type"));
        let path = path.child("properties").key(name);
        if kind != wanted {
            errors.push(FieldError::invalid(
                &path.child("type"),
                kind,
                format!("must be {wanted}"),
            ));
        }
        if name == "metadata" && kind == wanted {
            let others = of
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .any(|(name, _)| !matches!(name.as_str(), "name" | "generateName"));
            if others {
                errors.push(FieldError::forbidden(
                    &path,
                    "must not specify anything other than name and generateName, but metadata is implicitly specified",
                ));
            }
        }
    }
}

/// Below `anyOf` and the like only limits on values are allowed.
fn in_composition(schema: &Value, path: &Path, int_or_string: bool, errors: &mut Errors) {
    let Value::Object(map) = schema else { return };
    for name in NOT_IN_COMPOSITION {
        let Some(value) = member(map, name) else {
            continue;
        };
        if *value == Value::Bool(false) || *value == "" {
            continue;
        }
        // The one exception: `anyOf: [{type: integer}, {type: string}]` beside int-or-string.
        if *name == "type" && int_or_string && matches!(text(Some(value)), "integer" | "string") {
            continue;
        }
        errors.push(FieldError::forbidden(
            &path.child(name),
            "must be empty to be structural",
        ));
    }
    if member(map, "default").is_some() {
        errors.push(FieldError::forbidden(
            &path.child("default"),
            "must be undefined to be structural",
        ));
    }
    children(map, path, &mut |of, path, _| {
        in_composition(of, path, false, errors);
    });
    composed(map, path, &mut |of, path| {
        in_composition(of, path, int_or_string, errors);
    });
}

// === defaults ===

/// A default must be a valid object of its own schema.
fn defaults(schema: &Value, path: &Path, errors: &mut Errors) {
    let Value::Object(map) = schema else { return };
    if let Some(default) = member(map, "default") {
        let path = path.child("default");
        let parsed = Schema::parse(schema);
        if would_prune(&parsed, default) {
            errors.push(FieldError::invalid(
                &path,
                default.clone(),
                "must not have unknown fields",
            ));
        } else {
            for mut error in errors_of(&parsed, default) {
                error.path = match error.path.as_str() {
                    "" => path.clone(),
                    below if below.starts_with('[') => Path::new(&format!("{path}{below}")),
                    below => path.child(below),
                };
                errors.push(error);
            }
        }
    }
    children(map, path, &mut |of, path, _| defaults(of, path, errors));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::aggregate;
    use serde_json::json;

    fn errors(schema: &Value) -> String {
        aggregate(&validate(schema, &Path::new("S")))
    }

    /// Texts of kube-apiserver 1.36.
    #[test]
    fn a_schema_that_is_not_structural_is_refused_in_the_words_of_a_real_server() {
        let a = |of: Value| json!({"type": "object", "properties": {"a": of}});
        let cases = [
            (
                json!({}),
                "S.type: Required value: must not be empty at the root",
            ),
            (
                json!({"type": "string"}),
                r#"S.type: Invalid value: "string": must be object at the root"#,
            ),
            (
                a(json!({})),
                "S.properties[a].type: Required value: must not be empty for specified object fields",
            ),
            (
                a(json!({"type": "foo"})),
                r#"S.properties[a].type: Unsupported value: "foo": supported values: "array", "boolean", "integer", "number", "object", "string""#,
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
                "[S.additionalProperties: Forbidden: must not be used at the root, S.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive]",
            ),
            (
                a(json!({"type": "object", "additionalProperties": false})),
                "",
            ),
            (
                a(json!({"type": "array"})),
                "S.properties[a].items: Required value: must be specified",
            ),
            (
                a(json!({"type": "array", "items": {}})),
                "S.properties[a].items.type: Required value: must not be empty for specified array items",
            ),
            (
                a(json!({"type": "array", "items": [{"type": "string"}]})),
                "S.properties[a].items: Forbidden: items must be a schema object and not an array",
            ),
            (
                a(json!({"$ref": "x"})),
                "S.properties[a].$ref: Forbidden: $ref is not supported",
            ),
            (
                a(json!({"type": "string", "anyOf": [{"type": "string"}, {"description": "x"}]})),
                "[S.properties[a].anyOf[0].type: Forbidden: must be empty to be structural, S.properties[a].anyOf[1].description: Forbidden: must be empty to be structural]",
            ),
            (
                a(json!({"type": "object", "anyOf": [{"properties": {"zz": {"minLength": 1}}}]})),
                "",
            ),
            (
                a(json!({"type": "string", "anyOf": [{"default": "x"}]})),
                "S.properties[a].anyOf[0].default: Forbidden: must be undefined to be structural",
            ),
            (
                a(json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}})),
                "S.properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
                "S.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string"}}}}}),
                "",
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "string"}}}),
                r#"S.properties[metadata].type: Invalid value: "string": must be object"#,
            ),
            (
                json!({"type": "object", "properties": {"apiVersion": {"type": "integer"}}}),
                r#"S.properties[apiVersion].type: Invalid value: "integer": must be string"#,
            ),
            (
                a(
                    json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
                ),
                "",
            ),
            (a(json!({"x-kubernetes-preserve-unknown-fields": true})), ""),
            (
                a(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false})),
                "S.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
            ),
            (
                a(json!({"type": "object", "x-kubernetes-embedded-resource": true})),
                "S.properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ),
            (
                a(
                    json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
                ),
                "S.properties[a].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            ),
            (
                a(
                    json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
                ),
                "S.properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ),
            (
                a(
                    json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object"}}),
                ),
                r#"S.properties[a].x-kubernetes-list-map-keys: Invalid value: ["k"]: entries must all be names of item properties"#,
            ),
            (
                a(
                    json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}}}}),
                ),
                "S.properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ),
            (
                a(
                    json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "object"}}}}),
                ),
                r#"S.properties[a].items.properties[k].type: Invalid value: "object": must be a scalar type if parent array's x-kubernetes-list-type is map"#,
            ),
            (
                a(
                    json!({"type": "array", "x-kubernetes-list-type": "foo", "items": {"type": "string"}}),
                ),
                r#"S.properties[a].x-kubernetes-list-type: Unsupported value: "foo": supported values: "atomic", "set", "map""#,
            ),
            (
                a(json!({"type": "object", "x-kubernetes-list-type": "set"})),
                r#"S.properties[a].type: Invalid value: "object": must be array if x-kubernetes-list-type is specified"#,
            ),
            (
                a(json!({"type": "object", "x-kubernetes-map-type": "foo"})),
                r#"S.properties[a].x-kubernetes-map-type: Unsupported value: "foo": supported values: "atomic", "granular""#,
            ),
            (
                a(json!({"type": "integer", "default": "x"})),
                r#"S.properties[a].default: Invalid value: "string":  in body must be of type integer: "string""#,
            ),
            (
                a(
                    json!({"type": "object", "default": {"z": 1}, "properties": {"y": {"type": "string"}}}),
                ),
                r#"S.properties[a].default: Invalid value: {"z":1}: must not have unknown fields"#,
            ),
            (
                a(json!({"type": "integer", "maximum": 5, "default": 6})),
                "S.properties[a].default: Invalid value: 6:  in body should be less than or equal to 5",
            ),
            (a(json!({"type": "string", "default": null})), ""),
            (
                json!({"type": "object", "nullable": true}),
                "S.nullable: Forbidden: nullable cannot be true at the root",
            ),
            (
                json!({"type": "object", "id": "x", "definitions": {"a": {"type": "string"}}}),
                "[S.id: Forbidden: id is not supported, S.definitions: Forbidden: definitions is not supported]",
            ),
            (
                json!({"type": "object", "patternProperties": {"a": {"type": "string"}}, "additionalItems": {"type": "string"}, "dependencies": {"a": ["b"]}}),
                "[S.additionalItems: Forbidden: additionalItems is not supported, S.patternProperties: Forbidden: patternProperties is not supported, S.dependencies: Forbidden: dependencies is not supported]",
            ),
            (
                json!({"type": "object", "title": "x", "description": "y", "required": ["zz"], "example": {"a": 1}}),
                "",
            ),
        ];
        for (schema, expected) in cases {
            assert_eq!(errors(&schema), expected, "{schema}");
        }
        let broken = errors(&a(json!({"type": "string", "pattern": "("})));
        assert!(
            broken.starts_with(r#"S.properties[a].pattern: Invalid value: "(": must be a valid regular expression, but isn't: "#),
            "{broken}"
        );
    }
}
