//! The plugin as a process, against the built-in API server with the operator in this process.

mod ban;
mod files;
mod guide;
mod kubectl;
mod questions;
mod rights;
mod world;
