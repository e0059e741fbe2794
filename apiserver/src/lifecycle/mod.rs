//! What follows from a write: deletions are finished, and what a namespace or a definition holds goes with it.
//!
//! One background task, owned by the server, does what kube-controller-manager and the CRD controllers do on a real
//! cluster, and nothing else of theirs: owners' dependents are collected, terminating namespaces and definitions are
//! emptied.

mod chores;
mod collector;
mod definitions;
mod initial;
mod internal;
mod namespaces;
mod retries;
mod task;
#[cfg(test)]
mod tests;
mod work;

pub(crate) use task::{run, start};
