//! Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs: defaults and checks.
//!
//! Nothing acts on them here: a Deployment makes no ReplicaSet, a Job no Pod.

use serde_json::{Map, Value, json};

use super::pods::{self, put};
use crate::field::{Errors, FieldError, Path};
use crate::meta;

/// Completes a workload of this plural.
pub(crate) fn default(plural: &str, object: &mut Value) {
    let uid = meta::text(object, "uid").to_owned();
    let name = meta::text(object, "name").to_owned();
    let map = meta::object_mut(object);
    let spec = meta::map_at(map, "spec");
    match plural {
        "deployments" => {
            put(spec, "replicas", 1);
            put(spec, "progressDeadlineSeconds", 600);
            put(spec, "revisionHistoryLimit", 10);
            let strategy = meta::map_at(spec, "strategy");
            put(strategy, "type", "RollingUpdate");
            if strategy["type"] == "RollingUpdate" {
                let rolling = meta::map_at(strategy, "rollingUpdate");
                put(rolling, "maxUnavailable", "25%");
                put(rolling, "maxSurge", "25%");
            }
        }
        "replicasets" => put(spec, "replicas", 1),
        "statefulsets" => {
            put(spec, "replicas", 1);
            put(spec, "revisionHistoryLimit", 10);
            put(spec, "podManagementPolicy", "OrderedReady");
            let strategy = meta::map_at(spec, "updateStrategy");
            put(strategy, "type", "RollingUpdate");
            if strategy["type"] == "RollingUpdate" {
                put(meta::map_at(strategy, "rollingUpdate"), "partition", 0);
            }
            let retention = meta::map_at(spec, "persistentVolumeClaimRetentionPolicy");
            put(retention, "whenDeleted", "Retain");
            put(retention, "whenScaled", "Retain");
        }
        "daemonsets" => {
            put(spec, "revisionHistoryLimit", 10);
            let strategy = meta::map_at(spec, "updateStrategy");
            put(strategy, "type", "RollingUpdate");
            if strategy["type"] == "RollingUpdate" {
                let rolling = meta::map_at(strategy, "rollingUpdate");
                put(rolling, "maxUnavailable", 1);
                put(rolling, "maxSurge", 0);
            }
        }
        _ => job(spec, &uid, &name),
    }
    if let Some(template) = spec.get_mut("template") {
        pods::default_template(template);
    }
}

fn job(spec: &mut Map<String, Value>, uid: &str, name: &str) {
    put(spec, "backoffLimit", 6);
    put(spec, "completionMode", "NonIndexed");
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        put(spec, "completions", 1);
    }
    put(spec, "parallelism", 1);
    put(spec, "manualSelector", false);
    put(spec, "podReplacementPolicy", "TerminatingOrFailed");
    put(spec, "suspend", false);
    if spec["manualSelector"] == Value::Bool(true) || uid.is_empty() {
        return;
    }
    put(
        spec,
        "selector",
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}),
    );
    let template = meta::map_at(spec, "template");
    let labels = meta::map_at(meta::map_at(template, "metadata"), "labels");
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
        ("controller-uid", uid),
        ("job-name", name),
    ] {
        put(labels, key, value);
    }
}

/// The status of a new workload.
pub(crate) fn initial_status(plural: &str) -> Value {
    match plural {
        "replicasets" => json!({"replicas": 0}),
        "statefulsets" => json!({"replicas": 0, "availableReplicas": 0}),
        "daemonsets" => json!({
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0,
            "numberMisscheduled": 0, "numberReady": 0,
        }),
        _ => json!({}),
    }
}

/// What is wrong with a workload that selects its Pods.
pub(crate) fn validate(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("spec");
    let selector = &object["spec"]["selector"];
    let labels = &object["spec"]["template"]["metadata"]["labels"];
    if selector.is_null() {
        errors.push(FieldError::required(&path.child("selector"), ""));
    }
    let empty = Map::new();
    let wanted = selector["matchLabels"].as_object().unwrap_or(&empty);
    let expressions = selector["matchExpressions"]
        .as_array()
        .is_some_and(|list| !list.is_empty());
    let unmatched = wanted
        .iter()
        .any(|(key, value)| labels.get(key) != Some(value));
    if unmatched || (wanted.is_empty() && !expressions) {
        errors.push(FieldError::invalid(
            &path.child("template").child("metadata").child("labels"),
            labels.clone(),
            "`selector` does not match template `labels`",
        ));
    }
    pods::validate(
        &object["spec"]["template"]["spec"],
        &path.child("template").child("spec"),
        errors,
    );
    if let Some(old) = old
        && old["spec"]["selector"] != *selector
    {
        errors.push(FieldError::invalid(
            &path.child("selector"),
            selector.clone(),
            "field is immutable",
        ));
    }
}
