//! The guides of the informer.

#[doc = include_str!("../guide/migration.md")]
pub mod migration {}
