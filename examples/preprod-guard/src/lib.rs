//! The decision of an admission webhook that keeps pre-release callers from changing production objects.
//!
//! [`decision::decide`] is a pure function of a request, the state of the cluster and the time. [`webhook::guard`] serves it.
//! Production callers are always allowed.

pub mod age;
pub mod audit;
pub mod config;
pub mod decision;
pub mod identity;
pub mod object;
pub mod state;
pub mod target;
pub mod webhook;
