//! The checks of dynamic resource allocation: DeviceClasses, ResourceClaims, their templates, and ResourceSlices.
//! (kubernetes: `pkg/apis/resource/validation`.)

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::csi_rules::driver_name;
use super::placement_rules::node_selector;
use super::{check, immutable};
use crate::cel;
use crate::field::{Errors, FieldError, Path};
use crate::labels::{check_annotations, check_labels};
use crate::names;
use crate::table::cells::{items, string};

/// The most requests, constraints, configurations and selectors.
const MOST: usize = 32;
const MOST_ALTERNATIVES: usize = 8;
const MOST_DEVICES: usize = 128;
const MOST_ATTRIBUTES: usize = 32;
const LONGEST_ATTRIBUTE: i64 = 64;
const LONGEST_IDENTIFIER: i64 = 32;
const MODES: &[&str] = &["All", "ExactCount"];
const OPERATORS: &[&str] = &["Equal", "Exists"];
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];
const ONE_OF_REQUESTS: &str = "exactly one of `exactly` or `firstAvailable` is required";
const ONE_OF_NODES: &str =
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
const OF_ALL_DEVICES: &str = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
const NO_REQUEST: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
const ONE_VALUE: &str = "exactly one value must be specified";
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

// === ResourceSlices ===

/// Checks a ResourceSlice.
pub(super) fn slice(slice: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (&slice["spec"], Path::new("spec"));
    driver_name(&spec["driver"], &path.child("driver"), errors);
    pool(&spec["pool"], &path.child("pool"), errors);
    if let Some(old) = old {
        let old = &old["spec"];
        let name = path.child("pool").child("name");
        immutable::field(&spec["pool"]["name"], &old["pool"]["name"], &name, errors);
        for field in ["driver", "nodeName"] {
            immutable::field(&spec[field], &old[field], &path.child(field), errors);
        }
    }
    nodes(spec, &path, errors);
    let per_device = spec["perDeviceNodeSelection"] == true;
    if !spec["sharedCounters"].is_null() && !spec["devices"].is_null() {
        let text = "only one of `sharedCounters` or `devices` is allowed";
        errors.push(FieldError::invalid(&path, "", text));
    }
    let at = path.child("devices");
    each(
        &spec["devices"],
        MOST_DEVICES,
        &at,
        errors,
        |one, path, errors| {
            device(one, per_device, path, errors);
        },
    );
    unique(&spec["devices"], "name", &at, errors);
}

fn pool(pool: &Value, path: &Path, errors: &mut Errors) {
    let (name, at) = (string(&pool["name"]), path.child("name"));
    if check::required(&pool["name"], "", &at, errors) {
        if name.len() > 253 {
            errors.push(FieldError::too_long(&at, 253));
        }
        for part in name.split('/') {
            check::refuse(part, names::dns_subdomain, &at, errors);
        }
    }
    let count = pool["resourceSliceCount"].as_i64().unwrap_or(0);
    if count <= 0 {
        let text = "must be greater than zero";
        errors.push(FieldError::invalid(
            &path.child("resourceSliceCount"),
            count,
            text,
        ));
    }
    let generation = pool["generation"].as_i64().unwrap_or(0);
    if generation < 0 {
        let text = "must be greater than or equal to zero";
        errors.push(FieldError::invalid(
            &path.child("generation"),
            generation,
            text,
        ));
    }
}

/// Where the devices of a slice can be used.
fn nodes(spec: &Value, path: &Path, errors: &mut Errors) {
    let mut set = Vec::new();
    let name = path.child("nodeName");
    match spec["nodeName"].as_str() {
        None => {}
        Some("") => {
            let text = "must be either unset or set to a non-empty string";
            errors.push(FieldError::invalid(&name, "", text));
        }
        Some(node) => {
            set.push("`nodeName`");
            check::refuse(node, names::dns_subdomain, &name, errors);
        }
    }
    if !spec["nodeSelector"].is_null() {
        set.push("`nodeSelector`");
        let path = path.child("nodeSelector");
        node_selector(&spec["nodeSelector"], &path, errors);
        let terms = &spec["nodeSelector"]["nodeSelectorTerms"];
        if items(terms).len() != 1 {
            let (path, text) = (
                path.child("nodeSelectorTerms"),
                "must have exactly one node selector term",
            );
            errors.push(FieldError::invalid(&path, terms.clone(), text));
        }
    }
    for field in ["allNodes", "perDeviceNodeSelection"] {
        match spec[field].as_bool() {
            None => {}
            Some(true) => set.push(if field == "allNodes" {
                "`allNodes`"
            } else {
                "`perDeviceNodeSelection`"
            }),
            Some(false) => {
                let text = "must be either unset or set to true";
                errors.push(FieldError::invalid(&path.child(field), false, text));
            }
        }
    }
    match set.len() {
        0 => errors.push(FieldError::required(path, ONE_OF_NODES)),
        1 => {}
        _ => {
            let text = format!("{ONE_OF_NODES}, but multiple fields are set");
            let shown = format!("{{{}}}", set.join(", "));
            errors.push(FieldError::invalid(path, shown, text));
        }
    }
}

fn device(device: &Value, per_device: bool, path: &Path, errors: &mut Errors) {
    check::name(
        &device["name"],
        names::dns_label,
        &path.child("name"),
        errors,
    );
    let (attributes, capacity) = (
        device["attributes"].as_object(),
        device["capacity"].as_object(),
    );
    let count =
        attributes.map_or(0, serde_json::Map::len) + capacity.map_or(0, serde_json::Map::len);
    if count > MOST_ATTRIBUTES {
        let text = format!(
            "the total number of attributes and capacities must not exceed {MOST_ATTRIBUTES}"
        );
        errors.push(FieldError::invalid(path, count, text));
    }
    let at = path.child("attributes");
    for (name, value) in attributes.into_iter().flatten() {
        qualified(name, &at, errors);
        attribute(value, &at.key(name), errors);
    }
    let at = path.child("capacity");
    for (name, value) in capacity.into_iter().flatten() {
        qualified(name, &at, errors);
        if !value["requestPolicy"].is_null() && device["allowMultipleAllocations"] != true {
            let path = at.key(name).child("requestPolicy");
            errors.push(FieldError::forbidden(
                &path,
                "allowMultipleAllocations must be true",
            ));
        }
    }
    for (at, one) in items(&device["taints"]).iter().enumerate() {
        let path = path.child("taints").index(at);
        check::refuse(
            string(&one["key"]),
            names::qualified_name,
            &path.child("key"),
            errors,
        );
        check::optional(
            &one["value"],
            names::label_value,
            &path.child("value"),
            errors,
        );
        check::one_of(&one["effect"], &path.child("effect"), EFFECTS, errors);
    }
    let fields = ["nodeName", "nodeSelector", "allNodes"];
    if !per_device && fields.iter().any(|field| !device[*field].is_null()) {
        errors.push(FieldError::invalid(path, Value::Null, OF_ALL_DEVICES));
    }
}

fn attribute(value: &Value, path: &Path, errors: &mut Errors) {
    let fields = value.as_object();
    if let Some(text) = value["string"].as_str() {
        too_long(text, LONGEST_ATTRIBUTE, &path.child("string"), errors);
    }
    if let Some(text) = value["version"].as_str() {
        let path = path.child("version");
        if !is_semantic_version(text) {
            let wrong = "must be a string compatible with semver.org spec 2.0.0";
            errors.push(FieldError::invalid(&path, text, wrong));
        }
        too_long(text, LONGEST_ATTRIBUTE, &path, errors);
    }
    match fields.map_or(0, |fields| {
        fields.values().filter(|value| !value.is_null()).count()
    }) {
        0 => errors.push(FieldError::invalid(path, "", ONE_VALUE)),
        1 => {}
        _ => errors.push(FieldError::invalid(path, value.clone(), ONE_VALUE)),
    }
}

/// Whether a text is a version of semver.org 2.0.0.
fn is_semantic_version(text: &str) -> bool {
    let (rest, build) = match text.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (text, None),
    };
    let (core, release) = match rest.split_once('-') {
        Some((core, release)) => (core, Some(release)),
        None => (rest, None),
    };
    let is_number = |part: &str| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        digits && (part == "0" || !part.starts_with('0'))
    };
    let is_word = |part: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !part.is_empty() && part.bytes().all(is_allowed)
    };
    let is_release = |part: &str| {
        is_word(part) && (is_number(part) || part.bytes().any(|byte| !byte.is_ascii_digit()))
    };
    let numbers: Vec<&str> = core.split('.').collect();
    numbers.len() == 3
        && numbers.into_iter().all(is_number)
        && release.is_none_or(|release| release.split('.').all(is_release))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

// === names ===

/// Refuses a name that is neither an identifier nor one with a domain before it.
fn qualified(name: &str, path: &Path, errors: &mut Errors) {
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

fn too_long(text: &str, most: i64, path: &Path, errors: &mut Errors) {
    if i64::try_from(text.len()).unwrap_or(i64::MAX) > most {
        errors.push(FieldError::too_long(path, most));
    }
}

// === lists ===

/// Checks each item of a list; a list that is too long has this error only.
fn each(
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
fn unique(list: &Value, field: &str, path: &Path, errors: &mut Errors) {
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

    #[test]
    fn versions_are_those_of_semver() {
        for valid in ["1.2.3", "0.0.0", "1.2.3-a.1+b.01", "1.0.0-0a", "1.0.0+a-b"] {
            assert!(is_semantic_version(valid), "{valid}");
        }
        for invalid in [
            "1.2", "01.2.3", "1.2.3-01", "1.2.3-", "1.2.3+", "v1.2.3", "1.2.3.4",
        ] {
            assert!(!is_semantic_version(invalid), "{invalid}");
        }
    }
}
