//! Managers and controllers as their users run them, one test binary for the whole crate.

#![allow(
    unreachable_pub,
    reason = "the modules of a test binary share their items"
)]

mod apiserver;
mod children;
mod client;
mod client_edits;
mod client_upserts;
mod conformance;
mod connect;
mod control_plane;
mod control_plane_client;
mod degraded;
mod examples;
mod explore;
mod finalizers;
mod greeter;
mod guides;
mod leases;
mod own_kind;
mod predicates;
mod server_side_apply;
mod servers;
mod shutdown;
#[cfg(unix)]
mod signals;
mod webhooks;
