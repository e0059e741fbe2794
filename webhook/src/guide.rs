//! The guide: from a rule to a webhook that a cluster calls.

#[doc = include_str!("../guide/admission.md")]
pub mod admission {}
