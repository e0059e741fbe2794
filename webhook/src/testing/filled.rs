//! Objects with a value in every field of a schema.

use serde_json::{Map, Value, json};

/// Nesting after which an object is left empty.
const DEEPEST: usize = 24;

/// An object with a value in every field of `schema`, an OpenAPI v3 schema of a CustomResourceDefinition. A field with a
/// default gets another value if it can have one, so that a lost field is not hidden by its default. Patterns and validation
/// rules are not followed.
#[must_use]
pub fn filled(schema: &Value) -> Value {
    fill(schema, 0)
}

fn fill(schema: &Value, depth: usize) -> Value {
    if let Some(choices) = schema["enum"].as_array() {
        let other = |choice: &&Value| **choice != schema["default"] && !choice.is_null();
        return choices
            .iter()
            .rev()
            .find(other)
            .cloned()
            .unwrap_or_default();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return json!(7);
    }
    match schema["type"].as_str() {
        Some("object") if depth < DEEPEST => object(schema, depth),
        Some("array") if depth < DEEPEST => {
            let count = schema["minItems"].as_u64().unwrap_or(1).max(1);
            let item = fill(&schema["items"], depth + 1);
            (0..count).map(|_| item.clone()).collect()
        }
        Some("array") => json!([]),
        Some("boolean") => json!(schema["default"] != true),
        Some("integer") => json!(number(schema)),
        Some("number") => json!(number(schema) as f64 + 0.5),
        Some("string") => json!(string(schema)),
        _ => json!({}),
    }
}

fn object(schema: &Value, depth: usize) -> Value {
    let mut fields = Map::new();
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        fields.insert(name.clone(), fill(schema, depth + 1));
    }
    let values = &schema["additionalProperties"];
    if values.is_object() {
        fields.insert("key".to_owned(), fill(values, depth + 1));
    }
    Value::Object(fields)
}

/// A number within the bounds that is not the default.
fn number(schema: &Value) -> i64 {
    let bound = |name: &str| schema[name].as_f64().map(|bound| bound as i64);
    let least = bound("minimum").unwrap_or(1);
    let most = bound("maximum").unwrap_or(i64::MAX);
    let preferred = 7_i64.clamp(least, most.max(least));
    let default = schema["default"].as_i64();
    let others = [
        preferred,
        preferred.saturating_add(1),
        preferred.saturating_sub(1),
    ];
    let fits = |number: &i64| Some(*number) != default && (least..=most).contains(number);
    others.into_iter().find(fits).unwrap_or(preferred)
}

fn string(schema: &Value) -> String {
    let text = match schema["format"].as_str() {
        Some("date-time") => "2026-01-02T03:04:05Z",
        Some("date") => "2026-01-02",
        Some("duration") => "7s",
        Some("byte") => "dGV4dA==",
        Some("ipv4") => "192.0.2.7",
        Some("ipv6") => "2001:db8::7",
        Some("uuid") => "00000000-0000-4000-8000-000000000007",
        Some("uri") => "https://example.com/7",
        _ => "text",
    };
    let least = schema["minLength"].as_u64().unwrap_or(0);
    let least = usize::try_from(least).unwrap_or(0).min(1024);
    let mut text = text.to_owned();
    while text.len() < least {
        text.push('x');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_a_value_that_is_not_its_default() {
        let schema = json!({"type": "object", "properties": {
            "flag": {"type": "boolean", "default": true},
            "mode": {"type": "string", "enum": ["A", "B"], "default": "B"},
            "count": {"type": "integer", "default": 7, "minimum": 1, "maximum": 8},
            "only": {"type": "integer", "minimum": 3, "maximum": 3},
            "ratio": {"type": "number"},
            "name": {"type": "string", "minLength": 6},
            "at": {"type": "string", "format": "date-time"},
            "port": {"x-kubernetes-int-or-string": true},
            "list": {"type": "array", "items": {"type": "object", "properties": {
                "a": {"type": "string"},
            }}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }});
        let expected = json!({
            "flag": false, "mode": "A", "count": 8, "only": 3, "ratio": 7.5, "name": "textxx",
            "at": "2026-01-02T03:04:05Z", "port": 7, "list": [{"a": "text"}],
            "map": {"key": 7}, "free": {},
        });
        assert_eq!(filled(&schema), expected);
    }
}
