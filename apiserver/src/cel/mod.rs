//! Rules of `x-kubernetes-validations`: compiled once, evaluated with Kubernetes' texts.
//!
//! The language is the `cel` crate's, with the Kubernetes functions that `kube-cel` registers
//! (`isIP`, `cidr`, …). Where they differ from cel-go, functions of our own take their place. The walk over
//! the object is our own, because paths, ratcheting and the correlation of list items are Kubernetes'.
//! The cost of a rule is bounded during its evaluation
//! ([`meter`]); it is not estimated when the definition is written. A rule that uses features the crate
//! does not have (`sortBy`, `cel.bind`, two-variable comprehensions) fails.
//! (apiextensions-apiserver: `schema/cel`.)

mod authorizer;
mod compile;
mod composition;
mod condition;
mod crates;
mod declared;
mod equality;
mod evaluate;
mod expression;
mod functions;
mod logic;
mod meter;
mod numbers;
mod optionals;
mod patterns;
mod quantities;
mod results;
mod rewrite;
mod rule;
#[cfg(test)]
mod tests;
mod texts;
mod times;
mod types;
mod values;
mod variables;

pub(crate) use authorizer::Authorizer;
pub(crate) use compile::{compile, compile_error, uses_old_self};
pub(crate) use composition::Composition;
pub(crate) use condition::Conditions;
pub(crate) use declared::{
    Declared, KNOWN, Wanted, error_at, expression_problem, place_of, selector_problem,
};
pub(crate) use evaluate::{blocks, evaluate, not_checked, split_field_path};
pub(crate) use expression::{Expression, Failure, Scope, within};
pub(crate) use functions::is_known_function;
pub(crate) use results::{check_type_names, elements, field, is_true, text, to_json, type_name};
pub(crate) use rule::Rule;
pub(crate) use values::escape;
pub(crate) use variables::Variables;
