//! The queue through its public API, one test binary for the whole crate.
//!
//! With `--cfg shuttle` only the schedules are compiled: the queue then runs on shuttle's types.

#![allow(
    unreachable_pub,
    reason = "the modules of a test binary share their items"
)]

#[cfg(not(shuttle))]
mod chains;
#[cfg(not(shuttle))]
mod client_go;
#[cfg(not(shuttle))]
mod crawler;
#[cfg(not(shuttle))]
mod deferred;
#[cfg(not(shuttle))]
mod fairness;
#[cfg(not(shuttle))]
mod features;
#[cfg(not(shuttle))]
mod limit;
#[cfg(not(shuttle))]
mod limits;
#[cfg(not(shuttle))]
mod liveness;
#[cfg(not(shuttle))]
mod model;
#[cfg(not(shuttle))]
mod panics;
#[cfg(not(shuttle))]
mod priority;
#[cfg(all(not(shuttle), feature = "prometheus"))]
mod prometheus;
#[cfg(shuttle)]
mod schedules;
