//! `ipblock-operator dev`: everything in one process, to try it without a cluster.
//!
//! An API server on a loopback port, a simulated gateway and the operator, with the definition, the
//! configuration and a kubeconfig in place. The operator reaches the API server over HTTP and the
//! gateway over HTTP, as it would in a cluster; only nothing is really blocked.
//!
//! `dev --demo` walks a few blocks through their lives, prints each step and checks it.

mod cluster;
mod demo;
#[cfg(test)]
mod gateway_tests;
mod narrator;
mod run;
#[cfg(test)]
mod simulated_tests;
mod tour;
mod watcher;

pub use run::{Arguments, Error, run};
