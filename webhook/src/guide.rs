//! The guides: from a rule to a webhook that a cluster calls, and the versions of a kind.

#[doc = include_str!("../guide/admission.md")]
pub mod admission {}

#[doc = include_str!("../guide/versions.md")]
pub mod versions {}
