//! The built-in kinds: their resources, and the rules of each kind.
//!
//! Objects of these kinds are stored as sent, after pruning, defaults and the checks of
//! [`rules`]; no controllers act on them (a Deployment creates no Pods).

pub(crate) mod checks;
pub(crate) mod events;
pub(crate) mod immutable;
pub(crate) mod ingress_rules;
mod namespaces;
pub(crate) mod pod_spec;
pub(crate) mod pods;
mod resources;
pub(crate) mod rules;
pub(crate) mod service_rules;
pub(crate) mod services;
pub(crate) mod workload_rules;
pub(crate) mod workloads;
pub(crate) mod zeros;

pub(crate) use namespaces::FINALIZER as NAMESPACE_FINALIZER;
pub(crate) use resources::builtin;
