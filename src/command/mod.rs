//! The command line.

mod client;
mod gateway;
mod line;
mod run;
mod uninstall;

pub use line::{command, main};
