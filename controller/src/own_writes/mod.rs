//! The writes of this process, and the caches that have to show them.
//!
//! A reconcile that follows its own write must not decide on a cache from before it. So the client records each write
//! ([`Notes`]) with the effect in its answer ([`Effect`]), and a key or a read waits until the caches show it.

pub(crate) mod asking;
mod cached;
mod client;
#[cfg(test)]
mod client_tests;
pub(crate) mod effect;
mod lost;
mod outline;
mod sweep;
pub(crate) mod tracker;

pub(crate) use cached::Reading;
pub use cached::{Cached, CachedError, DEFAULT_WAIT};
pub use client::Client;
