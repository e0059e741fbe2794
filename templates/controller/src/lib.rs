//! The controller of `{{plural}}.{{group}}`: its kind, and what it does for each object.

pub mod api;
pub mod controller;

/// The name of the program, of its lease, and of its objects in `manifests/`.
pub const NAME: &str = "{{project-name}}";
