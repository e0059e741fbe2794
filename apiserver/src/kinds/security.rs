//! The checks of the security context of a Pod and of a container.
//!
//! (kubernetes: `validatePodSpecSecurityContext`, `ValidateSecurityContext`.)

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::check;
use crate::field::{Errors, FieldError, Path};
use crate::table::cells::{items, string};

const IDS: std::ops::RangeInclusive<i64> = 0..=2_147_483_647;
const ID: &str = "must be between 0 and 2147483647, inclusive";
const SYSCTL: &str = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
/// Fields of a Pod's context and their values.
const CHOICES: &[(&str, &[&str])] = &[
    ("fsGroupChangePolicy", &["Always", "OnRootMismatch"]),
    ("supplementalGroupsPolicy", &["Merge", "Strict"]),
    ("seLinuxChangePolicy", &["MountOption", "Recursive"]),
];
/// The beginnings of settings that belong to the IPC namespace.
const IPC: &[&str] = &["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."];

static SYSCTL_FORM: LazyLock<Regex> = LazyLock::new(|| {
    let text = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    Regex::new(text).expect("a constant expression")
});

/// Checks the context of a Pod.
pub(super) fn pod(spec: &Value, path: &Path, errors: &mut Errors) {
    let context = &spec["securityContext"];
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        check::between(&context[field], IDS, ID, &path.child(field), errors);
    }
    let groups = items(&context["supplementalGroups"]);
    for (at, group) in groups.iter().enumerate() {
        let path = path.child("supplementalGroups").index(at);
        check::between(group, IDS, ID, &path, errors);
    }
    if spec["shareProcessNamespace"] == true && spec["hostPID"] == true {
        errors.push(FieldError::invalid(
            &path.child("shareProcessNamespace"),
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        ));
    }
    sysctls(spec, path, errors);
    for (field, choices) in CHOICES {
        check::allowed(&context[*field], &path.child(field), choices, errors);
    }
    profiles(context, path, errors);
}

fn sysctls(spec: &Value, path: &Path, errors: &mut Errors) {
    let mut known = BTreeSet::new();
    let all = items(&spec["securityContext"]["sysctls"]);
    for (at, one) in all.iter().enumerate() {
        let path = path.child("sysctls").index(at).child("name");
        let name = string(&one["name"]);
        if check::required(&one["name"], "", &path, errors) {
            if name.len() > 253 || !SYSCTL_FORM.is_match(name) {
                errors.push(FieldError::invalid(&path, name, SYSCTL));
            } else if !known.insert(name) {
                errors.push(FieldError::duplicate(&path, name));
            }
        }
        let dotted = name.replace('/', ".");
        let of_network = dotted.starts_with("net.");
        let of_ipc = IPC.iter().any(|prefix| dotted.starts_with(prefix));
        for (belongs, field) in [(of_network, "hostNetwork"), (of_ipc, "hostIPC")] {
            if belongs && spec[field] == true {
                let text = format!("may not be specified when '{field}' is true");
                errors.push(FieldError::invalid(&path, name, text));
            }
        }
    }
}

/// Checks the profiles of either context.
fn profiles(context: &Value, path: &Path, errors: &mut Errors) {
    for field in ["seccompProfile", "appArmorProfile"] {
        let (profile, path) = (&context[field], path.child(field));
        if profile.is_null() {
            continue;
        }
        let local = &profile["localhostProfile"];
        let at = path.child("localhostProfile");
        match string(&profile["type"]) {
            "Localhost" if local.is_null() => {
                errors.push(FieldError::required(
                    &at,
                    "must be set when type is Localhost",
                ));
            }
            "Localhost" => {}
            "RuntimeDefault" | "Unconfined" if !local.is_null() => {
                let text = "can only be set when type is Localhost";
                errors.push(FieldError::invalid(&at, local.clone(), text));
            }
            "RuntimeDefault" | "Unconfined" => {}
            "" => {
                let text = "type is required";
                errors.push(FieldError::required(&path.child("type"), text));
            }
            other => errors.push(FieldError::not_supported(
                &path.child("type"),
                other,
                &["Localhost", "RuntimeDefault", "Unconfined"],
            )),
        }
    }
}

/// Checks the context of a container.
pub(super) fn container(context: &Value, path: &Path, errors: &mut Errors) {
    for field in ["runAsUser", "runAsGroup"] {
        check::between(&context[field], IDS, ID, &path.child(field), errors);
    }
    let mounts = &context["procMount"];
    check::allowed(
        mounts,
        &path.child("procMount"),
        &["Default", "Unmasked"],
        errors,
    );
    profiles(context, path, errors);
    if context["allowPrivilegeEscalation"] != false {
        return;
    }
    let added = items(&context["capabilities"]["add"]);
    let conflicts = [
        (context["privileged"] == true, "`privileged` to true"),
        (
            added.iter().any(|one| one == "CAP_SYS_ADMIN"),
            "`capabilities.Add` CAP_SYS_ADMIN",
        ),
    ];
    for (_, what) in conflicts.iter().filter(|(conflict, _)| *conflict) {
        let text = format!("cannot set `allowPrivilegeEscalation` to false and {what}");
        errors.push(FieldError::invalid(path, context.clone(), text));
    }
}
