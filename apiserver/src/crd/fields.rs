//! Reading the fields of a definition.

use serde_json::{Map, Value};

/// The names of the versions that objects are stored in.
pub(super) fn storage_versions(spec: &Value) -> Vec<&str> {
    items(spec, "versions")
        .iter()
        .filter(|version| version["storage"] == true)
        .map(|version| text(version.get("name")))
        .collect()
}

/// The items of the list `name`; empty when it is absent.
pub(super) fn items<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The text of a value; empty when it is not a text.
pub(super) fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

/// A member of an object; `None` when it is absent or null.
pub(super) fn member<'a>(map: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    map.get(name).filter(|value| !value.is_null())
}
