//! The API server as its clients see it, one test binary for the whole crate.

#![allow(
    unreachable_pub,
    clippy::print_stdout,
    reason = "the modules of a test binary share their items, and print what they compared"
)]

mod conformance;
mod control_plane;
mod envtest;
mod kinds;
mod kubectl;
mod mutated;
mod open_api;
mod owners;
mod program;
mod protobuf;
mod rules;
mod user_certificates;
