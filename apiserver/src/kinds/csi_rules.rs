//! The checks of CSINodes, CSIStorageCapacities, VolumeAttachments and VolumeAttributesClasses.
//! (kubernetes: `pkg/apis/storage/validation`.)

use std::collections::BTreeSet;

use serde_json::Value;

use super::{check, immutable, selectors};
use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::table::cells::{items, string};

const LONGEST_DRIVER: i64 = 63;
const LONGEST_NODE_ID: usize = 256;
const IMMUTABLE: &str = "field is immutable";
const ONE_SOURCE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";

/// Refuses a text that is not the name of a driver. (kubernetes: `ValidateCSIDriverName`.)
pub(super) fn driver_name(value: &Value, path: &Path, errors: &mut Errors) {
    let name = string(value);
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if name.len() > 63 {
        errors.push(FieldError::too_long(path, LONGEST_DRIVER));
    }
    for problem in names::dns_subdomain(&name.to_lowercase()) {
        errors.push(FieldError::invalid(path, name, problem));
    }
}

// === CSINodes ===

/// Checks a CSINode.
pub(super) fn node(node: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("spec").child("drivers");
    let drivers = items(&node["spec"]["drivers"]);
    let mut known = BTreeSet::new();
    for (at, driver) in drivers.iter().enumerate() {
        let path = path.index(at);
        driver_name(&driver["name"], &path.child("name"), errors);
        let id = string(&driver["nodeID"]);
        if check::required(&driver["nodeID"], "", &path.child("nodeID"), errors)
            && id.len() > LONGEST_NODE_ID
        {
            let text = format!("must be {LONGEST_NODE_ID} characters or less");
            errors.push(FieldError::invalid(&path.child("nodeID"), id, text));
        }
        let count = path.child("allocatable").child("count");
        check::not_negative(&driver["allocatable"]["count"], &count, errors);
        if !known.insert(string(&driver["name"])) {
            let name = string(&driver["name"]);
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        topology_keys(items(&driver["topologyKeys"]), &path, errors);
    }
    let Some(old) = old else { return };
    for old in items(&old["spec"]["drivers"]) {
        for new in drivers.iter().filter(|new| new["name"] == old["name"]) {
            let mut fields = ["nodeID", "topologyKeys"].into_iter();
            if fields.any(|field| !immutable::is_same(&new[field], &old[field])) {
                errors.push(FieldError::invalid(&path, new.clone(), IMMUTABLE));
            }
        }
    }
}

/// A real server reports the keys at their driver.
fn topology_keys(keys: &[Value], path: &Path, errors: &mut Errors) {
    let mut known = BTreeSet::new();
    for key in keys.iter().map(string) {
        if key.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
        if !known.insert(key) {
            errors.push(FieldError::duplicate(path, key));
        }
        check::refuse(key, names::qualified_name, path, errors);
    }
}

// === CSIStorageCapacities ===

/// Checks a CSIStorageCapacity.
pub(super) fn capacity(capacity: &Value, old: Option<&Value>, errors: &mut Errors) {
    let topology = Path::new("nodeTopology");
    selectors::validate(&capacity["nodeTopology"], &topology, errors);
    let class = Path::new("storageClassName");
    let name = string(&capacity["storageClassName"]);
    check::refuse(name, names::dns_subdomain, &class, errors);
    if capacity["capacity"].is_string() {
        check::resource_amount(&capacity["capacity"], &Path::new("capacity"), errors);
    }
    let Some(old) = old else { return };
    for (field, path) in [("nodeTopology", topology), ("storageClassName", class)] {
        immutable::field(&capacity[field], &old[field], &path, errors);
    }
}

// === VolumeAttachments ===

/// Checks a VolumeAttachment.
pub(super) fn attachment(attachment: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (&attachment["spec"], Path::new("spec"));
    driver_name(&spec["attacher"], &path.child("attacher"), errors);
    let (source, at) = (&spec["source"], path.child("source"));
    let volume = &source["persistentVolumeName"];
    match (volume.is_null(), source["inlineVolumeSpec"].is_null()) {
        (true, true) => errors.push(FieldError::required(&at, ONE_SOURCE)),
        (false, false) => errors.push(FieldError::forbidden(&at, ONE_SOURCE)),
        _ => {}
    }
    let node = path.child("nodeName");
    check::refuse(
        string(&spec["nodeName"]),
        names::dns_subdomain,
        &node,
        errors,
    );
    if !volume.is_null() {
        let (name, at) = (string(volume), at.child("persistentVolumeName"));
        if name.is_empty() {
            let text = "must specify non empty persistentVolumeName";
            errors.push(FieldError::required(&at, text));
        }
        check::refuse(name, names::dns_subdomain, &at, errors);
    }
    if let Some(old) = old {
        immutable::field(spec, &old["spec"], &path, errors);
    }
}

// === VolumeAttributesClasses ===

/// Checks a VolumeAttributesClass.
pub(super) fn attributes(class: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (driver, parameters) = (Path::new("driverName"), Path::new("parameters"));
    for (field, path) in [("driverName", &driver), ("parameters", &parameters)] {
        let changed = old.is_some_and(|old| !immutable::is_same(&class[field], &old[field]));
        if changed {
            let text = format!("updates to {field} are forbidden.");
            errors.push(FieldError::forbidden(path, text));
        }
    }
    let name = string(&class["driverName"]).to_lowercase();
    check::name(&name.into(), names::qualified_name, &driver, errors);
    let all = class["parameters"].as_object();
    if all.is_some_and(|all| all.contains_key("")) {
        let text = "field can not be empty.";
        errors.push(FieldError::invalid(&parameters, "", text));
    }
    if all.is_none_or(serde_json::Map::is_empty) {
        let text = "must contain at least one key/value pair";
        errors.push(FieldError::required(&parameters, text));
    }
}
