//! The checks of what webhooks and policies have in common: rules and conditions.

use serde_json::Value;

use crate::cel::{self, Declared, Wanted};
use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::table::cells::{items, string};

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];
/// The most conditions of a webhook or policy.
const MOST_CONDITIONS: usize = 64;

/// A list of which `*` is the only item, if it is one of them.
fn alone(list: &Value, path: &Path, others: &str, errors: &mut Errors) {
    let values = items(list);
    if values.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if values.len() > 1 && values.iter().any(|value| value == "*") {
        errors.push(FieldError::invalid(
            path,
            list.clone(),
            format!("if '*' is present, must not specify other {others}"),
        ));
    }
}

/// Checks a rule of a webhook or policy.
pub(super) fn rule(rule: &Value, path: &Path, errors: &mut Errors) {
    for (field, others) in [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
    ] {
        alone(&rule[field], &path.child(field), others, errors);
    }
    for (at, operation) in items(&rule["operations"]).iter().enumerate() {
        if !OPERATIONS.contains(&string(operation)) {
            errors.push(FieldError::not_supported(
                &path.child("operations").index(at),
                operation.clone(),
                OPERATIONS,
            ));
        }
    }
    for (at, version) in items(&rule["apiVersions"]).iter().enumerate() {
        if string(version).is_empty() {
            let path = path.child("apiVersions").index(at);
            errors.push(FieldError::required(&path, ""));
        }
    }
    resources(&rule["resources"], &path.child("resources"), errors);
    let scope = &rule["scope"];
    if !scope.is_null() && !SCOPES.contains(&string(scope)) {
        errors.push(FieldError::not_supported(
            &path.child("scope"),
            scope.clone(),
            SCOPES,
        ));
    }
}

fn resources(list: &Value, path: &Path, errors: &mut Errors) {
    let all: Vec<&str> = items(list).iter().map(string).collect();
    if all.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    for (at, one) in all.iter().enumerate() {
        if one.is_empty() {
            errors.push(FieldError::required(&path.index(at), ""));
            continue;
        }
        let Some((resource, part)) = one.split_once('/') else {
            continue;
        };
        for general in [format!("{resource}/*"), format!("*/{part}")] {
            if all[..at].contains(&general.as_str()) {
                errors.push(FieldError::invalid(
                    &path.index(at),
                    *one,
                    format!("if '{general}' is present, must not specify {one}"),
                ));
            }
        }
    }
    if all.len() > 1 && all.contains(&"*/*") {
        errors.push(FieldError::invalid(
            path,
            list.clone(),
            "if '*/*' is present, must not specify other resources",
        ));
    }
    let last_whole = all
        .iter()
        .rfind(|one| !one.is_empty() && !one.contains('/'));
    if all.contains(&"*") && last_whole.is_some_and(|last| *last != "*") {
        errors.push(FieldError::invalid(
            path,
            list.clone(),
            "if '*' is present, must not specify other resources without subresources",
        ));
    }
}

/// Checks `matchConditions`, which may use parameters.
pub(super) fn conditions(list: &Value, path: &Path, has_params: bool, errors: &mut Errors) {
    let declared = Declared {
        has_params,
        ..Declared::default()
    };
    let all = items(list);
    if all.len() > MOST_CONDITIONS {
        errors.push(FieldError::too_many(path, all.len(), 64));
    }
    for (at, condition) in all.iter().enumerate() {
        let path = path.index(at);
        let (expression, at_it) = (string(&condition["expression"]), path.child("expression"));
        if expression.trim().is_empty() {
            errors.push(FieldError::required(&at_it, ""));
        } else if let Some(problem) = cel::expression_problem(expression, &declared, Wanted::Bool) {
            errors.push(FieldError::invalid(&at_it, expression, problem));
        }
        let (name, path) = (string(&condition["name"]), path.child("name"));
        if name.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        for problem in names::qualified_name(name) {
            errors.push(FieldError::invalid(&path, name, problem));
        }
        if all[..at].iter().any(|other| string(&other["name"]) == name) {
            errors.push(FieldError::duplicate(&path, name));
        }
    }
}
