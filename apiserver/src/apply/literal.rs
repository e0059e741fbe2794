//! JSON values as parts of paths: their order, their equality and their text.
//!
//! Numbers compare by value: `1` equals `1.0`. (structured-merge-diff: package `value`.)

use std::cmp::Ordering;

use serde_json::{Number, Value};

use crate::field::quote;

/// A JSON value with the order that field sets are sorted by.
#[derive(Clone, Debug)]
pub(crate) struct Literal(pub(crate) Value);

// === impl Literal ===

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Literal {}

impl PartialOrd for Literal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Literal {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

/// Numbers come before texts, then booleans, lists, maps and null.
fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// The order of two values.
pub(crate) fn compare(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => numbers(one, other),
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) => {
            let differing = one
                .iter()
                .zip(other)
                .map(|(one, other)| compare(one, other))
                .find(|order| order.is_ne());
            differing.unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        (Value::Object(one), Value::Object(other)) => {
            let differing = one
                .iter()
                .zip(other)
                .map(|((name, one), (other_name, other))| {
                    name.cmp(other_name).then_with(|| compare(one, other))
                })
                .find(|order| order.is_ne());
            differing.unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        (one, other) => rank(one).cmp(&rank(other)),
    }
}

/// The order of two numbers by value.
///
/// A real server compares an integer with a float as floats, so that two integers next to each other equal one float. A sort
/// needs one order of all numbers: those that are equal as floats are compared exactly.
fn numbers(one: &Number, other: &Number) -> Ordering {
    if let (Some(one), Some(other)) = (one.as_i64(), other.as_i64()) {
        return one.cmp(&other);
    }
    let as_floats = one.as_f64().partial_cmp(&other.as_f64());
    as_floats
        .unwrap_or(Ordering::Equal)
        .then_with(|| exact(one).cmp(&exact(other)))
}

/// The number, cut to an integer.
fn exact(number: &Number) -> i128 {
    let integer = number.as_i64().map(i128::from);
    let integer = integer.or_else(|| number.as_u64().map(i128::from));
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the cut is wanted, and the cast saturates"
    )]
    let float = || number.as_f64().unwrap_or_default() as i128;
    integer.unwrap_or_else(float)
}

/// Whether two values are equal, numbers by value.
pub(crate) fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|((name, one), (other_name, other))| {
                        name == other_name && equal(one, other)
                    })
        }
        (one, other) => compare(one, other) == Ordering::Equal,
    }
}

/// The text of a value in a path: texts are quoted.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => go_number(number),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| format!("{name}={}", text(value)))
            .collect(),
    }
}

/// A number as Go prints it by default: large and small fractions with an exponent.
pub(crate) fn go_number(number: &serde_json::Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.as_i64().is_none()) else {
        return number.to_string();
    };
    let size = float.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{float:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{float}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_have_one_order_where_floats_have_no_digit_for_their_difference() {
        let exact = 1_i64 << 53;
        let mut numbers: Vec<Value> = Vec::new();
        for near in -3..=3 {
            numbers.push(json!(exact + near));
            numbers.push(json!((exact + near) as f64));
            numbers.push(json!(u64::MAX - 2 + near.unsigned_abs() % 3));
            numbers.push(json!(i64::MAX - near.abs()));
        }
        numbers.extend([
            json!(u64::MAX as f64),
            json!(i64::MAX as f64),
            json!(1e300),
            json!(-1e300),
        ]);
        for one in &numbers {
            for two in &numbers {
                assert_eq!(compare(one, two), compare(two, one).reverse());
                for three in &numbers {
                    if compare(one, two).is_le() && compare(two, three).is_le() {
                        assert!(compare(one, three).is_le(), "{one} {two} {three}");
                    }
                }
            }
        }
        numbers.sort_by(compare);
        assert!(equal(&json!(1), &json!(1.0)));
    }

    #[test]
    fn values_of_all_types_have_one_order() {
        let ordered = [
            json!(-1),
            json!(0.5),
            json!(1),
            json!("a"),
            json!("b"),
            json!(false),
            json!(true),
            json!([]),
            json!([1]),
            json!({}),
            json!({"a": 1}),
            Value::Null,
        ];
        for (at, one) in ordered.iter().enumerate() {
            for (other_at, other) in ordered.iter().enumerate() {
                assert_eq!(compare(one, other), at.cmp(&other_at), "{one} {other}");
                assert_eq!(equal(one, other), at == other_at, "{one} {other}");
            }
        }
    }

    #[test]
    fn an_integer_equals_the_same_fraction() {
        assert!(equal(&json!({"a": [1]}), &json!({"a": [1.0]})));
        assert_eq!(compare(&json!(2.0), &json!(2)), Ordering::Equal);
    }

    #[test]
    fn numbers_are_printed_as_in_go() {
        for (number, expected) in [
            (json!(80), "80"),
            (json!(1.5), "1.5"),
            (json!(1.0), "1"),
            (json!(1e21), "1e+21"),
            (json!(0.00001), "1e-05"),
        ] {
            assert_eq!(text(&number), expected);
        }
    }
}
