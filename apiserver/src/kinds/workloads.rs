//! Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs: defaults.
//!
//! No controller acts on them: a Deployment creates no ReplicaSet, a Job no Pod.

use serde_json::{Map, Value, json};

use super::pods::{self, put};
use crate::meta;

/// Sets the defaults of a workload of this plural.
pub(crate) fn default(plural: &str, object: &mut Value) {
    let is_new = meta::text(object, "resourceVersion").is_empty();
    let labelled = plural == "jobs" && labels(object.pointer("/spec/template")).is_some();
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
            let claims = spec.get_mut("volumeClaimTemplates");
            let claims = claims.and_then(Value::as_array_mut);
            for claim in claims.into_iter().flatten().map(meta::object_mut) {
                put(claim, "apiVersion", "v1");
                put(claim, "kind", "PersistentVolumeClaim");
                pods::default_claim(claim);
                put(meta::map_at(claim, "status"), "phase", "Pending");
            }
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
        _ => job(spec, &uid, &name, is_new),
    }
    pods::default_template(spec.entry("template").or_insert_with(|| json!({})));
    if labelled && labels(Some(object)).is_none() {
        // A Job without labels gets those of its template.
        let labels = object["spec"]["template"]["metadata"]["labels"].clone();
        meta::metadata_mut(object).insert("labels".to_owned(), labels);
    }
}

/// The labels of an object, if it has any.
fn labels(object: Option<&Value>) -> Option<&Map<String, Value>> {
    let labels = object?.pointer("/metadata/labels")?.as_object()?;
    (!labels.is_empty()).then_some(labels)
}

fn job(spec: &mut Map<String, Value>, uid: &str, name: &str, is_new: bool) {
    put(spec, "backoffLimit", 6);
    put(spec, "completionMode", "NonIndexed");
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        put(spec, "completions", 1);
    }
    put(spec, "parallelism", 1);
    put(spec, "manualSelector", false);
    put(spec, "podReplacementPolicy", "TerminatingOrFailed");
    put(spec, "suspend", false);
    // The selector is chosen once; an update that leaves it out is refused.
    if spec["manualSelector"] == Value::Bool(true) || !is_new {
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
