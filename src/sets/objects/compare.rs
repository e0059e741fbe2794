//! Whether a policy is as it was written: what API servers add themselves does not count.

use serde_json::Value;

/// Whether the spec of a policy is `wanted`. A field that was added may narrow what is refused, or refuse more; those that
/// the API server of Calico adds itself are empty, or the tier.
pub(super) fn is_as_wanted(present: &Value, wanted: &Value) -> bool {
    let mut present = present.clone();
    if let Some(spec) = present.as_object_mut() {
        spec.remove("tier");
    }
    equal(&present, wanted)
}

/// Whether two values are equal but for empty fields.
fn equal(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (Value::Object(present), Value::Object(wanted)) => {
            let absent = |key: &String| !wanted.contains_key(key);
            present
                .iter()
                .all(|(key, value)| !absent(key) || is_empty(value))
                && wanted.iter().all(|(key, value)| {
                    let present = present.get(key);
                    present.map_or_else(|| is_empty(value), |present| equal(present, value))
                })
        }
        (Value::Array(present), Value::Array(wanted)) => {
            present.len() == wanted.len()
                && present
                    .iter()
                    .zip(wanted)
                    .all(|(present, wanted)| equal(present, wanted))
        }
        (Value::Number(present), Value::Number(wanted)) => present.as_f64() == wanted.as_f64(),
        _ => present == wanted,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
