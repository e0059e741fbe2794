//! The parts of `metadata` that every verb reads and sets.

use jiff::Timestamp;
use reeve_clock::Clock;
use serde_json::{Map, Value, json};

/// `metadata` of an object, created when absent. A value that is not an object becomes one.
pub(crate) fn metadata_mut(value: &mut Value) -> &mut Map<String, Value> {
    map_at(object_mut(value), "metadata")
}

/// When a terminating object is due to go.
pub(crate) fn deletion_time(object: &Value) -> Option<jiff::Timestamp> {
    let time = object["metadata"]["deletionTimestamp"].as_str()?;
    time.parse().ok()
}

/// The object's own fields.
pub(crate) fn object_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object above"),
    }
}

/// The object at `field` of `map`, created when absent or of another type.
pub(crate) fn map_at<'a>(
    map: &'a mut Map<String, Value>,
    field: &str,
) -> &'a mut Map<String, Value> {
    object_mut(map.entry(field).or_insert(Value::Null))
}

/// The list at `field` of `map`, created when absent or of another type.
pub(crate) fn list_at<'a>(map: &'a mut Map<String, Value>, field: &str) -> &'a mut Vec<Value> {
    let value = map.entry(field).or_insert(Value::Null);
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(items) => items,
        _ => unreachable!("it was made a list above"),
    }
}

/// A text of `metadata`; empty when absent.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value["metadata"][field].as_str().unwrap_or_default()
}

/// A text; empty for what is none.
pub(crate) fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list; none for what is no list.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The strings of a list of `metadata`.
pub(crate) fn strings<'a>(value: &'a Value, field: &str) -> Vec<&'a str> {
    value["metadata"][field]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Sets a list of `metadata`; an empty one is removed.
pub(crate) fn set_strings(value: &mut Value, field: &str, strings: &[&str]) {
    let metadata = metadata_mut(value);
    if strings.is_empty() {
        metadata.remove(field);
    } else {
        metadata.insert(field.to_owned(), json!(strings));
    }
}

/// Sets a field to its value in another object, or removes it.
pub(crate) fn copy_field(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(found) => {
            object_mut(to).insert(field.to_owned(), found.clone());
        }
        None => {
            object_mut(to).remove(field);
        }
    }
}

/// Copies a field of `metadata` from one object to another; removes it if the first has none.
pub(crate) fn copy(from: &Value, to: &mut Value, field: &str) {
    match from["metadata"].get(field) {
        Some(found) if !found.is_null() => {
            metadata_mut(to).insert(field.to_owned(), found.clone());
        }
        _ => {
            metadata_mut(to).remove(field);
        }
    }
}

/// A time in the format of `metadata`: whole seconds, UTC.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A random uid (RFC 4122, version 4).
pub(crate) fn uid(clock: &Clock) -> String {
    let (high, low) = (clock.random().next_u64(), clock.random().next_u64());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:x}{:03x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        8 + ((low >> 60) & 0x3),
        (low >> 48) & 0xfff,
        low & 0xffff_ffff_ffff,
    )
}

/// `base` with five random characters, cut to at most 63.
pub(crate) fn generate_name(clock: &Clock, base: &str) -> String {
    const CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut name: String = base.chars().take(58).collect();
    for _ in 0..5 {
        let at = clock.random().below(CHARACTERS.len() as u64);
        let at = usize::try_from(at).unwrap_or(0);
        name.push(char::from(CHARACTERS[at]));
    }
    name
}

/// `metadata.generation`; zero when absent.
pub(crate) fn generation(value: &Value) -> i64 {
    value["metadata"]["generation"].as_i64().unwrap_or(0)
}

/// Sets or removes `managedFields`.
pub(crate) fn set_managers(object: &mut Value, managers: Option<Value>) {
    let metadata = metadata_mut(object);
    match managers {
        Some(managers) => metadata.insert("managedFields".to_owned(), managers),
        None => metadata.remove("managedFields"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_a_random_uuid() {
        let clock = Clock::system();
        let uid = uid(&clock);
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4');
        assert!(matches!(uid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
    }

    #[test]
    fn a_generated_name_has_at_most_63_characters() {
        let clock = Clock::system();
        assert_eq!(generate_name(&clock, &"a".repeat(80)).len(), 63);
        assert!(generate_name(&clock, "web-").starts_with("web-"));
    }
}
