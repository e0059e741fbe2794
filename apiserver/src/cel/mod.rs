//! Rules of `x-kubernetes-validations`: compiled once, evaluated with Kubernetes' texts.
//!
//! The language is the `cel` crate's, with the Kubernetes functions that `kube-cel` registers
//! (`isIP`, `cidr`, `quantity`, …). The walk over the object is our own, because paths, ratcheting and
//! the correlation of list items are Kubernetes'. The cost of a rule is bounded during its evaluation
//! ([`meter`]); it is not estimated when the definition is written. A rule that uses features the crate
//! does not have (`sortBy`, `cel.bind`, two-variable comprehensions) fails.
//! (apiextensions-apiserver: `schema/cel`.)

mod admission;
mod authorizer;
mod compile;
mod evaluate;
mod meter;
mod patterns;
mod rule;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use admission::{Condition, Variables};
pub(crate) use authorizer::Authorizer;
pub(crate) use compile::{compile, compile_error, condition_problem, uses_old_self};
pub(crate) use evaluate::{blocks, evaluate, not_checked, split_field_path};
pub(crate) use rule::Rule;
pub(crate) use values::escape;
