//! The bytes: HAProxy on loopback addresses, configured from the state.
//!
//! [`config::render`] is a pure function of the state. [`HaProxy::run`] follows the states: each new configuration is checked, written and
//! loaded by a new process, which takes the listening sockets of the old one, so no connection is refused. The old process ends its
//! connections first. TCP and HTTP listeners have a data plane, UDP listeners do not: HAProxy does not balance UDP.

pub mod config;
mod haproxy;

pub use haproxy::{HaProxy, Progress};
