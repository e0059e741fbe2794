//! Events in their two forms: core/v1, in which they are stored, and events.k8s.io/v1.
//!
//! Both forms have all fields; five have other names. (kubernetes: `pkg/apis/events/v1/conversion.go`.)

use serde_json::Value;

use crate::meta::object_mut;

/// Names in core and in events.k8s.io.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Converts events.k8s.io/v1 to the stored form.
pub(crate) fn to_core(mut event: Value) -> Value {
    let map = object_mut(&mut event);
    for (core, new) in RENAMED {
        if let Some(value) = map.remove(*new) {
            map.insert((*core).to_owned(), value);
        }
    }
    event
}

/// Converts the stored form to events.k8s.io/v1.
pub(crate) fn from_core(mut event: Value) -> Value {
    let map = object_mut(&mut event);
    for (core, new) in RENAMED {
        if let Some(value) = map.remove(*core) {
            map.insert((*new).to_owned(), value);
        }
    }
    // This form leaves them out when empty.
    map.retain(|name, value| {
        !(matches!(
            name.as_str(),
            "reportingController" | "reportingInstance" | "note"
        ) && *value == "")
    });
    event
}

/// Sets the fields that an Event always has in Go.
pub(crate) fn default(event: &mut Value, new_form: bool) {
    let map = object_mut(event);
    let name = |core: &'static str| -> &'static str {
        RENAMED
            .iter()
            .find(|(old, _)| *old == core && new_form)
            .map_or(core, |(_, new)| new)
    };
    for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        map.entry(name(field)).or_insert(Value::Null);
    }
    map.entry(name("source"))
        .or_insert_with(|| serde_json::json!({}));
    for field in ["reportingComponent", "reportingInstance"] {
        map.entry(name(field)).or_insert_with(|| "".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_new_event_read_as_core_has_the_old_names() {
        let new = json!({
            "metadata": {"name": "a"}, "regarding": {"kind": "Pod"}, "note": "text",
            "reportingController": "c", "reportingInstance": "i", "action": "Act", "type": "Normal",
        });
        let core = to_core(new.clone());
        assert_eq!(core["involvedObject"], json!({"kind": "Pod"}));
        assert_eq!(core["message"], "text");
        assert_eq!(core["reportingComponent"], "c");
        assert_eq!(from_core(core), new);
    }
}
