//! Checks that the rules of several kinds share, with the texts of a real server.

use std::cmp::Ordering;
use std::net::IpAddr;

use serde_json::Value;

use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::schema::compare_quantities;
use crate::table::cells::string;

const BETWEEN_PORTS: &str = "must be between 1 and 65535, inclusive";
const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
/// Whether Pods of a priority displace others.
pub(super) const PREEMPTION_POLICIES: &[&str] = &["PreemptLowerPriority", "Never"];
/// The resources of a container.
const COMPUTE: &[&str] = &["cpu", "memory", "ephemeral-storage"];
/// The other resources whose names have no prefix.
const STANDARD: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "configmaps",
    "services",
    "services.loadbalancers",
    "services.nodeports",
    "storage",
];

/// A rule for names: the problems of a text.
pub(super) type Rule = fn(&str) -> Vec<String>;

// === texts ===

/// Refuses a text that breaks `rule`.
pub(super) fn refuse(text: &str, rule: Rule, path: &Path, errors: &mut Errors) {
    for problem in rule(text) {
        errors.push(FieldError::invalid(path, text, problem));
    }
}

/// Refuses a text that breaks `rule`, unless it is empty or missing.
pub(super) fn optional(value: &Value, rule: Rule, path: &Path, errors: &mut Errors) {
    let text = string(value);
    if !text.is_empty() {
        refuse(text, rule, path, errors);
    }
}

/// Refuses an empty text, with the text `why`. Returns whether it is there.
pub(super) fn required(value: &Value, why: &str, path: &Path, errors: &mut Errors) -> bool {
    let is_there = !string(value).is_empty();
    if !is_there {
        errors.push(FieldError::required(path, why));
    }
    is_there
}

/// Refuses an empty text, and one that breaks `rule`.
pub(super) fn name(value: &Value, rule: Rule, path: &Path, errors: &mut Errors) {
    if required(value, "", path, errors) {
        refuse(string(value), rule, path, errors);
    }
}

/// Refuses a text outside of `allowed`, also an empty one; a missing one is valid.
pub(super) fn allowed(value: &Value, path: &Path, allowed: &[&str], errors: &mut Errors) {
    if !value.is_null() {
        supported(value, path, allowed, errors);
    }
}

/// Refuses a text outside of `allowed`; a missing one counts as an empty one.
pub(super) fn supported(value: &Value, path: &Path, allowed: &[&str], errors: &mut Errors) {
    let text = string(value);
    if !allowed.contains(&text) {
        errors.push(FieldError::not_supported(path, text, allowed));
    }
}

/// Refuses a text that is not an IP address.
pub(super) fn ip(text: &str, path: &Path, errors: &mut Errors) -> Option<IpAddr> {
    let address = text.parse().ok();
    if address.is_none() {
        errors.push(FieldError::invalid(path, text, IP));
    }
    address
}

// === numbers ===

/// Refuses a number that is less than `least`, which is what a missing one counts as if `least` is at most 0.
pub(super) fn between(
    value: &Value,
    range: std::ops::RangeInclusive<i64>,
    text: &str,
    path: &Path,
    errors: &mut Errors,
) {
    if let Some(number) = value.as_i64().filter(|number| !range.contains(number)) {
        errors.push(FieldError::invalid(path, number, text));
    }
}

/// Refuses permissions of a file that are not in octal 0 to 0777.
pub(super) fn file_mode(value: &Value, path: &Path, errors: &mut Errors) {
    between(value, 0..=0o777, FILE_MODE, path, errors);
}

// === quantities ===

/// Whether one quantity is greater than another.
pub(super) fn is_more(left: &str, right: &str) -> bool {
    compare_quantities(left, right) == Some(Ordering::Greater)
}

/// Refuses a quantity that is not greater than zero. A null one counts as zero.
pub(super) fn positive_quantity(value: &Value, text: &str, path: &Path, errors: &mut Errors) {
    let amount = value.as_str().unwrap_or("0");
    if !is_more(amount, "0") {
        errors.push(FieldError::invalid(path, amount, text));
    }
}

/// Refuses a name that is not one of a resource.
pub(super) fn resource_name(name: &str, path: &Path, errors: &mut Errors) {
    let problems = names::qualified_name(name);
    let is_standard = COMPUTE.contains(&name)
        || STANDARD.contains(&name)
        || name.starts_with("hugepages-")
        || name.starts_with("requests.hugepages-");
    if problems.is_empty() && !name.contains('/') && !is_standard {
        let text = "must be a standard resource type or fully qualified";
        errors.push(FieldError::invalid(path, name, text));
    }
    for problem in problems {
        errors.push(FieldError::invalid(path, name, problem));
    }
}

/// Refuses a name that is not one of a resource of containers.
pub(super) fn container_resource(name: &str, path: &Path, errors: &mut Errors) {
    resource_name(name, path, errors);
    let problem = if !name.contains('/') {
        let is_known = COMPUTE.contains(&name) || name.starts_with("hugepages-");
        (!is_known).then_some("must be a standard resource for containers")
    } else {
        let is_native = name.contains("kubernetes.io/");
        let is_extended = !name.starts_with("requests.")
            && names::qualified_name(&format!("requests.{name}")).is_empty();
        (!is_native && !is_extended).then_some("doesn't follow extended resource name standard")
    };
    if let Some(problem) = problem {
        errors.push(FieldError::invalid(path, name, problem));
    }
}

/// Refuses a quantity of a resource that is negative.
pub(super) fn resource_amount(amount: &Value, path: &Path, errors: &mut Errors) {
    let amount = amount.as_str().unwrap_or("0");
    if is_more("0", amount) {
        errors.push(FieldError::invalid(path, amount, NOT_NEGATIVE));
    }
}

// === the fields of several kinds ===

/// Refuses a negative number.
pub(crate) fn not_negative(number: &Value, path: &Path, errors: &mut Errors) {
    if let Some(number) = number.as_i64().filter(|&number| number < 0) {
        errors.push(FieldError::invalid(path, number, NOT_NEGATIVE));
    }
}

/// Refuses a text that is not one of `allowed`; an empty one is missing.
pub(crate) fn one_of(value: &Value, path: &Path, allowed: &[&str], errors: &mut Errors) {
    match value.as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required(path, "")),
        value if allowed.contains(&value) => {}
        value => errors.push(FieldError::not_supported(path, value, allowed)),
    }
}

/// Refuses a number that is not a port.
pub(crate) fn port_number(number: i64, path: &Path, errors: &mut Errors) {
    if !(1..=65535).contains(&number) {
        errors.push(FieldError::invalid(path, number, BETWEEN_PORTS));
    }
}

/// Refuses a value that is neither a port nor the name of one.
pub(crate) fn port(value: &Value, path: &Path, errors: &mut Errors) {
    match value {
        Value::String(name) => {
            for problem in names::port_name(name) {
                errors.push(FieldError::invalid(path, name.as_str(), problem));
            }
        }
        value => port_number(value.as_i64().unwrap_or(0), path, errors),
    }
}
