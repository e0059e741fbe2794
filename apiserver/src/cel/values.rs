//! Values of an object in CEL.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as CelValue};
use serde_json::Value;

use crate::schema::{Additional, Kind, Schema};

/// Words of the language that are valid field names; CEL has them as `__word__`.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

static TO_TIMESTAMP: LazyLock<Option<Program>> =
    LazyLock::new(|| Program::compile("timestamp(text)").ok());
static TO_DURATION: LazyLock<Option<Program>> =
    LazyLock::new(|| Program::compile("duration(text)").ok());

/// A value in CEL: typed by its schema, with field names escaped.
pub(super) fn to_cel(value: &Value, schema: &Schema, functions: &Context<'_>) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(bool) => CelValue::Bool(*bool),
        Value::Number(number) => match (schema.kind, number.as_i64(), number.as_f64()) {
            (Some(Kind::Number), _, Some(float)) | (_, None, Some(float)) => CelValue::Float(float),
            (_, Some(integer), _) => CelValue::Int(integer),
            (_, None, None) => CelValue::Null,
        },
        Value::String(text) => {
            let plain = || CelValue::String(Arc::new(text.clone()));
            match schema.limits.format.as_deref() {
                Some("date-time") => {
                    converted(&TO_TIMESTAMP, text, functions).unwrap_or_else(plain)
                }
                Some("date") => {
                    let midnight = format!("{text}T00:00:00Z");
                    converted(&TO_TIMESTAMP, &midnight, functions).unwrap_or_else(plain)
                }
                Some("duration") => converted(&TO_DURATION, text, functions).unwrap_or_else(plain),
                _ => plain(),
            }
        }
        Value::Array(items) => {
            let untyped = Schema::default();
            let of = schema.items.as_deref().unwrap_or(&untyped);
            let items = items.iter().map(|item| to_cel(item, of, functions));
            CelValue::List(Arc::new(items.collect()))
        }
        Value::Object(map) => {
            let untyped = Schema::default();
            let members: HashMap<Key, CelValue> = map
                .iter()
                .map(|(name, value)| {
                    let property = schema.properties.get(name);
                    let of = property.or(schema.field(name)).unwrap_or(&untyped);
                    let is_map =
                        property.is_none() && !matches!(schema.additional, Additional::Unspecified);
                    let key = if is_map { name.clone() } else { escape(name) };
                    (Key::String(Arc::new(key)), to_cel(value, of, functions))
                })
                .collect();
            CelValue::Map(Map {
                map: Arc::new(members),
            })
        }
    }
}

fn converted(
    program: &LazyLock<Option<Program>>,
    text: &str,
    functions: &Context<'_>,
) -> Option<CelValue> {
    let mut scope = functions.new_inner_scope();
    scope.add_variable_from_value("text", CelValue::String(Arc::new(text.to_owned())));
    program.as_ref()?.execute(&scope).ok()
}

/// A field's name as an identifier of CEL: `a-b` is `a__dash__b`, `namespace` is `__namespace__`.
pub(crate) fn escape(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains("__") && !name.contains(['.', '-', '/']) {
        return name.to_owned();
    }
    name.replace("__", "\u{0}")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
        .replace('\u{0}', "__underscores__")
}
