//! The checks of ResourceSlices. (kubernetes: `pkg/apis/resource/validation`.)

use serde_json::Value;

use super::csi_rules::driver_name;
use super::device_rules::{EFFECTS, each, qualified, too_long, unique};
use super::placement_rules::node_selector;
use super::{check, immutable};
use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::table::cells::{items, string};

const MOST_DEVICES: usize = 128;
const MOST_ATTRIBUTES: usize = 32;
const LONGEST_ATTRIBUTE: i64 = 64;
const ONE_OF_NODES: &str =
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
const OF_ALL_DEVICES: &str = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
const ONE_VALUE: &str = "exactly one value must be specified";

/// Checks a ResourceSlice.
pub(super) fn slice(slice: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (&slice["spec"], Path::new("spec"));
    driver_name(&spec["driver"], &path.child("driver"), errors);
    pool(&spec["pool"], &path.child("pool"), errors);
    if let Some(old) = old {
        let old = &old["spec"];
        let name = path.child("pool").child("name");
        immutable::field(&spec["pool"]["name"], &old["pool"]["name"], &name, errors);
        for field in ["driver", "nodeName"] {
            immutable::field(&spec[field], &old[field], &path.child(field), errors);
        }
    }
    nodes(spec, &path, errors);
    let per_device = spec["perDeviceNodeSelection"] == true;
    if !spec["sharedCounters"].is_null() && !spec["devices"].is_null() {
        let text = "only one of `sharedCounters` or `devices` is allowed";
        errors.push(FieldError::invalid(&path, "", text));
    }
    let at = path.child("devices");
    each(
        &spec["devices"],
        MOST_DEVICES,
        &at,
        errors,
        |one, path, errors| {
            device(one, per_device, path, errors);
        },
    );
    unique(&spec["devices"], "name", &at, errors);
}

fn pool(pool: &Value, path: &Path, errors: &mut Errors) {
    let (name, at) = (string(&pool["name"]), path.child("name"));
    if check::required(&pool["name"], "", &at, errors) {
        if name.len() > 253 {
            errors.push(FieldError::too_long(&at, 253));
        }
        for part in name.split('/') {
            check::refuse(part, names::dns_subdomain, &at, errors);
        }
    }
    let count = pool["resourceSliceCount"].as_i64().unwrap_or(0);
    if count <= 0 {
        let text = "must be greater than zero";
        errors.push(FieldError::invalid(
            &path.child("resourceSliceCount"),
            count,
            text,
        ));
    }
    let generation = pool["generation"].as_i64().unwrap_or(0);
    if generation < 0 {
        let text = "must be greater than or equal to zero";
        errors.push(FieldError::invalid(
            &path.child("generation"),
            generation,
            text,
        ));
    }
}

/// Where the devices of a slice can be used.
fn nodes(spec: &Value, path: &Path, errors: &mut Errors) {
    let mut set = Vec::new();
    let name = path.child("nodeName");
    match spec["nodeName"].as_str() {
        None => {}
        Some("") => {
            let text = "must be either unset or set to a non-empty string";
            errors.push(FieldError::invalid(&name, "", text));
        }
        Some(node) => {
            set.push("`nodeName`");
            check::refuse(node, names::dns_subdomain, &name, errors);
        }
    }
    if !spec["nodeSelector"].is_null() {
        set.push("`nodeSelector`");
        let path = path.child("nodeSelector");
        node_selector(&spec["nodeSelector"], &path, errors);
        let terms = &spec["nodeSelector"]["nodeSelectorTerms"];
        if items(terms).len() != 1 {
            let (path, text) = (
                path.child("nodeSelectorTerms"),
                "must have exactly one node selector term",
            );
            errors.push(FieldError::invalid(&path, terms.clone(), text));
        }
    }
    for field in ["allNodes", "perDeviceNodeSelection"] {
        match spec[field].as_bool() {
            None => {}
            Some(true) => set.push(if field == "allNodes" {
                "`allNodes`"
            } else {
                "`perDeviceNodeSelection`"
            }),
            Some(false) => {
                let text = "must be either unset or set to true";
                errors.push(FieldError::invalid(&path.child(field), false, text));
            }
        }
    }
    match set.len() {
        0 => errors.push(FieldError::required(path, ONE_OF_NODES)),
        1 => {}
        _ => {
            let text = format!("{ONE_OF_NODES}, but multiple fields are set");
            let shown = format!("{{{}}}", set.join(", "));
            errors.push(FieldError::invalid(path, shown, text));
        }
    }
}

fn device(device: &Value, per_device: bool, path: &Path, errors: &mut Errors) {
    check::name(
        &device["name"],
        names::dns_label,
        &path.child("name"),
        errors,
    );
    let (attributes, capacity) = (
        device["attributes"].as_object(),
        device["capacity"].as_object(),
    );
    let count =
        attributes.map_or(0, serde_json::Map::len) + capacity.map_or(0, serde_json::Map::len);
    if count > MOST_ATTRIBUTES {
        let text = format!(
            "the total number of attributes and capacities must not exceed {MOST_ATTRIBUTES}"
        );
        errors.push(FieldError::invalid(path, count, text));
    }
    let at = path.child("attributes");
    for (name, value) in attributes.into_iter().flatten() {
        qualified(name, &at, errors);
        attribute(value, &at.key(name), errors);
    }
    let at = path.child("capacity");
    for (name, value) in capacity.into_iter().flatten() {
        qualified(name, &at, errors);
        if !value["requestPolicy"].is_null() && device["allowMultipleAllocations"] != true {
            let path = at.key(name).child("requestPolicy");
            errors.push(FieldError::forbidden(
                &path,
                "allowMultipleAllocations must be true",
            ));
        }
    }
    for (at, one) in items(&device["taints"]).iter().enumerate() {
        let path = path.child("taints").index(at);
        check::refuse(
            string(&one["key"]),
            names::qualified_name,
            &path.child("key"),
            errors,
        );
        check::optional(
            &one["value"],
            names::label_value,
            &path.child("value"),
            errors,
        );
        check::one_of(&one["effect"], &path.child("effect"), EFFECTS, errors);
    }
    let fields = ["nodeName", "nodeSelector", "allNodes"];
    if !per_device && fields.iter().any(|field| !device[*field].is_null()) {
        errors.push(FieldError::invalid(path, Value::Null, OF_ALL_DEVICES));
    }
}

fn attribute(value: &Value, path: &Path, errors: &mut Errors) {
    let fields = value.as_object();
    if let Some(text) = value["string"].as_str() {
        too_long(text, LONGEST_ATTRIBUTE, &path.child("string"), errors);
    }
    if let Some(text) = value["version"].as_str() {
        let path = path.child("version");
        if !is_semantic_version(text) {
            let wrong = "must be a string compatible with semver.org spec 2.0.0";
            errors.push(FieldError::invalid(&path, text, wrong));
        }
        too_long(text, LONGEST_ATTRIBUTE, &path, errors);
    }
    match fields.map_or(0, |fields| {
        fields.values().filter(|value| !value.is_null()).count()
    }) {
        0 => errors.push(FieldError::invalid(path, "", ONE_VALUE)),
        1 => {}
        _ => errors.push(FieldError::invalid(path, value.clone(), ONE_VALUE)),
    }
}

/// Whether a text is a version of semver.org 2.0.0.
fn is_semantic_version(text: &str) -> bool {
    let (rest, build) = match text.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (text, None),
    };
    let (core, release) = match rest.split_once('-') {
        Some((core, release)) => (core, Some(release)),
        None => (rest, None),
    };
    let is_number = |part: &str| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        digits && (part == "0" || !part.starts_with('0'))
    };
    let is_word = |part: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !part.is_empty() && part.bytes().all(is_allowed)
    };
    let is_release = |part: &str| {
        is_word(part) && (is_number(part) || part.bytes().any(|byte| !byte.is_ascii_digit()))
    };
    let numbers: Vec<&str> = core.split('.').collect();
    numbers.len() == 3
        && numbers.into_iter().all(is_number)
        && release.is_none_or(|release| release.split('.').all(is_release))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_semver() {
        for valid in ["1.2.3", "0.0.0", "1.2.3-a.1+b.01", "1.0.0-0a", "1.0.0+a-b"] {
            assert!(is_semantic_version(valid), "{valid}");
        }
        for invalid in [
            "1.2", "01.2.3", "1.2.3-01", "1.2.3-", "1.2.3+", "v1.2.3", "1.2.3.4",
        ] {
            assert!(!is_semantic_version(invalid), "{invalid}");
        }
    }
}
