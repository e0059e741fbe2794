//! The three patch formats: JSON merge patch, JSON patch and strategic merge patch.
//!
//! Server-side apply is not among them: it needs the owners of fields (`ownership`, `apply`).
//! (apiserver: `handlers/patch.go`.)

mod apply;
mod error;
mod json;
mod strategic;
mod types;

pub(crate) use apply::{Format, apply, apply_json, operations, strict_errors};
pub(crate) use error::Error;
