//! The checks of dynamic resource allocation: DeviceClasses, ResourceClaims and their templates.
//! (kubernetes: `pkg/apis/resource/validation`.)

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::csi_rules::driver_name;
use super::{check, immutable};
use crate::cel;
use crate::field::{Errors, FieldError, Path};
use crate::labels::{check_annotations, check_labels};
use crate::names;
use crate::table::cells::{items, string};

/// The most requests, constraints, configurations and selectors.
const MOST: usize = 32;
const MOST_ALTERNATIVES: usize = 8;
const LONGEST_IDENTIFIER: i64 = 32;
const MODES: &[&str] = &["All", "ExactCount"];
const OPERATORS: &[&str] = &["Equal", "Exists"];
pub(super) const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];
const ONE_OF_REQUESTS: &str = "exactly one of `exactly` or `firstAvailable` is required";
const NO_REQUEST: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
const IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";

/// The requests of a claim with their alternatives.
type Requests<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

// === DeviceClasses ===

/// Checks a DeviceClass.
pub(super) fn class(class: &Value, errors: &mut Errors) {
    let (spec, path) = (&class["spec"], Path::new("spec"));
    selectors(&spec["selectors"], &path.child("selectors"), errors);
    each(
        &spec["config"],
        MOST,
        &path.child("config"),
        errors,
        configuration,
    );
    let extended = &spec["extendedResourceName"];
    if !extended.is_null() && !is_extended(string(extended)) {
        let text = "must be a valid extended resource name";
        let path = path.child("extendedResourceName");
        errors.push(FieldError::invalid(&path, string(extended), text));
    }
}

/// (component-helpers: `IsExtendedResourceName`.)
fn is_extended(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

// === claims ===

/// Checks a ResourceClaim.
pub(super) fn claim(claim: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("spec");
    match old {
        None => claim_spec(&claim["spec"], &path, errors),
        Some(old) => immutable::field(&claim["spec"], &old["spec"], &path, errors),
    }
}

/// Checks a ResourceClaimTemplate. Rules that are declared with its type hold for updates, too.
pub(super) fn template(template: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (&template["spec"], Path::new("spec"));
    if let Some(old) = old {
        immutable::field(spec, &old["spec"], &path, errors);
    }
    let metadata = path.child("metadata");
    let of = |field: &str| (&spec["metadata"][field], metadata.child(field));
    let (labels, at) = of("labels");
    check_labels(labels, &at, errors);
    let (annotations, at) = of("annotations");
    check_annotations(annotations, &at, errors);
    claim_spec(&spec["spec"], &path.child("spec"), errors);
}

fn claim_spec(spec: &Value, path: &Path, errors: &mut Errors) {
    let (devices, path) = (&spec["devices"], path.child("devices"));
    let mut known = Requests::new();
    for request in items(&devices["requests"]) {
        let alternatives = items(&request["firstAvailable"]).iter();
        let alternatives = alternatives.map(|one| string(&one["name"])).collect();
        known.insert(string(&request["name"]), alternatives);
    }
    let at = path.child("requests");
    each(&devices["requests"], MOST, &at, errors, request);
    unique(&devices["requests"], "name", &at, errors);
    let at = path.child("constraints");
    each(
        &devices["constraints"],
        MOST,
        &at,
        errors,
        |one, path, errors| {
            references(&one["requests"], &known, &path.child("requests"), errors);
            let fields = ["matchAttribute", "distinctAttribute"];
            let Some(field) = fields.into_iter().find(|field| !one[*field].is_null()) else {
                let text = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
                errors.push(FieldError::required(path, text));
                return;
            };
            full_name(string(&one[field]), &path.child(field), errors);
        },
    );
    let at = path.child("config");
    each(
        &devices["config"],
        MOST,
        &at,
        errors,
        |one, path, errors| {
            references(&one["requests"], &known, &path.child("requests"), errors);
            configuration(one, path, errors);
        },
    );
}

fn request(request: &Value, path: &Path, errors: &mut Errors) {
    check::name(
        &request["name"],
        names::dns_label,
        &path.child("name"),
        errors,
    );
    let alternatives = &request["firstAvailable"];
    let has_alternatives = !items(alternatives).is_empty();
    match (request["exactly"].is_null(), has_alternatives) {
        (true, false) => errors.push(FieldError::required(path, ONE_OF_REQUESTS)),
        (false, true) => {
            let text = format!("{ONE_OF_REQUESTS}, but multiple fields are set");
            errors.push(FieldError::invalid(path, Value::Null, text));
        }
        (false, false) => exact(&request["exactly"], &path.child("exactly"), errors),
        (true, true) => {
            let at = path.child("firstAvailable");
            each(
                alternatives,
                MOST_ALTERNATIVES,
                &at,
                errors,
                |one, path, errors| {
                    check::name(&one["name"], names::dns_label, &path.child("name"), errors);
                    exact(one, path, errors);
                },
            );
            unique(alternatives, "name", &at, errors);
        }
    }
}

fn exact(request: &Value, path: &Path, errors: &mut Errors) {
    let class = path.child("deviceClassName");
    check::name(
        &request["deviceClassName"],
        names::dns_subdomain,
        &class,
        errors,
    );
    selectors(&request["selectors"], &path.child("selectors"), errors);
    let count = request["count"].as_i64().unwrap_or(0);
    match string(&request["allocationMode"]) {
        "All" if count != 0 => {
            let text = "must not be specified when allocationMode is 'All'";
            errors.push(FieldError::invalid(&path.child("count"), count, text));
        }
        "ExactCount" if count <= 0 => {
            let text = "must be greater than zero";
            errors.push(FieldError::invalid(&path.child("count"), count, text));
        }
        _ => {
            let mode = path.child("allocationMode");
            check::supported(&request["allocationMode"], &mode, MODES, errors);
        }
    }
    for (at, one) in items(&request["tolerations"]).iter().enumerate() {
        toleration(one, &path.child("tolerations").index(at), errors);
    }
}

fn toleration(toleration: &Value, path: &Path, errors: &mut Errors) {
    let value = string(&toleration["value"]);
    check::optional(
        &toleration["key"],
        names::qualified_name,
        &path.child("key"),
        errors,
    );
    match string(&toleration["operator"]) {
        "Exists" if !value.is_empty() => {
            let text = "must be empty for operator `Exists`";
            errors.push(FieldError::invalid(&path.child("value"), value, text));
        }
        "Exists" => {}
        "Equal" => check::refuse(value, names::label_value, &path.child("value"), errors),
        _ => check::one_of(
            &toleration["operator"],
            &path.child("operator"),
            OPERATORS,
            errors,
        ),
    }
    if !string(&toleration["effect"]).is_empty() {
        check::supported(
            &toleration["effect"],
            &path.child("effect"),
            EFFECTS,
            errors,
        );
    }
}

fn selectors(list: &Value, path: &Path, errors: &mut Errors) {
    each(list, MOST, path, errors, |selector, path, errors| {
        let path = path.child("cel");
        if selector["cel"].is_null() {
            errors.push(FieldError::required(&path, ""));
            return;
        }
        let expression = string(&selector["cel"]["expression"]);
        if let Some(problem) = cel::selector_problem(expression) {
            let path = path.child("expression");
            errors.push(FieldError::invalid(&path, expression, problem));
        }
    });
}

fn configuration(one: &Value, path: &Path, errors: &mut Errors) {
    let (opaque, path) = (&one["opaque"], path.child("opaque"));
    if opaque.is_null() {
        errors.push(FieldError::required(&path, ""));
        return;
    }
    driver_name(&opaque["driver"], &path.child("driver"), errors);
    let parameters = path.child("parameters");
    match &opaque["parameters"] {
        Value::Null => errors.push(FieldError::required(&parameters, "")),
        Value::Object(_) => {}
        _ => {
            let (shown, text) = ("<value omitted>", "must be a valid JSON object");
            errors.push(FieldError::invalid(&parameters, shown, text));
        }
    }
}

fn references(list: &Value, known: &Requests<'_>, path: &Path, errors: &mut Errors) {
    each(list, MOST, path, errors, |name, path, errors| {
        let name = string(name);
        let parts: Vec<&str> = name.split('/').collect();
        if parts.len() > 2 {
            errors.push(FieldError::invalid(path, name, NO_REQUEST));
            return;
        }
        for part in &parts {
            if part.is_empty() {
                errors.push(FieldError::required(path, ""));
            } else {
                check::refuse(part, names::dns_label, path, errors);
            }
        }
        let found = known.get(parts[0]);
        let is_known = match (found, parts.get(1)) {
            (Some(alternatives), Some(part)) => alternatives.contains(part),
            (found, _) => found.is_some(),
        };
        if !is_known {
            errors.push(FieldError::invalid(path, name, NO_REQUEST));
        }
    });
    let mut known = BTreeSet::new();
    for (at, name) in items(list).iter().enumerate() {
        if !known.insert(string(name)) {
            errors.push(FieldError::duplicate(&path.index(at), string(name)));
        }
    }
}

// === names ===

/// Refuses a name that is neither an identifier nor one with a domain before it.
pub(super) fn qualified(name: &str, path: &Path, errors: &mut Errors) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [name] => identifier(name, path, errors),
        [domain, name] => {
            if domain.is_empty() {
                errors.push(FieldError::invalid(
                    path,
                    "",
                    "the domain must not be empty",
                ));
            } else {
                driver_name(&domain.into(), path, errors);
            }
            if name.is_empty() {
                errors.push(FieldError::invalid(path, "", "the name must not be empty"));
            } else {
                identifier(name, path, errors);
            }
        }
        _ => {}
    }
}

fn full_name(name: &str, path: &Path, errors: &mut Errors) {
    qualified(name, path, errors);
    if !name.contains('/') {
        let text = "a fully qualified name must be a domain and a name separated by a slash";
        errors.push(FieldError::invalid(path, name, text));
    }
}

fn identifier(name: &str, path: &Path, errors: &mut Errors) {
    too_long(name, LONGEST_IDENTIFIER, path, errors);
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if !starts || !name.bytes().all(is_part) {
        errors.push(FieldError::invalid(path, name, IDENTIFIER));
    }
}

pub(super) fn too_long(text: &str, most: i64, path: &Path, errors: &mut Errors) {
    if i64::try_from(text.len()).unwrap_or(i64::MAX) > most {
        errors.push(FieldError::too_long(path, most));
    }
}

// === lists ===

/// Checks each item of a list; a list that is too long has this error only.
pub(super) fn each(
    list: &Value,
    most: usize,
    path: &Path,
    errors: &mut Errors,
    check: impl Fn(&Value, &Path, &mut Errors),
) {
    let all = items(list);
    if all.len() > most {
        errors.push(FieldError::too_many(path, all.len(), most as u64));
        return;
    }
    for (at, one) in all.iter().enumerate() {
        check(one, &path.index(at), errors);
    }
}

/// Refuses items with the name of an earlier one.
pub(super) fn unique(list: &Value, field: &str, path: &Path, errors: &mut Errors) {
    let mut known = BTreeSet::new();
    for (at, one) in items(list).iter().enumerate() {
        let name = string(&one[field]);
        if !known.insert(name) {
            errors.push(FieldError::duplicate(&path.index(at), name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_may_bind_names() {
        for valid in [
            "cel.bind(dra, device.attributes['dra.example.com'], dra.someBool && dra.anotherBool)",
            "device.attributes.all(domain, some, some.exists(name, value, value == domain))",
            "device.attributes.transformList(domain, some, some.size() > 0, domain).size() == 1",
        ] {
            assert_eq!(cel::selector_problem(valid), None, "{valid}");
        }
        for (wrong, name) in [
            ("cel.bind(dra, dra.a, true)", "dra"),
            ("cel.bind(dra, device, true) && dra.a", "dra"),
            ("device.attributes.all(domain, some, other)", "other"),
        ] {
            let problem = cel::selector_problem(wrong).expect(wrong);
            let expected = format!("undeclared reference to '{name}'");
            assert!(problem.contains(&expected), "{wrong}: {problem}");
        }
    }
}
