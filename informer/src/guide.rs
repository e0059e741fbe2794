//! The guides of the informer.

#[doc = include_str!("../guide/from-client-go.md")]
pub mod from_client_go {}
