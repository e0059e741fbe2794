//! Server-side apply: owners of fields, merges by them, and the types that both follow.
//!
//! Everything here is a pure function of JSON values:
//!
//! * `literal`, `path`, `set`: fields, sets of them, and their form in `managedFields`;
//! * `schema`, `open_api`: the types that say what is one value and what has parts;
//! * `walk`: the fields of a value, differences, merges;
//! * `manage`: the owners, from one write to the next;
//! * `patched`: the merge of a policy's patch, without owners.
//!
//! (sigs.k8s.io/structured-merge-diff; apimachinery: `util/managedfields`.)

mod lazy;
mod literal;
mod manage;
mod open_api;
mod patched;
mod path;
mod schema;
mod set;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use lazy::LazySchema;
pub(crate) use manage::{
    ApplyError, Kind, Merge, Operation, ScaleFields, Version, managers_problem, take_managers,
};
pub(crate) use open_api::{RAW_EXTENSION, of_component, of_custom_resource};
pub(crate) use patched::patched;
pub(crate) use schema::Schema;
pub(crate) use set::Set;
