//! Validation of a container: ports, variables, mounts, resources, probes.
//!
//! (kubernetes: `validateContainerCommon` in `pkg/apis/core/validation/validation.go`.)

use std::collections::BTreeSet;

use serde_json::Value;

use super::check::{self, not_negative, one_of, port, port_number};
use super::{security, volume_rules};
use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::schema::compare_quantities;

const VARIABLE_NAME: &str = "a valid environment variable name must consist only of printable ASCII characters other than '='";
/// Sources of an environment variable's value.
const VALUE_SOURCES: &[&str] = &[
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
];
/// The actions of a probe or a hook.
const HANDLERS: &[&str] = &["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

/// Checks what all containers have in common.
pub(super) fn container(one: &Value, volumes: &BTreeSet<&str>, path: &Path, errors: &mut Errors) {
    check::name(&one["name"], names::dns_label, &path.child("name"), errors);
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
    security::container(
        &one["securityContext"],
        &path.child("securityContext"),
        errors,
    );
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

fn environment(one: &Value, whole: &Path, errors: &mut Errors) {
    let path = whole;
    for (at, variable) in items(one, "env") {
        let path = path.child("env").index(at);
        let name = variable["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            errors.push(FieldError::required(&path.child("name"), ""));
        }
        variable_name(name, &path.child("name"), errors);
        let Some(from) = variable["valueFrom"].as_object() else {
            continue;
        };
        value_source(&variable["valueFrom"], &path.child("valueFrom"), errors);
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
    for (at, source) in items(one, "envFrom") {
        let path = path.child("envFrom").index(at);
        let prefix = source["prefix"].as_str().unwrap_or_default();
        if !prefix.is_empty() {
            variable_name(prefix, &path.child("prefix"), errors);
        }
        for reference in ["configMapRef", "secretRef"] {
            if !source[reference].is_null() {
                let (name, path) = (
                    &source[reference]["name"],
                    path.child(reference).child("name"),
                );
                check::name(name, names::dns_subdomain, &path, errors);
            }
        }
        let problem = match (
            source["configMapRef"].is_null(),
            source["secretRef"].is_null(),
        ) {
            (true, true) => "must specify one of: `configMapRef` or `secretRef`",
            (false, false) => "may not have more than one field specified at a time",
            _ => continue,
        };
        errors.push(FieldError::invalid(&whole.child("envFrom"), "", problem));
    }
}

fn variable_name(name: &str, path: &Path, errors: &mut Errors) {
    if name.chars().any(|c| !(' '..='~').contains(&c) || c == '=') {
        errors.push(FieldError::invalid(path, name, VARIABLE_NAME));
    }
}

/// Checks the source of a variable's value.
fn value_source(from: &Value, path: &Path, errors: &mut Errors) {
    for kind in VALUE_SOURCES {
        let (reference, path) = (&from[*kind], path.child(kind));
        match *kind {
            _ if reference.is_null() => {}
            "fieldRef" => {
                let known = volume_rules::VARIABLE_FIELDS;
                volume_rules::field_reference(reference, known, &path, errors);
            }
            "resourceFieldRef" => volume_rules::resource_reference(reference, &path, errors),
            "configMapKeyRef" | "secretKeyRef" => {
                volume_rules::key_reference(reference, &path, errors);
            }
            _ => {}
        }
    }
}

fn mounts(one: &Value, volumes: &BTreeSet<&str>, whole: &Path, errors: &mut Errors) {
    let path = whole;
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
        // A real server does not name the mount for these.
        let list = whole.child("volumeMounts");
        for field in ["subPath", "subPathExpr"] {
            volume_rules::inner_path(&mount[field], &list.child(field), errors);
        }
        check::allowed(
            &mount["mountPropagation"],
            &list.child("mountPropagation"),
            &["Bidirectional", "HostToContainer", "None"],
            errors,
        );
        recursion(mount, &list.child("recursiveReadOnly"), errors);
    }
}

/// Checks whether what is mounted below a mount may be read-only, too.
fn recursion(mount: &Value, path: &Path, errors: &mut Errors) {
    const MODES: &[&str] = &["Disabled", "Enabled", "IfPossible"];
    let mode = &mount["recursiveReadOnly"];
    check::allowed(mode, path, MODES, errors);
    if !matches!(mode.as_str(), Some("Enabled" | "IfPossible")) {
        return;
    }
    if mount["readOnly"] != true {
        let text = "may only be specified when readOnly is true";
        errors.push(FieldError::forbidden(path, text));
    }
    if !matches!(mount["mountPropagation"].as_str(), None | Some("None")) {
        let text = "may only be specified when mountPropagation is None or not specified";
        errors.push(FieldError::forbidden(path, text));
    }
}

/// Checks the requests and limits of a container.
fn resources(resources: &Value, path: &Path, errors: &mut Errors) {
    let quantity = |list: &str, name: &str| resources[list][name].as_str();
    for list in ["limits", "requests"] {
        for (name, amount) in resources[list].as_object().into_iter().flatten() {
            let at = path.child(list).key(name);
            check::container_resource(name, &at, errors);
            check::resource_amount(amount, &at, errors);
            let amount = amount.as_str().unwrap_or("0");
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

/// Checks the probes and hooks of a container that runs beside others.
pub(super) fn probes(one: &Value, path: &Path, errors: &mut Errors) {
    for hook in ["postStart", "preStop"] {
        let value = &one["lifecycle"][hook];
        if !value.is_null() {
            handler(value, &path.child("lifecycle").child(hook), errors);
        }
    }
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

/// Checks the one action of a probe or a hook.
fn handler(probe: &Value, path: &Path, errors: &mut Errors) {
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
}

fn probe(probe: &Value, path: &Path, errors: &mut Errors) {
    handler(probe, path, errors);
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

fn items<'a>(map: &'a Value, field: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    map[field].as_array().into_iter().flatten().enumerate()
}
