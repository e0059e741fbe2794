//! Validation of a Pod's spec, alone or in the template of a workload.
//!
//! The most frequent checks, in the order and with the texts of a real server. Left out: volume sources,
//! security contexts, affinity, topology spread, DNS configuration, lifecycle hooks, host port conflicts, device and
//! claim references. (kubernetes: `ValidatePodSpec` in `pkg/apis/core/validation/validation.go`.)

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::schema::compare_quantities;

const BETWEEN_PORTS: &str = "must be between 1 and 65535, inclusive";
const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
const VARIABLE_NAME: &str = "a valid environment variable name must consist only of printable ASCII characters other than '='";
/// Sources of an environment variable's value.
const VALUE_SOURCES: &[&str] = &[
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
];
/// The actions of a probe.
const HANDLERS: &[&str] = &["exec", "httpGet", "tcpSocket", "grpc"];

/// Checks the spec of a Pod, or of a template, at `path`. `claims`: the claims of a StatefulSet, whose volumes its
/// Pods get besides their own.
pub(crate) fn validate(spec: &Value, claims: &Value, path: &Path, errors: &mut Errors) {
    let mut volumes = volumes(spec, path, errors);
    let claims = claims.as_array().into_iter().flatten();
    volumes.extend(claims.filter_map(|claim| claim["metadata"]["name"].as_str()));
    containers(spec, &volumes, path, errors);
    init_containers(spec, &volumes, path, errors);
    one_of(
        &spec["restartPolicy"],
        &path.child("restartPolicy"),
        &["Always", "OnFailure", "Never"],
        errors,
    );
    one_of(
        &spec["dnsPolicy"],
        &path.child("dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        errors,
    );
    labels(&spec["nodeSelector"], &path.child("nodeSelector"), errors);
    for field in ["serviceAccountName", "nodeName"] {
        text(spec, field, path, names::dns_subdomain, errors);
    }
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        errors.push(FieldError::invalid(
            &path.child("activeDeadlineSeconds"),
            seconds,
            "must be between 1 and 2147483647, inclusive",
        ));
    }
    for field in ["hostname", "subdomain"] {
        text(spec, field, path, names::dns_label, errors);
    }
    tolerations(spec, path, errors);
    text(
        spec,
        "priorityClassName",
        path,
        names::dns_subdomain,
        errors,
    );
}

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

/// Refuses keys and values that are not valid labels.
pub(crate) fn labels(labels: &Value, path: &Path, errors: &mut Errors) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        for problem in names::qualified_name(key) {
            errors.push(FieldError::invalid(path, key.as_str(), problem));
        }
        let value = value.as_str().unwrap_or_default();
        for problem in names::label_value(value) {
            errors.push(FieldError::invalid(path, value, problem));
        }
    }
}

/// Checks an optional text.
fn text(map: &Value, field: &str, path: &Path, rule: fn(&str) -> Vec<String>, errors: &mut Errors) {
    let text = map[field].as_str().unwrap_or_default();
    if text.is_empty() {
        return;
    }
    for problem in rule(text) {
        errors.push(FieldError::invalid(&path.child(field), text, problem));
    }
}

/// Checks a required name.
fn name(map: &Value, path: &Path, errors: &mut Errors) {
    let name = map["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    } else {
        text(map, "name", path, names::dns_label, errors);
    }
}

fn items<'a>(map: &'a Value, field: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    map[field].as_array().into_iter().flatten().enumerate()
}

/// The names of the volumes that can be mounted.
fn volumes<'a>(spec: &'a Value, path: &Path, errors: &mut Errors) -> BTreeSet<&'a str> {
    let mut known = BTreeSet::new();
    for (at, volume) in items(spec, "volumes") {
        let path = path.child("volumes").index(at);
        let before = errors.len();
        name(volume, &path, errors);
        let name = volume["name"].as_str().unwrap_or_default();
        if known.contains(name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        if errors.len() == before {
            known.insert(name);
        }
    }
    known
}

fn containers(spec: &Value, volumes: &BTreeSet<&str>, path: &Path, errors: &mut Errors) {
    let path = path.child("containers");
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required(&path, ""));
    }
    let mut known = BTreeSet::new();
    for (at, one) in items(spec, "containers") {
        let path = path.index(at);
        container(one, volumes, &path, errors);
        let name = one["name"].as_str().unwrap_or_default();
        if !known.insert(name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        probes(one, &path, errors);
    }
}

fn init_containers(spec: &Value, volumes: &BTreeSet<&str>, path: &Path, errors: &mut Errors) {
    let path = path.child("initContainers");
    let mut known: BTreeSet<&str> = items(spec, "containers")
        .filter_map(|(_, one)| one["name"].as_str())
        .collect();
    for (at, one) in items(spec, "initContainers") {
        let path = path.index(at);
        container(one, volumes, &path, errors);
        let name = one["name"].as_str().unwrap_or_default();
        if !name.is_empty() && !known.insert(name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        if one["restartPolicy"] == "Always" {
            probes(one, &path, errors);
            continue;
        }
        for field in [
            "lifecycle",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
        ] {
            if !one[field].is_null() {
                errors.push(FieldError::forbidden(
                    &path.child(field),
                    "may not be set for init containers without restartPolicy=Always",
                ));
            }
        }
    }
}

fn container(one: &Value, volumes: &BTreeSet<&str>, path: &Path, errors: &mut Errors) {
    name(one, path, errors);
    if one["image"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required(&path.child("image"), ""));
    }
    one_of(
        &one["terminationMessagePolicy"],
        &path.child("terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
        errors,
    );
    container_ports(one, path, errors);
    environment(one, path, errors);
    mounts(one, volumes, path, errors);
    one_of(
        &one["imagePullPolicy"],
        &path.child("imagePullPolicy"),
        &["Always", "IfNotPresent", "Never"],
        errors,
    );
    resources(&one["resources"], &path.child("resources"), errors);
}

fn container_ports(one: &Value, path: &Path, errors: &mut Errors) {
    let mut known = BTreeSet::new();
    for (at, port) in items(one, "ports") {
        let path = path.child("ports").index(at);
        let name = port["name"].as_str().unwrap_or_default();
        if !name.is_empty() {
            let problems = names::port_name(name);
            if problems.is_empty() && !known.insert(name) {
                errors.push(FieldError::duplicate(&path.child("name"), name));
            }
            for problem in problems {
                errors.push(FieldError::invalid(&path.child("name"), name, problem));
            }
        }
        match port["containerPort"].as_i64().unwrap_or(0) {
            0 => errors.push(FieldError::required(&path.child("containerPort"), "")),
            number => port_number(number, &path.child("containerPort"), errors),
        }
        if let Some(number) = port["hostPort"].as_i64().filter(|&number| number != 0) {
            port_number(number, &path.child("hostPort"), errors);
        }
        one_of(
            &port["protocol"],
            &path.child("protocol"),
            &["SCTP", "TCP", "UDP"],
            errors,
        );
    }
}

fn environment(one: &Value, path: &Path, errors: &mut Errors) {
    for (at, variable) in items(one, "env") {
        let path = path.child("env").index(at);
        let name = variable["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        } else if name.chars().any(|c| !(' '..='~').contains(&c) || c == '=') {
            errors.push(FieldError::invalid(
                &path.child("name"),
                name,
                VARIABLE_NAME,
            ));
        }
        let Some(from) = variable["valueFrom"].as_object() else {
            continue;
        };
        let sources = VALUE_SOURCES
            .iter()
            .filter(|source| from.contains_key(**source))
            .count();
        let has_value = !variable["value"].as_str().unwrap_or_default().is_empty();
        let problem = match (sources, has_value) {
            (0, _) => {
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
            }
            (_, true) => "may not be specified when `value` is not empty",
            (1, false) => continue,
            _ => "may not have more than one field specified at a time",
        };
        errors.push(FieldError::invalid(&path.child("valueFrom"), "", problem));
    }
}

fn mounts(one: &Value, volumes: &BTreeSet<&str>, path: &Path, errors: &mut Errors) {
    let mut places = BTreeSet::new();
    for (at, mount) in items(one, "volumeMounts") {
        let path = path.child("volumeMounts").index(at);
        let name = mount["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        }
        if !volumes.contains(name) {
            errors.push(FieldError::not_found(&path.child("name"), name));
        }
        let place = mount["mountPath"].as_str().unwrap_or_default();
        let path = path.child("mountPath");
        if place.is_empty() {
            errors.push(FieldError::required(&path, ""));
        }
        if !places.insert(place) {
            errors.push(FieldError::invalid(&path, place, "must be unique"));
        }
    }
}

/// Checks the requests and limits of a container.
fn resources(resources: &Value, path: &Path, errors: &mut Errors) {
    let quantity = |list: &str, name: &str| resources[list][name].as_str();
    for list in ["limits", "requests"] {
        for (name, amount) in resources[list].as_object().into_iter().flatten() {
            let amount = amount.as_str().unwrap_or_default();
            let at = path.child(list).key(name);
            if compare_quantities(amount, "0").is_some_and(std::cmp::Ordering::is_lt) {
                errors.push(FieldError::invalid(&at, amount, NOT_NEGATIVE));
            }
            let Some(limit) = quantity("limits", name).filter(|_| list == "requests") else {
                continue;
            };
            // Other resources than these cannot be overcommitted.
            let is_native = !name.contains('/') || name.contains("kubernetes.io/");
            let is_divisible = is_native && !name.starts_with("hugepages-");
            let problem = match compare_quantities(amount, limit) {
                Some(std::cmp::Ordering::Greater) if is_divisible => "less than or equal",
                Some(order) if order.is_ne() && !is_divisible => "equal",
                _ => continue,
            };
            errors.push(FieldError::invalid(
                &path.child("requests"),
                amount,
                format!("must be {problem} to {name} limit of {limit}"),
            ));
        }
    }
}

fn probes(one: &Value, path: &Path, errors: &mut Errors) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let value = &one[field];
        if value.is_null() {
            continue;
        }
        let path = path.child(field);
        probe(value, &path, errors);
        if field == "readinessProbe" {
            let seconds = &value["terminationGracePeriodSeconds"];
            if !seconds.is_null() {
                errors.push(FieldError::invalid(
                    &path.child("terminationGracePeriodSeconds"),
                    seconds.clone(),
                    "must not be set for readinessProbes",
                ));
            }
        } else if value["successThreshold"] != 1 {
            errors.push(FieldError::invalid(
                &path.child("successThreshold"),
                value["successThreshold"].clone(),
                "must be 1",
            ));
        }
    }
}

fn probe(probe: &Value, path: &Path, errors: &mut Errors) {
    let mut handlers = 0;
    for handler in HANDLERS {
        let action = &probe[*handler];
        if action.is_null() {
            continue;
        }
        handlers += 1;
        let path = path.child(handler);
        if handlers > 1 {
            errors.push(FieldError::forbidden(
                &path,
                "may not specify more than 1 handler type",
            ));
            continue;
        }
        match *handler {
            "exec" if action["command"].as_array().is_none_or(Vec::is_empty) => {
                errors.push(FieldError::required(&path.child("command"), ""));
            }
            "httpGet" => {
                port(&action["port"], &path.child("port"), errors);
                one_of(
                    &action["scheme"],
                    &path.child("scheme"),
                    &["HTTP", "HTTPS"],
                    errors,
                );
            }
            "tcpSocket" => port(&action["port"], &path.child("port"), errors),
            "grpc" => port_number(
                action["port"].as_i64().unwrap_or(0),
                &path.child("port"),
                errors,
            ),
            _ => {}
        }
    }
    if handlers == 0 {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        not_negative(&probe[field], &path.child(field), errors);
    }
    if let Some(seconds) = probe["terminationGracePeriodSeconds"].as_i64()
        && seconds <= 0
    {
        errors.push(FieldError::invalid(
            &path.child("terminationGracePeriodSeconds"),
            seconds,
            "must be greater than 0",
        ));
    }
}

/// Checks the tolerations of a Pod.
pub(crate) fn tolerations(spec: &Value, path: &Path, errors: &mut Errors) {
    for (at, toleration) in items(spec, "tolerations") {
        let path = path.child("tolerations").index(at);
        let text = |field: &str| toleration[field].as_str().unwrap_or_default();
        let (key, operator, value, effect) =
            (text("key"), text("operator"), text("value"), text("effect"));
        if key.is_empty() && operator != "Exists" {
            errors.push(FieldError::invalid(
                &path.child("operator"),
                operator,
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ));
        }
        if !key.is_empty() {
            for problem in names::qualified_name(key) {
                errors.push(FieldError::invalid(&path.child("key"), key, problem));
            }
        }
        if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
            errors.push(FieldError::invalid(
                &path.child("effect"),
                effect,
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            ));
        }
        let path_of_operator = path.child("operator");
        match operator {
            "" | "Equal" => {
                let problems = names::label_value(value);
                if !problems.is_empty() {
                    errors.push(FieldError::invalid(
                        &path_of_operator,
                        value,
                        problems.join(";"),
                    ));
                }
            }
            "Exists" if !value.is_empty() => errors.push(FieldError::invalid(
                &path_of_operator,
                value,
                "value must be empty when `operator` is 'Exists'",
            )),
            "Exists" => {}
            other => errors.push(FieldError::not_supported(
                &path_of_operator,
                other,
                &["Equal", "Exists"],
            )),
        }
        if !effect.is_empty() {
            one_of(
                &toleration["effect"],
                &path.child("effect"),
                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
                errors,
            );
        }
    }
}
