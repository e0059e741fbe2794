//! ReplicationControllers, ControllerRevisions, PodTemplates and CronJobs.

use k8s_openapi::api;
use serde_json::{Value, json};

use super::entry::Entry;
use super::pods::{self, put};
use super::strategy::{Context, Strategy};
use super::workloads::{default_failure_policy, replica_columns, replicas_field};
use super::{job_rules, workload_rules};
use crate::field::{Errors, FieldError, Path};
use crate::meta;
use crate::resource::{Column, Generation, ResourceInfo};
use crate::table::cells::{
    NONE, aged, ago, boolean, container_names, images, integer, items, labels, length, or_none,
    plain, selector, string, template_columns, text, wide,
};
use crate::table::{count, number};

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[
    Entry::of::<api::core::v1::PodTemplate>("", "podtemplates", &Templates),
    Entry::of::<api::core::v1::ReplicationController>(
        "",
        "replicationcontrollers",
        &ReplicationControllers,
    ),
    Entry::of::<api::apps::v1::ControllerRevision>("apps", "controllerrevisions", &Revisions),
    Entry::of::<api::batch::v1::CronJob>("batch", "cronjobs", &CronJobs),
];

/// The longest name of a CronJob: its Jobs have a suffix of 11 bytes.
const LONGEST: usize = 52;

/// ReplicationControllers.
#[derive(Debug)]
pub(super) struct ReplicationControllers;

/// ControllerRevisions.
#[derive(Debug)]
pub(super) struct Revisions;

/// PodTemplates.
#[derive(Debug)]
pub(super) struct Templates;

/// CronJobs.
#[derive(Debug)]
pub(super) struct CronJobs;

// === impl ReplicationControllers ===

impl Strategy for ReplicationControllers {
    fn describe(&self, info: &mut ResourceInfo) {
        info.generation = Generation::Spec;
        info.orphans_by_default = true;
        info.selectable_fields = vec![replicas_field()];
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = replica_columns();
        columns.extend(template_columns());
        columns.push(wide("Selector", |value, _| {
            labels(&value["spec"]["selector"])
        }));
        columns
    }

    fn default(&self, _: &ResourceInfo, object: &mut Value) {
        let spec = meta::map_at(meta::object_mut(object), "spec");
        put(spec, "replicas", 1);
        let Some(template) = spec.get_mut("template").filter(|one| one.is_object()) else {
            return;
        };
        pods::default_template(template);
        let of_template = template["metadata"]["labels"].clone();
        if !of_template.is_object() {
            return;
        }
        let has = |value: Option<&Value>| {
            value
                .and_then(Value::as_object)
                .is_some_and(|map| !map.is_empty())
        };
        if !has(spec.get("selector")) {
            spec.insert("selector".to_owned(), of_template.clone());
        }
        if !has(object["metadata"].get("labels")) {
            meta::metadata_mut(object).insert("labels".to_owned(), of_template);
        }
    }

    fn validate(&self, _: &Context<'_>, object: &Value, _: Option<&Value>, errors: &mut Errors) {
        workload_rules::replication_controller(&object["spec"], &Path::new("spec"), errors);
    }
}

// === impl Revisions ===

impl Strategy for Revisions {
    fn columns(&self) -> Vec<Column> {
        vec![
            text("Controller", |value, _| {
                let owners = items(&value["metadata"]["ownerReferences"]);
                let Some(owner) = owners.iter().find(|owner| owner["controller"] == true) else {
                    return NONE.into();
                };
                let mut kind = string(&owner["kind"]).to_lowercase();
                if let Some((group, _)) = string(&owner["apiVersion"]).split_once('/') {
                    kind = format!("{kind}.{group}");
                }
                format!("{kind}/{}", string(&owner["name"])).into()
            }),
            text("Revision", |value, _| number(count(&value["revision"]))),
            aged(),
        ]
    }

    fn validate(
        &self,
        _: &Context<'_>,
        revision: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
    ) {
        if count(&revision["revision"]) < 0 {
            errors.push(FieldError::invalid(
                &Path::new("revision"),
                revision["revision"].clone(),
                "must be greater than or equal to 0",
            ));
        }
        if revision["data"].is_null() {
            errors.push(FieldError::required(
                &Path::new("data"),
                "data is mandatory",
            ));
        }
        if old.is_some_and(|old| old["data"] != revision["data"]) {
            errors.push(FieldError::invalid(
                &Path::new("data"),
                revision["data"].clone(),
                "field is immutable",
            ));
        }
    }
}

// === impl Templates ===

impl Strategy for Templates {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
        info.generation = Generation::OutsideMetadata;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("Containers", |value, _| container_names(&value["template"])),
            text("Images", |value, _| images(&value["template"])),
            text("Pod Labels", |value, _| {
                labels(&value["template"]["metadata"]["labels"])
            }),
        ]
    }

    fn default(&self, _: &ResourceInfo, object: &mut Value) {
        let template = meta::object_mut(object)
            .entry("template")
            .or_insert_with(|| json!({}));
        pods::default_template(template);
    }

    fn validate(&self, _: &Context<'_>, object: &Value, _: Option<&Value>, errors: &mut Errors) {
        workload_rules::stored_template(object, errors);
    }
}

// === impl CronJobs ===

impl Strategy for CronJobs {
    fn describe(&self, info: &mut ResourceInfo) {
        info.generation = Generation::Spec;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("Schedule", |value, _| plain(&value["spec"]["schedule"])),
            text("Timezone", |value, _| or_none(&value["spec"]["timeZone"])),
            boolean("Suspend", |value, _| {
                match value["spec"]["suspend"].as_bool() {
                    Some(true) => "True".into(),
                    Some(false) => "False".into(),
                    None => "<unset>".into(),
                }
            }),
            integer("Active", |value, _| length(&value["status"]["active"])),
            text("Last Schedule", |value, now| {
                let last = &value["status"]["lastScheduleTime"];
                if last.is_null() {
                    return NONE.into();
                }
                ago(last, now).into()
            }),
            aged(),
            wide("Containers", |value, _| {
                container_names(&value["spec"]["jobTemplate"]["spec"]["template"])
            }),
            wide("Images", |value, _| {
                images(&value["spec"]["jobTemplate"]["spec"]["template"])
            }),
            wide("Selector", |value, _| {
                selector(&value["spec"]["jobTemplate"]["spec"]["selector"])
            }),
        ]
    }

    fn default(&self, _: &ResourceInfo, object: &mut Value) {
        let spec = meta::map_at(meta::object_mut(object), "spec");
        put(spec, "concurrencyPolicy", "Allow");
        put(spec, "suspend", false);
        put(spec, "successfulJobsHistoryLimit", 3);
        put(spec, "failedJobsHistoryLimit", 1);
        let job = meta::map_at(meta::map_at(spec, "jobTemplate"), "spec");
        default_failure_policy(job);
        let template = job.entry("template").or_insert_with(|| json!({}));
        pods::default_template(template);
    }

    fn validate(&self, _: &Context<'_>, object: &Value, old: Option<&Value>, errors: &mut Errors) {
        let name = meta::text(object, "name");
        let former = old.map(|old| &old["spec"]);
        job_rules::cron_job(&object["spec"], former, &Path::new("spec"), errors);
        if old.is_none() && name.len() > LONGEST {
            errors.push(FieldError::invalid(
                &Path::new("metadata").child("name"),
                name,
                format!("must be no more than {LONGEST} characters"),
            ));
        }
    }
}
