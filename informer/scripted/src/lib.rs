//! Scripted API servers, over the bytes of HTTP and without a socket, for tests of informers under paused time. Eight
//! of them are servers that informers fail on.
//!
//! A crate of its own, so that the informer of this project and its peers run against the same servers
//! (`benches/peers`).

mod script;
mod servers;

pub use script::*;
pub use servers::{Follower, Report, SERVERS, Seen, Server, Verdict, observe};
