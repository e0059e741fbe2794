//! The checks of ResourceQuotas.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::schema::compare_quantities;
use crate::table::cells::{items, string};

/// Resources of Pods that are computed with.
const COMPUTE: &[&str] = &[
    "cpu",
    "memory",
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
];
const STORED: &[&str] = &[
    "ephemeral-storage",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
];
/// Resources that are counted.
const COUNTED: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
/// Scopes that exclude each other.
const OPPOSITES: [[&str; 2]; 2] = [
    ["BestEffort", "NotBestEffort"],
    ["Terminating", "NotTerminating"],
];

/// Checks a quota.
pub(super) fn validate(quota: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (&quota["spec"], Path::new("spec"));
    let hard = spec["hard"].as_object().into_iter().flatten();
    for (name, amount) in hard {
        let path = path.child("hard").key(name);
        resource(name, &path, errors);
        limit(name, string(amount), &path, errors);
    }
    scopes(spec, &path.child("scopes"), errors);
    let set = |of: &Value| -> BTreeSet<String> {
        let scopes = items(&of["spec"]["scopes"]).iter();
        scopes.map(|scope| string(scope).to_owned()).collect()
    };
    if old.is_some_and(|old| set(old) != set(quota)) {
        errors.push(FieldError::invalid(
            &path.child("scopes"),
            spec["scopes"].clone(),
            "field is immutable",
        ));
    }
}

fn is_standard(name: &str) -> bool {
    [COMPUTE, STORED, COUNTED]
        .iter()
        .any(|of| of.contains(&name))
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-")
}

fn resource(name: &str, path: &Path, errors: &mut Errors) {
    let problems = names::qualified_name(name);
    let valid = problems.is_empty();
    for problem in problems {
        errors.push(FieldError::invalid(path, name, problem));
    }
    if name.contains('/') || is_standard(name) {
        return;
    }
    if valid && name != "storage" {
        errors.push(FieldError::invalid(
            path,
            name,
            "must be a standard resource type or fully qualified",
        ));
    }
    errors.push(FieldError::invalid(
        path,
        name,
        "must be a standard resource for quota",
    ));
}

fn limit(name: &str, amount: &str, path: &Path, errors: &mut Errors) {
    if compare_quantities(amount, "0").is_some_and(std::cmp::Ordering::is_lt) {
        errors.push(FieldError::invalid(
            path,
            amount,
            "must be greater than or equal to 0",
        ));
    }
    // In the form in which quantities are stored, a part of one ends in `m`, `u` or `n`.
    if COUNTED.contains(&name) && amount.ends_with(['m', 'u', 'n']) {
        errors.push(FieldError::invalid(path, amount, "must be an integer"));
    }
}

fn scopes(spec: &Value, path: &Path, errors: &mut Errors) {
    let list = &spec["scopes"];
    let all: Vec<&str> = items(list).iter().map(string).collect();
    let mut refuse = |text: &str| errors.push(FieldError::invalid(path, list.clone(), text));
    for scope in &all {
        if !SCOPES.contains(scope) {
            refuse("unsupported scope");
        }
        for (name, _) in spec["hard"].as_object().into_iter().flatten() {
            if is_standard(name) && !applies(scope, name) {
                refuse("unsupported scope applied to resource");
            }
        }
    }
    for pair in OPPOSITES {
        if pair.iter().all(|scope| all.contains(scope)) {
            refuse("conflicting scopes");
        }
    }
}

/// Whether a quota of this scope can limit a resource.
fn applies(scope: &str, name: &str) -> bool {
    match scope {
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        scope if SCOPES.contains(&scope) => name == "pods" || COMPUTE.contains(&name),
        _ => true,
    }
}
