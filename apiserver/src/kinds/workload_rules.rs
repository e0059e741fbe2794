//! Validation of Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs, and of their updates.
//!
//! (kubernetes: `pkg/apis/apps/validation`, `pkg/apis/batch/validation`.)

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::check::{self, not_negative};
use super::workloads::Workload;
use super::{immutable, job_rules, pod_spec, selectors, storage_rules};
use crate::field::{Errors, FieldError, Path};
use crate::labels::check_labels;
use crate::names;
use crate::table::cells::{items, string};

const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%'";

/// Checks a workload.
pub(crate) fn validate(kind: Workload, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("spec");
    let spec = &object["spec"];
    match kind {
        Workload::Deployment => deployment(spec, &path, errors),
        Workload::ReplicaSet => replica_set(spec, &path, errors),
        Workload::StatefulSet => stateful_set(spec, old.is_none(), &path, errors),
        Workload::DaemonSet => daemon_set(spec, &path, errors),
        Workload::Job => {
            job_rules::job(spec, &path, errors);
            if old.is_some() {
                // A real server checks an update twice, and reports errors twice.
                job_rules::job(spec, &path, errors);
            }
        }
    }
    let Some(old) = old else { return };
    match kind {
        Workload::StatefulSet => immutable::stateful_set(object, old, errors),
        Workload::Job => immutable::job(object, old, errors),
        _ => immutable::field(
            &spec["selector"],
            &old["spec"]["selector"],
            &path.child("selector"),
            errors,
        ),
    }
}

/// Checks a ReplicationController, whose selector is a set of labels.
pub(super) fn replication_controller(spec: &Value, path: &Path, errors: &mut Errors) {
    for field in ["minReadySeconds", "replicas"] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    let mut wanted = spec["selector"]
        .as_object()
        .into_iter()
        .flatten()
        .peekable();
    if wanted.peek().is_none() {
        errors.push(FieldError::required(&path.child("selector"), ""));
    }
    if spec["template"].is_null() {
        errors.push(FieldError::required(&path.child("template"), ""));
        return;
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if !wanted.all(|(key, value)| labels.get(key) == Some(value)) {
        errors.push(not_selected(labels, path));
    }
    template(spec, "ReplicationController", path, errors);
}

/// Checks the template of a PodTemplate.
pub(super) fn stored_template(object: &Value, errors: &mut Errors) {
    pod_template(object, &Path::root(), errors);
}

fn deployment(spec: &Value, path: &Path, errors: &mut Errors) {
    not_negative(&spec["replicas"], &path.child("replicas"), errors);
    let kind = ("deployment", "ReplicaSet");
    selected_template(spec, kind, "invalid label selector", path, errors);
    deployment_strategy(&spec["strategy"], &path.child("strategy"), errors);
    for field in [
        "minReadySeconds",
        "revisionHistoryLimit",
        "progressDeadlineSeconds",
    ] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    let deadline = &spec["progressDeadlineSeconds"];
    let ready = spec["minReadySeconds"].as_i64().unwrap_or(0);
    if deadline.as_i64().is_some_and(|deadline| deadline <= ready) {
        errors.push(FieldError::invalid(
            &path.child("progressDeadlineSeconds"),
            deadline.clone(),
            "must be greater than minReadySeconds",
        ));
    }
}

fn replica_set(spec: &Value, path: &Path, errors: &mut Errors) {
    for field in ["replicas", "minReadySeconds"] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    // A real server uses this text for a ReplicaSet, too.
    let kind = ("deployment", "ReplicaSet");
    selected_template(spec, kind, "invalid label selector", path, errors);
}

/// An update cannot change the claims and the name of the Service, which are not checked again.
fn stateful_set(spec: &Value, is_new: bool, path: &Path, errors: &mut Errors) {
    let policy = spec["podManagementPolicy"].as_str().unwrap_or_default();
    if !matches!(policy, "OrderedReady" | "Parallel") {
        errors.push(FieldError::invalid(
            &path.child("podManagementPolicy"),
            policy,
            "must be 'OrderedReady' or 'Parallel'",
        ));
    }
    let strategy = &spec["updateStrategy"];
    match strategy["type"].as_str().unwrap_or_default() {
        "OnDelete" if !strategy["rollingUpdate"].is_null() => errors.push(FieldError::invalid(
            &path.child("updateStrategy").child("rollingUpdate"),
            strategy["rollingUpdate"].clone(),
            "only allowed for updateStrategy 'RollingUpdate'",
        )),
        "OnDelete" => {}
        "RollingUpdate" => not_negative(
            &strategy["rollingUpdate"]["partition"],
            &path
                .child("updateStrategy")
                .child("rollingUpdate")
                .child("partition"),
            errors,
        ),
        _ => errors.push(FieldError::invalid(
            &path.child("updateStrategy"),
            strategy.clone(),
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
    }
    let retention = &spec["persistentVolumeClaimRetentionPolicy"];
    for field in ["whenDeleted", "whenScaled"] {
        let path = path
            .child("persistentVolumeClaimRetentionPolicy")
            .child(field);
        check::allowed(&retention[field], &path, &["Retain", "Delete"], errors);
    }
    let claims = items(&spec["volumeClaimTemplates"]);
    for (at, claim) in claims.iter().enumerate().filter(|_| is_new) {
        let path = path.child("volumeClaimTemplates").index(at).child("spec");
        storage_rules::claim_spec(&claim["spec"], &path, errors);
    }
    for field in ["replicas", "minReadySeconds"] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    let at = path.child("ordinals.start");
    not_negative(&spec["ordinals"]["start"], &at, errors);
    if is_new {
        let (name, path) = (&spec["serviceName"], path.child("serviceName"));
        check::optional(name, names::dns_label, &path, errors);
    }
    let spec = with_claims_as_volumes(spec);
    selected_template(&spec, ("statefulset", "StatefulSet"), "", path, errors);
}

/// The spec as its Pods get it: with a volume for each claim, and without names.
fn with_claims_as_volumes(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let claims: BTreeSet<String> = items(&spec["volumeClaimTemplates"])
        .iter()
        .map(|claim| string(&claim["metadata"]["name"]).to_owned())
        .collect();
    let Some(pod) = spec.pointer_mut("/template/spec") else {
        return spec;
    };
    for field in ["subdomain", "hostname"] {
        pod[field] = Value::Null;
    }
    if !claims.is_empty() {
        let source =
            |name: &String| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        let mut volumes: Vec<Value> = claims.iter().map(source).collect();
        let own = items(&pod["volumes"]).iter();
        volumes.extend(
            own.filter(|one| !claims.contains(string(&one["name"])))
                .cloned(),
        );
        pod["volumes"] = volumes.into();
    }
    spec
}

fn daemon_set(spec: &Value, path: &Path, errors: &mut Errors) {
    selectors::validate(&spec["selector"], &path.child("selector"), errors);
    if selectors::is_valid(&spec["selector"]) {
        labels_match(spec, path, errors);
    }
    if spec["selector"].is_object() && selectors::is_empty(&spec["selector"]) {
        errors.push(empty_selector(spec, "daemonset", path));
    }
    template(spec, "DaemonSet", path, errors);
    not_negative(
        &spec["minReadySeconds"],
        &path.child("minReadySeconds"),
        errors,
    );
    let strategy = &spec["updateStrategy"];
    let at = path.child("updateStrategy");
    match strategy["type"].as_str().unwrap_or_default() {
        "OnDelete" => {}
        "RollingUpdate" => {
            let (surge, unavailable) = rolling_update(strategy, &at, errors);
            for field in ["maxUnavailable", "maxSurge"] {
                let at = at.child("rollingUpdate").child(field);
                not_more_than_all(&strategy["rollingUpdate"][field], &at, errors);
            }
            let at = at.child("rollingUpdate");
            if unavailable != 0 && surge != 0 {
                errors.push(FieldError::invalid(
                    &at.child("maxSurge"),
                    strategy["rollingUpdate"]["maxSurge"].clone(),
                    "may not be set when maxUnavailable is non-zero",
                ));
            } else if unavailable == 0 && surge == 0 {
                errors.push(FieldError::required(
                    &at.child("maxUnavailable"),
                    "cannot be 0 when maxSurge is 0",
                ));
            }
        }
        _ => errors.push(FieldError::not_supported(
            &at,
            strategy.clone(),
            &["RollingUpdate", "OnDelete"],
        )),
    }
    not_negative(
        &spec["revisionHistoryLimit"],
        &path.child("revisionHistoryLimit"),
        errors,
    );
}

/// The selector, which is required and must select the template, and the template. `kind`: the kind in the texts;
/// `invalid`: the text about a selector that cannot be used, without which the template is not checked.
fn selected_template(
    spec: &Value,
    kind: (&str, &str),
    invalid: &str,
    path: &Path,
    errors: &mut Errors,
) {
    let selector = &spec["selector"];
    let at = path.child("selector");
    let mut matched = true;
    if selector.is_null() {
        errors.push(FieldError::required(&at, ""));
    } else {
        selectors::validate(selector, &at, errors);
        if selectors::is_empty(selector) {
            errors.push(empty_selector(spec, kind.0, path));
            matched = false;
        }
    }
    if !selectors::is_valid(selector) {
        errors.push(FieldError::invalid(&at, selector.clone(), invalid));
        return;
    }
    if matched {
        labels_match(spec, path, errors);
    }
    template(spec, kind.1, path, errors);
}

fn empty_selector(spec: &Value, kind: &str, path: &Path) -> FieldError {
    FieldError::invalid(
        &path.child("selector"),
        spec["selector"].clone(),
        format!("empty selector is invalid for {kind}"),
    )
}

/// Refuses a selector that does not select the template.
pub(super) fn labels_match(spec: &Value, path: &Path, errors: &mut Errors) {
    let labels = &spec["template"]["metadata"]["labels"];
    if !selectors::matches(&spec["selector"], labels) {
        errors.push(not_selected(labels, path));
    }
}

fn not_selected(labels: &Value, path: &Path) -> FieldError {
    FieldError::invalid(
        &path.child("template").child("metadata").child("labels"),
        labels.clone(),
        "`selector` does not match template `labels`",
    )
}

/// The template of a workload whose Pods run until they are deleted.
fn template(spec: &Value, kind: &str, path: &Path, errors: &mut Errors) {
    pod_template(spec, path, errors);
    let path = path.child("template").child("spec");
    let pod = &spec["template"]["spec"];
    let policy = pod["restartPolicy"].as_str().unwrap_or_default();
    if policy != "Always" {
        errors.push(FieldError::not_supported(
            &path.child("restartPolicy"),
            policy,
            &["Always"],
        ));
    }
    if !pod["activeDeadlineSeconds"].is_null() {
        errors.push(FieldError::forbidden(
            &path.child("activeDeadlineSeconds"),
            format!("activeDeadlineSeconds in {kind} is not Supported"),
        ));
    }
}

/// Checks the template of a spec.
pub(super) fn pod_template(spec: &Value, path: &Path, errors: &mut Errors) {
    let path = path.child("template");
    let metadata = &spec["template"]["metadata"];
    check_labels(&metadata["labels"], &path.child("labels"), errors);
    for (key, _) in metadata["annotations"].as_object().into_iter().flatten() {
        let path = path.child("annotations");
        check::refuse(&key.to_lowercase(), names::qualified_name, &path, errors);
    }
    pod_spec::validate(&spec["template"]["spec"], &path.child("spec"), errors);
}

fn deployment_strategy(strategy: &Value, path: &Path, errors: &mut Errors) {
    match strategy["type"].as_str().unwrap_or_default() {
        "Recreate" if !strategy["rollingUpdate"].is_null() => errors.push(FieldError::forbidden(
            &path.child("rollingUpdate"),
            "may not be specified when strategy `type` is 'Recreate'",
        )),
        "Recreate" => {}
        "RollingUpdate" => {
            let (surge, unavailable) = rolling_update(strategy, path, errors);
            if surge == 0 && unavailable == 0 {
                errors.push(FieldError::invalid(
                    &path.child("rollingUpdate").child("maxUnavailable"),
                    strategy["rollingUpdate"]["maxUnavailable"].clone(),
                    "may not be 0 when `maxSurge` is 0",
                ));
            }
            let at = path.child("rollingUpdate").child("maxUnavailable");
            not_more_than_all(&strategy["rollingUpdate"]["maxUnavailable"], &at, errors);
        }
        _ => errors.push(FieldError::not_supported(
            path,
            strategy.clone(),
            &["Recreate", "RollingUpdate"],
        )),
    }
}

/// Surge and unavailable of a rolling update, checked one by one.
fn rolling_update(strategy: &Value, path: &Path, errors: &mut Errors) -> (i64, i64) {
    let rolling = &strategy["rollingUpdate"];
    for field in ["maxUnavailable", "maxSurge"] {
        let path = path.child("rollingUpdate").child(field);
        count_or_percent(&rolling[field], &path, errors);
    }
    let number = |field: &str| match &rolling[field] {
        Value::String(text) => percent(text).unwrap_or(0),
        value => value.as_i64().unwrap_or(0),
    };
    (number("maxSurge"), number("maxUnavailable"))
}

/// Refuses a negative number, and a text that is not a percentage.
pub(super) fn count_or_percent(value: &Value, path: &Path, errors: &mut Errors) {
    match value.as_str() {
        None => not_negative(value, path, errors),
        Some(text) if percent(text).is_none() => errors.push(FieldError::invalid(
            path,
            text,
            names::format_error(PERCENT, "[0-9]+%", &["1%", "93%"]),
        )),
        Some(_) => {}
    }
}

/// Refuses more than 100%.
pub(super) fn not_more_than_all(value: &Value, path: &Path, errors: &mut Errors) {
    let text = value.as_str();
    if let Some(text) = text.filter(|text| percent(text).is_some_and(|number| number > 100)) {
        errors.push(FieldError::invalid(
            path,
            text,
            "must not be greater than 100%",
        ));
    }
}

fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let only_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| only_digits)
}
