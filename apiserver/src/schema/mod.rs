//! Structural schemas: the fields of an object, their defaults and their rules.
//!
//! One [`ObjectSchema`] serves one version of one kind, custom or built in. It processes a request body in the
//! order of a real server:
//!
//! 1. [`ObjectSchema::decode_error`]: the first type that cannot be decoded (400);
//! 2. [`ObjectSchema::strict_errors`]: unknown and duplicate fields, for `fieldValidation`;
//! 3. [`ObjectSchema::prune`]: removes unknown fields;
//! 4. [`ObjectSchema::default`]: sets absent fields, removes nulls that are not allowed;
//! 5. [`ObjectSchema::validate`]: everything else, as field errors (422); with the old object,
//!    unchanged violations are tolerated.
//!
//! (apiextensions-apiserver: `pkg/apiserver/schema`; kube-openapi: `pkg/validation`.)

mod fields;
mod format;
mod limits;
mod lists;
mod meta;
mod node;
mod object;
mod pattern;
mod prune;
mod quantity;
mod typed;
mod validate;

pub(crate) use lists::{items_by_key, map_key};
pub(crate) use node::{Additional, BYTES, Kind, Schema};
pub(crate) use object::ObjectSchema;
pub(crate) use pattern::Pattern;
pub(crate) use prune::would_prune;
pub(crate) use quantity::{
    compare as compare_quantities, nearest as quantity_value, parts as quantity_parts,
};
pub(crate) use validate::errors_of;
