//! The checks of LimitRanges. (kubernetes: `ValidateLimitRange`.)

use std::collections::BTreeSet;

use serde_json::Value;

use super::check::{self, is_more};
use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::schema::quantity_value;
use crate::table::cells::{items, string};

const TYPES: &[&str] = &["Container", "PersistentVolumeClaim", "Pod"];
/// The lists of a limit, in the order of the checks.
const LISTS: [&str; 5] = [
    "max",
    "min",
    "default",
    "defaultRequest",
    "maxLimitRequestRatio",
];
/// Pairs of lists whose first amount is not greater than the second: the list that the error names, and its texts.
const ORDERS: &[(&str, &str, &str, &str, &str)] = &[
    ("min", "max", "min", "min value", "max value"),
    (
        "min",
        "defaultRequest",
        "defaultRequest",
        "min value",
        "default request value",
    ),
    (
        "defaultRequest",
        "max",
        "defaultRequest",
        "default request value",
        "max value",
    ),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "default request value",
        "default limit value",
    ),
    ("min", "default", "default", "min value", "default value"),
    ("default", "max", "default", "default value", "max value"),
];

/// Checks a LimitRange.
pub(super) fn validate(range: &Value, errors: &mut Errors) {
    let path = Path::new("spec").child("limits");
    let all = items(&range["spec"]["limits"]);
    let mut types = BTreeSet::new();
    for (at, limit) in all.iter().enumerate() {
        let path = path.index(at);
        let (kind, of_kind) = (string(&limit["type"]), path.child("type"));
        let problems = names::qualified_name(kind);
        if problems.is_empty() && !kind.contains('/') && !TYPES.contains(&kind) {
            let text = "must be a standard limit type or fully qualified";
            errors.push(FieldError::invalid(&of_kind, kind, text));
        }
        check::refuse(kind, names::qualified_name, &of_kind, errors);
        if !types.insert(kind) {
            errors.push(FieldError::duplicate(&of_kind, kind));
        }
        one(limit, kind, &path, errors);
    }
}

fn one(limit: &Value, kind: &str, path: &Path, errors: &mut Errors) {
    let mut known = BTreeSet::new();
    for list in LISTS {
        let amounts = limit[list].as_object();
        if kind == "Pod" && list.starts_with("default") {
            if amounts.is_some_and(|amounts| !amounts.is_empty()) {
                let text = "may not be specified when `type` is 'Pod'";
                errors.push(FieldError::forbidden(&path.child(list), text));
            }
            continue;
        }
        for name in amounts.into_iter().flatten().map(|(name, _)| name) {
            let path = path.child(list).key(name);
            known.insert(name.as_str());
            match kind {
                "Pod" | "Container" => check::container_resource(name, &path, errors),
                _ => check::resource_name(name, &path, errors),
            }
        }
    }
    let storage = |list: &str| limit[list].get("storage").is_some();
    if kind == "PersistentVolumeClaim" && !storage("min") && !storage("max") {
        errors.push(FieldError::required(
            &path.child("limits"),
            "either minimum or maximum storage value is required, but neither was provided",
        ));
    }
    for name in known {
        amounts(limit, kind, name, path, errors);
    }
}

/// Checks the amounts of one resource against each other.
fn amounts(limit: &Value, kind: &str, name: &str, path: &Path, errors: &mut Errors) {
    let amount = |list: &str| {
        let counts = kind != "Pod" || !list.starts_with("default");
        let found = limit[list].get(name).filter(|_| counts);
        found.map(|amount| amount.as_str().unwrap_or("0"))
    };
    for (least, most, named, of_least, of_most) in ORDERS {
        let (Some(less), Some(more)) = (amount(least), amount(most)) else {
            continue;
        };
        if is_more(less, more) {
            errors.push(FieldError::invalid(
                &path.child(named).key(name),
                less,
                format!("{of_least} {less} is greater than {of_most} {more}"),
            ));
        }
    }
    ratio(
        &amount,
        &path.child("maxLimitRequestRatio").key(name),
        errors,
    );
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    let divisible = native && !name.starts_with("hugepages-");
    if let (Some(request), Some(default)) = (amount("defaultRequest"), amount("default"))
        && !divisible
        && (is_more(request, default) || is_more(default, request))
    {
        errors.push(FieldError::invalid(
            &path.child("defaultRequest").key(name),
            request,
            format!(
                "default value {default} must equal to defaultRequest value {request} in {name}"
            ),
        ));
    }
}

fn ratio<'a>(amount: &dyn Fn(&str) -> Option<&'a str>, path: &Path, errors: &mut Errors) {
    let Some(ratio) = amount("maxLimitRequestRatio") else {
        return;
    };
    if is_more("1", ratio) {
        let text = format!("ratio {ratio} is less than 1");
        errors.push(FieldError::invalid(path, ratio, text));
    }
    let value = |list: &str| amount(list).and_then(quantity_value);
    let Some((wanted, most)) = quantity_value(ratio).zip(value("max").zip(value("min"))) else {
        return;
    };
    // Thousandths are whole numbers, whose ratio is exact where it can be: 300m / 100m is 3.
    let most = (most.0 * 1000.0).round() / (most.1 * 1000.0).round();
    if wanted > most {
        let text = format!("ratio {ratio} is greater than max/min = {most:.6}");
        errors.push(FieldError::invalid(path, ratio, text));
    }
}
