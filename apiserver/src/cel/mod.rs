//! Rules of `x-kubernetes-validations`: compiled once, evaluated with Kubernetes' texts.
//!
//! The language is the `cel` crate's, with the Kubernetes functions that `kube-cel` registers
//! (`isIP`, `cidr`, `quantity`, …). The walk over the object is our own, because paths, ratcheting and
//! the correlation of list items are Kubernetes'. The cost of a rule is bounded during its evaluation
//! ([`meter`]); it is not estimated when the definition is written. A rule that uses features the crate
//! does not have (`sortBy`, `cel.bind`, two-variable comprehensions) fails.
//! (apiextensions-apiserver: `schema/cel`.)

mod authorizer;
mod compile;
mod composition;
mod condition;
mod declared;
mod evaluate;
mod expression;
mod meter;
mod patterns;
mod results;
mod rule;
#[cfg(test)]
mod tests;
mod texts;
mod values;
mod variables;

pub(crate) use authorizer::Authorizer;
pub(crate) use compile::{compile, compile_error, uses_old_self};
pub(crate) use composition::Composition;
pub(crate) use condition::Conditions;
pub(crate) use declared::{Declared, KNOWN, Wanted, error_at, expression_problem, place_of};
pub(crate) use evaluate::{blocks, evaluate, not_checked, split_field_path};
pub(crate) use expression::{Expression, Failure, Scope, within};
pub(crate) use results::{check_type_names, elements, field, is_true, text, to_json, type_name};
pub(crate) use rule::Rule;
pub(crate) use values::escape;
pub(crate) use variables::Variables;
