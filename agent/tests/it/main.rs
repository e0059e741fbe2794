//! The agent in network namespaces: real packets, Debian's `nft` as a witness, and the program as a process.

#![cfg(target_os = "linux")]

mod edge;
mod kernel;
mod namespace;
mod operator;
mod process;
mod repair;
mod server;
mod whole;
