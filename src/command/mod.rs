//! The command line.

mod client;
mod gateway;
mod line;
mod run;
mod trigger;
mod uninstall;

pub use line::{command, main};
