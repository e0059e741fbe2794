//! The checks of admission policies.

use serde_json::Value;

use super::match_rules::{conditions, rule};
use super::selectors;
use crate::cel::{self, Declared, Wanted};
use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::table::cells::{items, string};

/// The most audit annotations of a policy.
const MOST_ANNOTATIONS: usize = 20;
/// The greatest length of the expression of an annotation, in bytes.
const LONGEST_ANNOTATION: usize = 5 * 1024;

/// Checks a policy that checks objects.
pub(super) fn validating(object: &Value, errors: &mut Errors) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let has_params = common(spec, &path, false, errors);
    let names = variables(&spec["variables"], has_params, &path, errors);
    let declared = Declared {
        has_params,
        variables: (!names.is_empty()).then_some(&*names),
        ..Declared::default()
    };
    let (validations, annotations) = (&spec["validations"], &spec["auditAnnotations"]);
    if items(validations).is_empty() && items(annotations).is_empty() {
        for field in ["validations", "auditAnnotations"] {
            errors.push(FieldError::required(
                &path.child(field),
                "validations or auditAnnotations must contain at least one item",
            ));
        }
        return;
    }
    for (at, one) in items(validations).iter().enumerate() {
        validation(one, &path.child("validations").index(at), &declared, errors);
    }
    let name = crate::meta::text(object, "name");
    audit(
        annotations,
        &path.child("auditAnnotations"),
        name,
        &declared,
        errors,
    );
}

/// Checks a policy that changes objects.
pub(super) fn mutating(object: &Value, errors: &mut Errors) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let has_params = common(spec, &path, true, errors);
    let names = variables(&spec["variables"], has_params, &path, errors);
    let declared = Declared {
        has_params,
        variables: Some(&names),
        has_patch_types: true,
        ..Declared::default()
    };
    let mutations = items(&spec["mutations"]);
    let path_of_all = path.child("mutations");
    if mutations.is_empty() {
        errors.push(FieldError::required(
            &path_of_all,
            "mutations must contain at least one item",
        ));
    }
    for (at, one) in mutations.iter().enumerate() {
        mutation(one, &path_of_all.index(at), &declared, errors);
    }
    let policy = &spec["reinvocationPolicy"];
    one_of(
        policy,
        &path.child("reinvocationPolicy"),
        &["IfNeeded", "Never"],
        errors,
    );
}

/// Checks what both kinds of policies have. Whether the policy has parameters.
fn common(spec: &Value, path: &Path, is_mutating: bool, errors: &mut Errors) -> bool {
    one_of(
        &spec["failurePolicy"],
        &path.child("failurePolicy"),
        &["Fail", "Ignore"],
        errors,
    );
    let kind = &spec["paramKind"];
    let has_params = kind.is_object();
    if has_params {
        parameter_kind(kind, &path.child("paramKind"), errors);
    }
    let (constraints, matched) = (&spec["matchConstraints"], path.child("matchConstraints"));
    if constraints.is_object() {
        match_resources(constraints, &matched, errors);
        if items(&constraints["resourceRules"]).is_empty() {
            errors.push(FieldError::required(&matched.child("resourceRules"), ""));
        }
        if is_mutating {
            only_writes(constraints, &matched, errors);
        }
    } else {
        errors.push(FieldError::required(&matched, ""));
    }
    let list = &spec["matchConditions"];
    conditions(list, &path.child("matchConditions"), has_params, errors);
    has_params
}

/// Checks a field that has one of some values.
pub(super) fn one_of(value: &Value, path: &Path, allowed: &[&str], errors: &mut Errors) {
    if string(value).is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !allowed.contains(&string(value)) {
        errors.push(FieldError::not_supported(path, value.clone(), allowed));
    }
}

fn parameter_kind(source: &Value, path: &Path, errors: &mut Errors) {
    let (api_version, at) = (string(&source["apiVersion"]), path.child("apiVersion"));
    let mut refuse = |value: &str, why: String| errors.push(FieldError::invalid(&at, value, why));
    let parts: Vec<&str> = api_version.split('/').collect();
    match parts.as_slice() {
        [""] => errors.push(FieldError::required(&at, "")),
        [version] | [_, version] => {
            let group = if parts.len() == 2 { parts[0] } else { "" };
            if !group.is_empty() {
                let problems = names::dns_subdomain(group);
                if !problems.is_empty() {
                    refuse(group, problems.join(","));
                }
            }
            if version.is_empty() {
                refuse(api_version, "version must be specified".to_owned());
            } else {
                let problems = names::dns_1035_label(version);
                if !problems.is_empty() {
                    refuse(version, problems.join(","));
                }
            }
        }
        _ => refuse(
            api_version,
            format!("unexpected GroupVersion string: {api_version}"),
        ),
    }
    let (kind, at) = (string(&source["kind"]), path.child("kind"));
    let problems = names::dns_1035_label(&kind.to_lowercase());
    if kind.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else if !problems.is_empty() {
        errors.push(FieldError::invalid(
            &at,
            kind,
            format!(
                "may have mixed case, but should otherwise match: {}",
                problems.join(",")
            ),
        ));
    }
}

/// Checks what a policy or binding matches.
pub(super) fn match_resources(source: &Value, path: &Path, errors: &mut Errors) {
    let policy = &source["matchPolicy"];
    one_of(
        policy,
        &path.child("matchPolicy"),
        &["Equivalent", "Exact"],
        errors,
    );
    for field in ["namespaceSelector", "objectSelector"] {
        let (selector, path) = (&source[field], path.child(field));
        if selector.is_null() {
            errors.push(FieldError::required(&path, ""));
        }
        selectors::validate(selector, &path, errors);
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for (at, one) in items(&source[field]).iter().enumerate() {
            let path = path.child(field).index(at);
            resource_names(&one["resourceNames"], &path.child("resourceNames"), errors);
            rule(one, &path, errors);
        }
    }
}

fn resource_names(list: &Value, path: &Path, errors: &mut Errors) {
    for (at, name) in items(list).iter().enumerate() {
        for problem in names::path_segment(string(name)) {
            errors.push(FieldError::invalid(&path.index(at), string(name), problem));
        }
        if items(list)[..at].contains(name) {
            errors.push(FieldError::duplicate(&path.index(at), string(name)));
        }
    }
}

/// Only creations and updates can be changed.
pub(super) fn only_writes(source: &Value, path: &Path, errors: &mut Errors) {
    const ALLOWED: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
    let operations = items(&source["resourceRules"])
        .iter()
        .flat_map(|rule| items(&rule["operations"]));
    for operation in operations.filter(|one| !ALLOWED.contains(&string(one))) {
        errors.push(FieldError::not_supported(
            &path.child("resourceRules").child("operations"),
            operation.clone(),
            ALLOWED,
        ));
    }
}

/// Checks the variables, each of which may use those before it. The names of all.
fn variables(list: &Value, has_params: bool, path: &Path, errors: &mut Errors) -> Vec<String> {
    let mut names = Vec::new();
    for (at, variable) in items(list).iter().enumerate() {
        let path = path.child("variables").index(at);
        let name = string(&variable["name"]);
        if name.trim().is_empty() {
            let why = "name is not specified";
            errors.push(FieldError::required(&path.child("name"), why));
        } else if !is_identifier(name) {
            let why = "must be a valid CEL identifier";
            errors.push(FieldError::invalid(&path.child("name"), name, why));
        }
        let declared = Declared {
            has_params,
            variables: Some(&names),
            ..Declared::default()
        };
        let (source, path) = (&variable["expression"], path.child("expression"));
        let why = "expression is not specified";
        expression(source, &path, why, &declared, Wanted::Any, errors);
        names.push(name.to_owned());
    }
    names
}

fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    let is_letter = |character: char| character.is_ascii_alphabetic() || character == '_';
    characters.next().is_some_and(is_letter)
        && characters.all(|character| is_letter(character) || character.is_ascii_digit())
        && cel::escape(name) != format!("__{name}__")
}

/// Checks an expression that must not be empty.
fn expression(
    source: &Value,
    path: &Path,
    missing: &str,
    declared: &Declared<'_>,
    wanted: Wanted,
    errors: &mut Errors,
) {
    let text = string(source);
    if text.trim().is_empty() {
        errors.push(FieldError::required(path, missing));
    } else if let Some(problem) = cel::expression_problem(text, declared, wanted) {
        errors.push(FieldError::invalid(path, text, problem));
    }
}

fn validation(source: &Value, path: &Path, declared: &Declared<'_>, errors: &mut Errors) {
    let missing = "expression is not specified";
    let at = path.child("expression");
    expression(
        &source["expression"],
        &at,
        missing,
        declared,
        Wanted::Bool,
        errors,
    );
    let (text, at) = (
        string(&source["messageExpression"]),
        path.child("messageExpression"),
    );
    if !text.is_empty() && text.trim().is_empty() {
        errors.push(FieldError::invalid(
            &at,
            text,
            "must be non-empty if specified",
        ));
    } else if !text.is_empty() {
        expression(
            &source["messageExpression"],
            &at,
            "",
            // (apiserver: `validateMessageExpression`.)
            &Declared {
                without_authorizer: true,
                ..*declared
            },
            Wanted::Text,
            errors,
        );
    }
    let (text, at) = (string(&source["message"]), path.child("message"));
    if !text.is_empty() && text.trim().is_empty() {
        errors.push(FieldError::invalid(
            &at,
            text,
            "must be non-empty if specified",
        ));
    } else if text.trim().contains(['\n', '\r']) {
        errors.push(FieldError::invalid(
            &at,
            text,
            "must not contain line breaks",
        ));
    }
    let reasons = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
    if !source["reason"].is_null() {
        let reason = &source["reason"];
        if !reasons.contains(&string(reason)) {
            errors.push(FieldError::not_supported(
                &path.child("reason"),
                reason.clone(),
                reasons,
            ));
        }
    }
}

fn audit(list: &Value, path: &Path, name: &str, declared: &Declared<'_>, errors: &mut Errors) {
    let all = items(list);
    if all.len() > MOST_ANNOTATIONS {
        errors.push(FieldError::invalid(
            path,
            list.clone(),
            format!("must not have more than {MOST_ANNOTATIONS} auditAnnotations"),
        ));
    }
    for (at, annotation) in all.iter().enumerate() {
        let (path, key) = (path.index(at), string(&annotation["key"]));
        let at_key = path.child("key");
        if name.is_empty() {
            let why = "requires metadata.name be non-empty";
            errors.push(FieldError::invalid(&at_key, key, why));
        } else {
            let qualified = format!("{name}/{key}");
            for problem in names::qualified_name(&qualified) {
                errors.push(FieldError::invalid(&at_key, qualified.clone(), problem));
            }
        }
        let (value, at_value) = (
            &annotation["valueExpression"],
            path.child("valueExpression"),
        );
        if string(value).trim().len() > LONGEST_ANNOTATION {
            errors.push(FieldError::required(
                &at_value,
                format!("must not exceed {LONGEST_ANNOTATION} bytes in length"),
            ));
        } else {
            let missing = "valueExpression is not specified";
            expression(
                value,
                &at_value,
                missing,
                declared,
                Wanted::TextOrNull,
                errors,
            );
        }
        if all[..at].iter().any(|other| string(&other["key"]) == key) {
            errors.push(FieldError::duplicate(&at_key, key));
        }
    }
}

fn mutation(source: &Value, path: &Path, declared: &Declared<'_>, errors: &mut Errors) {
    let (own, other, wanted) = match string(&source["patchType"]) {
        "" => {
            errors.push(FieldError::required(&path.child("patchType"), ""));
            return;
        }
        "JSONPatch" => ("jsonPatch", "applyConfiguration", Wanted::JsonPatches),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Wanted::Object),
        _ => {
            errors.push(FieldError::not_supported(
                &path.child("patchType"),
                source["patchType"].clone(),
                &["ApplyConfiguration", "JSONPatch"],
            ));
            return;
        }
    };
    let of_type = |what: &str| {
        format!(
            "must {what}be specified when patchType is {}",
            string(&source["patchType"])
        )
    };
    let at = path.child(own);
    if source[own].is_object() {
        let (value, at) = (&source[own]["expression"], at.child("expression"));
        expression(value, &at, "", declared, wanted, errors);
    } else {
        errors.push(FieldError::required(&at, of_type("")));
    }
    if source[other].is_object() {
        let shown = format!("{{{other}}}");
        errors.push(FieldError::invalid(
            &path.child(other),
            shown,
            of_type("not "),
        ));
    }
}
