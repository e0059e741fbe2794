//! The limits that a schema sets on a value.

use serde_json::{Map, Value};

use super::pattern::Pattern;

/// Limits on a value.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) format: Option<String>,
    pub(crate) maximum: Option<Bound>,
    pub(crate) minimum: Option<Bound>,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) required: Vec<String>,
    pub(crate) enumeration: Vec<Value>,
}

/// A maximum or minimum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) value: f64,
    pub(crate) exclusive: bool,
}

// === impl Limits ===

impl Limits {
    /// Reads the limits of a schema in the OpenAPI form.
    pub(super) fn parse(source: &Map<String, Value>) -> Self {
        let number = |name: &str| source.get(name).and_then(Value::as_f64);
        let count = |name: &str| source.get(name).and_then(Value::as_u64);
        let flag = |name: &str| source.get(name) == Some(&Value::Bool(true));
        let bound = |name: &str, exclusive: &str| {
            number(name).map(|value| Bound {
                value,
                exclusive: flag(exclusive),
            })
        };
        Self {
            format: source
                .get("format")
                .and_then(Value::as_str)
                .map(str::to_owned),
            maximum: bound("maximum", "exclusiveMaximum"),
            minimum: bound("minimum", "exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: source
                .get("pattern")
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(Pattern::new),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            unique_items: flag("uniqueItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            required: strings(source, "required"),
            enumeration: source
                .get("enum")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
        }
    }
}

/// The strings of the list `name`.
pub(super) fn strings(source: &Map<String, Value>, name: &str) -> Vec<String> {
    source
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}
