//! Events in their two forms: core/v1, in which they are stored, and events.k8s.io/v1.
//!
//! Both forms have all fields; five have other names. (kubernetes: `pkg/apis/events/v1/conversion.go`.)

use k8s_openapi::api;
use serde_json::Value;

use super::entry::Entry;
use super::strategy::{Context, Strategy};
use super::{canonical, data, event_rules};
use crate::field::Errors;
use crate::meta::object_mut;
use crate::resource::{Column, ResourceInfo, SelectableField};
use crate::table::cells::{ago, column, plain, string, text, wide};
use crate::table::{Now, count, number};

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[
    Entry::of::<api::core::v1::Event>("", "events", &Events),
    Entry::of::<api::events::v1::Event>("events.k8s.io", "events", &Events),
];

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

/// Events of both groups.
#[derive(Debug)]
pub(super) struct Events;

// === impl Events ===

impl Strategy for Events {
    fn describe(&self, info: &mut ResourceInfo) {
        info.storage = "events".to_owned();
        info.storage_version = info.group.is_empty();
        info.create_on_update = true;
        info.selectable_fields = fields(info.group.is_empty());
    }

    fn columns(&self) -> Vec<Column> {
        columns()
    }

    fn validate(
        &self,
        context: &Context<'_>,
        object: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
    ) {
        let stored = |object: &Value| {
            let mut stored = object.clone();
            self.convert_to_stored(context.info, &mut stored);
            stored
        };
        event_rules::validate(
            &stored(object),
            old.map(stored).as_ref(),
            !context.info.group.is_empty(),
            errors,
        );
    }

    fn convert_to_stored(&self, info: &ResourceInfo, object: &mut Value) {
        if !info.group.is_empty() {
            *object = to_core(object.take());
            if let Some(core) = data::root("", "v1", "Event") {
                canonical::write(core, object);
            }
        }
    }

    fn convert_from_stored(&self, info: &ResourceInfo, object: &mut Value) {
        if !info.group.is_empty() {
            *object = from_core(object.take());
            if let Some(of) = info.of {
                canonical::write(of, object);
            }
        }
    }
}

/// Converts events.k8s.io/v1 to the stored form.
fn to_core(mut event: Value) -> Value {
    let map = object_mut(&mut event);
    for (core, new) in RENAMED {
        if let Some(value) = map.remove(*new) {
            map.insert((*core).to_owned(), value);
        }
    }
    event
}

/// Converts the stored form to events.k8s.io/v1.
fn from_core(mut event: Value) -> Value {
    let map = object_mut(&mut event);
    for (core, new) in RENAMED {
        if let Some(value) = map.remove(*core) {
            map.insert((*new).to_owned(), value);
        }
    }
    event
}

/// Selectable fields of Events. Both groups store them in the form of core.
fn fields(core: bool) -> Vec<SelectableField> {
    fn at<'a>(value: &'a Value, path: &[&str]) -> &'a str {
        path.iter()
            .fold(value, |value, field| &value[*field])
            .as_str()
            .unwrap_or_default()
    }
    macro_rules! object_field {
        ($core:literal, $new:literal, $field:literal) => {
            SelectableField {
                name: (if core { $core } else { $new }).to_owned(),
                extract: Some(|value| at(value, &["involvedObject", $field]).to_owned()),
            }
        };
    }
    let mut fields = vec![
        object_field!("involvedObject.kind", "regarding.kind", "kind"),
        object_field!(
            "involvedObject.namespace",
            "regarding.namespace",
            "namespace"
        ),
        object_field!("involvedObject.name", "regarding.name", "name"),
        object_field!("involvedObject.uid", "regarding.uid", "uid"),
        object_field!(
            "involvedObject.apiVersion",
            "regarding.apiVersion",
            "apiVersion"
        ),
        object_field!(
            "involvedObject.resourceVersion",
            "regarding.resourceVersion",
            "resourceVersion"
        ),
        object_field!(
            "involvedObject.fieldPath",
            "regarding.fieldPath",
            "fieldPath"
        ),
        SelectableField {
            name: "reason".to_owned(),
            extract: None,
        },
        SelectableField {
            name: "type".to_owned(),
            extract: None,
        },
    ];
    if core {
        fields.push(SelectableField {
            name: "reportingComponent".to_owned(),
            extract: None,
        });
        fields.push(SelectableField {
            name: "source".to_owned(),
            extract: Some(|value| {
                let component = at(value, &["source", "component"]);
                if component.is_empty() {
                    at(value, &["reportingComponent"]).to_owned()
                } else {
                    component.to_owned()
                }
            }),
        });
    } else {
        fields.push(SelectableField {
            name: "reportingController".to_owned(),
            extract: Some(|value| at(value, &["reportingComponent"]).to_owned()),
        });
    }
    fields
}

fn columns() -> Vec<Column> {
    let mut name = column("Name", "string", 1, |value, _| {
        plain(&value["metadata"]["name"])
    });
    name.format = "name".to_owned();
    vec![
        text("Last Seen", |event, now| {
            if event["series"].is_object() {
                return ago(&event["series"]["lastObservedTime"], now).into();
            }
            if event["lastTimestamp"].is_string() {
                return ago(&event["lastTimestamp"], now).into();
            }
            first_seen(event, now)
        }),
        text("Type", |event, _| plain(&event["type"])),
        text("Reason", |event, _| plain(&event["reason"])),
        text("Object", |event, _| {
            let object = &event["involvedObject"];
            let kind = string(&object["kind"]).to_lowercase();
            match string(&object["name"]) {
                "" => kind.into(),
                name => format!("{kind}/{name}").into(),
            }
        }),
        wide("Subobject", |event, _| {
            plain(&event["involvedObject"]["fieldPath"])
        }),
        wide("Source", |event, _| {
            let source = &event["source"];
            let (component, host) = match string(&source["component"]) {
                "" => (
                    string(&event["reportingComponent"]),
                    string(&event["reportingInstance"]),
                ),
                component => (component, string(&source["host"])),
            };
            if host.is_empty() {
                component.into()
            } else {
                format!("{component}, {host}").into()
            }
        }),
        text("Message", |event, _| {
            string(&event["message"]).trim().into()
        }),
        wide("First Seen", first_seen),
        wide("Count", |event, _| {
            if event["series"].is_object() {
                return number(count(&event["series"]["count"]));
            }
            number(count(&event["count"]).max(1))
        }),
        name,
    ]
}

fn first_seen(event: &Value, now: &Now) -> Value {
    if event["firstTimestamp"].is_string() {
        return ago(&event["firstTimestamp"], now).into();
    }
    ago(&event["eventTime"], now).into()
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
