//! `==`, `!=` and `in` of cel-go: numbers are compared by value whatever their types, also inside of lists and maps.
//!
//! (cel-go: `types.Equal`, `refValMapAccessor.Find`.)

use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};

use super::rewrite::{DIFFERS, EQUALS, IN};

type Answer = Result<CelValue, ExecutionError>;

/// Adds the functions that rewritten expressions call.
pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function(EQUALS, equals);
    context.add_function(DIFFERS, differs);
    context.add_function(IN, is_in);
}

fn equals(one: CelValue, other: CelValue) -> Answer {
    Ok(CelValue::Bool(equal(&one, &other)))
}

fn differs(one: CelValue, other: CelValue) -> Answer {
    Ok(CelValue::Bool(!equal(&one, &other)))
}

fn is_in(wanted: CelValue, container: CelValue) -> Answer {
    let is_in = match &container {
        CelValue::List(items) => items.iter().any(|item| equal(item, &wanted)),
        CelValue::Map(map) => key(&wanted).is_some_and(|key| member(map, &key).is_some()),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(CelValue::Bool(is_in))
}

/// Whether two values are equal.
pub(super) fn equal(one: &CelValue, other: &CelValue) -> bool {
    match (one, other) {
        (CelValue::List(one), CelValue::List(other)) => {
            let mut pairs = one.iter().zip(&**other);
            one.len() == other.len() && pairs.all(|(one, other)| equal(one, other))
        }
        (CelValue::Map(one), CelValue::Map(other)) => {
            let is_same = |(key, value): (&Key, &CelValue)| {
                member(other, key).is_some_and(|other| equal(value, other))
            };
            one.map.len() == other.map.len() && one.map.iter().all(is_same)
        }
        // These compare numbers of different types, too.
        (one, other) => one == other,
    }
}

/// The value of a key; `1` and `1u` are the same.
pub(super) fn member<'a>(map: &'a Map, key: &Key) -> Option<&'a CelValue> {
    let other = || match key {
        Key::Int(number) => u64::try_from(*number).ok().map(Key::Uint),
        Key::Uint(number) => i64::try_from(*number).ok().map(Key::Int),
        Key::Bool(_) | Key::String(_) => None,
    };
    let map = &*map.map;
    map.get(key).or_else(|| map.get(&other()?))
}

/// The value as a key; `None` if no map can have it.
pub(super) fn key(value: &CelValue) -> Option<Key> {
    Some(match value {
        CelValue::Bool(bool) => Key::Bool(*bool),
        CelValue::Int(number) => Key::Int(*number),
        CelValue::UInt(number) => Key::Uint(*number),
        CelValue::Float(number) => Key::Int(integer(*number)?),
        CelValue::String(text) => Key::String(text.clone()),
        _ => return None,
    })
}

/// The integer with the same value.
fn integer(number: f64) -> Option<i64> {
    // Only an integer has a text without a fraction or exponent.
    number.to_string().parse().ok()
}
