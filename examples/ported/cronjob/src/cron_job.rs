//! The kind `CronJob`.

use k8s_openapi::api::batch::v1::JobTemplateSpec;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_derive::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The schedule, and the Jobs to start.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "batch.tutorial.kubebuilder.io",
    version = "v1",
    kind = "CronJob",
    namespaced,
    status = "CronJobStatus",
    derive = "PartialEq",
    doc = "Starts Jobs on a schedule.",
    crates(kube_core = "::kube_core")
)]
pub struct CronJobSpec {
    /// The schedule in the five fields of cron, or a nickname such as `@hourly`, in UTC.
    #[schemars(length(min = 1))]
    pub schedule: String,
    /// The number of seconds after its time in which a run may still start. Default: without limit.
    #[schemars(range(min = 0))]
    pub starting_deadline_seconds: Option<i64>,
    /// The rule for a run whose predecessors are still active.
    #[serde(default)]
    pub concurrency_policy: ConcurrencyPolicy,
    /// Whether no run starts. Active Jobs go on.
    #[serde(default)]
    pub suspend: bool,
    /// The Jobs to start.
    #[schemars(schema_with = "any_object")]
    pub job_template: JobTemplateSpec,
    /// The number of successful Jobs to keep.
    #[serde(default = "three")]
    pub successful_jobs_history_limit: u32,
    /// The number of failed Jobs to keep.
    #[serde(default = "one")]
    pub failed_jobs_history_limit: u32,
}

/// The rule for a run whose predecessors are still active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrencyPolicy {
    /// It starts beside them.
    #[default]
    Allow,
    /// It is skipped.
    Forbid,
    /// It starts, and they are deleted.
    Replace,
}

/// The observed Jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronJobStatus {
    /// The active Jobs.
    #[serde(default)]
    pub active: Vec<ObjectReference>,
    /// The scheduled time of the latest run.
    pub last_schedule_time: Option<Time>,
}

/// The server checks the template when a Job is made of it. The schema of a Pod has ten thousand lines.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn three() -> u32 {
    3
}

fn one() -> u32 {
    1
}
