//! Admission policies: expressions that check or change what is written, without a webhook.
//!
//! [`Policies`] reads the stored policies with their bindings, and finds the invocations of a write: a policy, a binding
//! and a parameter each. [`ValidatingPolicies`] evaluates them all, [`MutatingPolicies`] one after the other.
//! (apiserver: `pkg/admission/plugin/policy`.)

mod binding;
mod mutating;
mod mutations;
mod parameters;
mod policy;
mod stored;
#[cfg(test)]
mod tests;
mod validating;
mod validations;

pub(super) use mutating::MutatingPolicies;
pub(super) use validating::ValidatingPolicies;
