//! The checks of APIServices. (kube-aggregator: `ValidateAPIService`.)

use serde_json::Value;

use super::check;
use crate::field::{Errors, FieldError, Path, quote};
use crate::meta;
use crate::names;
use crate::table::cells::string;

/// Checks an APIService, its name included.
pub(super) fn validate(service: &Value, errors: &mut Errors) {
    let (spec, path) = (&service["spec"], Path::new("spec"));
    let (group, version) = (string(&spec["group"]), string(&spec["version"]));
    let name = meta::text(service, "name");
    let expected = format!("{version}.{group}");
    if name != expected && names::path_segment(name).is_empty() {
        let text = format!(
            "must be `spec.version+\".\"+spec.group`: {}",
            quote(&expected)
        );
        let path = Path::new("metadata").child("name");
        errors.push(FieldError::invalid(&path, name, text));
    }
    if group.is_empty() && version != "v1" {
        let text = "only v1 may have an empty group and it better be legacy kube";
        errors.push(FieldError::required(&path.child("group"), text));
    }
    check::optional(
        &spec["group"],
        names::dns_subdomain,
        &path.child("group"),
        errors,
    );
    check::refuse(
        version,
        names::dns_1035_label,
        &path.child("version"),
        errors,
    );
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        let priority = spec[field].as_i64().unwrap_or(0);
        if priority <= 0 || priority > most {
            let text = format!("must be positive and less than {most}");
            errors.push(FieldError::invalid(&path.child(field), priority, text));
        }
    }
    let bundle = string(&spec["caBundle"]);
    let (insecure, at) = (
        spec["insecureSkipTLSVerify"] == true,
        path.child("insecureSkipTLSVerify"),
    );
    let (server, path_of) = (&spec["service"], path.child("service"));
    if server.is_null() {
        if !bundle.is_empty() {
            let shown = format!("{} bytes", bundle.len() / 4 * 3);
            let text = "local APIServices may not have a caBundle";
            errors.push(FieldError::invalid(&path.child("caBundle"), shown, text));
        }
        if insecure {
            let text = "local APIServices may not have insecureSkipTLSVerify";
            errors.push(FieldError::invalid(&at, true, text));
        }
        return;
    }
    check::required(
        &server["namespace"],
        "",
        &path_of.child("namespace"),
        errors,
    );
    check::required(&server["name"], "", &path_of.child("name"), errors);
    let port = server["port"].as_i64().unwrap_or(0);
    if !(1..=65535).contains(&port) {
        let text = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(&path_of.child("port"), port, text));
    }
    if insecure && !bundle.is_empty() {
        let text = "may not be true if caBundle is present";
        errors.push(FieldError::invalid(&at, true, text));
    }
}
