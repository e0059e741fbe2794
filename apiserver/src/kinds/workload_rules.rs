//! Validation of Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs, and of their updates.
//!
//! (kubernetes: `pkg/apis/apps/validation`, `pkg/apis/batch/validation`.)

use serde_json::{Map, Value};

use super::immutable;
use super::pod_spec::{self, labels, not_negative, one_of};
use super::workloads::Workload;
use crate::field::{Errors, FieldError, Path};
use crate::names;

const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%'";

/// Checks a workload.
pub(crate) fn validate(kind: Workload, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("spec");
    let spec = &object["spec"];
    match kind {
        Workload::Deployment => deployment(spec, &path, errors),
        Workload::ReplicaSet => replica_set(spec, &path, errors),
        Workload::StatefulSet => stateful_set(spec, &path, errors),
        Workload::DaemonSet => daemon_set(spec, &path, errors),
        Workload::Job => {
            job(spec, &path, errors);
            if old.is_some() {
                // A real server checks an update twice, and reports errors twice.
                job(spec, &path, errors);
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

fn deployment(spec: &Value, path: &Path, errors: &mut Errors) {
    not_negative(&spec["replicas"], &path.child("replicas"), errors);
    selector(spec, Some("deployment"), path, errors);
    template(spec, "ReplicaSet", path, errors);
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
    selector(spec, Some("deployment"), path, errors);
    template(spec, "ReplicaSet", path, errors);
}

fn stateful_set(spec: &Value, path: &Path, errors: &mut Errors) {
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
    for field in ["replicas", "minReadySeconds"] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    selector(spec, Some("statefulset"), path, errors);
    template(spec, "StatefulSet", path, errors);
}

fn daemon_set(spec: &Value, path: &Path, errors: &mut Errors) {
    labels_match(spec, path, errors);
    if spec["selector"].is_object() && is_empty(&spec["selector"]) {
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
                at_most_all(strategy, field, &at, errors);
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

fn job(spec: &Value, path: &Path, errors: &mut Errors) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    let mode = spec["completionMode"].as_str().unwrap_or_default();
    one_of(
        &spec["completionMode"],
        &path.child("completionMode"),
        &["NonIndexed", "Indexed"],
        errors,
    );
    if mode == "Indexed" && spec["completions"].is_null() {
        errors.push(FieldError::required(
            &path.child("completions"),
            "when completion mode is Indexed",
        ));
    }
    pod_template(spec, path, errors);
    let restart = path.child("template").child("spec").child("restartPolicy");
    match spec["template"]["spec"]["restartPolicy"].as_str() {
        Some("OnFailure" | "Never") => {}
        Some("Always" | "") | None => errors.push(FieldError::required(
            &restart,
            "valid values: \"OnFailure\", \"Never\"",
        )),
        Some(other) => errors.push(FieldError::not_supported(
            &restart,
            other,
            &["OnFailure", "Never"],
        )),
    }
    if spec["selector"].is_null() {
        errors.push(FieldError::required(&path.child("selector"), ""));
    }
    labels_match(spec, path, errors);
}

/// The selector, which is required and must select the template. `kind`: the kind in the texts.
fn selector(spec: &Value, kind: Option<&str>, path: &Path, errors: &mut Errors) {
    let selector = &spec["selector"];
    if selector.is_null() {
        errors.push(FieldError::required(&path.child("selector"), ""));
    } else if let Some(kind) = kind.filter(|_| is_empty(selector)) {
        errors.push(empty_selector(spec, kind, path));
        return;
    }
    labels_match(spec, path, errors);
}

fn empty_selector(spec: &Value, kind: &str, path: &Path) -> FieldError {
    FieldError::invalid(
        &path.child("selector"),
        spec["selector"].clone(),
        format!("empty selector is invalid for {kind}"),
    )
}

fn is_empty(selector: &Value) -> bool {
    selector["matchLabels"]
        .as_object()
        .is_none_or(Map::is_empty)
        && selector["matchExpressions"]
            .as_array()
            .is_none_or(Vec::is_empty)
}

fn labels_match(spec: &Value, path: &Path, errors: &mut Errors) {
    let labels = &spec["template"]["metadata"]["labels"];
    if !matches(&spec["selector"], labels) {
        errors.push(FieldError::invalid(
            &path.child("template").child("metadata").child("labels"),
            labels.clone(),
            "`selector` does not match template `labels`",
        ));
    }
}

/// Whether a selector, in the form of an object, selects these labels. A missing selector selects nothing.
fn matches(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten();
    equal
        .into_iter()
        .all(|(key, value)| labels.get(key) == Some(value))
        && expressions.into_iter().all(|expression| {
            let found = labels.get(expression["key"].as_str().unwrap_or_default());
            let listed = expression["values"]
                .as_array()
                .is_some_and(|values| found.is_some_and(|found| values.contains(found)));
            match expression["operator"].as_str().unwrap_or_default() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
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

fn pod_template(spec: &Value, path: &Path, errors: &mut Errors) {
    let path = path.child("template");
    labels(
        &spec["template"]["metadata"]["labels"],
        &path.child("labels"),
        errors,
    );
    pod_spec::validate(
        &spec["template"]["spec"],
        &spec["volumeClaimTemplates"],
        &path.child("spec"),
        errors,
    );
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
            at_most_all(strategy, "maxUnavailable", path, errors);
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
        let Some(text) = rolling[field].as_str() else {
            not_negative(&rolling[field], &path, errors);
            continue;
        };
        if percent(text).is_none() {
            errors.push(FieldError::invalid(
                &path,
                text,
                names::format_error(PERCENT, "[0-9]+%", &["1%", "93%"]),
            ));
        }
    }
    let number = |field: &str| match &rolling[field] {
        Value::String(text) => percent(text).unwrap_or(0),
        value => value.as_i64().unwrap_or(0),
    };
    (number("maxSurge"), number("maxUnavailable"))
}

/// Refuses more than 100% of a bound of a rolling update.
fn at_most_all(strategy: &Value, field: &str, path: &Path, errors: &mut Errors) {
    let text = strategy["rollingUpdate"][field].as_str();
    if let Some(text) = text.filter(|text| percent(text).is_some_and(|number| number > 100)) {
        errors.push(FieldError::invalid(
            &path.child("rollingUpdate").child(field),
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions_of_a_selector_count_as_its_labels_do() {
        let labels = json!({"app": "x"});
        for (expression, expected) in [
            (
                json!({"key": "app", "operator": "In", "values": ["x"]}),
                true,
            ),
            (
                json!({"key": "app", "operator": "In", "values": ["y"]}),
                false,
            ),
            (
                json!({"key": "app", "operator": "NotIn", "values": ["y"]}),
                true,
            ),
            (json!({"key": "app", "operator": "Exists"}), true),
            (json!({"key": "app", "operator": "DoesNotExist"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
        ] {
            let selector = json!({"matchExpressions": [expression]});
            assert_eq!(matches(&selector, &labels), expected, "{expression}");
        }
    }
}
