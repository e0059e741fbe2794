//! API servers that say what they are told to say, over the bytes of HTTP and without a socket, for tests of
//! informers under paused time; and eight servers that informers were seen to fail on.
//!
//! A crate of its own, so that this project's informer and its peers are run against the very same servers
//! (`benches/peers`).

mod script;
mod servers;

pub use script::*;
pub use servers::{Follower, Report, SERVERS, Seen, Server, Verdict, observe};
