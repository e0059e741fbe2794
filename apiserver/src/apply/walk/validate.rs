//! Whether a value is of its type.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::literal::go_number;
use super::super::path::Element;
use super::super::schema::{ItemsBy, List, Map, Scalar, Schema, TypeId};
use super::item;
use super::problem::{Problems, problem, within};
use super::shape::{Shape, shape};

/// What two items of one identity are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duplicates {
    /// Allowed, as in stored objects.
    Allowed,
    /// An error, as in applied objects.
    Refused,
}

/// Checks `value`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn validate(
    schema: &Schema,
    of: TypeId,
    value: &Value,
    duplicates: Duplicates,
) -> Result<(), Problems> {
    let mut problems = Problems::new();
    visit(schema, of, value, duplicates, &mut problems);
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}

fn visit(
    schema: &Schema,
    of: TypeId,
    value: &Value,
    duplicates: Duplicates,
    problems: &mut Problems,
) {
    match shape(schema.atom(of), Some(value)) {
        Err(error) => problems.push(error),
        Ok(Shape::Scalar(scalar)) => {
            problems.extend(scalar_problem(scalar, Some(value), "").map(problem));
        }
        Ok(Shape::List(list)) => match value {
            Value::Array(items) => visit_items(schema, list, items, duplicates, problems),
            Value::Null => {}
            other => problems.push(problem(format!("expected list, got &{{{}}}", plain(other)))),
        },
        Ok(Shape::Map(map)) => match value {
            Value::Object(fields) => visit_fields(schema, map, fields, duplicates, problems),
            Value::Null => {}
            other => problems.push(problem(format!("expected map, got &{{{}}}", plain(other)))),
        },
    }
}

fn visit_fields(
    schema: &Schema,
    map: &Map,
    fields: &serde_json::Map<String, Value>,
    duplicates: Duplicates,
    problems: &mut Problems,
) {
    for (name, value) in fields {
        let mut found = Problems::new();
        let of = map.entry(name);
        match of {
            Some(of) => visit(schema, of, value, duplicates, &mut found),
            None => found.push(problem("field not declared in schema")),
        }
        if !found.is_empty() {
            within(&Element::field(name.as_str()), &mut found);
            problems.extend(found);
        }
        if of.is_none() {
            return;
        }
    }
}

fn visit_items(
    schema: &Schema,
    list: &List,
    items: &[Value],
    duplicates: Duplicates,
    problems: &mut Problems,
) {
    let mut seen = BTreeSet::new();
    let element = |at: usize, item: &Value| match list.by {
        ItemsBy::Nothing => Ok(Element::Index(i64::try_from(at).unwrap_or(i64::MAX))),
        _ => item::element(schema, list, item),
    };
    for (at, item) in items.iter().enumerate() {
        if list.by != ItemsBy::Nothing {
            if let Some(why) = item::problem(schema, list, item) {
                problems.push(problem(format!("element {at}: {why}")));
                return;
            }
            if duplicates == Duplicates::Refused
                && let Ok(element) = element(at, item)
                && !seen.insert(element.clone())
            {
                problems.push(problem(format!("duplicate entries for key {element}")));
            }
        }
        let mut found = Problems::new();
        visit(schema, list.items, item, duplicates, &mut found);
        if !found.is_empty() {
            if let Ok(element) = element(at, item) {
                within(&element, &mut found);
            }
            problems.extend(found);
        }
    }
}

/// Why a value is not such a scalar. `null` and a missing value are.
pub(super) fn scalar_problem(scalar: Scalar, value: Option<&Value>, side: &str) -> Option<String> {
    let value = value.filter(|value| !value.is_null())?;
    match (scalar, value) {
        (Scalar::Number | Scalar::Any, Value::Number(_))
        | (Scalar::Text | Scalar::Any, Value::String(_))
        | (Scalar::Boolean | Scalar::Any, Value::Bool(_)) => None,
        (Scalar::Number, value) => Some(format!(
            "{side}expected numeric (int or float), got {}",
            go_type(value)
        )),
        (Scalar::Text, value) => Some(format!(
            "{side}expected string, got &value.valueUnstructured{{Value:{}}}",
            go_syntax(value)
        )),
        (Scalar::Boolean, value) => {
            Some(format!("{side}expected boolean, got &{{{}}}", plain(value)))
        }
        (Scalar::Any, value) => Some(format!(
            "{side}expected any scalar, got &{{{}}}",
            plain(value)
        )),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        Value::Null => "<nil>",
    }
}

/// A value as Go prints it by default.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => go_number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{name}:{}", plain(value)));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
    }
}

/// A value in the syntax of Go.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => crate::field::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{}:{}", crate::field::quote(name), go_syntax(value)));
            format!(
                "map[string]interface {{}}{{{}}}",
                fields.collect::<Vec<_>>().join(", ")
            )
        }
        scalar => plain(scalar),
    }
}
