//! Validation of a Pod's spec, alone or in the template of a workload.
//!
//! The most frequent checks, in the order and with the texts of a real server. Left out: DNS configuration, device and
//! claim references, the rules of Windows. (kubernetes: `ValidatePodSpec` in `pkg/apis/core/validation/validation.go`.)

use std::collections::BTreeSet;

use serde_json::Value;

use super::check::{self, one_of};
use super::container_rules::{container, probes};
use super::{immutable, placement_rules, security, volume_rules};
use crate::field::{Errors, FieldError, Path};
use crate::labels::check_labels;
use crate::names;

const NO_EPHEMERAL: &str = "cannot be set for an Ephemeral Container";
/// The fields of a container that one for debugging cannot have.
const NOT_EPHEMERAL: &[&str] = &[
    "ports",
    "resources",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resizePolicy",
];

/// Checks the spec of a Pod, or of a template, at `path`.
pub(crate) fn validate(spec: &Value, path: &Path, errors: &mut Errors) {
    let volumes = volumes(spec, path, errors);
    containers(spec, &volumes, path, errors);
    init_containers(spec, &volumes, path, errors);
    ephemeral_containers(spec, &volumes, path, errors);
    host_ports(spec, path, errors);
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
    check_labels(&spec["nodeSelector"], &path.child("nodeSelector"), errors);
    security::pod(spec, &path.child("securityContext"), errors);
    placement_rules::affinity(&spec["affinity"], &path.child("affinity"), errors);
    for (at, gate) in items(spec, "readinessGates") {
        let path = path
            .child("readinessGates")
            .index(at)
            .child("conditionType");
        let kind = gate["conditionType"].as_str().unwrap_or_default();
        check::refuse(kind, names::qualified_name, &path, errors);
    }
    placement_rules::spread(spec, path, errors);
    for field in ["serviceAccountName", "nodeName"] {
        check::optional(
            &spec[field],
            names::dns_subdomain,
            &path.child(field),
            errors,
        );
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
        check::optional(&spec[field], names::dns_label, &path.child(field), errors);
    }
    tolerations(spec, path, errors);
    host_aliases(spec, path, errors);
    let class = &spec["priorityClassName"];
    check::optional(
        class,
        names::dns_subdomain,
        &path.child("priorityClassName"),
        errors,
    );
    if let Some(class) = spec["runtimeClassName"].as_str() {
        let path = path.child("runtimeClassName");
        check::refuse(class, names::dns_subdomain, &path, errors);
    }
    check::allowed(
        &spec["preemptionPolicy"],
        &path.child("preemptionPolicy"),
        check::PREEMPTION_POLICIES,
        errors,
    );
}

fn host_aliases(spec: &Value, path: &Path, errors: &mut Errors) {
    for (at, alias) in items(spec, "hostAliases") {
        let path = path.child("hostAliases").index(at);
        let ip = alias["ip"].as_str().unwrap_or_default();
        check::ip(ip, &path.child("ip"), errors);
        for (at, name) in items(alias, "hostnames") {
            let path = path.child("hostnames").index(at);
            let name = name.as_str().unwrap_or_default();
            check::refuse(name, names::dns_subdomain, &path, errors);
        }
    }
}

/// Checks containers for debugging, which have no role in the service of the Pod.
fn ephemeral_containers(spec: &Value, volumes: &BTreeSet<&str>, path: &Path, errors: &mut Errors) {
    let others: BTreeSet<&str> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| items(spec, list))
        .filter_map(|(_, one)| one["name"].as_str())
        .collect();
    let mut known = others.clone();
    for (at, one) in items(spec, "ephemeralContainers") {
        let path = path.child("ephemeralContainers").index(at);
        container(one, volumes, &path, errors);
        let name = one["name"].as_str().unwrap_or_default();
        if !known.insert(name) {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        let target = one["targetContainerName"].as_str().unwrap_or_default();
        if !target.is_empty() && !others.contains(target) {
            let path = path.child("targetContainerName");
            errors.push(FieldError::not_found(&path, target));
        }
        for field in NOT_EPHEMERAL {
            if !immutable::is_same(&one[*field], &Value::Null) {
                errors.push(FieldError::forbidden(&path.child(field), NO_EPHEMERAL));
            }
        }
        for (at, mount) in items(one, "volumeMounts") {
            let path = path.child("volumeMounts").index(at);
            for field in ["subPath", "subPathExpr"] {
                if mount[field].as_str().is_some_and(|place| !place.is_empty()) {
                    errors.push(FieldError::forbidden(&path.child(field), NO_EPHEMERAL));
                }
            }
        }
    }
}

/// Refuses host ports that occur twice, and those that differ from the port of a container in the network of the host.
fn host_ports(spec: &Value, path: &Path, errors: &mut Errors) {
    for list in ["containers", "initContainers"] {
        let mut known = BTreeSet::new();
        for (at, container) in items(spec, list) {
            let path = path.child(list).index(at);
            // Init containers run one after the other.
            if list == "initContainers" {
                known.clear();
            }
            for (at, port) in items(container, "ports") {
                let path = path.child("ports").index(at).child("hostPort");
                let number = port["hostPort"].as_i64().unwrap_or(0);
                let text = |field: &str| port[field].as_str().unwrap_or_default();
                let key = format!("{}/{}/{number}", text("protocol"), text("hostIP"));
                if number != 0 && !known.insert(key.clone()) {
                    errors.push(FieldError::duplicate(&path, key));
                }
                let inside = port["containerPort"].as_i64().unwrap_or(0);
                // A template may leave it out, because its Pods get it.
                let is_checked = list == "containers" && spec["hostNetwork"] == true;
                if is_checked && number != 0 && number != inside {
                    let text = "must match `containerPort` when `hostNetwork` is true";
                    errors.push(FieldError::invalid(&path, number, text));
                }
            }
        }
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
        volume_rules::source(volume, "core.v1.Volume", "VolumeSource", &path, errors);
        check::name(
            &volume["name"],
            names::dns_label,
            &path.child("name"),
            errors,
        );
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
