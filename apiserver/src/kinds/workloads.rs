//! Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs: their rules, except the checks.
//!
//! No controller acts on them: a Deployment creates no ReplicaSet, a Job no Pod.

use jiff::Timestamp;
use k8s_openapi::api;
use serde_json::{Map, Value, json};

use super::entry::Entry;
use super::pods::{self, put, set};
use super::strategy::{Context, Paths, Strategy};
use super::workload_rules;
use crate::field::Errors;
use crate::meta;
use crate::names;
use crate::resource::{Column, Generation, ResourceInfo, SelectableField, StatusUpdate};
use crate::table::cells::{
    aged, integer, items, labels as shown_labels, ready, selector, string, template_columns, text,
    wide,
};
use crate::table::{count, duration, number};

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[
    Entry::of::<api::apps::v1::DaemonSet>("apps", "daemonsets", &Workload::DaemonSet),
    Entry::of::<api::apps::v1::Deployment>("apps", "deployments", &Workload::Deployment),
    Entry::of::<api::apps::v1::ReplicaSet>("apps", "replicasets", &Workload::ReplicaSet),
    Entry::of::<api::apps::v1::StatefulSet>("apps", "statefulsets", &Workload::StatefulSet),
    Entry::of::<api::batch::v1::Job>("batch", "jobs", &Workload::Job),
];

/// The annotation of a DaemonSet with the number of its template.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The warning for a kind that orphans by default. (kubernetes: `pkg/registry/batch/job/storage`.)
const ORPHANS_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    Deployment,
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
}

// === impl Workload ===

impl Strategy for Workload {
    fn describe(&self, info: &mut ResourceInfo) {
        info.generation = Generation::Spec;
        match self {
            Self::Deployment => {
                info.status_update = StatusUpdate::Metadata {
                    except: &["labels"],
                };
                info.generation = Generation::SpecAndAnnotations;
            }
            Self::ReplicaSet => info.selectable_fields = vec![replicas_field()],
            Self::Job => {
                info.orphans_by_default = true;
                let successful = SelectableField::computed("status.successful", |job| {
                    count(&job["status"]["succeeded"]).to_string()
                });
                info.selectable_fields = vec![successful];
            }
            Self::StatefulSet | Self::DaemonSet => {}
        }
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = match self {
            Self::Deployment => vec![
                text("Ready", |value, _| ready(value, "readyReplicas")),
                text("Up-to-date", |value, _| {
                    number(count(&value["status"]["updatedReplicas"]))
                }),
                text("Available", |value, _| {
                    number(count(&value["status"]["availableReplicas"]))
                }),
                aged(),
            ],
            Self::ReplicaSet => replica_columns(),
            Self::StatefulSet => vec![
                text("Ready", |value, _| ready(value, "readyReplicas")),
                aged(),
            ],
            Self::DaemonSet => daemon_sets(),
            Self::Job => jobs(),
        };
        columns.extend(template_columns());
        if *self != Self::StatefulSet {
            columns.push(wide("Selector", |value, _| {
                selector(&value["spec"]["selector"])
            }));
        }
        columns
    }

    fn name_problems(&self, name: &str) -> Vec<String> {
        match self {
            Self::StatefulSet => names::dns_label(name),
            _ => names::dns_subdomain(name),
        }
    }

    fn prepare_create(&self, _: &Context<'_>, object: &mut Value) {
        if *self == Self::DaemonSet {
            set_template_generation(object, 1);
        }
    }

    fn prepare_update(&self, context: &Context<'_>, old: &Value, new: &mut Value) {
        if *self == Self::DaemonSet && context.subresource.is_empty() {
            let former = old["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
            let former = former.and_then(|text| text.parse().ok()).unwrap_or(1);
            let changed = old["spec"]["template"] != new["spec"]["template"];
            set_template_generation(new, former + i64::from(changed));
        }
    }

    fn default(&self, _: &ResourceInfo, object: &mut Value) {
        default(self, object);
        // The internal type has a field for the annotation (apps: Convert_apps_DaemonSet_To_v1_DaemonSet), which
        // is set before the owners of fields are recorded.
        if *self == Self::DaemonSet
            && object["metadata"]["annotations"][TEMPLATE_GENERATION].is_null()
        {
            set_template_generation(object, 0);
        }
    }

    fn checks_spec(&self) -> bool {
        true
    }

    fn validate(&self, _: &Context<'_>, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        workload_rules::validate(*self, object, old, errors);
    }

    fn set_later(&self) -> &'static [&'static str] {
        match self {
            Self::Job => &["/spec/selector", "/spec/template/metadata/labels"],
            _ => &[],
        }
    }

    fn has_labels_of_template(&self) -> bool {
        *self == Self::Job
    }

    fn reset_fields(&self, subresource: &str) -> Option<Paths> {
        let paths: Paths = &[&["spec"], &["metadata", "labels"]];
        (*self == Self::Deployment && subresource == "status").then_some(paths)
    }

    fn warning_of_deletion(&self) -> Option<&'static str> {
        (*self == Self::Job).then_some(ORPHANS_WARNING)
    }
}

fn set_template_generation(object: &mut Value, generation: i64) {
    let annotations = meta::map_at(meta::metadata_mut(object), "annotations");
    annotations.insert(
        TEMPLATE_GENERATION.to_owned(),
        generation.to_string().into(),
    );
}

/// The field for selectors of a kind with replicas.
pub(super) fn replicas_field() -> SelectableField {
    SelectableField::computed("status.replicas", |value| {
        count(&value["status"]["replicas"]).to_string()
    })
}

/// The first columns of a kind with replicas.
pub(super) fn replica_columns() -> Vec<Column> {
    vec![
        integer("Desired", |value, _| {
            number(count(&value["spec"]["replicas"]))
        }),
        integer("Current", |value, _| {
            number(count(&value["status"]["replicas"]))
        }),
        integer("Ready", |value, _| {
            number(count(&value["status"]["readyReplicas"]))
        }),
        aged(),
    ]
}

/// Sets the defaults of a workload.
fn default(kind: &Workload, object: &mut Value) {
    let is_new = meta::text(object, "resourceVersion").is_empty();
    let uid = meta::text(object, "uid").to_owned();
    let name = meta::text(object, "name").to_owned();
    let map = meta::object_mut(object);
    let spec = meta::map_at(map, "spec");
    match kind {
        Workload::Deployment => {
            put(spec, "replicas", 1);
            put(spec, "progressDeadlineSeconds", 600);
            put(spec, "revisionHistoryLimit", 10);
            let strategy = meta::map_at(spec, "strategy");
            put(strategy, "type", "RollingUpdate");
            if strategy["type"] == "RollingUpdate" {
                let rolling = meta::map_at(strategy, "rollingUpdate");
                set(rolling, "maxUnavailable", "25%");
                set(rolling, "maxSurge", "25%");
            }
        }
        Workload::ReplicaSet => put(spec, "replicas", 1),
        Workload::StatefulSet => {
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
        Workload::DaemonSet => {
            put(spec, "revisionHistoryLimit", 10);
            let strategy = meta::map_at(spec, "updateStrategy");
            put(strategy, "type", "RollingUpdate");
            if strategy["type"] == "RollingUpdate" {
                let rolling = meta::map_at(strategy, "rollingUpdate");
                set(rolling, "maxUnavailable", 1);
                set(rolling, "maxSurge", 0);
            }
        }
        Workload::Job => job(spec, &uid, &name, is_new),
    }
    pods::default_template(spec.entry("template").or_insert_with(|| json!({})));
    if *kind == Workload::Job {
        label_as_template(object);
    }
}

/// Gives a Job without labels those of its template. (`SetDefaults_Job`)
fn label_as_template(job: &mut Value) {
    let labels = |object: Option<&Value>| {
        let labels = object?.pointer("/metadata/labels")?.as_object()?;
        (!labels.is_empty()).then(|| Value::from(labels.clone()))
    };
    if labels(Some(job)).is_none()
        && let Some(labels) = labels(job.pointer("/spec/template"))
    {
        meta::metadata_mut(job).insert("labels".to_owned(), labels);
    }
}

/// Completes the conditions of a policy for failed Pods, of a Job or of a template.
pub(super) fn default_failure_policy(spec: &mut Map<String, Value>) {
    let rules = spec.get_mut("podFailurePolicy");
    let rules = rules.and_then(|policy| policy.get_mut("rules")?.as_array_mut());
    for rule in rules.into_iter().flatten() {
        let conditions = rule.get_mut("onPodConditions");
        let conditions = conditions.and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            if condition.is_null() {
                *condition = json!({});
            }
            put(meta::object_mut(condition), "status", "True");
        }
    }
}

fn job(spec: &mut Map<String, Value>, uid: &str, name: &str, is_new: bool) {
    let limit = match spec.get("backoffLimitPerIndex") {
        Some(_) => i32::MAX,
        None => 6,
    };
    put(spec, "backoffLimit", limit);
    set(spec, "completionMode", "NonIndexed");
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        put(spec, "completions", 1);
    }
    put(spec, "parallelism", 1);
    put(spec, "manualSelector", false);
    let replacement = match spec.get("podFailurePolicy") {
        None => "TerminatingOrFailed",
        Some(_) => "Failed",
    };
    put(spec, "podReplacementPolicy", replacement);
    default_failure_policy(spec);
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

fn daemon_sets() -> Vec<Column> {
    vec![
        integer("Desired", |value, _| {
            number(count(&value["status"]["desiredNumberScheduled"]))
        }),
        integer("Current", |value, _| {
            number(count(&value["status"]["currentNumberScheduled"]))
        }),
        integer("Ready", |value, _| {
            number(count(&value["status"]["numberReady"]))
        }),
        integer("Up-to-date", |value, _| {
            number(count(&value["status"]["updatedNumberScheduled"]))
        }),
        integer("Available", |value, _| {
            number(count(&value["status"]["numberAvailable"]))
        }),
        text("Node Selector", |value, _| {
            shown_labels(&value["spec"]["template"]["spec"]["nodeSelector"])
        }),
        aged(),
    ]
}

fn jobs() -> Vec<Column> {
    fn has(job: &Value, kind: &str) -> bool {
        items(&job["status"]["conditions"])
            .iter()
            .any(|condition| condition["type"] == kind && condition["status"] == "True")
    }
    vec![
        text("Status", |job, _| {
            let deleted = !job["metadata"]["deletionTimestamp"].is_null();
            let status = match job {
                _ if has(job, "Complete") => "Complete",
                _ if has(job, "Failed") => "Failed",
                _ if deleted => "Terminating",
                _ if has(job, "Suspended") => "Suspended",
                _ if has(job, "FailureTarget") => "FailureTarget",
                _ if has(job, "SuccessCriteriaMet") => "SuccessCriteriaMet",
                _ => "Running",
            };
            status.into()
        }),
        text("Completions", |job, _| {
            let succeeded = count(&job["status"]["succeeded"]);
            let parallelism = count(&job["spec"]["parallelism"]);
            match job["spec"]["completions"].as_i64() {
                Some(wanted) => format!("{succeeded}/{wanted}"),
                None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
                None => format!("{succeeded}/1"),
            }
            .into()
        }),
        text("Duration", |job, now| {
            let status = &job["status"];
            let Ok(start) = string(&status["startTime"]).parse::<Timestamp>() else {
                return "".into();
            };
            match string(&status["completionTime"]).parse::<Timestamp>() {
                Ok(end) => duration::human(end.duration_since(start)).into(),
                Err(_) => now.since(start).into(),
            }
        }),
        aged(),
    ]
}
