//! The program `kubectl-reeve`: the debug pages of a running program in a terminal.
//!
//! The crate is a program. Its items serve its binary and the tool that writes its completions and manual page, and
//! may change in any version.
//!
//! 1. [`command`] is the command line; `kubectl.rs` finds the Pods and forwards a port of each;
//! 2. `pages.rs` gets the reports, `report.rs` reads them and skips unknown fields, so that program and plugin may
//!    have different versions;
//! 3. `view.rs` makes lines of the reports, `table.rs` aligns them, `run.rs` prints them.

mod command;
mod error;
mod kubectl;
mod pages;
mod report;
mod run;
mod table;
mod view;

pub use command::command;
pub use run::main;
