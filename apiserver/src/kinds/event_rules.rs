//! The checks of Events, in their stored form. (kubernetes: `pkg/apis/core/validation/events.go`.)

use serde_json::Value;

use super::{check, immutable};
use crate::field::{Errors, FieldError, Path};
use crate::meta;
use crate::names;
use crate::table::cells::string;

/// The most bytes of an action, a reason and a reporting instance.
const LONGEST: usize = 128;
const LONGEST_NOTE: usize = 1024;
const UNSET: &str = "needs to be unset";
/// The fields that an update through events.k8s.io keeps: as they are stored, and as a real server names them.
const IMMUTABLE: &[(&str, &str)] = &[
    ("involvedObject", "involvedObject"),
    ("reason", "reason"),
    ("message", "message"),
    ("source", "source"),
    ("firstTimestamp", "firstTimestamp"),
    ("lastTimestamp", "lastTimestamp"),
    ("count", "count"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

/// Checks an Event. `new_form`: it was sent through events.k8s.io.
pub(super) fn validate(event: &Value, old: Option<&Value>, new_form: bool, errors: &mut Errors) {
    in_any_form(event, new_form, errors);
    if !new_form {
        return;
    }
    if old.is_none_or(|old| !immutable::is_same(&old["series"], &event["series"])) {
        series(&event["series"], errors);
    }
    match old {
        None => of_creation(event, errors),
        Some(old) => {
            for (stored, shown) in IMMUTABLE {
                immutable::field(&event[*stored], &old[*stored], &Path::new(shown), errors);
            }
        }
    }
}

fn in_any_form(event: &Value, new_form: bool, errors: &mut Errors) {
    let namespace = meta::text(event, "namespace");
    let involved = string(&event["involvedObject"]["namespace"]);
    let timed = !string(&event["eventTime"]).is_empty();
    let fits = match (timed, involved.is_empty()) {
        (false, true) => matches!(namespace, "" | "default"),
        (false, false) => involved == namespace,
        (true, true) => matches!(namespace, "default" | "kube-system"),
        (true, false) => true,
    };
    if !fits {
        let path = Path::new("involvedObject").child("namespace");
        let text = "does not match event.namespace";
        errors.push(FieldError::invalid(&path, involved, text));
    }
    if !timed {
        return;
    }
    let name = if new_form {
        "reportingController"
    } else {
        "reportingComponent"
    };
    let (controller, path) = (&event["reportingComponent"], Path::new(name));
    check::required(controller, "", &path, errors);
    check::refuse(string(controller), names::qualified_name, &path, errors);
    for field in ["reportingInstance", "action", "reason"] {
        check::required(&event[field], "", &Path::new(field), errors);
        too_long(&event[field], LONGEST, field, errors);
    }
    too_long(&event["message"], LONGEST_NOTE, "message", errors);
}

fn too_long(value: &Value, most: usize, field: &str, errors: &mut Errors) {
    if string(value).len() > most {
        let text = format!("can have at most {most} characters");
        errors.push(FieldError::invalid(&Path::new(field), "", text));
    }
}

fn series(series: &Value, errors: &mut Errors) {
    if series.is_null() {
        return;
    }
    let path = Path::new("series");
    if series["count"].as_i64().unwrap_or(0) < 2 {
        let text = "should be at least 2";
        errors.push(FieldError::invalid(&path.child("count"), "", text));
    }
    let observed = path.child("lastObservedTime");
    check::required(&series["lastObservedTime"], "", &observed, errors);
}

fn of_creation(event: &Value, errors: &mut Errors) {
    check::required(&event["eventTime"], "", &Path::new("eventTime"), errors);
    let kind = string(&event["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        let text = format!("has invalid value: {kind}");
        errors.push(FieldError::invalid(&Path::new("type"), "", text));
    }
    for field in ["firstTimestamp", "lastTimestamp"] {
        if event[field].is_string() {
            errors.push(FieldError::invalid(&Path::new(field), "", UNSET));
        }
    }
    if event["count"].as_i64().unwrap_or(0) != 0 {
        errors.push(FieldError::invalid(&Path::new("count"), "", UNSET));
    }
    let source = &event["source"];
    if !string(&source["component"]).is_empty() || !string(&source["host"]).is_empty() {
        errors.push(FieldError::invalid(&Path::new("source"), "", UNSET));
    }
}
