//! CustomResourceDefinitions: defaults, validation and status.
//!
//! Not checked: the cost of rules, and the types of expressions. (apiextensions-apiserver: `apis/apiextensions/validation`.)

mod definition;
mod expressions;
mod fields;
mod rules;
mod status;
mod structure;
mod versions;

pub(crate) use definition::{default, validate};
pub(crate) use status::{
    accept, add_stored_version, initial_status, is_established, lacks_authority, mark_installing,
    mark_terminating,
};
