//! Engines that follow a whole set: what they block is one [`Desired`] set, and each keeps to it by itself.
//!
//! ```text
//! blocks ─ calls of engines ─▶ Desired ─┬▶ follower ─▶ set engine ─▶ readers, kernels, policies
//! lists ──────────────────────▶         ├▶ follower ─▶ set engine
//!                                       ▼
//!                              confirmation of each ban and lift
//! ```
//!
//! The element engines of [`crate::engine`] are called for each block and record an intent first. A set engine needs
//! none: it owns its whole set, so the difference of its own list and the desired set is what it adds and removes, also
//! after a crash. Until every block was read no follower does anything: an empty set would lift all bans.
//!
//! # Files
//! [`set`] is the persistent set, [`desired`] the union of its sources, `select` which part an engine takes, `follower`
//! the task of one engine, [`Sets`] all of them, `serve` the listeners. [`definition`] reads the configuration.
//!
//! # When something fails
//! A batch that fails is tried again with growing delays, after the engine's own list was read; a ban or lift that waits
//! for it fails with the engine's error, and its block is tried again. A target that an engine cannot express, or that
//! is beyond its limit, is counted, and the status of its block says so.

mod access;
mod crowdsec;
pub mod definition;
mod definition_error;
pub mod desired;
mod follower;
mod freshness;
mod kind;
mod lifted;
mod list;
mod metrics;
mod objects;
mod registry;
mod runnables;
mod select;
mod serve;
pub mod set;

pub use access::Access;
pub use definition::{Definition, DefinitionError, RawEngine};
pub use desired::{Desired, Group, Source};
pub(crate) use follower::Share;
pub use kind::{Capabilities, Change, Error, SetEngine};
#[cfg(test)]
pub(crate) use metrics::Counts;
pub use metrics::Metrics;
pub(crate) use objects::clear;
#[cfg(test)]
pub(crate) use objects::tests::install;
pub use objects::{Keeper, Plugin, Settings as ObjectSettings};
pub use registry::{Dependencies, Sets};
pub use select::{Selection, select};
pub use set::{Entry, TargetSet, Until};
