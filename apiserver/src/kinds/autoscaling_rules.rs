//! The checks of HorizontalPodAutoscalers, in the form of autoscaling/v2.
//!
//! (kubernetes: `pkg/apis/autoscaling/validation`.)

use serde_json::Value;

use super::check::{self, between, required};
use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::table::cells::{items, string};
use crate::table::count;

/// The types of a metric, and the fields of their sources.
const TYPES: &[&str] = &[
    "ContainerResource",
    "External",
    "Object",
    "Pods",
    "Resource",
];
const SOURCES: &[(&str, &str)] = &[
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const TARGETS: &[&str] = &["Utilization", "Value", "AverageValue"];
const SELECTIONS: &[&str] = &["Disabled", "Max", "Min"];
const POLICIES: &[&str] = &["Percent", "Pods"];
/// The longest time of a policy and of a window, in seconds.
const LONGEST_PERIOD: i64 = 1800;
const LONGEST_WINDOW: i64 = 3600;
const POSITIVE: &str = "must be greater than zero";

/// Checks the spec of an autoscaler.
pub(super) fn validate(spec: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let (least, at) = (&spec["minReplicas"], path.child("minReplicas"));
    let text = "must be greater than or equal to 1";
    between(least, 1..=i64::MAX, text, &at, errors);
    let (most, at) = (count(&spec["maxReplicas"]), path.child("maxReplicas"));
    if most == 0 {
        let text = "must be set and greater than 0";
        errors.push(FieldError::required(&at, text));
    } else if most < 0 {
        errors.push(FieldError::invalid(&at, most, text));
    }
    if least.as_i64().is_some_and(|least| most < least) {
        let text = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(&at, most, text));
    }
    reference(
        &spec["scaleTargetRef"],
        true,
        &path.child("scaleTargetRef"),
        errors,
    );
    for (at, one) in items(&spec["metrics"]).iter().enumerate() {
        metric(one, &path.child("metrics").index(at), errors);
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = &spec["behavior"][direction];
        if !rules.is_null() {
            scaling(rules, &path.child("behavior").child(direction), errors);
        }
    }
}

/// Checks a reference to an object. `scaled`: it is the target of the autoscaler, which is in no core group but for
/// ReplicationControllers.
fn reference(reference: &Value, scaled: bool, path: &Path, errors: &mut Errors) {
    for field in ["kind", "name"] {
        let path = path.child(field);
        check::name(&reference[field], names::path_segment, &path, errors);
    }
    let version = string(&reference["apiVersion"]);
    let path = path.child("apiVersion");
    if version.matches('/').count() > 1 {
        let text = format!("unexpected GroupVersion string: {version}");
        errors.push(FieldError::invalid(&path, version, text));
    } else if scaled
        && version
            .split_once('/')
            .is_none_or(|(group, _)| group.is_empty())
        && reference["kind"] != "ReplicationController"
    {
        let text = "apiVersion must specify API group";
        errors.push(FieldError::invalid(&path, version, text));
    }
}

fn metric(metric: &Value, path: &Path, errors: &mut Errors) {
    let (kind, at) = (&metric["type"], path.child("type"));
    required(kind, "must specify a metric source type", &at, errors);
    check::supported(kind, &at, TYPES, errors);
    let present = SOURCES
        .iter()
        .filter(|(_, field)| !metric[*field].is_null());
    for (position, (of, field)) in present.enumerate() {
        if position == 0 {
            source(of, &metric[*field], &path.child(field), errors);
        }
        if kind != of && (position > 0 || !metric[source_of(kind)].is_null()) {
            let text = "must populate the given metric source only";
            errors.push(FieldError::forbidden(&path.child(field), text));
        }
    }
    let field = source_of(kind);
    if !field.is_empty() && metric[field].is_null() {
        let text = "must populate information for the given metric source";
        errors.push(FieldError::required(&path.child(field), text));
    }
}

/// The field of the source of a type; empty for an unknown one.
fn source_of(kind: &Value) -> &'static str {
    let found = SOURCES.iter().find(|(known, _)| kind == known);
    found.map_or("", |(_, field)| field)
}

fn source(kind: &str, source: &Value, path: &Path, errors: &mut Errors) {
    let of_target = path.child("target");
    let target = &source["target"];
    let has = |field: &str| !target[field].is_null();
    if kind.ends_with("Resource") {
        let at = path.child("name");
        let named = required(&source["name"], "must specify a resource name", &at, errors);
        if kind == "ContainerResource" {
            if named {
                check::container_resource(string(&source["name"]), &at, errors);
            }
            let (container, at) = (&source["container"], path.child("container"));
            if required(container, "must specify a container", &at, errors) {
                check::refuse(string(container), names::dns_label, &at, errors);
            }
        }
        self::target(target, &of_target, errors);
        match (has("averageUtilization"), has("averageValue")) {
            (false, false) => errors.push(FieldError::required(
                &of_target.child("averageUtilization"),
                "must set either a target raw value or a target utilization",
            )),
            (true, true) => errors.push(FieldError::forbidden(
                &of_target.child("averageValue"),
                "may not set both a target raw value and a target utilization",
            )),
            _ => {}
        }
        return;
    }
    if kind == "Object" {
        let object = &source["describedObject"];
        reference(object, false, &path.child("describedObject"), errors);
    }
    let (name, at) = (
        &source["metric"]["name"],
        path.child("metric").child("name"),
    );
    if required(name, "must specify a metric name", &at, errors) {
        check::refuse(string(name), names::path_segment, &at, errors);
    }
    self::target(target, &of_target, errors);
    let text = match (kind, has("value"), has("averageValue")) {
        ("Pods", _, false) => "must specify a positive target averageValue",
        ("Object", false, false) => "must set either a target value or averageValue",
        ("External", false, false) => {
            "must set either a target value for metric or a per-pod target"
        }
        ("External", true, true) => {
            let text = "may not set both a target value for metric and a per-pod target";
            errors.push(FieldError::forbidden(&of_target.child("value"), text));
            return;
        }
        _ => return,
    };
    errors.push(FieldError::required(&of_target.child("averageValue"), text));
}

fn target(target: &Value, path: &Path, errors: &mut Errors) {
    let (kind, at) = (&target["type"], path.child("type"));
    required(kind, "must specify a metric target type", &at, errors);
    if !TARGETS.contains(&string(kind)) {
        let text = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(&at, string(kind), text));
    }
    for field in ["value", "averageValue"] {
        if !target[field].is_null() {
            let path = path.child(field);
            check::positive_quantity(&target[field], "must be positive", &path, errors);
        }
    }
    let field = "averageUtilization";
    let text = "must be greater than 0";
    between(
        &target[field],
        1..=i64::MAX,
        text,
        &path.child(field),
        errors,
    );
}

fn scaling(rules: &Value, path: &Path, errors: &mut Errors) {
    let field = "stabilizationWindowSeconds";
    let (window, at) = (&rules[field], path.child(field));
    let text = "must be greater than or equal to zero";
    between(window, 0..=i64::MAX, text, &at, errors);
    let text = "must be less than or equal to 3600";
    between(window, i64::MIN..=LONGEST_WINDOW, text, &at, errors);
    let selection = &rules["selectPolicy"];
    check::allowed(selection, &path.child("selectPolicy"), SELECTIONS, errors);
    let (policies, at) = (items(&rules["policies"]), path.child("policies"));
    if policies.is_empty() {
        errors.push(FieldError::required(
            &at,
            "must specify at least one Policy",
        ));
    }
    for (index, policy) in policies.iter().enumerate() {
        let path = at.index(index);
        check::supported(&policy["type"], &path.child("type"), POLICIES, errors);
        for field in ["value", "periodSeconds"] {
            let number = count(&policy[field]).into();
            between(&number, 1..=i64::MAX, POSITIVE, &path.child(field), errors);
        }
        let text = "must be less than or equal to 1800";
        let path = path.child("periodSeconds");
        between(
            &policy["periodSeconds"],
            i64::MIN..=LONGEST_PERIOD,
            text,
            &path,
            errors,
        );
    }
    if !rules["tolerance"].is_null() {
        check::resource_amount(&rules["tolerance"], &path.child("tolerance"), errors);
    }
}
