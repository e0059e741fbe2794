//! The checks of where Pods and volumes may be: node selectors, affinity, topology spread.
//!
//! (kubernetes: `ValidateNodeSelector`, `validateAffinity`, `validateTopologySpreadConstraints`.)

use std::collections::BTreeMap;

use serde_json::Value;

use super::check;
use super::selectors;
use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::table::cells::{items, string};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const WEIGHT: &str = "must be in the range 1-100";
const NO_OPERATOR: &str = "not a valid selector operator";

// === nodes ===

/// Checks a selector of nodes, which has at least one term.
pub(super) fn node_selector(selector: &Value, path: &Path, errors: &mut Errors) {
    let path = path.child("nodeSelectorTerms");
    let terms = items(&selector["nodeSelectorTerms"]);
    if terms.is_empty() {
        let text = "must have at least one node selector term";
        errors.push(FieldError::required(&path, text));
    }
    for (at, term) in terms.iter().enumerate() {
        node_term(term, true, &path.index(at), errors);
    }
}

/// Checks a term. `strict`: its values have to be valid labels.
fn node_term(term: &Value, strict: bool, path: &Path, errors: &mut Errors) {
    let all = items(&term["matchExpressions"]);
    for (at, one) in all.iter().enumerate() {
        let path = path.child("matchExpressions").index(at);
        expression(one, strict, &path, errors);
    }
    for (at, one) in items(&term["matchFields"]).iter().enumerate() {
        field_requirement(one, &path.child("matchFields").index(at), errors);
    }
}

fn expression(one: &Value, strict: bool, path: &Path, errors: &mut Errors) {
    let values = items(&one["values"]);
    let at = path.child("values");
    let operator = string(&one["operator"]);
    match operator {
        "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
            &at,
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
            &at,
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        "Gt" | "Lt" if values.len() != 1 => errors.push(FieldError::required(
            &at,
            "must be specified single value when `operator` is 'Lt' or 'Gt'",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => errors.push(FieldError::invalid(
            &path.child("operator"),
            other,
            NO_OPERATOR,
        )),
    }
    let key = string(&one["key"]);
    check::refuse(key, names::qualified_name, &path.child("key"), errors);
    if strict {
        for (index, value) in values.iter().enumerate() {
            check::refuse(string(value), names::label_value, &at.index(index), errors);
        }
    }
}

/// Checks a requirement of a field, which can only be the name.
fn field_requirement(one: &Value, path: &Path, errors: &mut Errors) {
    let values = items(&one["values"]);
    match string(&one["operator"]) {
        "In" | "NotIn" if values.len() == 1 => {}
        "In" | "NotIn" => errors.push(FieldError::required(
            &path.child("values"),
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        )),
        other => errors.push(FieldError::invalid(
            &path.child("operator"),
            other,
            NO_OPERATOR,
        )),
    }
    if one["key"] != "metadata.name" {
        let text = "not a valid field selector key";
        errors.push(FieldError::invalid(
            &path.child("key"),
            string(&one["key"]),
            text,
        ));
        return;
    }
    for (at, value) in values.iter().enumerate() {
        let path = path.child("values").index(at);
        check::refuse(string(value), names::dns_subdomain, &path, errors);
    }
}

// === Pods ===

/// Checks the affinity of a Pod.
pub(super) fn affinity(affinity: &Value, path: &Path, errors: &mut Errors) {
    let node = &affinity["nodeAffinity"];
    let at = path.child("nodeAffinity");
    if !node[REQUIRED].is_null() {
        node_selector(&node[REQUIRED], &at.child(REQUIRED), errors);
    }
    for (index, one) in items(&node[PREFERRED]).iter().enumerate() {
        let path = at.child(PREFERRED).index(index);
        weight(one, &path, errors);
        node_term(&one["preference"], false, &path.child("preference"), errors);
    }
    for field in ["podAffinity", "podAntiAffinity"] {
        let (pods, at) = (&affinity[field], path.child(field));
        for (index, term) in items(&pods[REQUIRED]).iter().enumerate() {
            pod_term(term, &at.child(REQUIRED).index(index), errors);
        }
        for (index, one) in items(&pods[PREFERRED]).iter().enumerate() {
            let path = at.child(PREFERRED).index(index);
            weight(one, &path, errors);
            let term = &one["podAffinityTerm"];
            pod_term(term, &path.child("podAffinityTerm"), errors);
        }
    }
}

fn weight(one: &Value, path: &Path, errors: &mut Errors) {
    let weight = one["weight"].as_i64().unwrap_or(0).into();
    check::between(&weight, 1..=100, WEIGHT, &path.child("weight"), errors);
}

fn pod_term(term: &Value, path: &Path, errors: &mut Errors) {
    for field in ["labelSelector", "namespaceSelector"] {
        selectors::validate(&term[field], &path.child(field), errors);
    }
    for namespace in items(&term["namespaces"]) {
        let path = path.child("namespace");
        check::refuse(string(namespace), names::dns_label, &path, errors);
    }
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        label_keys(term, field, path, errors);
    }
    let at = path.child("topologyKey");
    check::required(&term["topologyKey"], "can not be empty", &at, errors);
    check::refuse(
        string(&term["topologyKey"]),
        names::qualified_name,
        &at,
        errors,
    );
}

fn label_keys(holder: &Value, field: &str, path: &Path, errors: &mut Errors) {
    let keys = items(&holder[field]);
    let path = path.child(field);
    if !keys.is_empty() && holder["labelSelector"].is_null() {
        let text = "must not be specified when labelSelector is not set";
        errors.push(FieldError::forbidden(&path, text));
        return;
    }
    for (at, key) in keys.iter().enumerate() {
        check::refuse(string(key), names::qualified_name, &path.index(at), errors);
    }
}

/// The fields of a constraint that only one may have.
fn spread_kind(one: &Value) -> [&str; 2] {
    ["topologyKey", "whenUnsatisfiable"].map(|field| string(&one[field]))
}

/// Checks how a Pod is spread.
pub(super) fn spread(spec: &Value, path: &Path, errors: &mut Errors) {
    let all = items(&spec["topologySpreadConstraints"]);
    let kinds = all.iter().map(spread_kind);
    let last: BTreeMap<_, _> = kinds.zip(0..).collect();
    for (at, one) in all.iter().enumerate() {
        let path = path.child("topologySpreadConstraints").index(at);
        let skew = one["maxSkew"].as_i64().unwrap_or(0).into();
        let text = "must be greater than zero";
        check::between(&skew, 1..=i64::MAX, text, &path.child("maxSkew"), errors);
        check::required(
            &one["topologyKey"],
            "can not be empty",
            &path.child("topologyKey"),
            errors,
        );
        let (action, of_action) = (&one["whenUnsatisfiable"], path.child("whenUnsatisfiable"));
        check::supported(
            action,
            &of_action,
            &["DoNotSchedule", "ScheduleAnyway"],
            errors,
        );
        let [key, action_text] = spread_kind(one);
        if last[&[key, action_text]] > at {
            errors.push(FieldError::duplicate(
                &path.child("{topologyKey, whenUnsatisfiable}"),
                format!("{{{key}, {action_text}}}"),
            ));
        }
        let domains = &one["minDomains"];
        check::between(
            domains,
            1..=i64::MAX,
            "must be greater than 0",
            &path.child("minDomains"),
            errors,
        );
        if !domains.is_null() && action != "DoNotSchedule" {
            let text = format!(
                "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                string(action)
            );
            let path = path.child("minDomains");
            errors.push(FieldError::invalid(&path, domains.clone(), text));
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            check::allowed(
                &one[field],
                &path.child(field),
                &["Honor", "Ignore"],
                errors,
            );
        }
        label_keys(one, "matchLabelKeys", &path, errors);
        selectors::validate(&one["labelSelector"], &path.child("labelSelector"), errors);
    }
}
