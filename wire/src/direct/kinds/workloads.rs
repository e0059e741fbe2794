//! Metadata, workloads, leases and slices of endpoints.

use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

use crate::direct::message::messages;

messages! {
    "apps.v1.DaemonSet" apps::DaemonSet { must 1 metadata, must 2 spec, must 3 status, }
    "apps.v1.DaemonSetCondition" apps::DaemonSetCondition {
        must 1 type_, must 2 status, any 3 last_transition_time, opt 4 reason, opt 5 message,
    }
    "apps.v1.DaemonSetSpec" apps::DaemonSetSpec {
        any 1 selector, must 2 template, must 3 update_strategy, opt 4 min_ready_seconds,
        any 6 revision_history_limit,
    }
    "apps.v1.DaemonSetStatus" apps::DaemonSetStatus {
        must 1 current_number_scheduled, must 2 number_misscheduled, must 3 desired_number_scheduled,
        must 4 number_ready, opt 5 observed_generation, opt 6 updated_number_scheduled, opt 7 number_available,
        opt 8 number_unavailable, any 9 collision_count, any 10 conditions,
    }
    "apps.v1.DaemonSetUpdateStrategy" apps::DaemonSetUpdateStrategy { opt 1 type_, any 2 rolling_update, }
    "apps.v1.Deployment" apps::Deployment { must 1 metadata, must 2 spec, must 3 status, }
    "apps.v1.DeploymentCondition" apps::DeploymentCondition {
        must 1 type_, must 2 status, opt 4 reason, opt 5 message, any 6 last_update_time, any 7 last_transition_time,
    }
    "apps.v1.DeploymentSpec" apps::DeploymentSpec {
        any 1 replicas, any 2 selector, must 3 template, must 4 strategy, opt 5 min_ready_seconds,
        any 6 revision_history_limit, opt 7 paused, any 9 progress_deadline_seconds,
    }
    "apps.v1.DeploymentStatus" apps::DeploymentStatus {
        opt 1 observed_generation, opt 2 replicas, opt 3 updated_replicas, opt 4 available_replicas,
        opt 5 unavailable_replicas, any 6 conditions, opt 7 ready_replicas, any 8 collision_count,
        any 9 terminating_replicas,
    }
    "apps.v1.DeploymentStrategy" apps::DeploymentStrategy { opt 1 type_, any 2 rolling_update, }
    "apps.v1.ReplicaSet" apps::ReplicaSet { must 1 metadata, must 2 spec, must 3 status, }
    "apps.v1.ReplicaSetCondition" apps::ReplicaSetCondition {
        must 1 type_, must 2 status, any 3 last_transition_time, opt 4 reason, opt 5 message,
    }
    "apps.v1.ReplicaSetSpec" apps::ReplicaSetSpec { any 1 replicas, any 2 selector, must 3 template, opt 4 min_ready_seconds, }
    "apps.v1.ReplicaSetStatus" apps::ReplicaSetStatus {
        must 1 replicas, opt 2 fully_labeled_replicas, opt 3 observed_generation, opt 4 ready_replicas,
        opt 5 available_replicas, any 6 conditions, any 7 terminating_replicas,
    }
    "apps.v1.RollingUpdateDaemonSet" apps::RollingUpdateDaemonSet { any 1 max_unavailable, any 2 max_surge, }
    "apps.v1.RollingUpdateDeployment" apps::RollingUpdateDeployment { any 1 max_unavailable, any 2 max_surge, }
    "apps.v1.RollingUpdateStatefulSetStrategy" apps::RollingUpdateStatefulSetStrategy { any 1 partition, any 2 max_unavailable, }
    "apps.v1.StatefulSet" apps::StatefulSet { must 1 metadata, must 2 spec, must 3 status, }
    "apps.v1.StatefulSetCondition" apps::StatefulSetCondition {
        must 1 type_, must 2 status, any 3 last_transition_time, opt 4 reason, opt 5 message,
    }
    "apps.v1.StatefulSetOrdinals" apps::StatefulSetOrdinals { must 1 start, }
    "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy" apps::StatefulSetPersistentVolumeClaimRetentionPolicy { opt 1 when_deleted, opt 2 when_scaled, }
    "apps.v1.StatefulSetSpec" apps::StatefulSetSpec {
        any 1 replicas, any 2 selector, must 3 template, any 4 volume_claim_templates, must 5 service_name,
        opt 6 pod_management_policy, must 7 update_strategy, any 8 revision_history_limit, opt 9 min_ready_seconds,
        any 10 persistent_volume_claim_retention_policy, any 11 ordinals,
    }
    "apps.v1.StatefulSetStatus" apps::StatefulSetStatus {
        opt 1 observed_generation, must 2 replicas, opt 3 ready_replicas, opt 4 current_replicas,
        opt 5 updated_replicas, opt 6 current_revision, opt 7 update_revision, any 9 collision_count,
        any 10 conditions, must 11 available_replicas,
    }
    "apps.v1.StatefulSetUpdateStrategy" apps::StatefulSetUpdateStrategy { opt 1 type_, any 2 rolling_update, }
    "batch.v1.CronJob" batch::CronJob { must 1 metadata, must 2 spec, must 3 status, }
    "batch.v1.CronJobSpec" batch::CronJobSpec {
        must 1 schedule, any 2 starting_deadline_seconds, opt 3 concurrency_policy, any 4 suspend,
        must 5 job_template, any 6 successful_jobs_history_limit, any 7 failed_jobs_history_limit, any 8 time_zone,
    }
    "batch.v1.CronJobStatus" batch::CronJobStatus { any 1 active, any 4 last_schedule_time, any 5 last_successful_time, }
    "batch.v1.Job" batch::Job { must 1 metadata, must 2 spec, must 3 status, }
    "batch.v1.JobCondition" batch::JobCondition {
        must 1 type_, must 2 status, any 3 last_probe_time, any 4 last_transition_time, opt 5 reason, opt 6 message,
    }
    "batch.v1.JobSpec" batch::JobSpec {
        any 1 parallelism, any 2 completions, any 3 active_deadline_seconds, any 4 selector, any 5 manual_selector,
        must 6 template, any 7 backoff_limit, any 8 ttl_seconds_after_finished, any 9 completion_mode,
        any 10 suspend, any 11 pod_failure_policy, any 12 backoff_limit_per_index, any 13 max_failed_indexes,
        any 14 pod_replacement_policy, any 15 managed_by, any 16 success_policy,
    }
    "batch.v1.JobStatus" batch::JobStatus {
        any 1 conditions, any 2 start_time, any 3 completion_time, opt 4 active, opt 5 succeeded, opt 6 failed,
        opt 7 completed_indexes, any 8 uncounted_terminated_pods, any 9 ready, any 10 failed_indexes,
        any 11 terminating,
    }
    "batch.v1.JobTemplateSpec" batch::JobTemplateSpec { must 1 metadata, must 2 spec, }
    "batch.v1.PodFailurePolicy" batch::PodFailurePolicy { any 1 rules, }
    "batch.v1.PodFailurePolicyOnExitCodesRequirement" batch::PodFailurePolicyOnExitCodesRequirement { any 1 container_name, must 2 operator, any 3 values, }
    "batch.v1.PodFailurePolicyOnPodConditionsPattern" batch::PodFailurePolicyOnPodConditionsPattern { must 1 type_, must 2 status, }
    "batch.v1.PodFailurePolicyRule" batch::PodFailurePolicyRule { must 1 action, any 2 on_exit_codes, any 3 on_pod_conditions, }
    "batch.v1.SuccessPolicy" batch::SuccessPolicy { any 1 rules, }
    "batch.v1.SuccessPolicyRule" batch::SuccessPolicyRule { any 1 succeeded_indexes, any 2 succeeded_count, }
    "batch.v1.UncountedTerminatedPods" batch::UncountedTerminatedPods { any 1 succeeded, any 2 failed, }
    "coordination.v1.Lease" coordination::Lease { must 1 metadata, must 2 spec, }
    "coordination.v1.LeaseSpec" coordination::LeaseSpec {
        any 1 holder_identity, any 2 lease_duration_seconds, any 3 acquire_time, any 4 renew_time,
        any 5 lease_transitions, any 6 strategy, any 7 preferred_holder,
    }
    "discovery.v1.Endpoint" discovery::Endpoint {
        any 1 addresses, must 2 conditions, any 3 hostname, any 4 target_ref, any 5 deprecated_topology,
        any 6 node_name, any 7 zone, any 8 hints,
    }
    "discovery.v1.EndpointConditions" discovery::EndpointConditions { any 1 ready, any 2 serving, any 3 terminating, }
    "discovery.v1.EndpointHints" discovery::EndpointHints { any 1 for_zones, any 2 for_nodes, }
    "discovery.v1.EndpointPort" discovery::EndpointPort { any 1 name, any 2 protocol, any 3 port, any 4 app_protocol, }
    "discovery.v1.EndpointSlice" discovery::EndpointSlice { must 1 metadata, any 2 endpoints, any 3 ports, must 4 address_type, }
    "discovery.v1.ForNode" discovery::ForNode { must 1 name, }
    "discovery.v1.ForZone" discovery::ForZone { must 1 name, }
    "meta.v1.LabelSelector" meta::LabelSelector { any 1 match_labels, any 2 match_expressions, }
    "meta.v1.LabelSelectorRequirement" meta::LabelSelectorRequirement { must 1 key, must 2 operator, any 3 values, }
    "meta.v1.ManagedFieldsEntry" meta::ManagedFieldsEntry {
        opt 1 manager, opt 2 operation, opt 3 api_version, any 4 time, opt 6 fields_type, any 7 fields_v1,
        opt 8 subresource,
    }
    "meta.v1.ObjectMeta" meta::ObjectMeta {
        opt 1 name, opt 2 generate_name, opt 3 namespace, opt 4 self_link, opt 5 uid, opt 6 resource_version,
        opt 7 generation, any 8 creation_timestamp, any 9 deletion_timestamp, any 10 deletion_grace_period_seconds,
        any 11 labels, any 12 annotations, any 13 owner_references, any 14 finalizers, any 17 managed_fields,
    }
    "meta.v1.OwnerReference" meta::OwnerReference {
        must 1 kind, must 3 name, must 4 uid, must 5 api_version, any 6 controller, any 7 block_owner_deletion,
    }
}
