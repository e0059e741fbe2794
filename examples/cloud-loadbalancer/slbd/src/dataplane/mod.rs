//! The bytes: HAProxy on loopback addresses, configured from the state.
//!
//! [`config::proxies`] and [`config::render`] are pure functions of the state. [`HaProxy::run`] follows the states: each new configuration is checked, written and
//! loaded by a new process, which takes the listening sockets of the old one, so no connection is refused. The old process ends its
//! connections first. Listeners that HAProxy cannot serve are left out. UDP listeners, which HAProxy does not balance, are forwarded by
//! [`Udp`](udp::Udp).

mod certificates;
pub mod config;
mod haproxy;
mod isolate;
mod process;
pub mod udp;

pub use haproxy::{HaProxy, LeftOut, Progress};
