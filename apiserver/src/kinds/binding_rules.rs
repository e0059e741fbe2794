//! The checks of bindings of admission policies.

use serde_json::Value;

use super::policy_rules::{match_resources, one_of, only_writes};
use super::selectors;
use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::table::cells::{items, string};

/// Checks a binding of a policy that checks objects.
pub(super) fn validating(object: &Value, errors: &mut Errors) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    binding(spec, &path, errors);
    let (actions, path) = (&spec["validationActions"], path.child("validationActions"));
    let all = items(actions);
    for (at, action) in all.iter().enumerate() {
        if !matches!(string(action), "Audit" | "Deny" | "Warn") {
            errors.push(FieldError::not_supported(
                &path.index(at),
                action.clone(),
                &["Audit", "Deny", "Warn"],
            ));
        }
        if all[..at].contains(action) {
            errors.push(FieldError::duplicate(&path.index(at), string(action)));
        }
    }
    let has = |wanted: &str| all.iter().any(|action| action == wanted);
    if has("Deny") && has("Warn") {
        errors.push(FieldError::invalid(
            &path,
            actions.clone(),
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)",
        ));
    }
    if all.is_empty() {
        errors.push(FieldError::required(
            &path,
            "at least one validation action is required",
        ));
    }
}

/// Checks a binding of a policy that changes objects.
pub(super) fn mutating(object: &Value, errors: &mut Errors) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    binding(spec, &path, errors);
    only_writes(
        &spec["matchResources"],
        &path.child("matchResources"),
        errors,
    );
}

fn binding(spec: &Value, path: &Path, errors: &mut Errors) {
    let (name, at) = (string(&spec["policyName"]), path.child("policyName"));
    if name.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else {
        for problem in names::dns_subdomain(name) {
            errors.push(FieldError::invalid(&at, name, problem));
        }
    }
    if spec["paramRef"].is_object() {
        reference(&spec["paramRef"], &path.child("paramRef"), errors);
    }
    if spec["matchResources"].is_object() {
        match_resources(
            &spec["matchResources"],
            &path.child("matchResources"),
            errors,
        );
    }
}

fn reference(source: &Value, path: &Path, errors: &mut Errors) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, selector) = (string(&source["name"]), &source["selector"]);
    if !name.is_empty() {
        let at = path.child("name");
        for problem in names::path_segment(name) {
            errors.push(FieldError::invalid(&at, name, problem));
        }
        if selector.is_object() {
            errors.push(FieldError::forbidden(&at, EXCLUSIVE));
        }
    }
    if selector.is_object() {
        let at = path.child("selector");
        selectors::validate(selector, &at, errors);
        if !name.is_empty() {
            errors.push(FieldError::forbidden(&at, EXCLUSIVE));
        }
    } else if name.is_empty() {
        errors.push(FieldError::required(
            path,
            "one of name or selector must be specified",
        ));
    }
    let action = &source["parameterNotFoundAction"];
    one_of(
        action,
        &path.child("parameterNotFoundAction"),
        &["Deny", "Allow"],
        errors,
    );
}
