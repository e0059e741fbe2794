//! The built-in kinds.
//!
//! [`data`] is the generated table of the resources and of the fields of their types: discovery, schemas, patches, OpenAPI
//! documents and apply read it. [`strategy`] is what the table cannot know of one kind. Each kind has it in one file, whose
//! list `KINDS` names the kinds in it; [`KINDS`] has all of them.
//! [`rules`] calls it at each step of a write. Objects are stored as sent, after pruning, defaults and checks; no
//! controllers act on them (a Deployment creates no Pods).

mod address_rules;
pub(crate) mod addresses;
mod admission;
mod autoscaling;
mod autoscaling_rules;
mod autoscaling_v1;
mod binding_rules;
pub(crate) mod canonical;
mod certificates;
mod check;
mod claims;
mod config;
mod container_rules;
mod controllers;
mod csi_rules;
pub(crate) mod data;
pub(crate) mod defaults;
mod device_rules;
mod devices;
mod endpoints;
pub(crate) mod entry;
mod event_rules;
mod events;
pub(crate) mod flow;
mod flow_rules;
pub(crate) mod immutable;
pub(crate) mod ingress_rules;
mod job_rules;
mod leases;
mod limit_rules;
mod match_rules;
mod namespaces;
mod network_rules;
mod networking;
mod nodes;
mod placement_rules;
pub(crate) mod pod_spec;
pub(crate) mod pods;
pub(crate) mod policy;
mod policy_rules;
mod quota_rules;
mod rbac;
mod registration;
mod registration_rules;
mod required;
mod resources;
pub(crate) mod rules;
mod schedule;
mod security;
mod selectors;
mod service_range;
pub(crate) mod service_rules;
mod services;
mod slice_rules;
mod storage;
mod storage_rules;
pub(crate) mod strategy;
mod taken;
#[cfg(test)]
mod tests;
mod volume_rules;
pub(crate) mod webhook_rules;
pub(crate) mod workload_rules;
mod workloads;

pub(crate) use claims::{Claim, Claims};
pub(crate) use namespaces::FINALIZER as NAMESPACE_FINALIZER;
pub(crate) use resources::builtin;
pub(crate) use service_range::ServiceRange;

/// The kinds with rules of their own, by file. The others are ordinary ([`strategy::Plain`]).
pub(crate) const KINDS: &[&[entry::Entry]] = &[
    admission::KINDS,
    autoscaling::KINDS,
    certificates::KINDS,
    config::KINDS,
    controllers::KINDS,
    devices::KINDS,
    endpoints::KINDS,
    events::KINDS,
    flow::KINDS,
    leases::KINDS,
    namespaces::KINDS,
    networking::KINDS,
    nodes::KINDS,
    pods::KINDS,
    policy::KINDS,
    rbac::KINDS,
    registration::KINDS,
    services::KINDS,
    storage::KINDS,
    workloads::KINDS,
];
