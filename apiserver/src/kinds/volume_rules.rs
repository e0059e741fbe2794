//! The checks of the volumes of a Pod, of the references to its fields, and of the source of a PersistentVolume.
//!
//! (kubernetes: `validateVolumeSource`, `ValidatePersistentVolumeSpec`, `validateEnvVarValueFrom`.)

use std::collections::BTreeSet;

use serde_json::Value;

use super::check::{self, file_mode, refuse, required};
use super::data::Data;
use super::required;
use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::table::cells::{items, string};

/// Only one source of a volume is checked.
const ONE_SOURCE: &str = "may not specify more than 1 volume type";
const HOST_PATHS: &[&str] = &[
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
/// The fields of a Pod that can be in a file, and in a variable.
pub(super) const FILE_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
pub(super) const VARIABLE_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// The other fields that a reference can name, but not use.
const OTHER_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
];
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const DIVISORS: &[&str] = &[
    "0", "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];
/// The least and the most seconds of a token's life.
const TOKEN_LIFE: (i64, i64) = (600, 1 << 32);

// === sources ===

/// Checks the source of a volume. `holder`: the type with the sources, which Go embeds as `embedded`. Returns whether
/// there is one.
pub(super) fn source(
    volume: &Value,
    holder: &str,
    embedded: &str,
    path: &Path,
    errors: &mut Errors,
) -> bool {
    let of = Data::get().named(holder);
    let mut found = false;
    for field in of.into_iter().flat_map(|of| &of.fields) {
        let value = &volume[field.name];
        if field.embedded_in != Some(embedded) || value.is_null() {
            continue;
        }
        let path = path.child(field.name);
        if found {
            errors.push(FieldError::forbidden(&path, ONE_SOURCE));
            continue;
        }
        found = true;
        match field.name {
            "configMap" | "secret" => config(value, field.name, &path, errors),
            "downwardAPI" => {
                file_mode(&value["defaultMode"], &path.child("defaultMode"), errors);
                // A real server does not name the item.
                for file in items(&value["items"]) {
                    downward_file(file, &path, errors);
                }
            }
            "emptyDir" => {
                let limit = value["sizeLimit"].as_str().unwrap_or("0");
                if check::is_more("0", limit) {
                    let text = "SizeLimit field must be a valid resource quantity";
                    errors.push(FieldError::forbidden(&path.child("sizeLimit"), text));
                }
            }
            "hostPath" => host_path(value, &path, errors),
            "projected" => projected(value, &path, errors),
            _ => {
                if let Some(of) = field.form.named() {
                    required::structure(of, value, &path, errors);
                }
                let at = path.child("path");
                let place = string(&value["path"]);
                if field.name == "nfs" && !place.starts_with('/') {
                    errors.push(FieldError::invalid(&at, place, "must be an absolute path"));
                }
            }
        }
    }
    found
}

fn config(source: &Value, kind: &str, path: &Path, errors: &mut Errors) {
    let name = if kind == "secret" {
        "secretName"
    } else {
        "name"
    };
    required(&source[name], "", &path.child(name), errors);
    file_mode(&source["defaultMode"], &path.child("defaultMode"), errors);
    keys(source, path, errors);
}

/// The keys of a ConfigMap or Secret that become files.
fn keys(source: &Value, path: &Path, errors: &mut Errors) {
    for (at, item) in items(&source["items"]).iter().enumerate() {
        let path = path.child("items").index(at);
        required(&item["key"], "", &path.child("key"), errors);
        required(&item["path"], "", &path.child("path"), errors);
        local_path(&item["path"], &path.child("path"), errors);
        file_mode(&item["mode"], &path.child("mode"), errors);
    }
}

fn host_path(source: &Value, path: &Path, errors: &mut Errors) {
    if !required(&source["path"], "", &path.child("path"), errors) {
        return;
    }
    no_way_up(&source["path"], &path.child("path"), errors);
    check::allowed(&source["type"], &path.child("type"), HOST_PATHS, errors);
}

/// Refuses a path with a step to the parent.
fn no_way_up(place: &Value, path: &Path, errors: &mut Errors) {
    let place = string(place);
    if place.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(path, place, "must not contain '..'"));
    }
}

/// Refuses a path that is absolute, or leads out of its folder.
pub(super) fn inner_path(place: &Value, path: &Path, errors: &mut Errors) {
    if string(place).starts_with('/') {
        let text = "must be a relative path";
        errors.push(FieldError::invalid(path, string(place), text));
    }
    no_way_up(place, path, errors);
}

/// Refuses a path that leads out of its folder, or is reserved.
fn local_path(place: &Value, path: &Path, errors: &mut Errors) {
    inner_path(place, path, errors);
    let place = string(place);
    if place.starts_with("..") && !place.starts_with("../") {
        errors.push(FieldError::invalid(path, place, "must not start with '..'"));
    }
}

fn projected(source: &Value, path: &Path, errors: &mut Errors) {
    file_mode(&source["defaultMode"], &path.child("defaultMode"), errors);
    let mut places = BTreeSet::new();
    for (at, one) in items(&source["sources"]).iter().enumerate() {
        let of_one = path.child("sources").index(at);
        for kind in ["secret", "configMap", "downwardAPI"] {
            let (source, at) = (&one[kind], of_one.child(kind));
            if source.is_null() {
                continue;
            }
            if kind == "downwardAPI" {
                for file in items(&source["items"]) {
                    downward_file(file, &at, errors);
                }
            } else {
                required(&source["name"], "", &at.child("name"), errors);
                keys(source, &at, errors);
            }
            for file in items(&source["items"]) {
                let place = string(&file["path"]);
                if !place.is_empty() && !places.insert(place) {
                    let text = "conflicting duplicate paths";
                    errors.push(FieldError::invalid(path, string(&source["name"]), text));
                }
            }
        }
        token(&one["serviceAccountToken"], &of_one, path, errors);
        let kinds = ["secret", "configMap", "downwardAPI", "serviceAccountToken"];
        let count = kinds.iter().filter(|kind| !one[**kind].is_null()).count();
        if count > 1 {
            errors.push(FieldError::forbidden(&of_one, ONE_SOURCE));
        }
    }
}

/// A token. A real server names the volume for the path of its file.
fn token(token: &Value, path: &Path, volume: &Path, errors: &mut Errors) {
    if token.is_null() {
        return;
    }
    let at = path.child("serviceAccountToken").child("expirationSeconds");
    let seconds = &token["expirationSeconds"];
    let short = "may not specify a duration less than 10 minutes";
    let long = "may not specify a duration larger than 2^32 seconds";
    check::between(seconds, TOKEN_LIFE.0..=i64::MAX, short, &at, errors);
    check::between(seconds, i64::MIN..=TOKEN_LIFE.1, long, &at, errors);
    let at = volume.child("path");
    if required(&token["path"], "", &at, errors) {
        local_path(&token["path"], &at, errors);
    }
}

fn downward_file(file: &Value, path: &Path, errors: &mut Errors) {
    required(&file["path"], "", &path.child("path"), errors);
    local_path(&file["path"], &path.child("path"), errors);
    let (field, resource) = (&file["fieldRef"], &file["resourceFieldRef"]);
    match (field.is_null(), resource.is_null()) {
        (true, true) => errors.push(FieldError::required(
            path,
            "one of fieldRef and resourceFieldRef is required",
        )),
        (true, false) => {
            let path = path.child("resourceFieldRef");
            if required(
                &resource["containerName"],
                "",
                &path.child("containerName"),
                errors,
            ) {
                resource_reference(resource, &path, errors);
            }
        }
        (false, both) => {
            field_reference(field, FILE_FIELDS, &path.child("fieldRef"), errors);
            if !both {
                let text = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid(path, "resource", text));
            }
        }
    }
    file_mode(&file["mode"], &path.child("mode"), errors);
}

// === references ===

/// Checks a reference to one of `known` fields, or to one label or annotation.
pub(super) fn field_reference(reference: &Value, known: &[&str], path: &Path, errors: &mut Errors) {
    let at = path.child("fieldPath");
    if !required(
        &reference["apiVersion"],
        "",
        &path.child("apiVersion"),
        errors,
    ) || !required(&reference["fieldPath"], "", &at, errors)
    {
        return;
    }
    let field = string(&reference["fieldPath"]);
    let part = field
        .strip_suffix("']")
        .and_then(|rest| rest.split_once("['"));
    match part {
        Some(("metadata.annotations", key)) => {
            refuse(&key.to_lowercase(), names::qualified_name, path, errors);
        }
        Some(("metadata.labels", key)) => refuse(key, names::qualified_name, path, errors),
        _ if known.contains(&field) => {}
        _ if reference["apiVersion"] == "v1"
            && [VARIABLE_FIELDS, OTHER_FIELDS]
                .iter()
                .any(|all| all.contains(&field)) =>
        {
            errors.push(FieldError::not_supported(&at, field, known));
        }
        _ => errors.push(FieldError::invalid(
            &at,
            field,
            format!("error converting fieldPath: field label not supported: {field}"),
        )),
    }
}

/// Checks a reference to a resource of a container.
pub(super) fn resource_reference(reference: &Value, path: &Path, errors: &mut Errors) {
    let resource = string(&reference["resource"]);
    let is_page = ["requests.hugepages-", "limits.hugepages-"]
        .iter()
        .any(|prefix| resource.starts_with(prefix));
    let at = path.child("resource");
    if required(&reference["resource"], "", &at, errors)
        && !is_page
        && !RESOURCES.contains(&resource)
    {
        errors.push(FieldError::not_supported(&at, resource, RESOURCES));
    }
    let divisor = reference["divisor"].as_str().unwrap_or("0");
    let (fits, unit) = match resource.rsplit_once('.') {
        Some((_, "cpu")) => (["0", "1m", "1"].contains(&divisor), "cpu"),
        Some((_, kind)) if is_page || RESOURCES.contains(&resource) => {
            (DIVISORS.contains(&divisor), kind)
        }
        _ => return,
    };
    if !fits {
        errors.push(FieldError::invalid(
            &path.child("divisor"),
            resource,
            format!("divisor {divisor} is not supported with the {unit} resource"),
        ));
    }
}

/// Checks a reference to a key of a ConfigMap or Secret.
pub(super) fn key_reference(reference: &Value, path: &Path, errors: &mut Errors) {
    let name = string(&reference["name"]);
    refuse(name, names::dns_subdomain, &path.child("name"), errors);
    let at = path.child("key");
    if required(&reference["key"], "", &at, errors) {
        refuse(string(&reference["key"]), names::config_key, &at, errors);
    }
}
