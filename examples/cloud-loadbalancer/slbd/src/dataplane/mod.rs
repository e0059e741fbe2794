//! The bytes: HAProxy on loopback addresses, configured from the state.
//!
//! [`config::render`] is a pure function of the state. [`HaProxy::run`] follows the states: each new configuration is checked, written and
//! loaded by a new process, which takes the listening sockets of the old one, so no connection is refused. The old process ends its
//! connections first. UDP listeners, which HAProxy does not balance, are forwarded by [`udp::run`].

pub mod config;
mod haproxy;
pub mod udp;

pub use haproxy::{HaProxy, Progress};
