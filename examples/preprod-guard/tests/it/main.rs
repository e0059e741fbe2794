//! The answers of the webhook: behaviours, defects of the original (A) and bypasses (B); and the program with API servers.

mod behaviours;
mod bypasses;
mod cluster;
mod commands;
mod explored;
mod latency;
mod manifests;
mod recorder;
mod scenario;
mod takeover;
