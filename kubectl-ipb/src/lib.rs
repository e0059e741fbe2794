//! The program `kubectl-ipb`: bans of the IPBlock operator from the command line.
//!
//! The crate is a program. Its items serve its binary and the tool that writes its completions and manual page, and
//! may change in any version.
//!
//! 1. [`command`] is the command line; `cluster.rs` connects, reads and writes blocks, and makes errors that name what
//!    is missing;
//! 2. each command has a file of its name; what a command decides is a pure function (`request.rs` for a ban,
//!    `import/read.rs` for files, `ipblock_operator::why` for questions);
//! 3. `print.rs` aligns columns and writes the formats of `-o`.

mod again;
mod already;
mod ban;
mod check;
mod cluster;
mod command;
mod complete;
mod error;
mod exit;
mod export;
mod import;
mod list;
mod lists;
mod print;
mod request;
mod rules;
mod run;
mod top;
mod unban;
mod why;

pub use command::command;
pub use run::main;
