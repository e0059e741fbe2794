//! Validation of Services and of their updates.
//!
//! (kubernetes: `validateService` in `pkg/apis/core/validation/validation.go`.)

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::check::{self, one_of, port, port_number};
use super::endpoints::reachable;
use super::network_rules::network;
use super::services::{health_check_port, is_accessible, needs_health_check};
use crate::field::{ErrorKind, Errors, FieldError, Path};
use crate::labels::check_labels;
use crate::names;
use crate::table::cells::{self, string};

/// Limits of the session affinity.
const AFFINITY_SECONDS: std::ops::RangeInclusive<i64> = 1..=86_400;

/// Checks a Service.
pub(crate) fn validate(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = &object["spec"];
    let path = Path::new("spec");
    let kind = spec["type"].as_str().unwrap_or_default();
    let is_headless = spec["clusterIP"] == "None";
    let has_ports = spec["ports"]
        .as_array()
        .is_some_and(|ports| !ports.is_empty());
    if !has_ports && !is_headless && kind != "ExternalName" {
        errors.push(FieldError::required(&path.child("ports"), ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless => errors.push(FieldError::invalid(
            &path.child("clusterIPs").index(0),
            "None",
            format!("may not be set to 'None' for {kind} services"),
        )),
        "ExternalName" => external_name(spec, &path, errors),
        _ => {}
    }
    addresses(spec, &path, errors);
    ports(spec, &path, errors);
    check_labels(&spec["selector"], &path.child("selector"), errors);
    one_of(
        &spec["sessionAffinity"],
        &path.child("sessionAffinity"),
        &["ClientIP", "None"],
        errors,
    );
    let seconds = &spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"];
    if let Some(seconds) = seconds
        .as_i64()
        .filter(|seconds| !AFFINITY_SECONDS.contains(seconds))
    {
        errors.push(FieldError::invalid(
            &path
                .child("sessionAffinityConfig")
                .child("clientIP")
                .child("timeoutSeconds"),
            seconds,
            "must be greater than 0 and less than 86400",
        ));
    }
    if spec["sessionAffinity"] == "None" && !spec["sessionAffinityConfig"].is_null() {
        errors.push(FieldError::forbidden(
            &path.child("sessionAffinityConfig"),
            "must not be set when session affinity is None",
        ));
    }
    external_addresses(spec, old, &path, errors);
    one_of(
        &spec["type"],
        &path.child("type"),
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
        errors,
    );
    numbers(spec, kind, &path, errors);
    load_balancer(spec, old, kind, &path, errors);
    traffic(object, kind, &path, errors);
}

/// Checks the status of a Service.
pub(crate) fn status(object: &Value, errors: &mut Errors) {
    let ingress = object["status"]["loadBalancer"]["ingress"].as_array();
    if ingress.is_some_and(|all| !all.is_empty()) && object["spec"]["type"] != "LoadBalancer" {
        errors.push(FieldError::forbidden(
            &Path::new("status").child("loadBalancer").child("ingress"),
            "may only be used when `spec.type` is 'LoadBalancer'",
        ));
    }
}

/// A cluster address is immutable while it exists.
pub(crate) fn kept_address(object: &Value, old: &Value, errors: &mut Errors) {
    let external = |service: &Value| service["spec"]["type"] == "ExternalName";
    let (new, old_address) = (&object["spec"]["clusterIP"], &old["spec"]["clusterIP"]);
    if external(object) || external(old) || !old_address.is_string() || new == old_address {
        return;
    }
    errors.push(FieldError::invalid(
        &Path::new("spec").child("clusterIPs").index(0),
        json!([new]),
        "may not change once set",
    ));
}

/// The port of health checks is immutable while there are some.
pub(crate) fn kept_health_check_port(object: &Value, old: &Value, errors: &mut Errors) {
    let both = needs_health_check(old) && needs_health_check(object);
    if both && health_check_port(old) != health_check_port(object) {
        errors.push(FieldError::forbidden(
            &Path::new("spec").child("healthCheckNodePort"),
            "field is immutable",
        ));
    }
}

fn external_name(spec: &Value, path: &Path, errors: &mut Errors) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !spec[field].is_null() {
            errors.push(FieldError::forbidden(
                &path.child(field),
                "may not be set for ExternalName services",
            ));
        }
    }
    let path = path.child("externalName");
    let name = spec["externalName"].as_str().unwrap_or_default();
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        errors.push(FieldError::required(&path, ""));
        return;
    }
    for problem in names::dns_subdomain(name) {
        errors.push(FieldError::invalid(&path, name, problem));
    }
}

fn items(spec: &Value) -> impl Iterator<Item = (usize, &Value)> {
    spec["ports"].as_array().into_iter().flatten().enumerate()
}

fn ports(spec: &Value, path: &Path, errors: &mut Errors) {
    let several = items(spec).count() > 1;
    let mut known = BTreeSet::new();
    for (at, entry) in items(spec) {
        let path = path.child("ports").index(at);
        let name = entry["name"].as_str().unwrap_or_default();
        if !name.is_empty() {
            for problem in names::dns_label(name) {
                errors.push(FieldError::invalid(&path.child("name"), name, problem));
            }
            if !known.insert(name) {
                errors.push(FieldError::duplicate(&path.child("name"), name));
            }
        } else if several {
            errors.push(FieldError::required(&path.child("name"), ""));
        }
        let number = entry["port"].as_i64().unwrap_or(0);
        port_number(number, &path.child("port"), errors);
        one_of(
            &entry["protocol"],
            &path.child("protocol"),
            &["SCTP", "TCP", "UDP"],
            errors,
        );
        port(&entry["targetPort"], &path.child("targetPort"), errors);
        if let Some(protocol) = entry["appProtocol"].as_str() {
            let path = path.child("appProtocol");
            check::refuse(protocol, names::qualified_name, &path, errors);
        }
    }
}

/// Checks that the two fields with cluster addresses agree. (kubernetes: `ValidateServiceClusterIPsRelatedFields`.)
fn addresses(spec: &Value, path: &Path, errors: &mut Errors) {
    let one = string(&spec["clusterIP"]);
    let all = cells::items(&spec["clusterIPs"]);
    let path = path.child("clusterIPs");
    let mut refuse = |text: &str| errors.push(FieldError::invalid(&path, json!(all), text));
    match (one.is_empty(), all.is_empty()) {
        (true, false) => refuse("must be empty when `clusterIP` is not specified"),
        (false, false) if string(&all[0]) != one => refuse("first value must match `clusterIP`"),
        _ => {}
    }
    if all.len() > 1 && all.iter().any(|address| address == "None") {
        refuse("'None' must be the first and only value");
    }
    if all.len() > 2 {
        refuse("may only hold up to 2 values");
    }
    for (at, address) in all.iter().map(string).enumerate() {
        if address != "None" {
            check::ip(address, &path.index(at), errors);
        }
    }
}

/// Checks ports and node ports: where they are allowed, and that each occurs once.
fn numbers(spec: &Value, kind: &str, path: &Path, errors: &mut Errors) {
    let path = path.child("ports");
    let (mut known, mut known_nodes) = (BTreeSet::new(), BTreeSet::new());
    for (at, entry) in items(spec) {
        let node_port = entry["nodePort"].as_i64().unwrap_or(0);
        if node_port != 0 && kind == "ClusterIP" {
            errors.push(FieldError::forbidden(
                &path.index(at).child("nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            ));
        }
    }
    for (at, entry) in items(spec) {
        let protocol = entry["protocol"].as_str().unwrap_or_default();
        let node_port = entry["nodePort"].as_i64().unwrap_or(0);
        if node_port != 0 && !known_nodes.insert((protocol, node_port)) {
            let path = path.index(at).child("nodePort");
            errors.push(FieldError::duplicate(&path, node_port));
        }
    }
    for (at, entry) in items(spec) {
        let protocol = entry["protocol"].as_str().unwrap_or_default();
        let number = entry["port"].as_i64().unwrap_or(0);
        if !known.insert((protocol, number)) {
            // The fields of Go's type, in its order.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":\"{protocol}\",\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}"
            );
            let kind = ErrorKind::Duplicate;
            errors.push(FieldError::new(kind, &path.index(at), None, shown));
        }
    }
}

/// Checks the addresses outside of the cluster; those of an earlier release stay valid.
fn external_addresses(spec: &Value, old: Option<&Value>, path: &Path, errors: &mut Errors) {
    let known = old.map_or(&Value::Null, |old| &old["spec"]["externalIPs"]);
    let known: BTreeSet<&str> = cells::items(known).iter().map(string).collect();
    let all = cells::items(&spec["externalIPs"]);
    for (at, text) in all.iter().enumerate() {
        let path = path.child("externalIPs").index(at);
        let text = string(text);
        if known.contains(text) {
            continue;
        }
        if let Some(ip) = check::ip(text, &path, errors) {
            reachable(ip, text, &path, errors);
        }
    }
}

/// Checks the families of addresses. Without them no addresses can be allocated, which comes before the other checks.
pub(super) fn families(service: &Value, errors: &mut Errors) {
    const POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];
    let (spec, path) = (&service["spec"], Path::new("spec"));
    if spec["type"] == "ExternalName" {
        return;
    }
    let mut known = BTreeSet::new();
    for (at, family) in cells::items(&spec["ipFamilies"]).iter().enumerate() {
        let path = path.child("ipFamilies").index(at);
        check::supported(family, &path, &["IPv4", "IPv6"], errors);
        if !known.insert(string(family)) {
            errors.push(FieldError::duplicate(&path, family.clone()));
        }
    }
    let policy = &spec["ipFamilyPolicy"];
    check::allowed(policy, &path.child("ipFamilyPolicy"), POLICIES, errors);
}

fn load_balancer(spec: &Value, old: Option<&Value>, kind: &str, path: &Path, errors: &mut Errors) {
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let of = |spec: &Value| -> Vec<String> {
        let ranges = cells::items(&spec["loadBalancerSourceRanges"]).iter();
        ranges
            .map(|range| string(range).trim().to_owned())
            .collect()
    };
    let known = old.map(|old| of(&old["spec"])).unwrap_or_default();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    for (at, range) in of(spec).iter().enumerate() {
        let path = path.child("LoadBalancerSourceRanges").index(at);
        network(range, &known, &path, errors);
    }
    if kind == "LoadBalancer" {
        return;
    }
    let ranges = spec["loadBalancerSourceRanges"].as_array();
    if ranges.is_some_and(|ranges| !ranges.is_empty()) {
        errors.push(FieldError::forbidden(
            &path.child("LoadBalancerSourceRanges"),
            ONLY,
        ));
    }
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if !spec[field].is_null() {
            errors.push(FieldError::forbidden(&path.child(field), ONLY));
        }
    }
}

fn traffic(service: &Value, kind: &str, path: &Path, errors: &mut Errors) {
    let spec = &service["spec"];
    let is_external = is_accessible(service);
    let external = &spec["externalTrafficPolicy"];
    let at = path.child("externalTrafficPolicy");
    match external.as_str() {
        Some(policy) if !is_external => errors.push(FieldError::invalid(
            &at,
            policy,
            "may only be set for externally-accessible services",
        )),
        _ if is_external => one_of(external, &at, &["Cluster", "Local"], errors),
        _ => {}
    }
    let (checked, number) = (needs_health_check(service), health_check_port(service));
    let at = path.child("healthCheckNodePort");
    match (checked, number) {
        (true, 0) => errors.push(FieldError::required(&at, "")),
        (true, number) => port_number(number, &at, errors),
        (false, 0) => {}
        (false, number) => errors.push(FieldError::invalid(
            &at,
            number,
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        )),
    }
    if kind != "ExternalName" {
        one_of(
            &spec["internalTrafficPolicy"],
            &path.child("internalTrafficPolicy"),
            &["Cluster", "Local"],
            errors,
        );
    }
}
