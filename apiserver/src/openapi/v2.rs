//! The OpenAPI v2 document of the whole server, from the v3 documents of its groups.

use serde_json::{Map, Value, json};

/// Merges v3 documents into one v2 document.
pub(super) fn merge(documents: impl Iterator<Item = Value>) -> Value {
    let mut paths = Map::new();
    let mut definitions = Map::new();
    for mut document in documents {
        if let Some(Value::Object(all)) = document.get_mut("paths").map(Value::take) {
            for (path, item) in all {
                paths.insert(path, path_item(item));
            }
        }
        let schemas = document.pointer_mut("/components/schemas");
        if let Some(Value::Object(all)) = schemas.map(Value::take) {
            for (name, component) in all {
                let known = definitions.get(&name).is_some_and(|known: &Value| {
                    known.get("x-kubernetes-group-version-kind").is_some()
                });
                if !known {
                    definitions.insert(name, schema(component));
                }
            }
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "definitions": definitions,
    })
}

/// The operations of a path; parameters of the body have no place of their own in v2.
fn path_item(item: Value) -> Value {
    let Value::Object(map) = item else {
        return item;
    };
    map.into_iter()
        .map(|(name, value)| {
            let value = match name.as_str() {
                "parameters" => parameters(&value).into(),
                _ => operation(value),
            };
            (name, value)
        })
        .collect::<Map<_, _>>()
        .into()
}

fn parameters(all: &Value) -> Vec<Value> {
    let all = all.as_array().into_iter().flatten();
    all.map(|parameter| {
        let mut shown = parameter.clone();
        if let Some(map) = shown.as_object_mut()
            && let Some(Value::Object(of)) = map.remove("schema")
        {
            map.extend(of);
        }
        shown
    })
    .collect()
}

fn operation(value: Value) -> Value {
    let Value::Object(mut map) = value else {
        return value;
    };
    let mut listed = parameters(&map.remove("parameters").unwrap_or_default());
    if let Some(body) = map.remove("requestBody") {
        let content = body["content"].as_object();
        let types: Vec<&String> = content.into_iter().flat_map(Map::keys).collect();
        let of = content.and_then(|content| content.values().next());
        let of = of.map(|media| schema(media["schema"].clone()));
        map.insert("consumes".to_owned(), json!(types));
        listed.push(json!({"name": "body", "in": "body", "required": true, "schema": of}));
    }
    map.insert("parameters".to_owned(), listed.into());
    let responses = map.get_mut("responses").and_then(Value::as_object_mut);
    let mut produces = Vec::new();
    for response in responses.into_iter().flat_map(Map::values_mut) {
        let Some(response) = response.as_object_mut() else {
            continue;
        };
        if let Some(Value::Object(content)) = response.remove("content") {
            produces = content.keys().cloned().collect();
            if let Some(media) = content.into_values().next() {
                response.insert("schema".to_owned(), schema(media["schema"].clone()));
            }
        }
    }
    map.insert("produces".to_owned(), json!(produces));
    Value::Object(map)
}

/// A schema without what v2 does not have: one of several types, and references beside other fields.
fn schema(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut shown = Map::new();
            for (name, value) in map {
                match (name.as_str(), value) {
                    ("$ref", Value::String(reference)) => {
                        let reference =
                            reference.replace("#/components/schemas/", "#/definitions/");
                        shown.insert(name, reference.into());
                    }
                    ("allOf", Value::Array(mut all)) if all.len() == 1 => {
                        if let Value::Object(of) = schema(all[0].take()) {
                            shown.extend(of);
                        }
                    }
                    ("properties", Value::Object(of)) => {
                        let of = of.into_iter().map(|(name, value)| (name, schema(value)));
                        shown.insert(name, Value::Object(of.collect()));
                    }
                    // (kube-openapi: `openAPIV2` leaves them out.)
                    ("default", _) => {}
                    ("oneOf", Value::Array(_)) => {
                        shown.insert("type".to_owned(), "string".into());
                    }
                    (_, value) => {
                        shown.insert(name, schema(value));
                    }
                }
            }
            Value::Object(shown)
        }
        Value::Array(all) => all.into_iter().map(schema).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_and_references_have_the_form_of_v2() {
        let reference = json!({"$ref": "#/components/schemas/a.B"});
        let document = json!({
            "paths": {"/x": {
                "parameters": [{"name": "name", "in": "path", "required": true, "schema": {"type": "string"}}],
                "post": {
                    "parameters": [],
                    "requestBody": {"content": {"application/json": {"schema": reference}}},
                    "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
                },
            }},
            "components": {"schemas": {"a.B": {"properties": {
                "c": {"allOf": [reference], "default": {}},
                "d": {"oneOf": [{"type": "string"}, {"type": "number"}]},
            }}}},
        });
        let of_v2 = json!({"$ref": "#/definitions/a.B"});
        assert_eq!(
            merge([document].into_iter()),
            json!({
                "swagger": "2.0",
                "info": {"title": "Kubernetes", "version": "unversioned"},
                "paths": {"/x": {
                    "parameters": [{"name": "name", "in": "path", "required": true, "type": "string"}],
                    "post": {
                        "consumes": ["application/json"],
                        "produces": ["application/json"],
                        "parameters": [{"name": "body", "in": "body", "required": true, "schema": of_v2}],
                        "responses": {"200": {"description": "OK", "schema": of_v2}},
                    },
                }},
                "definitions": {"a.B": {"properties": {
                    "c": {"$ref": "#/definitions/a.B"},
                    "d": {"type": "string"},
                }}},
            })
        );
    }
}
